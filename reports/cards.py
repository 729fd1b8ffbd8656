"""One card per incident: the sentence, the numbers, the series with the fit drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from markupsafe import Markup

from catalog.panel import FloatArray, Labels, Panel
from catalog.signals import SIGNALS
from catalog.units import Unit, human, human_duration
from detectors.drift.context import LimitsLike
from detectors.finding import Finding
from reports import words
from reports.chart import Line, Picture, svg
from reports.incidents import Incident, member
from reports.rows import container, incarnations
from reports.trends import ratio_of

WIDTH: Final = 936
HEIGHT: Final = 210
AHEAD: Final = 0.35
"""Forecasts are drawn over at most this share of the span that was seen."""


@dataclass(frozen=True)
class Card:
    """An incident as it is printed; `members` are name, rate, interval and onset of each."""

    title: str
    state: str
    severity: str
    cause: str
    facts: tuple[tuple[str, str], ...]
    members: tuple[tuple[str, str, str, str], ...]
    charts: tuple[tuple[str, Markup], ...]
    runbook: str


def card(incident: Incident, panels: Mapping[str, Panel], limits: LimitsLike) -> Card:
    """Return the card of *incident*, drawn on the panels it was found in."""
    first = incident.first
    many = len(incident.findings) > 1
    return Card(
        title=f"{incident.kind}: {incident.place}",
        state={"firing": "drifting", "watch": "unknown", "ended": "stable"}[first.state],
        severity=first.severity if first.state == "firing" else first.state,
        cause=("The most urgent: " if many else "") + first.cause,
        facts=tuple(_facts(incident)),
        members=tuple(_member(f, incident.unit) for f in incident.findings) if many else (),
        charts=tuple(_charts(incident, panels, limits)),
        runbook=first.runbook,
    )


def _member(finding: Finding, unit: Unit) -> tuple[str, str, str, str]:
    effect, spelt = _rate(finding, unit)
    return member(finding.labels), effect, spelt, words.instant(finding.since)


def _rate(finding: Finding, unit: Unit) -> tuple[str, str]:
    low, high = (
        math.nan if end is None else end / 3600 for end in (finding.effect_low, finding.effect_high)
    )
    effect = math.nan if finding.effect is None else finding.effect / 3600
    return words.rate(effect, unit), words.interval(low, high, unit)


def _facts(incident: Incident) -> list[tuple[str, str]]:
    finding, unit = incident.first, incident.unit
    facts = []
    if incident.effect is not None and len(incident.findings) == 1:
        effect, spelt = _rate(finding, unit)
        facts.append(("Rate", f"{effect} (90 %: {spelt})"))
    elif incident.effect is not None and unit == "bytes":
        facts.append(("Rate", f"{words.rate(incident.effect, unit)} together"))
    if finding.limit is not None:
        place = finding.evidence.get("place")
        facts.append(("Limit", human(finding.limit, unit) + (f", {place}" if place else "")))
    if finding.time_to_breach is not None:
        spelt = words.spans(finding.time_to_breach_low, finding.time_to_breach_high)
        at = words.instant(finding.as_of + finding.time_to_breach)
        facts.append(("Time left", f"{words.left(finding.time_to_breach)} (90 %: {spelt})"))
        facts.append(("Reached", at))
    else:
        facts.append(("Time left", "unknown: no limit is known, or it isn't approached"))
    if finding.since is not None:
        seen = human_duration(finding.as_of - finding.since)
        facts.append(("Since", f"{words.instant(finding.since)} ({seen} seen)"))
    if "against_warm_up" in finding.evidence:
        margin = float(finding.evidence["against_warm_up"])
        facts.append(("A warm-up instead?", _odds(margin)))
    return facts


def _odds(margin: float) -> str:
    """Return what a margin in log-likelihood means."""
    if abs(margin) > 12:
        return "ruled out" if margin > 0 else "yes"
    side = "less" if margin > 0 else "more"
    return f"{math.exp(abs(margin)):,.0f} times {side} likely than growth that goes on"


def _charts(
    incident: Incident, panels: Mapping[str, Panel], limits: LimitsLike
) -> list[tuple[str, Markup]]:
    finding = incident.first
    panel = panels.get(finding.signal)
    if panel is None:
        return []
    found = [_row(panel, one.labels) for one in incident.findings]
    rows = [at for at in found if at is not None]
    if not rows or found[0] is None:
        return []
    chosen = panel.rows(rows)
    signal = SIGNALS[finding.signal]
    # A leak's limit is its place's, not this process's: it belongs on the chart of the place.
    limit = finding.limit if finding.kind != "leak" else None
    lines = _fit(finding)
    if limit is not None and lines and (ahead := _ahead(finding, lines[0], panel)):
        lines.append(ahead)
    picture = Picture(
        title=f"{signal.title}, {incident.place}, with the fitted line of {member(finding.labels)}",
        times=chosen.times, values=ratio_of(chosen), unit=signal.unit,
        state="drifting" if finding.state == "firing" else "unknown",
        strong=0, lines=lines, limit=limit, starts=incarnations(chosen), since=finding.since,
        width=WIDTH, height=HEIGHT,
    )  # fmt: skip
    caption = f"{signal.title}: {member(finding.labels)}"
    if len(rows) > 1:
        caption += f", in the band of all {len(rows)}"
    return [(caption, svg(picture)), *_container_chart(finding, panels, limits)]


def _row(panel: Panel, labels: Labels) -> int | None:
    """Return the row of *panel* with these labels, or the only one that has them all."""
    wanted = dict(labels)
    rows = [at for at, one in enumerate(panel.labels) if dict(one) == wanted]
    rows = rows or [
        at for at, one in enumerate(panel.labels) if wanted.items() <= dict(one).items()
    ]
    return rows[0] if len(rows) == 1 else None


def _fit(finding: Finding) -> list[Line]:
    """Return the fitted line as the detector gave it."""
    fit = finding.evidence.get("fit")
    if not isinstance(fit, Mapping):
        return []
    times = np.asarray(fit.get("t", ()), dtype=np.float64)
    values = np.asarray(fit.get("line", fit.get("y", ())), dtype=np.float64)
    return [Line(times, values)] if len(times) == len(values) > 1 else []


def _ahead(finding: Finding, line: Line, panel: Panel) -> Line | None:
    """Return the line drawn on towards the limit."""
    slope = _last_slope(line)
    return _towards(float(line.values[-1]), float(line.times[-1]), slope, finding, panel)


def _last_slope(line: Line) -> float:
    span = float(line.times[-1] - line.times[-2])
    return float(line.values[-1] - line.values[-2]) / span if span else 0.0


def _towards(level: float, at: float, slope: float, finding: Finding, panel: Panel) -> Line | None:
    room = AHEAD * float(panel.times[-1] - panel.times[0])
    ahead = min(room, finding.time_to_breach or 0.0)
    if ahead <= 0 or not math.isfinite(level):
        return None
    times = np.array([at, at + ahead])
    return Line(times, np.array([level, level + slope * ahead]), dashed=True)


def _container_chart(
    finding: Finding, panels: Mapping[str, Panel], limits: LimitsLike
) -> list[tuple[str, Markup]]:
    """Return the container that a leak fills, with its limit and the forecast."""
    panel = panels.get("container_working_set")
    if finding.kind != "leak" or panel is None or finding.limit is None:
        return []
    keys = ("cluster", "node", "server")
    place = [finding.labels.get(name, "") for name in keys]
    rows = [
        at
        for at, one in enumerate(panel.labels)
        if (one.get("server") or one.get("node")) and [one.get(name, "") for name in keys] == place
    ]
    if len(rows) != 1 or _container_limit(panel.labels[rows[0]], panels, limits) != finding.limit:
        return []
    one = panel.rows(rows)
    known = np.flatnonzero(np.isfinite(one.values[0]))
    slope = finding.evidence.get("place_slope_per_hour")
    lines = []
    if len(known) and isinstance(slope, int | float):
        level = float(one.values[0, known[-1]])
        ahead = _towards(level, float(one.times[known[-1]]), slope / 3600, finding, one)
        lines = [ahead] if ahead else []
    title = "The working set of its container"
    picture = Picture(
        title=f"{title}, forecast dashed", times=one.times, values=one.values, unit="bytes",
        state="drifting", strong=0, lines=lines, limit=finding.limit, limit_always=True,
        width=WIDTH, height=HEIGHT - 50,
    )  # fmt: skip
    return [(title, svg(picture))]


def _container_limit(
    labels: Labels, panels: Mapping[str, Panel], limits: LimitsLike
) -> float | None:
    given = limits.limit("container_working_set", labels)
    return given if given is not None else container_limits(panels).get(container(labels))


def container_limits(panels: Mapping[str, Panel]) -> dict[tuple[str, ...], float]:
    """Return the newest memory limit of each container."""
    panel = panels.get("container_limit")
    if panel is None:
        return {}
    newest = {}
    for labels, values in zip(panel.labels, panel.values, strict=True):
        known: FloatArray = values[np.isfinite(values)]
        if len(known):
            newest[container(labels)] = float(known[-1])
    return newest
