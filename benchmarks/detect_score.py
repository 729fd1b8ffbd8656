"""How early and how quiet: every case on every series, judged moment after moment, then counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from scipy import stats

from benchmarks.detect_cases import Case, Injected
from benchmarks.detect_real import LIMIT, ORIGIN, Hosts
from catalog.panel import FloatArray, Panel
from detectors.drift.judge import Limits, graded
from detectors.drift.live import LeakReplay
from detectors.finding import Finding
from detectors.hold import stands

WEEK = 7 * 86_400.0
COOL_DOWN = 86_400.0  # one episode a day and series, as in the pilot
WARM_UP = 2 * 86_400.0  # nothing is counted before this
MENDED = 6 * 3600.0  # after this time, who still fires about a leak that was mended is wrong
LIMITS = Limits({"host_anon_swap": LIMIT})
Look = Callable[[int], Sequence[Finding]]


@dataclass
class Told:
    """What was said about the series of one case: moment, row in the case, finding."""

    case: Case
    made: Injected
    step: float
    looks: list[int] = field(default_factory=list)
    said: list[tuple[int, int, Finding]] = field(default_factory=list)


def panel_of(hosts: Hosts, cases: Sequence[Case], seed: int) -> tuple[Panel, list[Told], list[int]]:
    """Return one panel of all cases, what they are, and the first row of each."""
    told, first, labels = [], [], []
    row = 0
    for case in cases:
        # Each case has a seed of its own, so that adding one changes no other.
        rng = np.random.default_rng([seed, *case.name.encode()])
        made = case.make(hosts, rng)
        told.append(Told(case, made, hosts.step))
        first.append(row)
        for i in range(len(made.values)):
            pool = f"{case.name} {i // made.group}"
            labels.append({"deployment": pool, "server": f"s{row}", "node": f"n{row}"})
            row += 1
    values = np.concatenate([t.made.values for t in told])
    parts = {
        name: None if all(getattr(t.made, name) is None for t in told) else np.concatenate(
            [_or_nan(getattr(t.made, name), t.made.values) for t in told])
        for name in ("load", "starts")
    }  # fmt: skip
    times = ORIGIN + hosts.step * np.arange(values.shape[1], dtype=np.float64)
    return Panel("host_anon_swap", times, values, tuple(labels), **parts), told, first


def _or_nan(values: FloatArray | None, like: FloatArray) -> FloatArray:
    return np.full(like.shape, np.nan) if values is None else values


def moments(points: int, step: float, every: float) -> Iterator[int]:
    """Yield the numbers of known points at which to judge, from the second day on."""
    stride = max(1, round(every * 3600 / step))
    yield from range(round(WARM_UP / step), points + 1, stride)


def collect(
    panel: Panel,
    told: list[Told],
    first: list[int],
    every: float,
    history: float,
    look: Look | None = None,
) -> None:
    """Judge *panel* at every moment and share the findings out to their cases.

    Args:
        panel: All cases (`panel_of`).
        told: What is filled in, case by case.
        first: The first row of each case.
        every: Hours between judgements.
        history: Seconds that a judgement looks back on.
        look: Who judges, given the number of known points; None is Leadline's leak detector, its
            findings held as the service holds them.
    """
    if look is None:
        replay = LeakReplay(panel, history)
        look = Held(partial(replay.at, panels={}, limits=LIMITS), panel)
    owner = np.searchsorted(first, np.arange(len(panel.labels)), side="right") - 1
    for end in moments(len(panel.times), panel.step, every):
        for one in told:
            one.looks.append(end)
        for finding in look(end):
            row = int(finding.labels["server"][1:])
            case = int(owner[row])
            told[case].said.append((end, row - first[case], graded(finding)))


class Held:
    """Judges as the service shows it: what fired stands for a while (`detectors.hold`)."""

    def __init__(self, look: Look, panel: Panel) -> None:
        """Hold what *look* finds on *panel*."""
        self._look = look
        self._panel = panel
        self._fired: dict[str, tuple[float, Finding]] = {}

    def __call__(self, end: int) -> list[Finding]:
        """Return the findings when *end* points are known."""
        at = float(self._panel.times[end - 1])
        found = {finding.labels["server"]: finding for finding in self._look(end)}
        self._fired |= {s: (at, f) for s, f in found.items() if f.state == "firing"}
        for server, (last, fired) in list(self._fired.items()):
            if last == at:
                continue
            now = found.get(server)
            same = self._started(server, end) <= last if now is None else now.id == fired.id
            if same and stands(last if fired.since is None else fired.since, last, now, at):
                found[server] = replace(now or _later(fired, at - last), state="firing")
            else:
                del self._fired[server]
        return list(found.values())

    def _started(self, server: str, end: int) -> float:
        starts = self._panel.starts
        row = int(server[1:])
        return -np.inf if starts is None or np.isnan(s := starts[row, end - 1]) else float(s)


def _later(fired: Finding, gone: float) -> Finding:
    """Return a finding with the seconds that are *gone* taken off what was left."""

    def less(left: float | None) -> float | None:
        return None if left is None else max(left - gone, 0.0)

    return replace(
        fired,
        as_of=fired.as_of + gone,
        time_to_breach=less(fired.time_to_breach),
        time_to_breach_low=less(fired.time_to_breach_low),
        time_to_breach_high=less(fired.time_to_breach_high),
    )


@dataclass(frozen=True)
class Rate:
    """False-alarm episodes over series-weeks, with the 95 % upper bound (exact Poisson)."""

    episodes: int
    pages: int
    weeks: float

    @property
    def bound(self) -> float:
        """Upper 95 % bound of the rate."""
        return float(stats.chi2.ppf(0.95, 2 * (self.episodes + 1)) / 2 / self.weeks)


def false_alarms(told: Told) -> Rate:
    """Return the episodes of what fired about a series that does not leak, or no longer."""
    last = np.full(len(told.made.values), -np.inf)
    episodes = pages = 0
    grace = MENDED / told.step
    for end, row, finding in told.said:
        leaks = told.made.onset[row] <= end < told.made.fixed[row] + grace and told.case.leak
        if finding.state != "firing" or leaks:
            continue
        if (end - last[row]) * told.step >= COOL_DOWN:
            episodes += 1
            pages += finding.severity == "page"
            last[row] = end
    span = (told.looks[-1] - told.looks[0]) * told.step
    before = np.minimum(told.made.onset, told.looks[-1]) - told.looks[0]
    weeks = before.sum() * told.step / WEEK if told.case.leak else len(last) * span / WEEK
    return Rate(episodes, pages, max(float(weeks), 1e-9))


@dataclass(frozen=True)
class Caught:
    """First firing before the breach: (s,) share of the way left, hours of lead, NaN if missed."""

    lead: FloatArray
    share: FloatArray

    @property
    def recall(self) -> float:
        """Share of leaks that fired before the breach."""
        return float(np.isfinite(self.lead).mean())


def caught(told: Told) -> Caught:
    """Return lead in hours and as a share of onset to breach, of every leak of the case."""
    made = told.made
    rows = np.flatnonzero(np.isfinite(made.onset))
    first = np.full(len(made.values), np.nan)
    stop = np.minimum(made.breach, made.fixed)
    for end, row, finding in told.said:
        if finding.state == "firing" and made.onset[row] < end < stop[row] and np.isnan(first[row]):
            first[row] = end
    lead = (stop - first)[rows] * told.step / 3600
    return Caught(lead, (stop - first)[rows] / (stop - made.onset)[rows])


@dataclass(frozen=True)
class Intervals:
    """Of firing findings about a leak: how often the interval held the truth, and how wide."""

    count: int
    cover: float
    width: float
    error: float


def intervals(told: Sequence[Told], every: int = 1) -> Intervals:
    """Return coverage, median relative width and median relative error of the time to breach.

    The truth is the instant at which the leak, by its own rate, adds what was free at the start.
    """
    inside, width, error = [], [], []
    for one in told:
        for end, row, f in one.said[::every]:
            breach = one.made.breach[row]
            if f.state != "firing" or not one.made.onset[row] < end < breach < np.inf:
                continue
            if f.time_to_breach is None or f.time_to_breach_low is None:
                continue
            high = np.inf if f.time_to_breach_high is None else f.time_to_breach_high
            left = breach * one.step - (end - 1) * one.step
            inside.append(f.time_to_breach_low <= left <= high)
            width.append((high - f.time_to_breach_low) / max(f.time_to_breach, one.step))
            error.append(abs(f.time_to_breach - left) / left)
    if not inside:
        return Intervals(0, float("nan"), float("nan"), float("nan"))
    return Intervals(
        len(inside), float(np.mean(inside)), float(np.median(width)), float(np.median(error))
    )


def steady(told: Told) -> float:
    """Return the share of judgements, from the first firing to the breach, that fire as well."""
    fired: dict[int, list[int]] = {}
    stop = np.minimum(told.made.breach, told.made.fixed)
    for end, row, finding in told.said:
        if finding.state == "firing" and told.made.onset[row] < end < stop[row]:
            fired.setdefault(row, []).append(end)
    shares = [
        len(ends) / sum(min(ends) <= look < stop[row] for look in told.looks)
        for row, ends in fired.items()
    ]
    return float(np.mean(shares)) if shares else float("nan")
