"""Straggler: one server, rank or GPU that is unlike its peers at the same load.

Each reading, told from its load, is compared with the median of its peers over the last three
hours. With four and more the odd one lies beyond 3.5 robust deviations of all (modified z-score:
Iglewicz and Hoaglin, "How to Detect and Handle Outliers", 1993, section 3); with three the two
others must agree; with two one differs, and which of them is only said where its own past tells.
It must be so in five of six half hours: were peers exchangeable, that would be chance in one of
n^4. Null: noise, loads, roles and ages that differ, what all share, a spread that is usual between
them. Smallest effects: 10 % of TPOT and ITL, 20 % of TTFT, 5 % of clock, 15 % of power, 8 degrees,
10 % of GPU memory, 25 % of private host memory.
Silent where there is no peer, the load isn't known, or no other peer has such a load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from catalog.panel import FloatArray, Labels, Panel
from catalog.signals import SIGNALS as CATALOGUE
from catalog.units import human, human_duration
from detectors.drift.buckets import BoolArray, IntArray
from detectors.drift.context import Z90, LimitsLike, where
from detectors.drift.coverage import POOL_LABELS, STALE_STEPS
from detectors.drift.straggler_peers import (
    Peers,
    Place,
    Reading,
    groups,
    newest_starts,
    peers,
    pools_of_nodes,
)
from detectors.finding import Finding, finding_id

NAME = "straggler"
READINGS: tuple[Reading, ...] = (
    Reading("tpot_mean_by_server", 1, math.log(1.10), "own"),
    Reading("itl_mean_by_server", 1, math.log(1.10), "own"),
    Reading("ttft_mean_by_server", 1, math.log(1.20), "own"),
    Reading("gpu_sm_clock", -1, -math.log(0.95), "gpu_utilization"),
    Reading("gpu_power", 0, math.log(1.15), "gpu_utilization"),
    Reading("gpu_temperature", 1, 8.0, "gpu_utilization", absolute=True),
    Reading("gpu_memory_used", 0, math.log(1.10)),
    Reading("host_anon_swap", 1, math.log(1.25), young=6 * 3600.0),
)
SIGNALS: tuple[str, ...] = tuple(reading.signal for reading in READINGS)
RECENT = 3 * 3600.0  # seconds that are judged
BLOCKS = 6  # parts of them,
AGREE = 5  # of which as many must show it
KNOWN = 2 / 3  # of the recent bins must be known
BEYOND = 3.5  # robust deviations of the peers
SURE = 4.0  # standard errors
TICKET = 0.20  # an effect that is more than a note
POINTS = 12  # the screen looks at, of each series


@dataclass(frozen=True)
class _Odd:
    """One peer unlike the others; `row` is None where it can't be told which."""

    row: int | None
    other: int | None
    size: float
    error: float
    apart: FloatArray  # difference in each bin
    group: Peers


def find_stragglers(panels: Mapping[str, Panel], limits: LimitsLike, as_of: float) -> list[Finding]:  # noqa: ARG001
    """Return what is unlike its peers at *as_of*."""
    known = {name: panel.until(as_of) for name, panel in panels.items()}
    out: list[Finding] = []
    pools: dict[tuple[str, str], Place] | None = None
    starts: dict[tuple[str, str], float] | None = None
    for reading in READINGS:
        panel = known.get(reading.signal)
        if panel is None or len(panel.times) < 2 or len(panel.labels) < 2:
            continue
        if as_of - panel.times[-1] > STALE_STEPS * panel.step:
            continue
        if pools is None and "gpu" in panel.labels[0]:  # what else has a pool has its label
            pools = pools_of_nodes(known)
        levels = _levels(reading, panel)
        for place, rows in groups(panel, pools or {}):
            if not _apart(levels[rows], reading):
                continue
            starts = newest_starts(known) if starts is None else starts
            group = peers(reading, panel, rows, _load(reading, panel, rows, known), starts)
            if group is not None:
                out += [_finding(reading, panel, odd, place) for odd in _odd(reading, group)]
    return out


def _levels(reading: Reading, panel: Panel) -> FloatArray:
    """Return the recent level of each series: a few points, for the screen."""
    every = max(1, round(RECENT / POINTS / panel.step))
    some = panel.values[:, ::-1][:, : POINTS * every : every]
    known = np.isfinite(some) & ((some > 0) | reading.absolute)
    filled = np.where(known, some, 1.0)
    y = filled if reading.absolute else np.log(filled)
    count = known.sum(axis=1)
    mean = np.where(known, y, 0.0).sum(axis=1) / np.maximum(count, 1)
    return np.where(count > 0, mean, np.nan)


def _apart(levels: FloatArray, reading: Reading) -> bool:
    """Whether levels lie far enough apart to be looked at; load may yet hide or make it."""
    levels = levels[np.isfinite(levels)]
    return len(levels) > 1 and float(np.ptp(levels)) > reading.worth / 2


def _load(
    reading: Reading, panel: Panel, rows: list[int], panels: Mapping[str, Panel]
) -> FloatArray | None:
    """Return the load of each of *rows*; None where it isn't known."""
    if reading.load in {"", "own"}:
        return None if panel.load is None else panel.load[rows]
    other = panels.get(reading.load)
    if other is None or other.values.shape[1:] != panel.values.shape[1:]:
        return None
    at = {frozenset(labels.items()): row for row, labels in enumerate(other.labels)}
    found = [at.get(frozenset(panel.labels[row].items())) for row in rows]
    nothing = np.full(len(panel.times), np.nan)
    return np.stack([nothing if row is None else other.values[row] for row in found])


def _odd(reading: Reading, group: Peers) -> list[_Odd]:
    """Return the peers of one group that are unlike the others."""
    recent = group.times > group.times[-1] - RECENT
    enough = np.isfinite(group.rest[:, recent]).sum(axis=1) >= KNOWN * recent.sum()
    usable = np.flatnonzero(enough)
    if len(usable) < 2 or recent.sum() < BLOCKS:
        return []
    rest = group.rest[usable]
    if len(usable) == 2:
        return _of_two(reading, group, usable, rest, recent)
    apart = np.stack([rest[i] - _median(np.delete(rest, i, axis=0)) for i in range(len(rest))])
    sizes = _median(apart[:, recent].T)
    levels = _median(rest[:, recent].T)
    out = []
    for i, size in enumerate(sizes):
        others = np.delete(levels, i)
        spread = np.abs(others - np.median(others))
        usual = 1.483 * float(np.median(np.abs(levels - np.median(levels))))
        like = usual * BEYOND if len(levels) > 3 else 2 * float(spread.max())
        error = _error(apart[i, recent])
        if abs(size) >= like and _persists(reading, apart[i, recent], float(size), error):
            out.append(_Odd(int(usable[i]), None, float(size), error, apart[i], group))
    return out


def _of_two(
    reading: Reading, group: Peers, usable: IntArray, rest: FloatArray, recent: BoolArray
) -> list[_Odd]:
    """Return which of two is odd, as far as its own past tells."""
    between = rest[0] - rest[1]
    size = float(_median(between[recent][:, None].T)[0])
    error = _error(between[recent])
    either = Reading(reading.signal, 0, reading.worth)
    if not _persists(either, between[recent], size, error):
        return []
    alike = np.abs(between) < reading.worth / 2
    row: int | None = None
    if alike.sum() >= 2 * BLOCKS:
        moved = [
            float(_median(one[recent][None, :])[0] - _median(one[alike][None, :])[0])
            for one in rest
        ]
        first = abs(moved[0]) >= abs(moved[1])
        small, large = sorted(np.abs(moved))
        own = moved[0] if first else moved[1]
        if large >= 2 / 3 * abs(size) and small < large / 2:
            if reading.bad and own * reading.bad < 0:
                return []  # it became better than the other
            row = 0 if first else 1
    if row == 1:
        between, size = -between, -size
    if row is None and size * (reading.bad or 1) < 0:  # the worse one first
        usable, between, size = usable[::-1], -between, -size
    a, b = (int(i) for i in usable)
    if row is None:
        return [_Odd(None, a, size, error, between, _swapped(group, a, b))]
    return [_Odd(a if row == 0 else b, None, size, error, between, group)]


def _swapped(group: Peers, a: int, b: int) -> Peers:
    return Peers(
        (group.rows[a], group.rows[b]), group.times, group.raw[[a, b]], group.rest[[a, b]]
    )  # fmt: skip


def _persists(reading: Reading, apart: FloatArray, size: float, error: float) -> bool:
    """Whether a difference is bad, large, sure, and there nearly all the time."""
    sign = reading.bad or math.copysign(1.0, size)
    if size * sign < reading.worth or abs(size) < SURE * error:
        return False
    blocks = np.array([_median(one[None, :])[0] for one in np.array_split(apart, BLOCKS)])
    shows = sign * blocks >= reading.worth / 2
    return bool(shows.sum() >= AGREE and (shows[-1] or not np.isfinite(blocks[-1])))


def _error(apart: FloatArray) -> float:
    """Return the standard error of a difference by the means of its blocks."""
    blocks = np.array([_median(one[None, :])[0] for one in np.array_split(apart, BLOCKS)])
    known = blocks[np.isfinite(blocks)]
    return float(np.std(known, ddof=1) / math.sqrt(len(known))) if len(known) > 1 else math.inf


def _median(values: FloatArray) -> FloatArray:
    """Return the medians over the first axis of rows, NaN left out; of (m, n): n of them.

    One row (1, n) is taken as n values of one thing: one median.
    """
    if values.shape[0] == 1:
        values = values.T
    ordered = np.sort(values, axis=0)
    count = np.isfinite(ordered).sum(axis=0)
    columns = np.arange(ordered.shape[1])
    low, high = (np.maximum(count - 1, 0)) // 2, np.maximum(count, 1) // 2
    middle = (ordered[low, columns] + ordered[high, columns]) / 2
    return np.where(count > 0, middle, np.nan)


def _finding(reading: Reading, panel: Panel, odd: _Odd, place: Place) -> Finding:
    """Return the finding about one that is unlike its peers, or about two that differ."""
    group = odd.group
    index = 0 if odd.row is None else odd.row
    own = dict(panel.labels[group.rows[index]])
    labels = {**dict(place), **(own if odd.row is not None else _pool_of(panel, group))}
    signal = reading.signal
    ends = (odd.size + sign * Z90 * odd.error for sign in (-1, 0, 1))
    low, effect, high = (one if reading.absolute else math.expm1(one) for one in ends)
    since = _since(reading, odd)
    others = [_named(panel.labels[row]) for row in group.rows if row != group.rows[index]]
    return Finding(
        id=finding_id(NAME, signal, labels, 0.0),
        kind="straggler",
        verdict="unknown" if odd.row is None else "fault",
        detector=NAME,
        signal=signal,
        labels=labels,
        as_of=float(panel.times[-1]),
        since=since,
        effect=effect,
        effect_low=low,
        effect_high=high,
        effect_unit=CATALOGUE[signal].unit if reading.absolute else "ratio",
        state="firing",
        cause=_cause(reading, own, others, odd, effect, since, float(panel.times[-1])),
        evidence=_evidence(
            reading, odd, index, _named(own), others, float(panel.times[-1]) - since
        ),
        runbook="LeadlineStraggler",
    )


def _pool_of(panel: Panel, group: Peers) -> Labels:
    """Return what the two have in common."""
    a, b = (panel.labels[row] for row in group.rows[:2])
    keep = (*POOL_LABELS, "process", "node")
    return {name: value for name, value in a.items() if name in keep and b.get(name) == value}


def _named(labels: Labels) -> str:
    """Return the short name of a peer: its server, rank or GPU."""
    if "gpu" in labels:
        return f"GPU {labels['gpu']} of {labels.get('node', 'its node')}"
    place = labels.get("server") or where(labels)
    if not labels.get("process"):
        return place
    return f"{' '.join(filter(None, (labels['process'], labels.get('rank'))))} of {place}"


def _since(reading: Reading, odd: _Odd) -> float:
    """Return when the difference began: after the last half hour without it, if that is known."""
    sign = math.copysign(1.0, odd.size)
    without = sign * odd.apart < reading.worth / 2
    pairs = np.flatnonzero(without[1:] & without[:-1])
    times = odd.group.times
    first = int(pairs[-1]) + 2 if len(pairs) else int(np.isfinite(odd.apart).argmax())
    return float(times[min(first, len(times) - 1)])


def _evidence(
    reading: Reading, odd: _Odd, index: int, name: str, others: list[str], seen: float
) -> dict[str, object]:
    """Return what a person needs to check the finding: the odd one, and where its peers are."""
    raw = odd.group.raw[index]
    expected = raw - odd.apart if reading.absolute else raw * np.exp(-odd.apart)
    known = np.isfinite(raw) & np.isfinite(expected)
    line = expected[known]
    smooth = np.convolve(np.pad(line, 2, mode="edge"), np.ones(5) / 5, mode="valid")
    effect = odd.size if reading.absolute else math.expm1(odd.size)
    grave = abs(effect) >= TICKET and not reading.absolute
    return {
        "fit": {
            "t": [round(float(t), 1) for t in odd.group.times[known]],
            "y": [float(f"{y:.6g}") for y in raw[known]],
            "line": [float(f"{y:.6g}") for y in smooth],
        },
        "odd": name if odd.row is not None else None,
        "between": None if odd.row is not None else [name, *others],
        "peers": len(odd.group.rows) - 1,
        "load": reading.load or "none",
        "seen_seconds": seen,
        "points": int(known.sum()),
        "severity_without_breach": "ticket" if grave else "report",
    }


def _cause(
    reading: Reading,
    own: Labels,
    others: list[str],
    odd: _Odd,
    effect: float,
    since: float,
    now: float,
) -> str:
    """Return one sentence for the person on call."""
    title = CATALOGUE[reading.signal].title
    by = (
        human(abs(effect), CATALOGUE[reading.signal].unit)
        if reading.absolute
        else f"{abs(effect):.0%}"
    )
    way = "above" if odd.size > 0 else "below"
    load = " at the same load" if reading.load else ""
    how = f"{title} of {_named(own)} is {by} {way}"
    span = human_duration(now - since)
    if odd.row is None:
        return (
            f"{how} that of {others[0]}{load}, for {span} or more: one of the two is unlike the "
            "other, and their past does not tell which."
        ).replace("%", " %")
    return (f"{how} its {len(others)} peer{'s'[: len(others) != 1]}{load}, for {span}.").replace(
        "%", " %"
    )
