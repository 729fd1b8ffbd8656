"""Holt's linear trend by statsmodels: level and trend told ahead until they meet the limit."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from benchmarks.peers.peer import Answer, Peer, View, over
from catalog.panel import FloatArray

WEEK = 168
REFIT = 24  # hours
AHEAD = (3.0, 6.0, 12.0, 24.0, 48.0, 96.0, 168.0)


def _run(view: View, grid: Sequence[float]) -> Answer:
    left = np.full((len(view.values), len(view.looks)), np.nan)
    for row, series in enumerate(view.hourly):
        level, trend = states(series, int(view.hours[0]))
        at = view.hours - 1
        with np.errstate(divide="ignore", invalid="ignore"):
            hours = np.maximum(1 - level[at], 0) / np.maximum(trend[at], 0)
        left[row] = hours
    return Answer(over(-left, [-ahead for ahead in grid]))


def states(series: FloatArray, first: int) -> tuple[FloatArray, FloatArray]:
    """Return level and trend at every hour, with weights fitted anew each day on a week."""
    from statsmodels.tsa.holtwinters import Holt  # noqa: PLC0415 - an extra

    level, trend = np.full(len(series), np.nan), np.full(len(series), np.nan)
    for end in range(first, len(series) + 1, REFIT):
        since = max(0, end - WEEK)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about convergence: it is taken as it comes
            fitted = Holt(series[since:end], initialization_method="estimated").fit()
        alpha, beta = fitted.params["smoothing_level"], fitted.params["smoothing_trend"]
        now, rise = float(fitted.level[-1]), float(fitted.trend[-1])
        level[end - 1], trend[end - 1] = now, rise
        for hour in range(end, min(end + REFIT - 1, len(series))):
            before = now
            now = alpha * series[hour] + (1 - alpha) * (before + rise)
            rise = beta * (now - before) + (1 - beta) * rise
            level[hour], trend[hour] = now, rise
    return level, trend


PEER = Peer(
    "Holt",
    "statsmodels.tsa.holtwinters.Holt, weights by maximum likelihood",
    "hourly medians of a week, refitted daily; the limit within 24 h by level and trend",
    "how far ahead, in hours",
    AHEAD,
    24.0,
    _run,
    package="statsmodels",
    most=4,
)
