"""The picture of a finding, as inline SVG: the series, its fit, the way to the limit.

Colours and fonts come from the board's style sheet by class, so that it is right in light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
from markupsafe import Markup, escape

from catalog.panel import FloatArray
from catalog.signals import SIGNALS
from catalog.units import human
from detectors.finding import Finding
from detectors.service import message
from detectors.service.incident import Forecast

_MINUTES: Final = (1, 5, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080, 43200)
_TICKS: Final = tuple(60 * minutes for minutes in _MINUTES)
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 12, 22


@dataclass(frozen=True)
class Series:
    """One series, ratios already made of counts."""

    times: FloatArray
    values: FloatArray


@dataclass(frozen=True)
class Frame:
    """A drawing area: data to pixels.

    Attributes:
        width: Of the whole picture.
        height: Of the whole picture.
        x0: Left end, unix seconds.
        x1: Right end.
        y0: Lower end, in the signal's unit.
        y1: Upper end.
    """

    width: float
    height: float
    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, at: float) -> float:
        """Return the pixel column of an instant."""
        share = (at - self.x0) / (self.x1 - self.x0)
        return _LEFT + share * (self.width - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """Return the pixel row of a value, kept inside the picture."""
        share = min(1.05, max(-0.05, (value - self.y0) / (self.y1 - self.y0)))
        return self.height - _BOTTOM - share * (self.height - _TOP - _BOTTOM)


def draw(
    series: Series,
    finding: Finding,
    forecast: Forecast | None,
    *,
    width: float = 560,
    height: float = 230,
    label: str = "",
) -> Markup:
    """Return the chart of *finding*.

    Args:
        series: What was measured.
        finding: With its fit in `evidence`.
        forecast: Published instant of breach, or None.
        width: Of the picture; it scales with its place.
        height: Of the picture.
        label: What a person who can't see it is told.
    """
    unit = SIGNALS[finding.signal].unit if finding.signal in SIGNALS else "count"
    shown = _window(series, finding)
    times, middle, low, high = _thinned(shown, int(width / 2.5))
    if not len(times):
        return Markup('<p class="none">No samples in memory to draw.</p>')
    fit = _fit(finding)
    if finding.kind not in message.OF_AN_INSTANT:  # there the line is where it would have been
        fit = _aligned(fit, series, finding.since)
    target = _at_limit(finding, fit)
    end = _right_end(times, forecast)
    frame = _frame(width, height, float(times[0]), end, [low, high, fit[1]], target)
    parts = [
        _axes(frame, unit),
        _band(frame, times, low, high),
        _line(frame, times, middle, "series"),
    ]
    if len(fit[0]) > 1:
        parts.append(_line(frame, *fit, "fit"))
        parts.append(_way(frame, fit, forecast, target))
    if target is not None and finding.limit is not None:
        parts.append(
            _limit(
                frame,
                target,
                f"{message.bound(finding.kind)} of {human(finding.limit, unit)} is met here",
            )
        )
    parts.append(_now(frame, finding.as_of))
    body = Markup("").join(parts)
    return Markup(
        '<svg class="chart" viewBox="0 0 {w} {h}" role="img" aria-label="{label}">{body}</svg>'
    ).format(w=f"{width:g}", h=f"{height:g}", label=label, body=body)


def _window(series: Series, finding: Finding) -> Series:
    """Return the part worth looking at: the growth, and as much again of what was before."""
    begun = finding.as_of if finding.since is None else finding.since
    fit = _fit(finding)[0]
    begun = min(begun, float(fit[0])) if len(fit) else begun
    span = max(finding.as_of - begun, 30 * 60.0)
    first = int(np.searchsorted(series.times, begun - 0.6 * span))
    cut = Series(series.times[first:], series.values[first:])
    seen = np.flatnonzero(np.isfinite(cut.values))
    return Series(cut.times[seen[0]:], cut.values[seen[0]:]) if len(seen) else Series(
        cut.times[:0], cut.values[:0]
    )  # fmt: skip


def _thinned(series: Series, most: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return times, means, lowest and highest values of at most *most* buckets."""
    size = max(1, math.ceil(len(series.times) / most))
    pad = -len(series.times) % size
    values = np.append(series.values, np.full(pad, np.nan)).reshape(-1, size)
    known = np.isfinite(values)
    count = known.sum(axis=1)
    total = np.where(known, values, 0.0).sum(axis=1)
    middle = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    low = np.where(count > 0, np.where(known, values, np.inf).min(axis=1), np.nan)
    high = np.where(count > 0, np.where(known, values, -np.inf).max(axis=1), np.nan)
    return series.times[::size], middle, low, high


def _fit(finding: Finding) -> tuple[FloatArray, FloatArray]:
    fit = finding.evidence.get("fit") or {}
    times = np.asarray(fit.get("t") or [], dtype=np.float64)
    values = np.asarray(fit.get("line") or fit.get("y") or [], dtype=np.float64)
    return (times, values) if len(times) == len(values) else (times[:0], values[:0])


def _aligned(
    fit: tuple[FloatArray, FloatArray], series: Series, since: float | None
) -> tuple[FloatArray, FloatArray]:
    """Return the fit from the onset on, at the level of what was measured there.

    The evidence holds the slope that the finding stands for; the level may hold a warm-up or a
    step beside it, which is not drawn.
    """
    times, line = fit
    growing = times >= (times[0] if since is None or not len(times) else since)
    known = np.isfinite(series.values)
    if growing.sum() < 2 or known.sum() < 2:
        return fit
    times, line = times[growing], line[growing]
    measured = np.interp(times, series.times[known], series.values[known])
    line = line + float(np.median(measured - line))
    # An onset that was put too early would start the line where nothing was measured.
    inside = (line >= measured.min()) & (line <= measured.max()) | (times == times[-1])
    return times[inside], line[inside]


def _at_limit(finding: Finding, fit: tuple[FloatArray, FloatArray]) -> float | None:
    """Return the value of this series when the limit is met.

    A memory limit is met by all processes of a container together, so this is where the fit is at
    that instant, and not the limit itself.
    """
    if finding.limit is None or finding.time_to_breach is None:
        return None
    if not len(fit[1]) or finding.effect is None:
        return finding.limit
    return float(fit[1][-1]) + finding.effect * finding.time_to_breach / 3600.0


def _right_end(times: FloatArray, forecast: Forecast | None) -> float:
    """Return the right end of the time axis: past the breach if that is not too far off."""
    first, last = float(times[0]), float(times[-1])
    span = max(last - first, 600.0)
    if forecast is None:
        return last + 0.04 * span
    wanted = forecast.breach if forecast.high is None else min(
        forecast.high, forecast.breach + 0.5 * (forecast.breach - forecast.as_of)
    )  # fmt: skip
    return max(last + 0.04 * span, min(wanted + 0.05 * span, last + 1.6 * span))


def _frame(
    width: float, height: float, x0: float, x1: float, arrays: Sequence[FloatArray],
    target: float | None,
) -> Frame:  # fmt: skip
    values = np.concatenate(arrays)
    values = values[np.isfinite(values)]
    low, high = float(values.min()), float(values.max())
    spread = (high - low) or abs(high) * 0.1 or 1.0
    # A limit far beyond what was seen would flatten the series: then it stays outside.
    if target is not None and abs(target - (low + high) / 2) < 12 * spread:
        low, high = min(low, target), max(high, target)
    pad = 0.08 * ((high - low) or spread)
    floor = 0.0 if low >= 0 > low - pad else low - pad
    return Frame(width, height, x0, x1 if x1 > x0 else x0 + 60, floor, high + pad)


def _path(points: Sequence[tuple[float, float]]) -> str:
    """Return path data; a point that is NaN breaks the line."""
    parts: list[str] = []
    pen = "M"
    for x, y in points:
        if math.isfinite(y):
            parts.append(f"{pen}{x:.1f} {y:.1f}")
            pen = "L"
        else:
            pen = "M"
    return "".join(parts)


def _line(frame: Frame, times: FloatArray, values: FloatArray, kind: str) -> Markup:
    points = [
        (frame.x(t), frame.y(v) if math.isfinite(v) else math.nan)
        for t, v in zip(times.tolist(), values.tolist(), strict=True)
    ]
    return Markup('<path class="{}" d="{}"/>').format(kind, _path(points))


def _band(frame: Frame, times: FloatArray, low: FloatArray, high: FloatArray) -> Markup:
    known = np.isfinite(low) & (high > low)
    if known.sum() < 2:
        return Markup("")
    above = [(frame.x(t), frame.y(v)) for t, v in zip(times[known], high[known], strict=True)]
    below = [(frame.x(t), frame.y(v)) for t, v in zip(times[known], low[known], strict=True)]
    return Markup('<path class="band" d="{}Z"/>').format(_path(above + below[::-1]))


def _way(
    frame: Frame, fit: tuple[FloatArray, FloatArray], forecast: Forecast | None,
    target: float | None,
) -> Markup:  # fmt: skip
    """Draw the way from the fit's end to the limit, and the interval as a cone."""
    if forecast is None or target is None:
        return Markup("")
    start = (float(fit[0][-1]), float(fit[1][-1]))

    def at(instant: float) -> tuple[float, float]:
        """Return where a straight way to the limit at *instant* leaves the picture."""
        if instant <= frame.x1 or instant <= start[0]:
            return frame.x(instant), frame.y(target)
        share = (frame.x1 - start[0]) / (instant - start[0])
        return frame.x(frame.x1), frame.y(start[1] + share * (target - start[1]))

    begin = (frame.x(start[0]), frame.y(start[1]))
    late = at(forecast.high) if forecast.high is not None else (frame.x(frame.x1), begin[1])
    corners = [begin, at(forecast.low)]
    if forecast.high is None or forecast.high > frame.x1 >= forecast.low:
        corners.append((frame.x(frame.x1), frame.y(target)))
    cone = Markup('<path class="cone" d="{}Z"/>').format(_path([*corners, late]))
    end = at(forecast.breach)
    way = Markup('<path class="way" d="{}"/>').format(_path([begin, end]))
    if forecast.breach > frame.x1:
        return cone + way
    dot = Markup('<circle class="breach" cx="{:.1f}" cy="{:.1f}" r="4"/>').format(*end)
    return cone + way + dot


def _limit(frame: Frame, target: float, text: str) -> Markup:
    outside = not frame.y0 <= target <= frame.y1
    y = frame.y(frame.y1 if target > frame.y1 else frame.y0) if outside else frame.y(target)
    arrow = (" ↑" if target > frame.y1 else " ↓") if outside else ""
    line = Markup('<line class="limit" x1="{}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>').format(
        _LEFT, frame.width - _RIGHT, y, y
    )
    below = y + 14 if y < frame.height / 2 else y - 5
    words = Markup('<text class="limit-text" x="{}" y="{:.1f}">{}</text>').format(
        _LEFT + 6, below, text + arrow
    )
    return words if outside else line + words


def _now(frame: Frame, at: float) -> Markup:
    if not frame.x0 < at < frame.x1:
        return Markup("")
    x = frame.x(at)
    return Markup(
        '<line class="now" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom:g}"/>'
        '<text class="tick" x="{left:.1f}" y="{word:g}" text-anchor="end">{text}</text>'
    ).format(
        x=x, top=_TOP, bottom=frame.height - _BOTTOM, left=x - 5, word=frame.height - _BOTTOM - 5,
        text=_clock(at),
    )  # fmt: skip


def _axes(frame: Frame, unit: str) -> Markup:
    parts: list[Markup] = []
    for value in _nice(frame.y0, frame.y1, max(3, int(frame.height / 55)), unit):
        y = frame.y(value)
        parts.append(
            Markup(
                '<line class="grid" x1="{}" x2="{:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
                '<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>'
            ).format(_LEFT, frame.width - _RIGHT, _LEFT - 6, y + 3.5, _short(value, unit), y=y)
        )
    for at, text in time_ticks(frame.x0, frame.x1, max(3, int(frame.width / 80))):
        parts.append(
            Markup('<text class="tick" x="{:.1f}" y="{:g}" text-anchor="middle">{}</text>').format(
                frame.x(at), frame.height - 6, text
            )
        )
    return Markup("").join(parts)


def _short(value: float, unit: str) -> str:
    return escape(human(value, unit).replace(".0 ", " "))


def _nice(low: float, high: float, count: int, unit: str) -> list[float]:
    """Return round values in [low, high], about *count*; bytes round in powers of two."""
    size = 1.0
    if unit.startswith("bytes"):
        size = next((s for s in (2.0**40, 2.0**30, 2.0**20, 2.0**10) if high >= s), 1.0)
    rough = (high - low) / size / count
    if rough <= 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough)
    first = math.ceil(low / size / step)
    last = math.floor(high / size / step)
    return [k * step * size for k in range(first, last + 1)]


def time_ticks(start: float, end: float, most: int) -> list[tuple[float, str]]:
    """Return at most about *most* instants of a time axis with their words (UTC)."""
    step = next((s for s in _TICKS if (end - start) / s <= most), _TICKS[-1])
    first = math.ceil(start / step) * step
    show = _clock if step < 86400 else _date
    ticks = [float(at) for at in np.arange(first, end, step)]
    # Words at the very edge would be cut off.
    inner = [at for at in ticks if 0.02 < (at - start) / (end - start) < 0.97]
    return [(at, show(at)) for at in inner]


def _clock(at: float) -> str:
    when = datetime.fromtimestamp(at, UTC)
    return when.strftime("%b %-d") if (when.hour, when.minute) == (0, 0) else when.strftime("%H:%M")


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%b %-d")


Scale = Callable[[float], float]


def soundings(marks: Sequence[tuple[str, str, float, float, float | None]]) -> Markup:
    """Return the scale of time left, in logarithm: where each incident stands between now and 30 d.

    Args:
        marks: Of each incident: id of its row, severity, seconds left, soonest, latest (or None).
    """
    width, height = 1000.0, 64.0
    low, high = math.log(900.0), math.log(60 * 86400.0)

    def x(seconds: float) -> float:
        share = (math.log(min(max(seconds, 900.0), 60 * 86400.0)) - low) / (high - low)
        return 10 + share * (width - 20)

    page, ticket = x(12 * 3600.0), x(30 * 86400.0)
    zone = Markup(
        '<rect class="zone {name}" x="{a:.1f}" y="22" width="{w:.1f}" height="20"/>'
        '<text class="zone-name" x="{t:.1f}" y="36">{name}</text>'
    )
    zones = Markup("").join(
        zone.format(name=name, a=a, w=b - a, t=a + 8)
        for name, a, b in (("page", 10, page), ("ticket", page, ticket), ("report", ticket, 990))
    )
    word = Markup('<text class="tick" x="{:.1f}" y="58" text-anchor="middle">{}</text>')
    words = Markup("").join(
        word.format(x(s), w)
        for s, w in ((3600.0, "1 h"), (4 * 3600.0, "4 h"), (12 * 3600.0, "12 h"),
                     (2 * 86400.0, "2 d"), (7 * 86400.0, "7 d"), (30 * 86400.0, "30 d"))
    )  # fmt: skip
    dots = Markup("").join(_mark(x, *mark) for mark in marks)
    return Markup(
        '<svg class="soundings" viewBox="0 0 {:g} {:g}" role="img" '
        'aria-label="Time left of each finding, from 15 minutes to 60 days">{}{}{}</svg>'
    ).format(width, height, zones, words, dots)


def _mark(x: Scale, row: str, severity: str, left: float, low: float, high: float | None) -> Markup:
    latest = 990.0 if high is None else x(high)
    return Markup(
        '<g class="mark {severity}"><line x1="{a:.1f}" x2="{b:.1f}" y1="32" y2="32"/>'
        '<a href="#{row}"><circle cx="{c:.1f}" cy="32" r="8"><title>{row}</title></circle></a></g>'
    ).format(severity=severity, a=x(low), b=latest, c=x(left), row=row)
