"""The rate of a leak and where its line stands now, by all that was seen since before it began.

What a series was before the growth holds the line at its foot, which halves the doubt of a slope
that is told by the growth alone. The error is widened for autocorrelation and for the choice of
the onset, so that a 90 % interval of the time left held the truth nine times in ten in the noise of
the even development hosts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from catalog.panel import FloatArray, Panel
from detectors.drift.leak_growth import Growth

SIZE = 64  # points of the fit
BACK = 4.0  # times the growth seen, looked back on
ONSETS = np.linspace(0.0, 0.85, 35)  # of the time looked back on
WIDEN = 2.0  # of the error: the onset is chosen, and noise is more than AR(1)
MOST_RHO = 0.95


@dataclass(frozen=True)
class Rate:
    """Units per second, its error, the level of the line now, and the noise about it."""

    slope: float
    error: float
    level: float
    noise: float


def rate(panel: Panel, growth: Growth) -> Rate:
    """Return the rate of *growth*, a leak; a jump beside it leaves the window's own slope."""
    own = Rate(growth.slope, WIDEN * growth.slope_se, level_now(panel, growth), growth.noise)
    if "step" in growth.winner:
        return own
    begin = growth.end - (growth.end - growth.start) / growth.share
    since = max(begin, growth.end - BACK * (growth.end - growth.onset), float(panel.times[0]))
    first = int(np.searchsorted(panel.times, since))
    times, values = _thinned(panel.times[first:], panel.values[growth.row, first:])
    if len(values) < SIZE // 2:
        return own
    fit = _hinge(times, values)
    if fit is None:
        return own
    return Rate(fit.slope, fit.error, (fit.level + own.level) / 2, fit.noise)


def _thinned(times: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return at most 64 medians of what is known."""
    known = np.isfinite(values)
    times, values = times[known], values[known]
    width = max(1, len(values) // SIZE)
    count = min(SIZE, len(values) // width)
    kept = slice(len(values) - count * width, len(values))
    medians: FloatArray = np.median(values[kept].reshape(count, width), axis=1)
    return times[kept].reshape(count, width).mean(axis=1), medians


def _hinge(times: FloatArray, values: FloatArray) -> Rate | None:
    """Return the best of flat, then a line upwards, by least squares; None if none goes up."""
    t = (times - times[0]) / (times[-1] - times[0])
    size = len(t)
    shapes = np.maximum(t - ONSETS[:, None], 0.0)
    shapes -= shapes.mean(axis=1, keepdims=True)
    power = (shapes**2).sum(axis=1)
    centred = values - values.mean()
    slopes = shapes @ centred / power
    best = int(np.argmax(np.where(slopes > 0, slopes**2 * power, -1.0)))
    if slopes[best] <= 0:
        return None
    rest = centred - slopes[best] * shapes[best]
    left = float(rest @ rest)
    rho = float(np.clip(rest[1:] @ rest[:-1] / left, 0.0, MOST_RHO)) if left > 0 else 0.0
    error = np.sqrt(left / (size - 3) / power[best] * (1 + rho) / (1 - rho))
    span = float(times[-1] - times[0])
    return Rate(
        float(slopes[best]) / span,
        WIDEN * float(error) / span,
        float(values.mean() + slopes[best] * shapes[best][-1]),
        float(np.sqrt(left / size)),
    )


def level_now(panel: Panel, growth: Growth) -> float:
    """Return where the line stands now, told by the median of the latter half of the growth.

    So a sawtooth or a spike at this moment moves no prediction.
    """
    seen = growth.end - max(growth.onset, growth.start)
    points = max(3, round(seen / 2 / panel.step))
    recent = panel.values[growth.row, -points:]
    known = recent[np.isfinite(recent)]
    if not len(known):
        return float(growth.values[-1])
    return float(np.median(known)) + growth.slope * (points - 1) / 2 * panel.step
