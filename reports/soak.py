"""The soak report: what held, what drifts and what nobody can know, in one HTML file."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from catalog.config import Config
from catalog.panel import Panel
from catalog.signal import Signal
from catalog.signals import SIGNALS
from catalog.units import human_duration
from detectors.drift.judge import NEEDED, judge
from detectors.finding import Finding
from reports import places, words
from reports.cards import Card, card, container_limits
from reports.incidents import incidents
from reports.places import Fleet, Place
from reports.rows import Context, Row, missing, row
from reports.trends import readings
from reports.verdict import Summary, Verdict, judge_soak
from store.errors import StoreError, UnreachableError
from store.prometheus import PromStore

log = logging.getLogger("leadline.reports")

MOST_POINTS: Final = 10_081
"""Points per series: a week of minutes. Longer spans get a longer step."""
MOST_CARDS: Final = 40
UNKNOWN_POOL: Final = "unknown"
Source = PromStore | Mapping[str, Panel]
Read = Callable[[Signal], Panel]


@dataclass(frozen=True)
class Outcome:
    """What was written: the verdict, its first reason, the file."""

    verdict: Verdict
    reason: str
    path: Path


@dataclass
class _Soak:
    """What a report is made of, filled signal by signal."""

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


def write(
    source: Source,
    config: Config,
    *,
    start: float,
    end: float,
    output: Path,
    format: str = "html",  # noqa: A002 - the word that everybody uses for it
) -> Outcome:
    """Write the soak report of [start, end] and return its verdict.

    Args:
        source: A Prometheus, or panels by signal name.
        config: Limits, SLA and step.
        start: Unix seconds.
        end: Unix seconds.
        output: File to write.
        format: `html`; others may come.

    Raises:
        StoreError: Prometheus can't be reached, so that there is nothing to report on.
        ValueError: The span or the format is none.
        OSError: The file can't be written.
    """
    if format != "html":
        raise ValueError(f"format {format!r} is not written yet; known: html")
    if not end > start:
        raise ValueError(f"a report needs a span above zero, not {human_duration(end - start)}")
    soak = _Soak(start, end, _step(config.prometheus.step, end - start), config)
    _gather(soak, source)
    summary = judge_soak(soak.rows, soak.findings, start, end, soak.as_of)
    text = _render(soak, summary, source)
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f".{output.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(output)
    return Outcome(summary.verdict, summary.reasons[0], output)


def _step(least: float, span: float) -> float:
    return least * max(1, math.ceil(span / MOST_POINTS / least))


def _reader(source: Source, soak: _Soak) -> Read:
    def read(signal: Signal) -> Panel:
        if isinstance(source, PromStore):
            return source.panel(signal, soak.start, soak.end, soak.step)
        panel = source.get(signal.name)
        if panel is None:
            raise StoreError("not in the data")
        return panel.until(soak.end)

    return read


def _gather(soak: _Soak, source: Source) -> None:
    """Read what is judged, judge it, then make the rows; other panels are let go one by one."""
    read = _reader(source, soak)
    for name in NEEDED:
        if panel := _try(soak, SIGNALS[name], read, first=name == NEEDED[0]):
            soak.judged[name] = panel
    soak.as_of = _as_of(soak.judged, soak.end)
    known = {name: _of_known_pools(panel) for name, panel in soak.judged.items()}
    found = judge(known, soak.config, as_of=soak.as_of)
    soak.findings = [one for one in found if not _idle(one, known)]
    for group, signal in places.shown():
        panel = soak.judged.get(signal.name)
        if panel is None and signal.name not in NEEDED:
            panel = _try(soak, signal, read, first=False)
        if panel is not None:
            _rows(soak, group, signal, panel, _top(source, signal, soak.end))
    _expected(soak)


def _as_of(panels: Mapping[str, Panel], end: float) -> float:
    """Return the moment that is judged: when the data ends, for a soak may be over by now."""
    newest = []
    for panel in panels.values():
        known = np.flatnonzero(np.isfinite(panel.values).any(axis=0))
        newest += panel.times[known[-1:]].tolist()
    return float(max(newest, default=end))


def _idle(finding: Finding, panels: Mapping[str, Panel]) -> bool:
    """Whether a ratio is unknown because nothing was ever tried: prefill need not draft."""
    panel = panels.get(finding.signal)
    if finding.kind != "unknown" or panel is None or panel.trials is None:
        return False
    place = places.place_of(finding.labels)
    rows = [at for at, one in enumerate(panel.labels) if places.place_of(one) == place]
    known = panel.trials[rows][np.isfinite(panel.trials[rows])]
    return bool(len(known)) and not known.any()


def _of_known_pools(panel: Panel) -> Panel:
    """Return the series whose pool isn't `unknown`: what they should do nobody can say."""
    return panel.rows(
        [at for at, one in enumerate(panel.labels) if one.get("pool") != UNKNOWN_POOL]
    )


def _try(soak: _Soak, signal: Signal, read: Read, *, first: bool) -> Panel | None:
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


def _rows(soak: _Soak, group: str, signal: Signal, panel: Panel, top: float | None) -> None:
    as_of = max(soak.as_of, float(panel.times[0])) if soak.judged else _as_of({"": panel}, soak.end)
    found = readings(panel, as_of, lambda value: words.value(value, signal.unit))
    for (place, detail), chosen in places.by_place(panel).items():
        mine = [f for f in soak.findings if places.place_of(f.labels) == place]
        context = Context(soak.config, container_limits(soak.judged), mine, top)
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


def _expected(soak: _Soak) -> None:
    """Add a row `unknown` for what every pool has and this one has not."""
    seen = {(row.signal.name, row.place) for row in soak.rows}
    why = {signal.name: reason for signal, reason in soak.absent}
    for group, signal in places.shown():
        for place in places.expected(signal, soak.fleet.servers):
            if (signal.name, place) not in seen:
                reason = why.get(signal.name, "no series")
                soak.rows.append(missing(group, signal, place, reason))


def _render(soak: _Soak, summary: Summary, source: Source) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections = _sections(soak)
    told = incidents(soak.findings)
    return environment.get_template("soak.html").render(
        summary=summary,
        shape=soak.fleet.shape,
        names=_names(soak),
        start=words.instant(soak.start),
        end=words.instant(soak.end),
        span=human_duration(soak.end - soak.start),
        ended=words.instant(soak.as_of) if soak.end - soak.as_of > 2 * soak.step else "",
        step=human_duration(soak.step),
        source=source.url if isinstance(source, PromStore) else "a table of signals",
        made=words.instant(time.time()),
        version=_version(),
        pools=[_pool(place, soak, rows) for place, rows in sections],
        sections=sections,
        cards=[card(one, soak.judged, soak.config) for one in told[:MOST_CARDS]],
        more_cards=max(0, len(told) - MOST_CARDS),
        unjudged=[f.cause for f in soak.findings if f.kind == "unknown"],
        absent=[(signal, why) for signal, why in soak.absent if signal.name not in places.HIDDEN],
        meaning=places.meaning(SIGNALS.values()),
        share=words.share,
    )


def _names(soak: _Soak) -> str:
    named = dict.fromkeys(place.deployment for place in soak.fleet.servers if place.deployment)
    return ", ".join(sorted(named)) or "all deployments"


def _sections(soak: _Soak) -> list[tuple[Place, list[Row]]]:
    """Return the rows by place, in the report's order."""
    order = {signal.name: at for at, (_, signal) in enumerate(places.shown())}
    by_place: dict[Place, list[Row]] = {}
    for one in sorted(soak.rows, key=lambda r: order[r.signal.name]):
        by_place.setdefault(one.place, []).append(one)
    return sorted(by_place.items(), key=lambda item: item[0].rank)


@dataclass(frozen=True)
class _Pool:
    """One line of the table on top."""

    place: Place
    servers: int
    stable: int
    drifting: int
    unknown: int
    findings: int
    first: str


def _pool(place: Place, soak: _Soak, rows: Sequence[Row]) -> _Pool:
    states = [one.state for one in rows]
    mine = [f for f in soak.findings if places.place_of(f.labels) == place and f.kind != "unknown"]
    return _Pool(
        place,
        len(soak.fleet.servers.get(place, ())),
        states.count("stable"),
        states.count("drifting"),
        states.count("unknown"),
        sum(f.state == "firing" for f in mine),
        _first_breach(mine, rows),
    )


def _first_breach(findings: Sequence[Finding], rows: Sequence[Row]) -> str:
    """Return what will be reached first there, and when."""
    left = [(f.time_to_breach, SIGNALS[f.signal].title) for f in findings if f.time_to_breach]
    left += [(one.breach_seconds, one.signal.title) for one in rows if one.breach]
    soonest = min(left, default=None)
    return f"{words.left(soonest[0])}: {soonest[1].lower()}" if soonest else ""


def _version() -> str:
    try:
        return version("leadline")
    except PackageNotFoundError:
        return "from source"


__all__ = ["Card", "Outcome", "write"]
