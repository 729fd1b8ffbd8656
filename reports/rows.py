"""One line of the report: what one signal does in one place, over all its series there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from markupsafe import Markup

from catalog.panel import FloatArray, Labels, Panel
from catalog.signal import Signal
from catalog.units import Unit
from detectors.drift.context import LimitsLike
from detectors.finding import Finding
from reports import words
from reports.beside import LEAST_SEEN, Beside, level
from reports.chart import Picture, svg
from reports.entry import Numbers, Row
from reports.places import Place
from reports.trends import Reading, State, ratio_of

BROKEN: Final = 0.01
"""Share of the time beyond a service level from which it was not held."""
MOST_STARTS: Final = 40
LATE: Final = 0.03
"""Share of the span after which it is worth a word that judging began."""
AT_TOP: Final = 0.2
"""Share of samples at the highest bucket from which a quantile's drift can't be told."""


@dataclass(frozen=True)
class Context:
    """What a row needs beside its panel."""

    limits: LimitsLike
    container_limits: Mapping[tuple[str, ...], float]
    findings: Sequence[Finding]
    span: float
    top: float | None = None


def row(
    group: str,
    signal: Signal,
    place: Place,
    detail: str,
    panel: Panel,
    found: Sequence[Reading],
    context: Context,
) -> Row:
    """Return the line for the series of *panel*, all of one place; *found* reads each."""
    values = ratio_of(panel)
    bound = _limit(signal, panel.labels[0], context)
    found = [_capped(one, values[at], context.top) for at, one in enumerate(found)]
    found = _seen_enough(found, values)
    finding = _finding(signal, panel, context.findings)
    within = None
    if finding is None and signal.level == "container" and _state(found, None) != "unknown":
        finding = within = _within(signal, panel, context.findings)
    state = _state(found, finding)
    strong = _strongest(found, panel, finding, signal, bound) if state != "unknown" else 0
    best = found[strong]
    drifting = state == "drifting"
    breach = _breach(signal, best, bound, finding) if drifting else math.inf
    slope, low, high = _speed(best, finding)
    newest = [one.level for one in found if math.isfinite(one.level)]
    now = best.level if drifting else float(np.median(newest)) if newest else math.nan
    over = level(panel, context.span, context.top)
    spell = _speller(signal.unit, context.top)
    return Row(
        group=group,
        signal=signal,
        place=place,
        state=state,
        why=_why(found, state, panel.labels[strong], finding, within=within is not None),
        detail=detail,
        level=spell(now) if math.isfinite(now) else "–",
        change={"stable": "none clear", "unknown": "–"}.get(state, words.rate(slope, signal.unit)),
        interval=_interval(low, high, best, signal.unit, panel) if state != "unknown" else "",
        limit="" if bound is None else words.value(bound, signal.unit),
        breach=words.left(breach) if drifting and math.isfinite(breach) else "",
        breach_seconds=breach,
        beyond=_beyond(signal, values, bound),
        kept=_kept(signal, values, bound, over.seen, context.top),
        harmful=drifting and _harms(signal, slope),
        series=len(found),
        judged_from=_judged_from(found, panel),
        chart=_chart(
            signal, f"{place.title} {detail}".strip(), panel, values, strong, state, best, bound
        ),
        beside=Beside(over),
        numbers=Numbers(now, slope, low, high, bound, best.judged_from),
    )


def _finding(signal: Signal, panel: Panel, findings: Sequence[Finding]) -> Finding | None:
    """Return the first firing finding on one of the series of *panel*."""
    rows = [dict(labels).items() for labels in panel.labels]
    for one in findings:
        if one.signal == signal.name and one.state == "firing" and one.kind != "unknown":
            wanted = dict(one.labels).items()
            if any(wanted <= labels for labels in rows):
                return one
    return None


def _within(signal: Signal, panel: Panel, findings: Sequence[Finding]) -> Finding | None:
    """Return the firing leak of processes in a container of *panel*, as the container's own.

    A container grows by what leaks in it, even where its straight line shows no growth yet: its
    page cache gives way, and the line began before the leak did.
    """
    if signal.name != "container_working_set":
        return None
    servers = {labels.get("server") for labels in panel.labels} - {None, ""}
    leaks = [one for one in findings if one.kind == "leak" and one.state == "firing"
             and one.labels.get("process") and one.labels.get("server") in servers]  # fmt: skip
    if not leaks:
        return None
    first = min(leaks, key=lambda one: one.time_to_breach or math.inf)
    server = first.labels["server"]
    together = first.evidence.get("place_slope_per_hour") or sum(
        one.effect or 0.0 for one in leaks if one.labels["server"] == server
    )
    return replace(
        first, signal=signal.name, labels={"server": server}, effect=together,
        effect_low=None, effect_high=None,
    )  # fmt: skip


def _capped(one: Reading, values: FloatArray, top: float | None) -> Reading:
    """Return a reading that says unknown where a quantile lies above the highest bucket."""
    known = values[np.isfinite(values)]
    if top is None or not len(known) or (known >= top * (1 - 1e-9)).mean() < AT_TOP:
        return one
    return replace(one, state="unknown", why="above the highest bucket, can't say how far")


def _seen_enough(found: Sequence[Reading], values: FloatArray) -> list[Reading]:
    """Return the readings, stable ones as unknown where most of the span was not seen.

    The series of a place are taken together: a rolling update ends some and begins others.
    """
    seen = float(np.isfinite(values).any(axis=0).mean())
    if seen >= LEAST_SEEN:
        return list(found)
    why = f"seen in only {words.share(seen)} of the span"
    return [replace(one, state="unknown", why=why) if one.state == "stable" else one
            for one in found]  # fmt: skip


def _speller(unit: Unit, top: float | None) -> Callable[[float], str]:
    def spell(value: float) -> str:
        above = top is not None and value >= top * (1 - 1e-9)
        return ("above " if above else "") + words.value(value, unit)

    return spell


def _state(found: Sequence[Reading], finding: Finding | None) -> State:
    states = Counter(one.state for one in found)
    if finding is not None or states["drifting"]:
        return "drifting"
    return "stable" if states["stable"] else "unknown"


def _strongest(
    found: Sequence[Reading],
    panel: Panel,
    finding: Finding | None,
    signal: Signal,
    bound: float | None,
) -> int:
    """Return the position of the series that the line speaks of."""
    if finding is not None:
        for at, labels in enumerate(panel.labels):
            if dict(finding.labels).items() <= dict(labels).items():
                return at
    drifting = [at for at, one in enumerate(found) if one.state == "drifting"]
    if drifting:
        return min(
            drifting,
            key=lambda at: (_breach(signal, found[at], bound, None), -abs(found[at].slope)),
        )
    stable = [at for at, one in enumerate(found) if one.state == "stable"]
    order = sorted(stable, key=lambda at: found[at].level)
    return order[len(order) // 2]


def _limit(signal: Signal, labels: Labels, context: Context) -> float | None:
    known = context.limits.limit(signal.name, labels)
    if known is None and signal.name == "container_working_set":
        known = context.container_limits.get(container(labels))
    return known


def container(labels: Labels) -> tuple[str, ...]:
    """Return what tells containers apart."""
    return tuple(labels.get(name, "") for name in ("cluster", "node", "server", "cgroup"))


def _harms(signal: Signal, slope: float) -> bool:
    return signal.bad is not None and (slope > 0) == (signal.bad == "up")


def _breach(signal: Signal, one: Reading, bound: float | None, finding: Finding | None) -> float:
    if finding is not None:
        return math.inf if finding.time_to_breach is None else finding.time_to_breach
    if bound is None or not _harms(signal, one.slope) or one.slope == 0:
        return math.inf
    return max(0.0, (bound - one.level) / one.slope)


def _speed(one: Reading, finding: Finding | None) -> tuple[float, float, float]:
    """Return slope and interval per second; a finding's where there is one."""
    if finding is not None and finding.effect is not None:
        low, high = finding.effect_low, finding.effect_high
        return (
            finding.effect / 3600,
            math.nan if low is None else low / 3600,
            math.nan if high is None else high / 3600,
        )
    return one.slope, one.low, one.high


def _interval(low: float, high: float, best: Reading, unit: Unit, panel: Panel) -> str:
    """Return the interval of the slope; none for what stands still to many digits."""
    span = float(panel.times[-1] - panel.times[0])
    if best.state == "stable" and max(abs(low), abs(high)) * span <= 1e-5 * abs(best.level):
        return ""
    return words.interval(low, high, unit)


def _beyond(signal: Signal, values: FloatArray, bound: float | None) -> float:
    known = values[np.isfinite(values)]
    if bound is None or signal.bad is None or not len(known):
        return 0.0
    return float((known > bound if signal.bad == "up" else known < bound).mean())


def _kept(
    signal: Signal, values: FloatArray, bound: float | None, seen: float, top: float | None
) -> bool | None:
    """Return whether the bound was kept; None where there is none or too little was seen."""
    if bound is None or signal.bad is None:
        return None
    if _beyond(signal, values, bound) > BROKEN:
        return False
    known = values[np.isfinite(values)]
    # What lies at the highest bucket may lie anywhere above it.
    hidden = top is not None and top < bound and (known >= top * (1 - 1e-9)).mean() > BROKEN
    return None if seen < LEAST_SEEN or hidden else True


def _why(
    found: Sequence[Reading],
    state: State,
    labels: Labels,
    finding: Finding | None,
    *,
    within: bool,
) -> str:
    states = Counter(one.state for one in found)
    many = len(found)
    unknown = Counter(one.why for one in found if one.state == "unknown")
    rest = (
        f"; {states['unknown']} of {many} unknown ({unknown.most_common(1)[0][0]})"
        if states["unknown"] and state != "unknown"
        else ""
    )
    if finding is not None:
        whose = " of processes in it" if within else ""
        return f"see the finding: {finding.verdict.replace('_', ' ')}{whose}{rest}"
    if state == "unknown":
        return unknown.most_common(1)[0][0]
    why = next(one.why for one in found if one.state == state)
    if state == "drifting":
        name = _name(labels)
        which = f"{states['drifting']} of {many}, first {name}: " if many > 1 else ""
        return f"{which}{why}{rest}"
    return why + rest


def _name(labels: Labels) -> str:
    """Return what tells a series from its neighbours in one place."""
    parts = ("server", "node", "process", "rank", "engine", "cgroup", "position", "source")
    return " ".join(labels[name] for name in parts if labels.get(name)) or "this series"


def _judged_from(found: Sequence[Reading], panel: Panel) -> str:
    """Return since when the newest of the series is judged, where that isn't from the start."""
    known = [one.judged_from for one in found if math.isfinite(one.judged_from)]
    late = panel.times[0] + LATE * (panel.times[-1] - panel.times[0])
    return words.instant(max(known)) if known and max(known) > late else ""


def incarnations(panel: Panel) -> list[float]:
    """Return the instants at which any series of *panel* began anew, few enough to draw."""
    if panel.starts is None:
        return []
    known = np.unique(np.round(panel.starts[np.isfinite(panel.starts)]))
    inside = known[known > panel.times[0]].tolist() if len(panel.times) else []
    return inside[-MOST_STARTS:]


def _chart(
    signal: Signal,
    place: str,
    panel: Panel,
    values: FloatArray,
    strong: int,
    state: State,
    best: Reading,
    bound: float | None,
) -> Markup:
    known = [one for one in (best.judged_from,) if math.isfinite(one)]
    return svg(
        Picture(
            title=f"{signal.title}, {place}: {state}",
            times=panel.times,
            values=values,
            unit=signal.unit,
            state=state,
            strong=strong if state == "drifting" else None,
            limit=bound,
            starts=incarnations(panel),
            judged_from=known[0] if known else None,
        )
    )
