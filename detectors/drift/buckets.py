"""From raw points to a few dozen buckets: low envelopes over windows that end about now.

The low envelope (first quartile of a bucket) is what a garbage collector leaves behind: it follows
a rising floor under a sawtooth, and a spike does not touch it.
"""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from catalog.panel import FloatArray

IntArray = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]
Singles = npt.NDArray[np.float32]

Floats = TypeVar("Floats", FloatArray, Singles)

BUCKETS = 64
AGO = BUCKETS // 8  # buckets back to where a window is looked at again
COARSE = 8  # points: wider buckets are made of buckets of this many
FEWEST = 32  # fewer points than this are not judged
QUANTILE = 0.25
FEWEST_SECOND = 5  # points from which on that is the second least
MOST_MISSING = 1 / 3  # of the buckets of a window
RESTART_DROP = 0.4  # and by this share of the highest level, within five points
MOVED = 5.0  # seconds: a start time that moves by more is a restart
RESTART_SHARE = 0.5  # without start times, memory that falls below this share is a new process


def envelope(values: FloatArray, width: int, size: int = BUCKETS) -> FloatArray:
    """Return the low envelope (s, size) of the last size * width points; NaN where empty."""
    tail = values[:, values.shape[1] - size * width :]
    if width == 1:
        return tail.copy()
    points = tail.reshape(len(values), size, width)
    if width <= COARSE:
        return lowest(np.moveaxis(points, 2, 0))
    parts = np.sort(points, axis=2)  # NaN go last
    count = np.isfinite(parts).sum(axis=2)
    place = np.floor(QUANTILE * np.maximum(count - 1, 0)).astype(np.intp)
    low: FloatArray = np.take_along_axis(parts, place[:, :, None], axis=2)[:, :, 0]
    return low


def lowest(points: Floats) -> Floats:
    """Return the low envelope over the first axis, of at most eight; NaN where empty.

    That is the least, and the second least of five and more: the first quartile, without sorting.
    """
    least = points[0]
    if len(points) < FEWEST_SECOND:
        for one in points[1:]:
            least = np.fmin(least, one)
        out: Floats = least.copy()
        return out
    least = np.where(np.isnan(least), np.inf, least)
    second = np.full_like(least, np.inf)
    count = np.isfinite(points[0]).astype(np.int8)
    for one in points[1:]:
        seen = np.isfinite(one)
        count += seen
        known = np.where(seen, one, np.inf)
        np.minimum(second, np.maximum(least, known), out=second)
        np.minimum(least, known, out=least)
    low: Floats = np.where(count >= FEWEST_SECOND, second, least)
    low[count == 0] = np.nan
    return low


def fill(values: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Carry values over holes; return them and which rows have few enough holes.

    A hole is filled with the value before it, so that what happened in a gap is a step, never a
    ramp that nobody saw.
    """
    seen = np.isfinite(values)
    index = np.where(seen, np.arange(values.shape[1]), 0)
    np.maximum.accumulate(index, axis=1, out=index)
    filled = np.take_along_axis(values, index, axis=1)
    first = np.argmax(seen, axis=1)
    head = np.take_along_axis(values, first[:, None], axis=1)
    filled = np.where(np.isfinite(filled), filled, head)
    share = 1 - seen.mean(axis=1)
    usable = (share <= MOST_MISSING) & seen[:, 0] & seen[:, -2:].any(axis=1)
    return np.where(usable[:, None], filled, 0.0), usable


def carry(low: Singles) -> tuple[Singles, BoolArray]:
    """Return what `fill` does, of columns: (64, s), the oldest first, one series a column.

    Columns that are not usable are left with holes.
    """
    holes = ~np.isfinite(low)
    if not holes.any():
        return low, np.ones(low.shape[1], dtype=np.bool_)
    values = low.copy()
    for (before, now), hole in zip(pairwise(values), holes[1:], strict=True):
        np.copyto(now, before, where=hole)
    many = np.add.reduce(holes, axis=0, dtype=np.uint8) > MOST_MISSING * len(low)
    return values, ~(many | holes[0] | holes[-2:].all(axis=0))


class Pyramid:
    """Buckets of 1, 2, 4, ... points of all series, made once for any number of moments."""

    def __init__(self, values: FloatArray, origin: int = 0, *, whole: bool = False) -> None:
        """Make the buckets.

        Args:
            values: Shape (s, n).
            origin: Number of the first point since the beginning of time, in steps.
            whole: Whether earlier moments than the last will be asked for; else the narrowest
                buckets are made for the last window only.
        """
        self.origin = origin
        self._levels = {1: (origin, values)}
        level, first, points = values, origin, 1
        width = 2
        while values.shape[1] >= BUCKETS // 2 * width:
            columns = width // points
            skip = -first % columns
            count = (level.shape[1] - skip) // columns
            kept = count if whole or width >= COARSE else min(count, BUCKETS + AGO)
            low = envelope(level[:, : skip + columns * count], columns, kept)
            self._levels[width] = ((first + skip) // columns + count - kept, low)
            if columns == COARSE:  # from here on a bucket is made of smaller envelopes
                level, (first, points) = low, (self._levels[width][0], width)
            width *= 2

    @property
    def widths(self) -> list[int]:
        """Points a bucket, of every width that half a window of them fits in."""
        return list(self._levels)

    def closed(self, width: int, end: int) -> int:
        """Return the number of buckets that are over when *end* points are known."""
        return (self.origin + end) // width - self._levels[width][0]

    def end_of(self, width: int, closed: int) -> int:
        """Return the number, since the beginning of time, of the point after the last bucket."""
        return (self._levels[width][0] + closed) * width

    def lows(self, width: int, end: int) -> FloatArray:
        """Return the last 64 buckets (s, 64) that are over when *end* points are known.

        NaN where empty or before the first point.
        """
        count = self.closed(width, end)
        low = self._levels[width][1][:, max(0, count - BUCKETS) : max(0, count)]
        if low.shape[1] < BUCKETS:
            low = np.pad(low, ((0, 0), (BUCKETS - low.shape[1], 0)), constant_values=np.nan)
        return low

    def last(self, row: int, width: int, end: int, size: int) -> FloatArray:
        """Return the last *size* buckets of one series that are over when *end* points are known.

        NaN where there are none, or none were made.
        """
        count = self.closed(width, end)
        low = self._levels[width][1][row, max(0, count - size) : max(0, count)]
        if len(low) < size:
            low = np.pad(low, (size - len(low), 0), constant_values=np.nan)
        return low

    def behind(self, width: int, end: int) -> int:
        """Return the points after the last bucket that is over when *end* points are known."""
        return (self.origin + end) % width

    def coarse(self, row: int, begin: int, end: int) -> FloatArray:
        """Return the envelope in steps of `COARSE` of one series between two points.

        Of a shorter history it is the points themselves.
        """
        width = COARSE if COARSE in self._levels else 1
        first, level = self._levels[width]
        last = (self.origin + end) // width - first
        return level[row, max(0, -(-(self.origin + begin) // width) - first) : last]

    @property
    def coarse_width(self) -> int:
        """Points a column of `coarse`."""
        return COARSE if COARSE in self._levels else 1


def segment_start(values: FloatArray, starts: FloatArray | None) -> int:
    """Return the index at which the running incarnation of one series begins."""
    return segments(values, starts)[-1]


def segments(values: FloatArray, starts: FloatArray | None) -> list[int]:
    """Return the indexes at which the incarnations of one series begin, the running one last.

    With start times, a change of more than a few seconds is a restart. Without, it is a fall
    below half that lasts (the next dozen points stay below 70 % of what was before).
    """
    finite = np.isfinite(values)
    if not finite.any():
        return [len(values)]
    first = int(finite.argmax())
    if starts is not None and np.ptp(starts) <= MOVED:  # False where one is not known
        return [first]
    known = np.flatnonzero(np.isfinite(starts)) if starts is not None else ()
    if starts is not None and len(known):
        changed = np.flatnonzero(np.abs(np.diff(starts[known])) > MOVED)
        return [first, *(int(known[i + 1]) for i in changed if known[i + 1] > first)]
    seen = np.flatnonzero(finite)
    y = values[seen]
    if len(y) < 8 or y.min() >= RESTART_SHARE * y.max():
        return [first]
    before = np.minimum.reduce([y[:-5], y[1:-4], y[2:-3]])  # three points before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        after = np.maximum.reduce([y[3:-2], y[4:-1], y[5:]])  # three points after
    sudden = before - after > RESTART_DROP * y.max()  # the slope of a daily season is not
    out = [first]
    for i in np.flatnonzero((after < RESTART_SHARE * before) & sudden):
        at = int(seen[i + 3])
        if y[i + 3 : i + 15].max() < 0.7 * before[i] and at > out[-1] + 1:
            out.append(at)
    return out
