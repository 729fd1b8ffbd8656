"""Functions over a range as PromQL of Prometheus 2 has them, for all series and moments at once.

A range holds its both ends: `[1h]` of samples every minute are 61. A missing sample is NaN and is
left out; a range without samples gives NaN. `detect_prometheus` holds these to a real Prometheus.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks.peers.peer import BoolArray
from catalog.panel import FloatArray


def total(values: FloatArray, span: int) -> FloatArray:
    """Return the sums over the last *span* steps, both ends included."""
    sums = np.cumsum(values, axis=1, dtype=np.float64)
    out: FloatArray = sums.copy()
    out[:, span + 1 :] -= sums[:, : -span - 1]
    return out


def delayed(values: FloatArray, points: int) -> FloatArray:
    """Return *values* as they were *points* before (`offset`)."""
    out = np.full(values.shape, np.nan)
    if points < values.shape[1]:
        out[:, points:] = values[:, : values.shape[1] - points]
    return out


class Moments:
    """Count, mean and spread over a range."""

    def __init__(self, values: FloatArray, span: int) -> None:
        """Take the sums; values are centred first, which keeps squares of bytes exact enough."""
        known = np.isfinite(values)
        centre = np.nanmedian(values, axis=1, keepdims=True)
        near = np.where(known, values - centre, 0.0)
        count = total(known.astype(np.float64), span)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(count > 0, total(near, span) / count, np.nan)
            square = total(near**2, span) / count - mean**2
        self.mean: FloatArray = mean + centre
        self.std: FloatArray = np.sqrt(np.maximum(square, 0.0))


def median(values: FloatArray, span: int) -> FloatArray:
    """Return `quantile_over_time(0.5, ...)`."""
    rolled = pd.DataFrame(values.T).rolling(span + 1, min_periods=1).median()
    out: FloatArray = rolled.to_numpy().T
    return out


def predicted(values: FloatArray, span: int, ahead: float) -> FloatArray:
    """Return `predict_linear(...)`, *ahead* being in steps: least squares, told from now."""
    known = np.isfinite(values)
    centre = np.nanmedian(values, axis=1, keepdims=True)
    y = np.where(known, values - centre, 0.0)
    x = np.arange(values.shape[1], dtype=np.float64)
    count = total(known.astype(np.float64), span)
    sx, sy = total(known * x, span), total(y, span)
    sxx, sxy = total(known * x**2, span), total(y * x, span)
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = (sxy - sx * sy / count) / (sxx - sx**2 / count)
        line: FloatArray = centre + sy / count + slope * (x + ahead - sx / count)
    return np.where(count >= 2, line, np.nan)


def held(condition: BoolArray, points: int) -> BoolArray:
    """Return where *condition* is true and has been for *points* steps (`for:`)."""
    broken = total((~condition).astype(np.float64), points)
    out: BoolArray = broken < 0.5
    out[:, :points] = False
    return out
