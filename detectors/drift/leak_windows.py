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
    BoolArray,
    Pyramid,
    Windows,
    segments,
)
from detectors.drift.leak_growth import DAY, Growth, Life, fit

SIZES = tuple(range(64, 31, -4))  # buckets of a window: few sizes, so that designs are made once
REMEMBERED = 3  # incarnations before the running one that are remembered
SMALLEST_SHARE = 0.01  # growth in the window, of the level: less is not worth a page
SMALLEST_BYTES = 8 * 2**20  # and not less than this: a Python process breathes by that much


def screen(window: Windows, step: float) -> BoolArray:
    """Return which series rise enough in this window to deserve the full fit."""
    blocks = np.median(window.values.reshape(-1, 8, BUCKETS // 8), axis=2)
    change = np.diff(blocks, axis=1)
    growth = blocks[:, -1] - blocks[:, 0]
    jitter = np.median(np.abs(np.diff(window.values, axis=1)), axis=1)
    level = np.abs(blocks).max(axis=1)
    enough = (growth > 3 * jitter) & (growth > np.maximum(SMALLEST_SHARE * level, SMALLEST_BYTES))
    rising = ((change > 0).sum(axis=1) >= 5) | (change[:, -4:] > 0).all(axis=1)
    highest = blocks[:, -2:].max(axis=1) >= blocks.max(axis=1)
    if window.width * BUCKETS * step >= 2 * DAY:  # a season may hide both
        rising = highest = np.ones_like(enough)
    picked: BoolArray = window.usable & enough & rising & highest
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
        window = pyramid.window(width, end)
        for row in np.flatnonzero(screen(window, panel.step)).tolist():
            raised[row].append(width)
    for row in _young(panel):
        raised.setdefault(row, [])
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
        young |= newest - np.min(late, axis=1, initial=np.inf, where=known) > 5.0
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
