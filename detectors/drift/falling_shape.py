"""Whether a fall goes on or has ended, and how fast it is: least squares of a few shapes.

A hinge goes on falling; a ramp to a lower level (a step is a quick one) and a decay to one have
ended. They compete by the Bayesian information criterion (Schwarz, Ann. Stat. 6, 1978) with as
many points as the residuals' first autocorrelation leaves independent. The level before is free:
what is told is the shape, not whether there is a fall.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from catalog.panel import FloatArray
from detectors.drift.context import Z90

MARGIN = 2.0  # by which an ended shape must beat a hinge
TAUS = (1 / 16, 1 / 8, 1 / 4)  # of the rest of the window: nearly over at its end


@dataclass(frozen=True)
class Shape:
    """The shape of a fall.

    Attributes:
        ended: Whether it has come to a new level.
        slope: Per point, negative when falling.
        slope_se: Its standard error.
        onset: Point at which it began.
    """

    ended: bool
    slope: float
    slope_se: float
    onset: int


def shape_of(values: FloatArray) -> Shape:
    """Return the shape of *values*, evenly spaced, without NaN."""
    size = len(values)
    centred = values - values.mean()
    hinges, hinge_at = _hinges(size)
    ends, end_at = _ends(size)
    k, rest, coefficient = _best(centred, hinges)
    j, other, _ = _best(centred, ends)
    better = (hinges, k) if rest <= other else (ends, j)
    column = better[0][better[1]]
    left = centred - column * float(column @ centred)
    total = float(left @ left)
    phi = float(left[1:] @ left[:-1]) / total if total > 0 else 0.0
    phi = min(max(phi, 0.0), 0.8)
    free = max(size * (1 - phi) / (1 + phi), 6.0)
    floor = 1e-12 + 1e-6 * float(centred @ centred)
    lead = free / 2 * np.log((rest + floor) / (other + floor)) - np.log(free) / 2
    own = _raw(size)[k]
    length = float(np.sqrt(own @ own))
    slope = coefficient / length
    error = float(np.sqrt(rest / max(size - 3, 1) * (1 + phi) / (1 - phi))) / length
    ended = bool(lead > MARGIN) or not slope < -Z90 * error
    return Shape(ended, slope, error, int(end_at[j] if ended else hinge_at[k]))


def _best(centred: FloatArray, columns: FloatArray) -> tuple[int, float, float]:
    """Return the column that explains most by going down, what is left, and its coefficient."""
    fit = columns @ centred
    gain = np.where(fit < 0, fit**2, 0.0)
    k = int(gain.argmax())
    return k, max(float(centred @ centred) - float(gain[k]), 0.0), float(min(fit[k], 0.0))


@lru_cache(maxsize=64)
def _raw(size: int) -> FloatArray:
    """Return hinges (k, size), centred; each rises by one a point after its onset."""
    t = np.arange(size, dtype=np.float64)
    rows = np.array([np.maximum(t - k, 0.0) for k in range(max(1, size - 5))])
    centred: FloatArray = rows - rows.mean(axis=1, keepdims=True)
    return centred


@lru_cache(maxsize=64)
def _hinges(size: int) -> tuple[FloatArray, FloatArray]:
    raw = _raw(size)
    return _unit(raw), np.arange(len(raw), dtype=np.float64)


@lru_cache(maxsize=64)
def _ends(size: int) -> tuple[FloatArray, FloatArray]:
    """Return ramps and decays that have ended, and where each began."""
    t = np.arange(size, dtype=np.float64)
    over = max(4, size // 8)
    rows, at = [], []
    for k in range(size - over):
        lengths = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48} | {size - over - k}
        for length in sorted(one for one in lengths if k + one <= size - over):
            rows.append(np.clip(t - k, 0.0, length) / length)
            at.append(k)
        for tau in TAUS:
            rows.append(1 - np.exp(-np.maximum(t - k, 0.0) / (tau * (size - k))))
            at.append(k)
    raw = np.array(rows)
    return _unit(raw - raw.mean(axis=1, keepdims=True)), np.array(at, dtype=np.float64)


def _unit(rows: FloatArray) -> FloatArray:
    out: FloatArray = rows / np.sqrt((rows**2).sum(axis=1, keepdims=True))
    return out
