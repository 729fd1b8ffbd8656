"""From raw points to a few dozen buckets: low envelopes over windows that end now.

The low envelope (first quartile of a bucket) is what a garbage collector leaves behind: it follows
a rising floor under a sawtooth, and a spike does not touch it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from catalog.panel import FloatArray

IntArray = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]

BUCKETS = 64
FEWEST = 32  # fewer points than this are not judged
QUANTILE = 0.25
MOST_MISSING = 1 / 3  # of the buckets of a window
RESTART_DROP = 0.4  # and by this share of the highest level, within five points
RESTART_SHARE = 0.5  # without start times, memory that falls below this share is a new process


@dataclass(frozen=True)
class Windows:
    """One window length, for all series: buckets that end at the last point."""

    width: int  # points a bucket
    values: FloatArray  # (s, K), filled
    usable: BoolArray  # (s,)


def envelope(values: FloatArray, width: int, size: int = BUCKETS) -> FloatArray:
    """Return the low envelope (s, size) of the last size * width points; NaN where empty."""
    tail = values[:, values.shape[1] - size * width :]
    if width == 1:
        return tail.copy()
    parts = np.sort(tail.reshape(len(values), size, width), axis=2)  # NaN go last
    count = np.isfinite(parts).sum(axis=2)
    place = np.floor(QUANTILE * np.maximum(count - 1, 0)).astype(np.intp)
    low: FloatArray = np.take_along_axis(parts, place[:, :, None], axis=2)[:, :, 0]
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


def windows(values: FloatArray) -> list[Windows]:
    """Return all windows of 64 buckets of 1, 2, 4, ... points that fit, shortest first."""
    out = []
    level = values
    width, points = 1, 1  # points a bucket; points of *level* a bucket
    while values.shape[1] >= BUCKETS * width:
        filled, usable = fill(envelope(level, points))
        out.append(Windows(width, filled, usable))
        width, points = width * 2, points * 2
        if points == 16:  # from here on a bucket is made of smaller envelopes
            level = envelope(level, 8, level.shape[1] // 8)
            points = 2
    return out


def segment_start(values: FloatArray, starts: FloatArray | None) -> int:
    """Return the index at which the running incarnation of one series begins.

    With start times, a change of more than a few seconds is a restart. Without, it is a fall
    below half that lasts (the next dozen points stay below 70 % of what was before).
    """
    seen = np.flatnonzero(np.isfinite(values))
    if not len(seen):
        return len(values)
    first = int(seen[0])
    if starts is not None:
        known = np.flatnonzero(np.isfinite(starts))
        changed = np.flatnonzero(np.abs(np.diff(starts[known])) > 5.0)
        return max(first, int(known[changed[-1] + 1])) if len(changed) else first
    y = values[seen]
    if len(y) < 8 or y.min() >= RESTART_SHARE * y.max():
        return first
    before = np.minimum.reduce([y[:-5], y[1:-4], y[2:-3]])  # three points before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        after = np.maximum.reduce([y[3:-2], y[4:-1], y[5:]])  # three points after
    sudden = before - after > RESTART_DROP * y.max()  # the slope of a daily season is not
    falls = np.flatnonzero((after < RESTART_SHARE * before) & sudden)
    for i in falls[::-1]:
        if y[i + 3 : i + 15].max() < 0.7 * before[i]:
            return int(seen[i + 3])
    return first
