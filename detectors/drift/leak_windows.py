"""Growth of one panel, window by window: a cheap screen for all series, the full fit for a few."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

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
from detectors.drift.compete import ENDING, GROWING, Competition, compete

DAY = 86_400.0
SMALLEST_GROWTH = 0.003  # of the level within the window: less is not worth a fit
WARMING = ("warm_up", "warm_up+step", "ramp", "ramp+step")
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
        against_standing: Margin in log-likelihood of growth over flat and steps.
        against_warm_up: Margin of growth over fillings that end.
        winner: The best shape of all.
    """

    row: int
    start: float
    end: float
    times: FloatArray
    values: FloatArray
    slope: float
    slope_se: float
    onset: float
    against_standing: float
    against_warm_up: float
    winner: str


def screen(window: Windows, step: float) -> BoolArray:
    """Return which series rise enough in this window to deserve the full fit."""
    blocks = np.median(window.values.reshape(-1, 8, BUCKETS // 8), axis=2)
    change = np.diff(blocks, axis=1)
    growth = blocks[:, -1] - blocks[:, 0]
    jitter = np.median(np.abs(np.diff(window.values, axis=1)), axis=1)
    level = np.abs(blocks).max(axis=1)
    enough = (growth > 3 * jitter) & (growth > SMALLEST_GROWTH * level)
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
    if BUCKETS > panel.values.shape[1] >= FEWEST:
        for row in range(len(panel.labels)):
            raised[row] = []
    jobs: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row, widths in raised.items():
        for job in _jobs(panel, row, widths):
            jobs[job].append(row)
    found: dict[int, list[Growth]] = defaultdict(list)
    for (width, size), rows in sorted(jobs.items()):
        for growth in _fit(panel, rows, width, size):
            found[growth.row].append(growth)
    return found


def _jobs(panel: Panel, row: int, widths: list[int]) -> list[tuple[int, int]]:
    """Return (width, size) of the windows of one series that its incarnation has room for."""
    starts = None if panel.starts is None else panel.starts[row]
    room = len(panel.times) - segment_start(panel.values[row], starts)
    jobs = [(width, BUCKETS) for width in widths if width * BUCKETS <= room]
    whole = -(-room // BUCKETS)
    if room >= FEWEST and (whole, room // whole) not in jobs:
        jobs.append((whole, room // whole))
    return jobs


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
    end = float(panel.times[-1])
    return [
        _growth(rows[index], place, values[place], result, end, seconds)
        for place, index in enumerate(good)
    ]


def _growth(
    row: int, place: int, values: FloatArray, result: Competition, end: float, seconds: float
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
        against_standing=growing - max(score[name] for name in STANDING),
        against_warm_up=growing - max(score[name] for name in WARMING),
        winner=max(score, key=lambda name: score[name]),
    )
