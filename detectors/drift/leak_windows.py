"""Growth of one panel, window by window: a cheap screen for all series, the full fit for a few."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from catalog.panel import FloatArray, Panel
from detectors.drift.buckets import (
    AGO,
    BUCKETS,
    COARSE,
    FEWEST,
    MOVED,
    BoolArray,
    Pyramid,
    Singles,
    carry,
    segments,
)
from detectors.drift.leak_growth import DAY, Growth, Life, fit

SIZES = tuple(range(64, 31, -4))  # buckets of a window: few sizes, so that designs are made once
REMEMBERED = 3  # incarnations before the running one that are remembered
SMALLEST_SHARE = 0.01  # growth in the window, of the level: less is not worth a page
SMALLEST_BYTES = 8 * 2**20  # and not less than this: a Python process breathes by that much


EIGHTH = BUCKETS // 8
TOGETHER = 4096  # series that are screened at once: what they need stays in the cache
# Sorts eight as far as its fourth and fifth (Batcher, AFIPS 1968), whole rows at a time.
MIDDLE = (
    (0, 1), (2, 3), (4, 5), (6, 7), (0, 2), (1, 3), (4, 6), (5, 7), (1, 2), (5, 6),
    (0, 4), (1, 5), (2, 6), (3, 7), (2, 4), (3, 5), (3, 4),
)  # fmt: skip


def middle(eight: Singles) -> Singles:
    """Return the median over the first axis, which is eight long; NaN where one is NaN."""
    rows = list(eight)
    for i, j in MIDDLE:
        rows[i], rows[j] = np.minimum(rows[i], rows[j]), np.maximum(rows[i], rows[j])
    found: Singles = (rows[3] + rows[4]) / 2
    return found


def enough(growth: Singles, level: Singles) -> BoolArray:
    """Return which growths are worth a look at this level; those that are NaN are not."""
    found: BoolArray = growth > np.maximum(SMALLEST_SHARE * level, SMALLEST_BYTES)
    return found


def rises(low: Singles, seconds: float) -> BoolArray:
    """Return which series rise enough in a window to deserve the full fit.

    In single precision: what rises by less than a ten-millionth of its level between two eighths
    may pass for standing still. Most series did not grow by enough between the first eighth and the
    last, and nothing else is asked of them.

    Args:
        low: (64, s) buckets, the oldest first, one series a column; NaN where empty.
        seconds: How long the window is.
    """
    values, picked = carry(low)
    first, last = middle(values[:EIGHTH]), middle(values[-EIGHTH:])
    picked &= enough(last - first, np.maximum(np.abs(first), np.abs(last)))
    some = np.flatnonzero(picked)
    if len(some):
        picked[some] = _rise(values[:, some], seconds)
    return picked


def _rise(values: Singles, seconds: float) -> BoolArray:
    blocks = middle(values.reshape(8, EIGHTH, -1).swapaxes(0, 1))
    growth = blocks[-1] - blocks[0]
    picked = enough(growth, np.abs(blocks).max(axis=0))
    if seconds < 2 * DAY:  # a longer one may hide both in a season
        change = np.diff(blocks, axis=0) > 0
        picked &= (change.sum(axis=0) >= 5) | change[-4:].all(axis=0)
        picked &= blocks[-2:].max(axis=0) >= blocks.max(axis=0)
    some = np.flatnonzero(picked)
    steps = np.abs(np.diff(values[:, some], axis=0))
    half = BUCKETS // 2 - 1
    picked[some] = growth[some] > 3 * np.partition(steps, half, axis=0)[half]
    return picked


def screen(low: FloatArray, seconds: float) -> BoolArray:
    """Return which series rise enough in a window (s, 64) of so many seconds (`rises`)."""
    picked = np.zeros(len(low), dtype=np.bool_)
    for begin in range(0, len(low), TOGETHER):
        some = slice(begin, begin + TOGETHER)
        picked[some] = rises(np.ascontiguousarray(low[some].T, dtype=np.float32), seconds)
    return picked


def grow(panel: Panel) -> dict[int, list[Growth]]:
    """Return for each series that the screen raises its windows, shortest first.

    Each window lies within one incarnation; the longest is as much of it as fits. Of those before
    the running one there is one window each (`Growth.over`).
    """
    pyramid = Pyramid(panel.values, round(float(panel.times[0]) / panel.step))
    end = len(panel.times)
    raised: dict[int, list[int]] = defaultdict(list)
    for width in pyramid.widths:
        picked = screen(pyramid.lows(width, end), width * BUCKETS * panel.step)
        for row in np.flatnonzero(picked).tolist():
            raised[row].append(width)
    for row in _young(panel):
        raised.setdefault(row, [])
    return grown(panel, pyramid, raised)


def grown(
    panel: Panel, pyramid: Pyramid, raised: Mapping[int, list[int]]
) -> dict[int, list[Growth]]:
    """Return the growth of the series that are *raised*: row -> widths of its windows."""
    end = len(panel.times)
    lives = {
        row: lives_of(row, segments(*_series(panel, row)), end, widths)
        for row, widths in raised.items()
    }
    return fitted(pyramid, lives, float(panel.times[0]), panel.step, {})


Key = tuple[int, int, int, int, int]  # row, begin of the life, points a bucket, buckets, the last
Lives = Mapping[int, list[tuple["Life", list[int]]]]


def fitted(
    pyramid: Pyramid, lives: Lives, first: float, step: float, cache: dict[Key, Growth | None]
) -> dict[int, list[Growth]]:
    """Return the growth of every window of *lives*, with what it was an eighth of it ago.

    Args:
        pyramid: Buckets of all series.
        lives: Row -> its lives, each with the widths that the screen raised.
        first: Unix seconds of the first point of all.
        step: Seconds a point.
        cache: What was fitted before; what is fitted now is added.
    """
    wanted: dict[Key, Life] = {}
    for row_lives in lives.values():
        for life, widths in row_lives:
            for width, size in windows_of(pyramid, life, widths):
                wanted[_key(pyramid, life, width, size)] = life
    _fit_missing(pyramid, wanted, first, step, cache)
    again: dict[Key, Key] = {}
    lives_then: dict[Key, Life] = {}
    for key, life in wanted.items():
        growth = cache[key]
        if growth is None or life.over or not growth.promising:
            continue
        row, _, width, _, _ = key
        then = Life(row, life.begin, life.end - pyramid.behind(width, life.end) - AGO * width)
        room = (then.end - then.begin) // width
        if room >= FEWEST:
            size = next(size for size in SIZES if size <= room)
            again[key] = _key(pyramid, then, width, size)
            lives_then[again[key]] = then
    _fit_missing(pyramid, lives_then, first, step, cache)
    found: dict[int, list[Growth]] = defaultdict(list)
    for key in sorted(wanted, key=lambda key: key[2] * key[3]):
        growth = cache[key]
        if growth is not None:
            ago = cache[again[key]] if key in again else None
            found[key[0]].append(replace(growth, ago=ago, repeated=key in again))
    return found


def _key(pyramid: Pyramid, life: Life, width: int, size: int) -> Key:
    return life.row, life.begin, width, size, pyramid.closed(width, life.end)


def _fit_missing(
    pyramid: Pyramid,
    wanted: Mapping[Key, Life],
    first: float,
    step: float,
    cache: dict[Key, Growth | None],
) -> None:
    """Fit what is *wanted* and not in the *cache*, all of one size together."""
    jobs: dict[tuple[int, int], list[Key]] = defaultdict(list)
    for key in wanted:
        if key not in cache:
            jobs[key[2], key[3]].append(key)
    for (width, size), keys in sorted(jobs.items()):
        growths = fit(pyramid, width, size, [wanted[key] for key in keys], first, step)
        cache.update(zip(keys, growths, strict=True))


def lives_of(
    row: int, begins: list[int], end: int, widths: list[int]
) -> list[tuple[Life, list[int]]]:
    """Return the running life of one series with the windows that it was raised in, and the past.

    Args:
        row: Position in the panel.
        begins: Points at which its lives begin.
        end: Points that are known.
        widths: Points a bucket, of the windows that the screen raised.
    """
    past = [Life(row, *life, over=True) for life in pairwise(begins)][-REMEMBERED:]
    return [
        *((life, []) for life in past if life.end - life.begin >= FEWEST),
        (Life(row, begins[-1], end), widths),
    ]


def _young(panel: Panel) -> list[int]:
    """Return the series whose life is too short for any window of the screen.

    They are few: all of a short history, and in a long one those that began or restarted lately.
    """
    before = panel.values[:, : max(0, panel.values.shape[1] - BUCKETS + 1)]
    young = ~np.isfinite(before).any(axis=1)
    if panel.starts is not None:
        late = panel.starts[:, -BUCKETS:]
        known = np.isfinite(late)
        newest = np.max(late, axis=1, initial=-np.inf, where=known)
        young |= newest - np.min(late, axis=1, initial=np.inf, where=known) > MOVED
    return [int(row) for row in np.flatnonzero(young)]


def windows_of(pyramid: Pyramid, life: Life, widths: list[int]) -> list[tuple[int, int]]:
    """Return (width, size) of the windows of one series that its life has room for."""
    jobs = []
    longest = None
    for width in pyramid.widths:
        if life.over and 1 < width < COARSE:
            continue  # these are made for the present only
        room = (life.end - life.begin - pyramid.behind(width, life.end)) // width
        if room >= BUCKETS and width in widths:
            jobs.append((width, BUCKETS))
        if room >= FEWEST:
            size = next(size for size in SIZES if size <= room)
            if longest is None or width * size > longest[0] * longest[1]:
                longest = (width, size)
    return list(dict.fromkeys([*jobs, longest] if longest else jobs))


def _series(panel: Panel, row: int) -> tuple[FloatArray, FloatArray | None]:
    """Return values and start times of one series."""
    return panel.values[row], None if panel.starts is None else panel.starts[row]
