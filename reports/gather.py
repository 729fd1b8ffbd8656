"""Reads what a report is about: what is judged, then the other signals, then the span before."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from catalog.config import Config
from catalog.panel import Panel
from catalog.signal import Signal
from catalog.signals import SIGNALS
from detectors.drift.judge import NEEDED, judge
from detectors.finding import Finding
from reports import places, words
from reports.beside import Beside, Level, level
from reports.cards import container_limits
from reports.entry import Row, missing
from reports.places import Fleet, Place
from reports.rows import Context, row
from reports.trends import readings
from store.errors import StoreError, UnreachableError
from store.prometheus import PromStore

log = logging.getLogger("leadline.reports")

MOST_POINTS: Final = 10_081
"""Points per series: a week of minutes. Longer spans get a longer step."""
UNKNOWN_POOL: Final = "unknown"
GONE: Final = "no series in this span, though it had some in the span before"
Source = PromStore | Mapping[str, Panel]
Read = Callable[[Signal], Panel]
Progress = Callable[[str], None]
"""Is told what is done next, in a few words."""


@dataclass
class Soak:
    """What a report is made of, filled signal by signal.

    Attributes:
        start: First instant of the span.
        end: Last instant of the span.
        step: Seconds between two points.
        config: Limits and SLA.
        as_of: When the data ends.
        judged: Panels that the detectors read.
        findings: What they found.
        rows: Signal by signal and place by place.
        absent: Signals without any series, and why.
        fleet: The places seen.
        tops: Highest finite bucket bound by signal.
    """

    start: float
    end: float
    step: float
    config: Config
    as_of: float = math.nan
    judged: dict[str, Panel] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    absent: list[tuple[Signal, str]] = field(default_factory=list)
    fleet: Fleet = field(default_factory=Fleet)
    tops: dict[str, float | None] = field(default_factory=dict)

    @property
    def span(self) -> float:
        """Return the length of the span in seconds."""
        return self.end - self.start

    @property
    def before(self) -> float:
        """Return when the span before began: it is as long as this one."""
        return self.start - self.span


def gather(
    source: Source, config: Config, start: float, end: float, progress: Progress = lambda _: None
) -> Soak:
    """Read [start, end] and the span before; judge; return all that the report says.

    Other panels than those that are judged are let go one by one. *progress* is told each step.

    Raises:
        StoreError: Prometheus can't be reached, so that there is nothing to report on.
    """
    soak = Soak(start, end, _step(source, config.prometheus.step, end - start), config)
    shown = {signal.name for _, signal in places.shown()}
    total = len(shown.union(NEEDED))
    read = _counted(_reader(source, soak.start, soak.end, soak.step), "this span", total, progress)
    for name in NEEDED:
        if panel := _try(soak, SIGNALS[name], read, first=name == NEEDED[0]):
            soak.judged[name] = panel
    soak.as_of = _as_of(soak.judged, soak.end)
    known = {name: _of_known_pools(panel) for name, panel in soak.judged.items()}
    progress(f"judging {sum(len(panel.labels) for panel in known.values())} series")
    soak.findings = judge(known, soak.config, as_of=soak.as_of)
    for group, signal in places.shown():
        panel = soak.judged.get(signal.name)
        if panel is None and signal.name not in NEEDED:
            panel = _try(soak, signal, read, first=False)
        if panel is not None:
            soak.tops[signal.name] = _top(source, signal, soak.end)
            _rows(soak, group, signal, panel)
    _expected(soak)
    # Of two spans that touch, their common instant belongs to the later one.
    before = _reader(source, soak.before, soak.start - soak.step / 1000, soak.step)
    _beside(soak, _counted(before, "the span before", len(shown), progress))
    return soak


def _counted(read: Read, span: str, total: int, progress: Progress) -> Read:
    """Return *read*, which tells how many signals of *span* were read so far."""
    count = itertools.count(1)

    def told(signal: Signal) -> Panel:
        progress(f"reading signal {next(count)} of {total} of {span}")
        return read(signal)

    return told


def _step(source: Source, least: float, span: float) -> float:
    """Return the step: a table has its own, of Prometheus we ask no more points than we need."""
    if isinstance(source, PromStore):
        return least * max(1, math.ceil(span / MOST_POINTS / least))
    steps = [panel.step for panel in source.values() if panel.step > 0]
    return max(steps, default=least)


def _reader(source: Source, start: float, end: float, step: float) -> Read:
    def read(signal: Signal) -> Panel:
        if isinstance(source, PromStore):
            return source.panel(signal, start, end, step)
        panel = source.get(signal.name)
        if panel is None:
            raise StoreError("not in the data")
        return _between(panel, start, end)

    return read


def _between(panel: Panel, start: float, end: float) -> Panel:
    """Return the part of *panel* in [start, end]."""
    panel = panel.until(end)
    first = int(np.searchsorted(panel.times, start, side="left"))
    cut = {name: getattr(panel, name) for name in ("values", "load", "trials", "starts")}
    return replace(
        panel,
        times=panel.times[first:],
        **{name: array[:, first:] for name, array in cut.items() if array is not None},
    )


def _as_of(panels: Mapping[str, Panel], end: float) -> float:
    """Return the moment that is judged: when the data ends, for a soak may be over by now."""
    newest = []
    for panel in panels.values():
        known = np.flatnonzero(np.isfinite(panel.values).any(axis=0))
        newest += panel.times[known[-1:]].tolist()
    return float(max(newest, default=end))


def _of_known_pools(panel: Panel) -> Panel:
    """Return the series whose pool isn't `unknown`: what they should do nobody can say."""
    return panel.rows(
        [at for at, one in enumerate(panel.labels) if one.get("pool") != UNKNOWN_POOL]
    )


def _try(soak: Soak, signal: Signal, read: Read, *, first: bool) -> Panel | None:
    """Return a panel with series, or note why there is none."""
    try:
        panel = read(signal)
    except UnreachableError as error:
        if first:
            raise
        why = f"could not be read: {error}"
    except StoreError as error:
        why = f"could not be read: {error}" if str(error) != "not in the data" else str(error)
    else:
        if panel.labels and len(panel.times) > 1:
            soak.fleet.see(panel)
            return panel
        why = "no series"
    soak.absent.append((signal, why))
    return None


def _rows(soak: Soak, group: str, signal: Signal, panel: Panel) -> None:
    as_of = max(soak.as_of, float(panel.times[0])) if soak.judged else _as_of({"": panel}, soak.end)
    found = readings(panel, as_of, lambda value: words.value(value, signal.unit))
    for (place, detail), chosen in places.by_place(panel).items():
        mine = [f for f in soak.findings if places.place_of(f.labels) == place]
        top = soak.tops[signal.name]
        context = Context(soak.config, container_limits(soak.judged), mine, soak.span, top)
        part = panel.rows(chosen)
        here = [found[at] for at in chosen]
        if place.pool == UNKNOWN_POOL:
            why = "its pool is unknown: name it in leadline.yaml"
            here = [replace(one, state="unknown", why=why) for one in here]
        soak.rows.append(row(group, signal, place, detail, part, here, context))


def _top(source: Source, signal: Signal, at: float) -> float | None:
    """Return the highest finite bucket bound of a quantile's histogram, if it can be known."""
    if not signal.operation.startswith("quantile") or not isinstance(source, PromStore):
        return None
    metric = signal.metrics[0]
    bounds: list[float] = []
    for name in (metric.name, *metric.former):
        try:
            found = source.instant(f"count by (le) ({name}_bucket)", at)
        except StoreError as error:
            log.warning("buckets of %s can't be read: %s", name, error)
            continue
        bounds += [float(one.labels["le"]) for one in found if one.labels.get("le")]
    return max((bound for bound in bounds if math.isfinite(bound)), default=None)


def _expected(soak: Soak) -> None:
    """Add a row `unknown` for what every pool has, or what has a limit, and this one has not."""
    seen = {(row.signal.name, row.place) for row in soak.rows}
    names = {name for name, _ in seen}
    why = {signal.name: reason for signal, reason in soak.absent}
    for group, signal in places.shown():
        reason = why.get(signal.name, "no series")
        wanted = places.expected(signal, soak.fleet.servers)
        for place in wanted:
            if (signal.name, place) not in seen:
                soak.rows.append(missing(group, signal, place, reason))
        if signal.name not in names and not wanted:
            for place, bound in _bounded(soak, signal).items():
                row = missing(group, signal, place, reason)
                soak.rows.append(replace(row, limit=words.value(bound, signal.unit)))


def _bounded(soak: Soak, signal: Signal) -> dict[Place, float]:
    """Return the deployments in which somebody set a limit for *signal*."""
    found = {}
    for place in soak.fleet.servers:
        labels = {"deployment": place.deployment, "model_name": place.model_name}
        bound = soak.config.limit(signal.name, labels)
        if bound is not None and place.pool:
            found[replace(place, pool="")] = bound
    return found


def _beside(soak: Soak, read: Read) -> None:
    """Put the span before beside each line; what was there then and is gone now gets a line."""
    lines = {(one.signal.name, one.place, one.detail): at for at, one in enumerate(soak.rows)}
    away = ""
    for group, signal in places.shown():
        found: dict[tuple[Place, str], Level] = {}
        why = away
        if not why:
            found, why, away = _before(soak, signal, read)
        for (place, detail), then in found.items():
            if (signal.name, place, detail) not in lines:
                soak.rows.append(_gone(soak, group, signal, place, detail, then))
        for (name, place, detail), at in lines.items():
            if name == signal.name:
                then = found.get((place, detail), Level(why=why or "no data"))
                beside = Beside(soak.rows[at].beside.now, then)
                soak.rows[at] = replace(soak.rows[at], beside=beside)


def _before(
    soak: Soak, signal: Signal, read: Read
) -> tuple[dict[tuple[Place, str], Level], str, str]:
    """Return the levels of the span before by place, why there are none, and why none will be."""
    try:
        panel = read(signal)
    except StoreError as error:
        known = str(error) == "not in the data"
        why = str(error) if known else f"could not be read: {error}"
        return {}, why, why if isinstance(error, UnreachableError) else ""
    if not panel.labels or len(panel.times) < 2:
        return {}, "no data", ""
    top = soak.tops.get(signal.name)
    found = {
        key: level(panel.rows(chosen), soak.span, top)
        for key, chosen in places.by_place(panel).items()
    }
    return {key: then for key, then in found.items() if then.seen}, "", ""


def _gone(soak: Soak, group: str, signal: Signal, place: Place, detail: str, then: Level) -> Row:
    """Return the line of what has no series any more; where its servers left too, none miss it."""
    stays = signal.level == "process" and bool(soak.fleet.servers.get(place))
    return missing(group, signal, place, GONE, detail=detail, before=then, optional=not stays)
