"""Stable, drifting or unknown: the straight line through one series, told from season and load.

A line with the daily season and the load beside it (least squares); its error is widened for
autocorrelation. It drifts only if the line is clear, the change matters, and every quarter of the
span went on changing the same way: a step or a warm-up that ended is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import numpy as np

from catalog.panel import FloatArray, Panel
from catalog.signals import SIGNALS
from detectors.drift.buckets import FEWEST, segment_start
from detectors.drift.coverage import STALE_STEPS

State = Literal["stable", "drifting", "unknown"]
BUCKETS: Final = 96
DAY: Final = 86_400.0
Z90: Final = 1.645
CLEAR: Final = 3.0
"""Slope over its standard error from which a line is believed."""
MATTERS: Final = 0.03
"""Change over the span, as a share of the level, that is worth a word."""
MATTERS_RATIO: Final = 0.01
EACH_QUARTER: Final = 0.08


@dataclass(frozen=True)
class Reading:
    """What one series does.

    Attributes:
        state: stable, drifting, or unknown.
        why: One phrase.
        level: Newest level, in units of the signal; NaN if unknown.
        slope: Units per second; NaN if unknown.
        low: Lower end of its 90 % interval.
        high: Upper end of its 90 % interval.
        judged_from: Instant of the first sample that is judged; NaN if unknown.
        line: Times and values of the fitted line, or None.
    """

    state: State
    why: str
    level: float = math.nan
    slope: float = math.nan
    low: float = math.nan
    high: float = math.nan
    judged_from: float = math.nan
    line: tuple[FloatArray, FloatArray] | None = None


def readings(panel: Panel, as_of: float, human: Callable[[float], str]) -> list[Reading]:
    """Return what each series of *panel* does at *as_of*; *human* spells a value."""
    panel = panel.until(as_of)
    values = ratio_of(panel)
    return [_reading(panel, values[row], row, as_of, human) for row in range(len(panel.labels))]


def ratio_of(panel: Panel) -> FloatArray:
    """Return the values, or the share of successes where the panel counts."""
    if panel.trials is None:
        return panel.values
    known = panel.trials > 0
    return np.where(known, panel.values / np.where(known, panel.trials, 1.0), np.nan)


def _reading(
    panel: Panel, values: FloatArray, row: int, as_of: float, human: Callable[[float], str]
) -> Reading:
    seen = np.flatnonzero(np.isfinite(values))
    if not len(seen):
        never = panel.trials is not None and np.nansum(panel.trials[row]) == 0
        return Reading("unknown", "no trials, so no share" if never else "no data")
    begin = 0
    if panel.starts is not None:
        begin = segment_start(panel.values[row], panel.starts[row])
    seen = seen[seen >= begin]
    if as_of - panel.times[np.flatnonzero(np.isfinite(values))[-1]] > STALE_STEPS * panel.step:
        return Reading("unknown", "its samples stopped", judged_from=float(panel.times[begin]))
    if len(seen) < FEWEST:
        return Reading("unknown", f"too few samples since it started ({len(seen)})")
    first = int(seen[0])
    weights = None if panel.trials is None else panel.trials[row, first:]
    loads = None if panel.load is None else panel.load[row, first:]
    times, level, load = _bucketed(panel.times[first:], values[first:], weights, loads)
    judged_from = float(panel.times[first])
    share = len(times) / min(BUCKETS, len(panel.times) - first)
    if share < 2 / 3:
        return Reading("unknown", f"{1 - share:.0%} of it is missing", judged_from=judged_from)
    slope, error, line = _line(times, level, load)
    newest = float(np.median(level[-max(1, len(level) // 24) :]))
    span = float(times[-1] - times[0])
    # Memory does not follow the day as all that follows the traffic does.
    seasonal = SIGNALS[panel.signal].level not in ("process", "container", "host")
    state, why = _state(level, slope, error, span, weights is not None, seasonal, human)
    margin = Z90 * error
    return Reading(
        state, why, newest, slope, slope - margin, slope + margin, judged_from, (times, line)
    )


def _bucketed(
    times: FloatArray, values: FloatArray, weights: FloatArray | None, load: FloatArray | None
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Return bucket middles, levels (medians; counts: weighted means) and loads."""
    edges = np.linspace(0, len(times), min(BUCKETS, len(times)) + 1).astype(np.intp)
    out: list[tuple[float, float, float]] = []
    for first, stop in pairwise(edges):
        part = slice(first, stop)
        known = np.isfinite(values[part])
        if not known.any():
            continue
        if weights is None:
            level = float(np.median(values[part][known]))
        else:
            level = float(np.average(values[part][known], weights=weights[part][known]))
        loads = np.array([]) if load is None else load[part][np.isfinite(load[part])]
        here = float(loads.mean()) if len(loads) else math.nan
        out.append((float(times[part][known].mean()), level, here))
    table = np.array(out)
    with_load = load is not None and bool(np.isfinite(table[:, 2]).all())
    return table[:, 0], table[:, 1], table[:, 2] if with_load else None


def _line(
    times: FloatArray, level: FloatArray, load: FloatArray | None
) -> tuple[float, float, FloatArray]:
    """Return slope, its standard error and the line, season and load held apart."""
    t = times - times.mean()
    columns = [np.ones_like(t), t]
    if times[-1] - times[0] >= 2 * DAY:
        for k in (1, 2):
            angle = 2 * np.pi * k * times / DAY
            columns += [np.cos(angle), np.sin(angle)]
    if load is not None and load.std() > 1e-9 * abs(load.mean()):
        columns.append(load - load.mean())
    design = np.stack(columns, axis=1)
    scale = np.abs(design).max(axis=0)
    inverse = np.linalg.pinv(design / scale)
    weights = (inverse @ level) / scale
    rest = level - design @ weights
    free = max(1, len(level) - design.shape[1])
    variance = float(rest @ rest) / free
    square = float((inverse @ inverse.T)[1, 1]) / scale[1] ** 2
    following = float(rest[1:] @ rest[:-1]) / max(float(rest @ rest), 1e-300)
    # The estimate is biased downwards on short series (Marriott and Pope, 1954).
    rho = min(0.97, max(0.0, following + (1 + 3 * following) / len(level)))
    error = math.sqrt(variance * square * (1 + rho) / (1 - rho))
    return float(weights[1]), error, np.asarray(weights[0] + weights[1] * t, dtype=np.float64)


def _state(
    level: FloatArray,
    slope: float,
    error: float,
    span: float,
    is_ratio: bool,
    seasonal: bool,
    human: Callable[[float], str],
) -> tuple[State, str]:
    change = slope * span
    size = float(np.median(np.abs(level)))
    matters = MATTERS_RATIO if is_ratio else MATTERS * size
    if abs(change) < matters or abs(change) == 0:
        return "stable", f"moved less than {human(max(matters, 0.0))}" if matters else "constant"
    if abs(slope) <= CLEAR * error:
        return "stable", "no line clearer than its noise"
    blocks = np.array([np.median(part) for part in np.array_split(level, 4)])
    moved = np.diff(blocks) * np.sign(change)
    if (moved < EACH_QUARTER * moved.sum()).any():
        return "stable", "moved, but did not keep moving"
    if seasonal and span < 2 * DAY * 0.98:
        return "unknown", "moves, but in under two days nobody can tell it from the daily season"
    return "drifting", "moves the same way in every quarter"
