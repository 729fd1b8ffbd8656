"""One run for all: the same series, the same moments, every detector; what fired is kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.detect_cases import Case, Injected
from benchmarks.detect_real import LIMIT, START, Hosts
from benchmarks.detect_score import Told, collect, moments, panel_of
from benchmarks.detect_series import GIB
from benchmarks.peers.peer import Answer, BoolArray, Peer, View
from catalog.panel import FloatArray

OURS = "Leadline"
WEEK = 7 * 86_400.0
SETS = ("alibaba", "asd")
"""Real sets that take part: events are put into the first, the other is judged as it is."""


@dataclass(frozen=True)
class Heard:
    """What one detector said about one case.

    Attributes:
        made: The truth of the series that it was asked about, without their values.
        case: What they are.
        step: Seconds a point.
        looks: (m,) points known at each moment.
        fires: (settings, s, m).
        interval: (3, s, m) or None: seconds to the limit and the ends of the 90 % interval.
        verdicts: (s, m) the verdict that was said, or "" for nothing; None who gives none.
        cpu: Seconds of CPU.
    """

    made: Injected
    case: Case
    step: float
    looks: FloatArray
    fires: BoolArray
    interval: FloatArray | None = None
    verdicts: tuple[tuple[str, ...], ...] | None = None
    cpu: float = 0.0

    @property
    def judged(self) -> int:
        """How often a series was judged."""
        return int(self.fires.shape[1] * self.fires.shape[2])


def seeded(series: int, seed: int, days: float = 8.0) -> Hosts:
    """Return quiet noise that needs no data: AR(.8) by the minute and a slow wander of 1 GiB."""
    rng = np.random.default_rng([seed, 99])
    points = round(days * 1440)
    fast = _autoregressive(rng, series, points, 0.8)
    slow = _autoregressive(rng, series, points, 0.999)
    return Hosts("seeded noise", 60.0, GIB * (START + 0.3 * fast + slow))


def _autoregressive(rng: np.random.Generator, series: int, points: int, phi: float) -> FloatArray:
    shock: FloatArray = rng.normal(0, 1, (series, points))
    shock[:, 1:] *= np.sqrt(1 - phi**2)
    for i in range(1, points):
        shock[:, i] += phi * shock[:, i - 1]
    return shock


def sampled(hosts: Hosts, most: int) -> Hosts:
    """Return at most *most* series, evenly spread over those that there are."""
    if len(hosts.values) <= most:
        return hosts
    chosen = np.unique(np.linspace(0, len(hosts.values) - 1, most).round().astype(int))
    return replace(hosts, values=hosts.values[chosen])


def ours(hosts: Hosts, cases: Sequence[Case], seed: int, every: float, history: float
         ) -> list[Heard]:  # fmt: skip
    """Return what Leadline's leak detector says, one answer a case."""
    panel, told, first = panel_of(hosts, cases, seed)
    before = time.process_time()
    collect(panel, told, first, every, history)
    cpu = time.process_time() - before
    return [_heard(one, cpu * len(one.made.values) / len(panel.labels)) for one in told]


def _truth(made: Injected) -> Injected:
    """Return the truth alone: the values of all cases would take gigabytes."""
    return replace(made, values=made.values[:, :0], load=None, starts=None)


def _heard(told: Told, cpu: float) -> Heard:
    series, column = len(told.made.values), {end: i for i, end in enumerate(told.looks)}
    fires = np.zeros((1, series, len(column)), dtype=bool)
    interval = np.full((3, series, len(column)), np.nan)
    verdicts = [[""] * len(column) for _ in range(series)]
    for end, row, finding in told.said:
        i = column[end]
        verdicts[row][i] = finding.verdict
        if finding.state != "firing":
            continue
        fires[0, row, i] = True
        if finding.time_to_breach is not None and finding.time_to_breach_low is not None:
            high = finding.time_to_breach_high
            interval[:, row, i] = (
                finding.time_to_breach,
                finding.time_to_breach_low,
                np.inf if high is None else high,
            )
    looks = np.array(told.looks, dtype=np.float64)
    return Heard(_truth(told.made), told.case, told.step, looks, fires, interval,
                 tuple(tuple(row) for row in verdicts), cpu)  # fmt: skip


def theirs(peer: Peer, hosts: Hosts, cases: Sequence[Case], seed: int, every: float, most: int
           ) -> list[Heard]:  # fmt: skip
    """Return what *peer* says, one answer a case: about its first *most* series, 0 for all."""
    out = []
    for case in cases:
        made = first_of(case.make(hosts, np.random.default_rng([seed, *case.name.encode()])),
                        most)  # fmt: skip
        looks = np.array(list(moments(made.values.shape[1], hosts.step, every)))
        view = View(made.values, hosts.step, looks, LIMIT)
        before = time.process_time()
        answer: Answer = peer.run(view, peer.grid)
        cpu = time.process_time() - before
        out.append(Heard(_truth(made), case, hosts.step, looks.astype(np.float64), answer.fires,
                         answer.interval, cpu=cpu))  # fmt: skip
    return out


def first_of(made: Injected, most: int) -> Injected:
    """Return the first *most* series of *made*; all of them for 0."""
    if not most or len(made.values) <= most:
        return made
    return Injected(made.values[:most], made.onset[:most], made.breach[:most], made.fixed[:most],
                    None if made.load is None else made.load[:most],
                    None if made.starts is None else made.starts[:most], made.group)  # fmt: skip
