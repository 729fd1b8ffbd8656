"""The bands of grafana/promql-anomaly-detection (rules/adaptive.yml and rules/robust.yml, 2025).

Recorded rules are taken as evaluated every minute; upstream records the seasonal bands every five.
Both rules fire on either side of the band, as published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.peers.peer import DAY, HOUR, Answer, Peer, View, at_looks
from benchmarks.peers.rolling import Moments, delayed, held, median
from catalog.panel import FloatArray

MULTIPLIER = 2.0  # of the standard deviation, and of the median absolute deviation
COVARIATION = 0.5  # below this variation of an hour, its standard deviation is left out
MARGIN = 0.5


@dataclass(frozen=True)
class Bands:
    """What is compared, what the margin is about, and the bands beside the margin; (s, n) each."""

    level: FloatArray
    middle: FloatArray
    low: FloatArray
    high: FloatArray

    def upper(self, margin: float) -> FloatArray:
        """Return the upper band."""
        out: FloatArray = np.fmax(self.middle * (1 + margin), self.high)
        return out

    def lower(self, margin: float) -> FloatArray:
        """Return the lower band."""
        out: FloatArray = np.maximum(np.fmin(self.middle * (1 - margin), self.low), 0.0)
        return out


def adaptive(view: View) -> Bands:
    """Return the bands of the adaptive strategy."""
    values = np.where(view.values > 0, view.values, np.nan)
    hour = Moments(values, view.points(HOUR))
    lively = np.where(hour.std > COVARIATION * hour.mean, hour.std, np.nan)
    smooth = MULTIPLIER * Moments(np.nan_to_num(lively), view.points(26 * HOUR)).mean
    count = Moments(np.isfinite(lively).astype(float), view.points(26 * HOUR)).mean
    with np.errstate(invalid="ignore", divide="ignore"):
        smooth = np.where(count > 1e-9, smooth / count, np.nan)
    low, high = hour.mean - smooth, hour.mean + smooth
    for back in (167.5 * HOUR, 23.5 * HOUR):
        then = view.points(back)
        mean, spread = delayed(hour.mean, then), MULTIPLIER * delayed(hour.std, then)
        low, high = np.fmin(low, mean - spread), np.fmax(high, mean + spread)
    return Bands(values, hour.mean, low, high)


def robust(view: View) -> Bands:
    """Return the bands of the robust strategy."""
    values = np.where(view.values > 0, view.values, np.nan)
    hour, day = view.points(HOUR), view.points(DAY)
    middle = median(values, day)
    spread = MULTIPLIER * median(np.abs(values - middle), day)
    level = median(values, hour)
    low, high = middle - spread, middle + spread
    every = view.points(300)
    for back in (167.75 * HOUR, 23.75 * HOUR):
        then = view.points(back)
        if then >= values.shape[1]:
            continue
        before = delayed(level, then)
        away = np.abs(delayed(values, then) - before)
        spread = MULTIPLIER * _strided_median(away, hour // every, every)
        low, high = np.fmin(low, before - spread), np.fmax(high, before + spread)
    return Bands(level, middle, low, high)


def _strided_median(values: FloatArray, count: int, every: int) -> FloatArray:
    """Return the median of the last *count* values, *every* so many steps, and the newest."""
    out = np.full(values.shape, np.nan)
    for phase in range(every):
        out[:, phase::every] = median(values[:, phase::every], count)
    return out


def _run(view: View, grid: Sequence[float], bands: Callable[[View], Bands]) -> Answer:
    found = bands(view)
    pending = view.points(300)
    fires = []
    for margin in grid:
        outside = (found.level < found.lower(margin)) | (found.level > found.upper(margin))
        fires.append(at_looks(held(outside, pending), view))
    return Answer(np.array(fires))


# The same in one expression each: recorded rules written out as subqueries.
_M = "memory_bytes"
ADAPTIVE_UPPER = f"""max without(of) (
  label_replace(avg_over_time({_M}[1h]) + 2 * avg_over_time((stddev_over_time({_M}[1h])
    > 0.5 * avg_over_time({_M}[1h]))[26h:1m]), "of", "short", "", "")
  or label_replace(avg_over_time({_M}[1h]) * 1.5, "of", "margin", "", "")
  or label_replace(avg_over_time({_M}[1h] offset 167h30m)
    + 2 * stddev_over_time({_M}[1h] offset 167h30m), "of", "week", "", "")
  or label_replace(avg_over_time({_M}[1h] offset 23h30m)
    + 2 * stddev_over_time({_M}[1h] offset 23h30m), "of", "day", "", ""))"""
_MIDDLE = f"quantile_over_time(0.5, {_M}[1d])"


def _season(back: str, name: str) -> str:
    before = f"quantile_over_time(0.5, {_M}[1h] offset {back})"
    away = f"quantile_over_time(0.5, abs({_M} offset {back} - {before})[1h:5m])"
    return f'label_replace({before} + 2 * {away}, "of", "{name}", "", "")'


ROBUST_UPPER = f"""max without(of) (
  label_replace({_MIDDLE} + 2 * quantile_over_time(0.5, abs({_M} - {_MIDDLE})[1d:1m]),
    "of", "short", "", "")
  or label_replace({_MIDDLE} * 1.5, "of", "margin", "", "")
  or {_season("167h45m", "week")}
  or {_season("23h45m", "day")})"""

MARGINS = (0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
ADAPTIVE = Peer(
    "Grafana adaptive",
    "grafana/promql-anomaly-detection, rules/adaptive.yml",
    "outside the mean of 1h +/- max(2 smoothed deviations, 50 %) and the same hour of a day and "
    "a week ago, for 5m",
    "the margin (margin_multiplier)",
    MARGINS,
    MARGIN,
    partial(_run, bands=adaptive),
)
ROBUST = Peer(
    "Grafana robust",
    "grafana/promql-anomaly-detection, rules/robust.yml",
    "median of 1h outside the median of 24h +/- max(2 absolute deviations, 50 %) and the same "
    "hour of a day and a week ago, for 5m",
    "the margin (margin_multiplier)",
    MARGINS,
    MARGIN,
    partial(_run, bands=robust),
    most=18,
)
