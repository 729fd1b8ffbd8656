"""The simulated fleet: every detector on the days of the scenario registry.

Leadline judges all signals of a day and must say the right kind about the right pool. A peer is
given the one signal that shows the incident, with its limit: of memory the containers' working set.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.detect_arena import OURS
from benchmarks.peers.peer import HOUR, IntArray, Peer, View
from benchmarks.peers.registry import PEERS
from catalog.panel import FloatArray, Panel
from detectors.drift.judge import NEEDED, Limits, judge
from simulator.scenario import SCENARIOS
from simulator.table import EPOCH, KNOWN, panels
from simulator.truth import Scenario

JUDGED: Final = ("leak", "falling", "creep", "rollout", "straggler")
"""Kinds of finding that the detectors give which take part."""
SLA: Final = {"tpot_mean": 0.020, "ttft_mean": 2.5}
HISTORY: Final = 60 * HOUR
LONGEST: Final = 12 * HOUR  # after the start, where no breach comes before
SEVERITIES: Final = ("page", "ticket")  # what somebody is asked to read


def names(size: str) -> list[str]:
    """Return the scenarios of a run of some size."""
    if size == "tiny":
        return []
    if size == "quick":
        return ["leak", "acceptance", "warm_up"]
    return [n for n, s in SCENARIOS.items() if s.negative or s.kind in JUDGED]


@dataclass(frozen=True)
class Row:
    """One day: a cell for every detector, Leadline first, and the seconds of CPU it took."""

    name: str
    cells: list[str]
    cpu: float


def day(name: str, peers: Sequence[str], seed: int) -> Row:
    """Return what every detector says about the scenario *name*."""
    before = time.process_time()
    known = {peer.name: peer for peer in PEERS}
    cells = _day(SCENARIOS[name], [known[peer] for peer in peers], seed)
    print(f"scenario {name}: {cells[0]}", file=sys.stderr, flush=True)
    return Row(name, cells, time.process_time() - before)


def report(
    chosen: Sequence[str], peers: Sequence[str], rows: Sequence[Row], seed: int
) -> list[str]:
    """Return the sections of the results about the scenarios *chosen*."""
    head = ("scenario", "kind", OURS, *peers)
    found = [[row.name, SCENARIOS[row.name].kind, *row.cells] for row in rows]
    incidents = [row for row in found if not SCENARIOS[row[0]].negative]
    quiet = [[row[0], *row[2:]] for row in found if SCENARIOS[row[0]].negative]
    out = []
    left = len(names("full")) - len(chosen)
    some = f" {left} scenarios were left out of this run." if left > 0 and chosen else ""
    if incidents:
        out.append(_INCIDENTS + f" Seed {seed}.{some}\n\n" + _table(head, incidents))
    if quiet:
        out.append(_QUIET + f" Seed {seed}.\n\n" + _table((head[0], *head[2:]), quiet))
    return out


_INCIDENTS: Final = (
    "## Incidents of the simulated fleet\n\nHours from the start until it fires; `before`: it "
    "fired already before the start, so it says nothing; `-`: not until the breach or 12 h after "
    "the start; empty: it has no such signal. Asked every hour, at published settings. Leadline "
    "judges all signals and must say the right kind about the right pool; a peer is given the one "
    "signal that shows the incident, with its limit, and fires if any series of the pool does."
)
_QUIET: Final = (
    "## Quiet days of the simulated fleet\n\nMoments of six in a day at which it fires: for "
    "Leadline any page or ticket about any signal, for a peer the one signal that looks as if."
)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


def _moments(day: Scenario) -> FloatArray:
    """Return when to judge, seconds from the end of history."""
    if day.negative:
        return np.arange(-20 * HOUR, 1, 4 * HOUR)
    begin = max(day.start, -HISTORY + 30 * HOUR)
    after = begin + LONGEST
    if day.breach is not None and day.breach > begin:
        after = min(after, day.breach)
    return np.concatenate([begin - HOUR * np.array([6, 3, 0]), np.arange(begin, after, HOUR)[1:]])


def _day(day: Scenario, peers: Sequence[Peer], seed: int) -> list[str]:
    """Return the cell of every detector about one day."""
    at = _moments(day)
    signals = {*NEEDED, *({day.signal} & set(KNOWN))} & set(KNOWN)
    until = max(0.0, float(at[-1]))
    made = panels(day.name, seed=seed, span=HISTORY, until=until, signals=signals)
    cells = [_cell(day, at, _ours(day, made, at))]
    view = _view(day, made, at)
    for peer in peers:
        if view is None:
            cells.append("")
            continue
        fires = peer.run(view, (peer.default,)).fires[0].any(axis=0)
        cells.append(_cell(day, at, fires))
    return cells


def _ours(day: Scenario, made: Mapping[str, Panel], at: FloatArray) -> IntArray:
    out = np.zeros(len(at), dtype=np.int64)
    for i, moment in enumerate(at):
        known = {name: panel.until(EPOCH + moment) for name, panel in made.items()}
        said = [f for f in judge(known, Limits(SLA), as_of=EPOCH + moment) if f.state == "firing"]
        out[i] = any(
            f.severity in SEVERITIES
            if day.negative
            else f.kind == day.kind and f.labels.get("pool", day.pool) == day.pool
            for f in said
        )
    return out


def _view(day: Scenario, made: Mapping[str, Panel], at: FloatArray) -> View | None:
    """Return what a peer is given: rising towards trouble, of the pool in question."""
    memory = day.signal == "host_anon_swap" and "container_working_set" in made
    panel = made.get("container_working_set" if memory else day.signal)
    if panel is None:
        return None
    rows = [i for i, la in enumerate(panel.labels) if la.get("pool", day.pool) == day.pool]
    panel = panel.rows(rows or range(len(panel.labels)))
    values = panel.values
    if panel.trials is not None:
        with np.errstate(invalid="ignore", divide="ignore"):
            values = values / panel.trials
    if day.kind == "falling" or "hit" in day.signal or "clock" in day.signal:
        values = 2 * np.nanmedian(values, axis=1, keepdims=True) - values
    if not np.isfinite(values).any():
        return None
    limit = _limit(day, made, memory=memory)
    looks = np.searchsorted(panel.times, EPOCH + at, side="right")
    return View(values, panel.step, looks, limit)


def _limit(day: Scenario, made: Mapping[str, Panel], *, memory: bool) -> float:
    if memory and "container_limit" in made:
        limits = made["container_limit"]
        rows = [i for i, la in enumerate(limits.labels) if la.get("pool", day.pool) == day.pool]
        if rows:
            return float(np.nanmedian(limits.values[rows]))
    return SLA.get(day.signal, float("nan"))


def _cell(day: Scenario, at: FloatArray, fires: IntArray) -> str:
    if day.negative:
        return str(int(np.count_nonzero(fires)))
    early = at <= max(day.start, -HISTORY + 30 * HOUR)
    if fires[early].any():
        return "before"
    late = np.flatnonzero(fires)
    return f"{(at[late[0]] - max(day.start, at[0])) / HOUR:.0f}" if len(late) else "-"
