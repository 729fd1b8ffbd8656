"""Growth of one panel, window by window: a cheap screen for all series, the full fit for a few."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from catalog.panel import FloatArray, Panel
from detectors.drift.buckets import (
    BUCKETS,
    FEWEST,
    BoolArray,
    Windows,
    envelope,
    fill,
    segment_start,
    windows,
)
from detectors.drift.compete import ENDING, GROWING, Competition, compete, season_score

DAY = 86_400.0
SHORTEST_SEASON = 5400.0  # seconds; a shorter part of a day is a line, whatever it belongs to
STRAIGHT = 0.03  # of the growth seen: what a rate that follows the day's traffic may bend
SIZES = (32, 40, 48, 56, 64)  # buckets of a window: few sizes, so that designs are made once
SMALLEST_SHARE = 0.01  # growth in the window, of the level: less is not worth a page
SMALLEST_BYTES = 8 * 2**20  # and not less than this: a Python process breathes by that much
WARMING = ("warm_up", "warm_up+step", "fill+fill", "ramp", "ramp+step")
STANDING = tuple(name for name in ENDING if name not in WARMING)


@dataclass(frozen=True)
class Growth:
    """How one window of one series looks.

    Attributes:
        row: Position of the series in the panel.
        start: Unix seconds at which the window begins.
        end: Unix seconds at which it ends.
        times: Middles of its buckets.
        values: Low envelope.
        slope: Units per second.
        slope_se: Its standard error.
        onset: Unix seconds at which growth began, as estimated.
        noise: Standard deviation of the level about its line, since the onset.
        against_standing: Margin in log-likelihood of growth over flat and steps.
        against_warm_up: Margin of growth over fillings that end.
        winner: The best shape of all.
        share: The window as a share of the life of this incarnation, as far as it is known.
        earlier: Largest growth over as long a time before the window, as a share of its own.
    """

    row: int
    start: float
    end: float
    times: FloatArray
    values: FloatArray
    slope: float
    slope_se: float
    onset: float
    noise: float
    against_standing: float
    against_warm_up: float
    winner: str
    share: float
    earlier: float


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

    Each window lies within the running incarnation; the last one is the whole incarnation.
    """
    step = panel.step
    raised: dict[int, list[int]] = defaultdict(list)
    for window in windows(panel.values):
        for row in np.flatnonzero(screen(window, step)).tolist():
            raised[row].append(window.width)
    for row in _young(panel):
        raised.setdefault(row, [])
    jobs: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row, widths in raised.items():
        for job in _jobs(panel, row, widths):
            jobs[job].append(row)
    found: dict[int, list[Growth]] = defaultdict(list)
    for (width, size), rows in sorted(jobs.items(), key=lambda job: job[0][0] * job[0][1]):
        for growth in _fit(panel, rows, width, size):
            found[growth.row].append(growth)
    return found


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


def _jobs(panel: Panel, row: int, widths: list[int]) -> list[tuple[int, int]]:
    """Return (width, size) of the windows of one series that its incarnation has room for."""
    room = len(panel.times) - segment_start(*_series(panel, row))
    jobs = [(width, BUCKETS) for width in widths if width * BUCKETS <= room]
    if room >= FEWEST:  # the whole life, by the size that leaves out least of it
        size = max(SIZES, key=lambda size: (room // size * size, size))
        jobs.append((room // size, size))
    return list(dict.fromkeys(jobs))


def _fit(panel: Panel, rows: list[int], width: int, size: int) -> list[Growth]:
    """Fit one window of several series."""
    filled, usable = fill(envelope(panel.values[rows], width, size))
    good = np.flatnonzero(usable)
    if not len(good):
        return []
    seconds = width * panel.step
    day = DAY / seconds if size * seconds >= 2 * DAY else None
    values = filled[good]
    result = compete(values, day)
    partly = SHORTEST_SEASON <= size * seconds < 2 * DAY
    alone = season_score(values, DAY / seconds) if partly else None
    end = float(panel.times[-1])
    out = []
    for place, index in enumerate(good):
        begin = segment_start(*_series(panel, rows[index]))
        share, earlier = _before(panel.values[rows[index]][begin:], width, size)
        growth = _growth(rows[index], place, values[place], result, end, seconds, share, earlier)
        # Later what the day before brought tells a season, see `earlier`.
        if alone is not None and (len(panel.times) - begin) * panel.step < 2 * DAY:
            margin = result.best(GROWING)[place] - alone[place]
            growth = replace(growth, against_warm_up=min(growth.against_warm_up, float(margin)))
        out.append(growth)
    return out


def _noise(values: FloatArray) -> float:
    """Return the standard deviation of *values* about their straight line."""
    t = np.arange(len(values)) - (len(values) - 1) / 2
    level = values - values.mean()
    if len(values) < 3:
        return 0.0
    return float(np.std(level - t * (t @ level) / (t @ t), ddof=2))


def _series(panel: Panel, row: int) -> tuple[FloatArray, FloatArray | None]:
    """Return values and start times of one series."""
    return panel.values[row], None if panel.starts is None else panel.starts[row]


def _before(values: FloatArray, width: int, size: int) -> tuple[float, float]:
    """Return the share of the life that the window covers, and what it grew before as its share.

    The first eighth of what came before is left out: every process grows when it starts. So is a
    single jump that makes up most of a growth: a deploy is no precedent for a slope.
    """
    points = width * size
    share = points / len(values)
    block = max(1, points // 8)
    before = values[(len(values) - points) // 8 : len(values) - points]
    count = len(before) // block
    own = _levels(values[len(values) - points :], block, 8)
    growth = float(np.nanmax(own[-2:]) - np.nanmin(own[:2])) if np.isfinite(own).any() else 0.0
    if count < 2 or growth <= 0:
        return share, 0.0
    change = np.nan_to_num(np.diff(_levels(before, block, count)))
    largest = 0.0
    for lag in range(1, min(8, count)):
        parts = np.lib.stride_tricks.sliding_window_view(change, lag)
        total, jump = parts.sum(axis=1), parts.max(axis=1)
        smooth = np.where(jump > total / 2, total - jump, total)
        largest = max(largest, float(smooth.max()))
    return share, largest / growth


def _levels(values: FloatArray, block: int, count: int) -> FloatArray:
    """Return the low envelope of the last *count* blocks of one series."""
    levels: FloatArray = envelope(values[None, :], block, count)[0]
    return levels


def _growth(
    row: int,
    place: int,
    values: FloatArray,
    result: Competition,
    end: float,
    seconds: float,
    share: float,
    earlier: float,
) -> Growth:
    """Return what the competition said about one series."""
    size = len(values)
    start = end - size * seconds
    score = {name: float(value[place]) for name, value in result.score.items()}
    growing = max(score[name] for name in GROWING)
    return Growth(
        row=row,
        start=start,
        end=end,
        times=start + (np.arange(size, dtype=np.float64) + 0.5) * seconds,
        values=values,
        slope=float(result.slope[place]) / seconds,
        slope_se=float(result.slope_se[place]) / seconds,
        onset=start + float(result.onset[place]) * size * seconds,
        noise=_noise(values[int(result.onset[place] * size) :]),
        against_standing=growing - max(score[name] for name in STANDING),
        against_warm_up=growing - max(score[name] for name in WARMING),
        winner=max(score, key=lambda name: score[name]),
        share=share,
        earlier=earlier,
    )


def since(growth: Growth, found: Sequence[Growth]) -> float:
    """Return the instant from which the series has followed the line of *growth*.

    The window that knows the rate best is often younger than the growth, and the onset that a
    longer window estimates hangs on its few hinges; so the line is followed backwards through the
    longest window until the series leaves it: before its onset a leak stood above its own line.
    """
    longest = min(found, key=lambda g: g.start)
    inside = growth.times >= growth.onset
    if longest is growth or inside.sum() < 3:
        return growth.onset
    middle = growth.values[inside].mean() - growth.slope * growth.times[inside].mean()
    rest = growth.values[inside] - middle - growth.slope * growth.times[inside]
    wide = longest.times[1] - longest.times[0]
    room = 3 * float(rest.std()) + growth.slope * (wide + STRAIGHT * (growth.end - growth.onset))
    apart = np.abs(longest.values - middle - growth.slope * longest.times) > room
    left = np.flatnonzero(apart & (longest.times < growth.onset))
    follows = longest.start if not len(left) else float(longest.times[left[-1]] + wide / 2)
    return min(growth.onset, follows)
