"""Small charts as inline SVG: sharp on paper and screen, a few kilobytes each, no script.

Written by hand rather than by a plotting library: a report holds a hundred of them, and every text
in them is escaped in one place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from typing import Final

import numpy as np
from markupsafe import Markup

from catalog.panel import FloatArray
from catalog.units import Unit, human

HOUR: Final = 3600.0
DAY: Final = 86_400.0
_TICKS: Final = (HOUR / 4, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 28 * DAY)
COLOURS: Final = {"stable": "#1d6f5c", "drifting": "#b3261e", "unknown": "#6b7280"}
LEAST_SHARE: Final = 0.1
"""The y axis spans at least this share of the level, so that noise doesn't look like a drift."""
LEAST_SPAN: Final[dict[Unit, float]] = {"ratio": 0.01, "count": 4.0, "requests": 4.0, "bytes": 1e6}


@dataclass(frozen=True)
class Line:
    """A line over the data: a fit, a forecast."""

    times: FloatArray
    values: FloatArray
    dashed: bool = False


@dataclass(frozen=True)
class Picture:
    """What one chart shows.

    Attributes:
        title: Alternative text.
        times: Shape (n,), unix seconds.
        values: Shape (s, n).
        unit: Of the values.
        state: Colours the data.
        strong: Position of the series drawn over the others' band; None: their median.
        lines: Fits and forecasts.
        limit: SLA or limit, drawn where it is near.
        limit_always: Draw it even where it leaves the data little room.
        starts: Instants at which an incarnation began.
        judged_from: From here on the signal is judged; before it is shaded.
        since: Onset of the drift.
        width: Pixels.
        height: Pixels.
    """

    title: str
    times: FloatArray
    values: FloatArray
    unit: Unit
    state: str = "stable"
    strong: int | None = None
    lines: Sequence[Line] = field(default_factory=tuple)
    limit: float | None = None
    limit_always: bool = False
    starts: Sequence[float] = ()
    judged_from: float | None = None
    since: float | None = None
    width: int = 300
    height: int = 74


@dataclass(frozen=True)
class _Frame:
    """The plot area, and where a time and a value lie in it."""

    left: float
    right: float
    top: float
    bottom: float
    start: float
    end: float
    low: float
    high: float

    def x(self, time: float) -> float:
        share = (time - self.start) / max(self.end - self.start, 1e-9)
        return self.left + share * (self.right - self.left)

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.bottom - share * (self.bottom - self.top)


def svg(picture: Picture) -> Markup:
    """Return the chart as an SVG element, safe to put into HTML."""
    frame = _frame(picture)
    parts = [
        f'<svg role="img" viewBox="0 0 {picture.width} {picture.height}" '
        f'width="{picture.width}" height="{picture.height}" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{escape(picture.title)}</title>"
    ]
    if np.isfinite(picture.values).any():
        parts += _shades(picture, frame)
        parts += _axes(picture, frame)
        parts += _data(picture, frame)
        parts += _marks(picture, frame)
    else:
        parts.append(
            f'<text x="{picture.width / 2:.0f}" y="{picture.height / 2:.0f}" class="none" '
            'text-anchor="middle">no data</text>'
        )
    return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - every text in it was escaped


def _large(picture: Picture) -> bool:
    return picture.height > 120


def _frame(picture: Picture) -> _Frame:
    low, high = _range(picture)
    end = max([float(picture.times[-1]), *(float(line.times[-1]) for line in picture.lines)])
    return _Frame(
        left=66.0 if _large(picture) else 58.0,
        right=picture.width - 6.0,
        top=8.0,
        bottom=picture.height - (20.0 if _large(picture) else 15.0),
        start=float(picture.times[0]),
        end=end,
        low=low,
        high=high,
    )


def _range(picture: Picture) -> tuple[float, float]:
    """Return the span of the y axis: the data, and the limit where that leaves the data room."""
    shown = [picture.values[np.isfinite(picture.values)]]
    shown += [line.values for line in picture.lines]
    every = np.concatenate(shown)
    if not len(every):
        return 0.0, 1.0
    low, high = float(every.min()), float(every.max())
    least = max(LEAST_SHARE * max(abs(low), abs(high)), LEAST_SPAN.get(picture.unit, 1e-3))
    if picture.limit is not None and (
        picture.limit_always or _limit_is_near(picture.limit, low, high, least)
    ):
        low, high = min(low, picture.limit), max(high, picture.limit)
    room = max(least - (high - low), 0.0) / 2 + 0.06 * max(high - low, least)
    bottom = low - room
    return (max(bottom, 0.0) if low >= 0 else bottom), high + room


def _limit_is_near(limit: float, low: float, high: float, least: float) -> bool:
    span = max(high - low, least)
    return low - 2 * span <= limit <= high + 2 * span


def _y_ticks(picture: Picture, frame: _Frame) -> list[float]:
    span = frame.high - frame.low
    scale = 1.0
    if picture.unit.startswith("bytes"):
        top = max(abs(frame.high), 1.0)
        scale = 1024.0 ** min(4, int(math.log(top, 1024)))
    count = 5 if _large(picture) else 2
    rough = span / scale / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = scale * next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first = math.ceil(frame.low / step - 1e-9)
    return [k * step for k in range(first, int(frame.high / step + 1e-9) + 1)]


def _tick(value: float, unit: Unit) -> str:
    """Return a tick's value without digits that are all zero."""
    number, _, rest = human(value, unit).partition(" ")
    rest = rest if rest not in ("requests", "tokens", "count") else ""  # the title says it
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {rest}".strip()


def _x_ticks(frame: _Frame, count: int) -> Iterator[tuple[float, str]]:
    span = frame.end - frame.start
    step = next((s for s in _TICKS if span / s <= count), _TICKS[-1])
    at = math.ceil(frame.start / step) * step
    while at <= frame.end:
        moment = datetime.fromtimestamp(at, UTC)
        midnight = moment.hour == moment.minute == 0
        yield at, f"{moment:%a} {moment.day}" if midnight or step >= DAY else f"{moment:%H:%M}"
        at += step


def _axes(picture: Picture, frame: _Frame) -> Iterator[str]:
    for value in _y_ticks(picture, frame):
        y = frame.y(value)
        yield f'<path class="grid" d="M{frame.left:.0f} {y:.1f}H{frame.right:.0f}"/>'
        text = escape(_tick(value, picture.unit))
        yield f'<text x="{frame.left - 4:.0f}" y="{y + 3:.1f}" text-anchor="end">{text}</text>'
    for at, text in _x_ticks(frame, 8 if _large(picture) else 4):
        x = frame.x(at)
        yield f'<path class="grid" d="M{x:.1f} {frame.bottom:.0f}v3"/>'
        if frame.left + 8 < x < frame.right - 12:
            y = picture.height - 4
            yield f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{escape(text)}</text>'


def _shades(picture: Picture, frame: _Frame) -> Iterator[str]:
    """Shade what isn't judged and what nobody saw: neither is health."""

    def shade(name: str, first: float, last: float) -> str:
        x, width = frame.x(first), frame.x(last) - frame.x(first)
        height = frame.bottom - frame.top
        return (
            f'<rect class="{name}" x="{x:.1f}" y="{frame.top:.0f}" width="{max(width, 0.8):.1f}" '
            f'height="{height:.0f}"/>'
        )

    if picture.judged_from is not None and picture.judged_from > frame.start:
        yield shade("early", frame.start, min(picture.judged_from, float(picture.times[-1])))
    missing = ~np.isfinite(picture.values).any(axis=0)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], missing.astype(np.int8), [0]])))
    last = len(picture.times) - 1
    for first, stop in edges.reshape(-1, 2):
        begin, end = picture.times[max(first - 1, 0)], picture.times[min(stop, last)]
        if (end - begin) * (frame.right - frame.left) >= 1.2 * (frame.end - frame.start):
            yield shade("gap", float(begin), float(end))


def _data(picture: Picture, frame: _Frame) -> Iterator[str]:
    colour = COLOURS[picture.state]
    # Buckets a little wider than a pixel: what a screen can show, and no more bytes than that.
    count = int((frame.right - frame.left) / (1.2 if _large(picture) else 1.6))
    times, low, middle, high = _buckets(picture, count)
    xs = [frame.x(t) for t in times]
    for first, stop in _runs(np.isfinite(low)):
        upper = [f"{xs[i]:.1f} {frame.y(high[i]):.1f}" for i in range(first, stop)]
        lower = [f"{xs[i]:.1f} {frame.y(low[i]):.1f}" for i in range(stop - 1, first - 1, -1)]
        yield f'<path fill="{colour}" opacity=".18" d="M{"L".join(upper + lower)}Z"/>'
    for line in picture.lines:  # broad and below: where data and fit agree both are seen
        kind = "fit dash" if line.dashed else "fit"
        yield f'<path class="{kind}" d="{_path(frame, line.times, line.values)}"/>'
    yield f'<path class="data" stroke="{colour}" d="{_path(frame, times, middle)}"/>'


def _buckets(picture: Picture, count: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return times, lowest, middle and highest value of at most *count* buckets."""
    width = max(1, -(-len(picture.times) // max(count, 1)))
    firsts = np.arange(0, len(picture.times), width)
    known = np.isfinite(picture.values)
    low = np.where(known, picture.values, np.inf).min(axis=0)
    high = np.where(known, picture.values, -np.inf).max(axis=0)
    low, high = np.minimum.reduceat(low, firsts), np.maximum.reduceat(high, firsts)
    low, high = (np.where(np.isfinite(edge), edge, np.nan) for edge in (low, high))
    row = picture.values if picture.strong is None else picture.values[[picture.strong]]
    middle = np.array([_median(row[:, first : first + width]) for first in firsts])
    times = picture.times[np.minimum(firsts + width // 2, len(picture.times) - 1)]
    return times, low, middle, high


def _median(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")


def _runs(known: np.typing.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], known.astype(np.int8), [0]])))
    for first, stop in edges.reshape(-1, 2):
        yield int(first), int(stop)


def _path(frame: _Frame, times: FloatArray, values: FloatArray) -> str:
    """Return the path of a line that breaks where values are missing."""
    pieces = []
    for first, stop in _runs(np.isfinite(values)):
        points = [f"{frame.x(times[i]):.1f} {frame.y(values[i]):.1f}" for i in range(first, stop)]
        # A lone point has no length: a short stroke makes it visible.
        pieces.append("M" + "L".join(points) + ("h1" if len(points) == 1 else ""))
    return "".join(pieces)


def _marks(picture: Picture, frame: _Frame) -> Iterator[str]:
    for at in picture.starts:
        if frame.start < at <= frame.end:
            x = frame.x(at)
            yield f'<path class="start" d="M{x:.1f} {frame.top:.0f}V{frame.bottom:.0f}"/>'
            yield f'<path class="tip" d="M{x - 3:.1f} {frame.bottom:.0f}h6l-3-5z"/>'
    if picture.since is not None and frame.start <= picture.since <= frame.end:
        x = frame.x(picture.since)
        yield f'<path class="since" d="M{x:.1f} {frame.top:.0f}V{frame.bottom:.0f}"/>'
        if _large(picture):
            yield f'<text x="{x + 4:.1f}" y="{frame.top + 9:.0f}">since</text>'
    if picture.limit is not None and frame.low <= picture.limit <= frame.high:
        y = frame.y(picture.limit)
        yield f'<path class="limit" d="M{frame.left:.0f} {y:.1f}H{frame.right:.0f}"/>'
        if _large(picture):
            text = escape(f"limit {human(picture.limit, picture.unit)}")
            yield (
                f'<text class="limit" x="{frame.right - 3:.0f}" y="{y - 4:.1f}" '
                f'text-anchor="end">{text}</text>'
            )
