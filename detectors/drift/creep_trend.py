"""Is the newest growth more than this series ever did by itself, and is it growth and no step?

The slope of the last hours is compared with the slopes of all equally long spans of the series' own
past: a placebo in time (Abadie, Diamond and Hainmueller, "Synthetic Control Methods", JASA 105,
2010, section 3.4), which knows the noise with all its memory, and the hours of the day that the
load doesn't explain, without naming them. What stands out then competes: hinge against step and
filling, by generalised least squares with the autocorrelation of that past (Cochrane and Orcutt,
JASA 44, 1949).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from catalog.panel import FloatArray
from detectors.drift.buckets import fill

DAY = 86_400.0
SPANS = (6.0, 9.0, 14.0, 24.0, 48.0)  # hours
BEYOND = 3.5  # deviations of past slopes, with as many spans as one likes; more with few of them
FEW = 3.0  # what a small past adds to that: t-quantiles at the same level, by 1 + FEW / spans
LEAST_SPANS = 4.0  # spans of the past without which it tells nothing
USUAL = 0.98  # quantile of past slopes that must be beaten,
BY = 1.25  # by as much: what happens once a week is no news
PHI = (0.3, 0.97)  # autocorrelation from bin to bin that is believed
AGAINST_STEP = 2.0  # nats: hinge against the best step
AGAINST_FILLING = 0.0  # and against the best filling: unless that is clearly better
SATURATE = (0.15, 0.3)  # time constants of it, as shares of the window


@dataclass(frozen=True)
class Trend:
    """Growth of the last hours that this series never did before.

    Attributes:
        slope: Logarithm a second.
        slope_se: Its standard error.
        onset: Bins before the end at which it began.
        beyond: Slope over the deviation of past slopes.
        against_step: Nats against the best step.
        against_filling: Nats against the best filling.
        bins: Length of the window it was fitted in.
    """

    slope: float
    slope_se: float
    onset: float
    beyond: float
    against_step: float
    against_filling: float
    bins: int


def trend(rest: FloatArray, seconds: float) -> Trend | None:
    """Return the growth of the newest bins of *rest* that stands out from its own past, or None."""
    known = np.flatnonzero(np.isfinite(rest))
    if not len(known):
        return None
    y = fill(rest[None, known[0] :])[0][0]
    best: tuple[float, int] | None = None
    for hours in SPANS:
        bins = round(hours * 3600 / seconds)
        beyond = _beyond(y, bins, seconds)
        if beyond is not None and (best is None or beyond > best[0]):
            best = beyond, bins
    return None if best is None else _shaped(y, rest[known[0] :], best[1], best[0], seconds)


def _beyond(y: FloatArray, bins: int, seconds: float) -> float | None:
    """Return the newest slope over the deviation of past ones where it stands out, else None."""
    slopes = np.convolve(y, _line(bins)[::-1], "valid") if len(y) > bins else y[:0]
    past = slopes[: max(len(slopes) - max(bins, round(DAY / seconds)), 0)]
    spans = len(past) / bins
    if spans < LEAST_SPANS:
        return None
    now = float(slopes[-1])
    if not now > BY * float(np.quantile(past, USUAL)):
        return None  # most series end here
    middle = float(np.median(past))
    away = np.abs(past - middle)
    inner = past[away <= np.quantile(away, 0.9)]
    deviation = max(
        1.483 * float(np.median(away)), math.sqrt(float(inner @ inner) / len(inner)), 1e-9
    )
    return now / deviation if now > BEYOND * (1 + FEW / spans) * deviation else None


@lru_cache(maxsize=64)
def _line(bins: int) -> FloatArray:
    """Return the weights that give the slope of *bins* points."""
    t = np.arange(bins) - (bins - 1) / 2
    return np.asarray(t / (t @ t))


def _shaped(
    y: FloatArray, rest: FloatArray, bins: int, beyond: float, seconds: float
) -> Trend | None:
    """Return the growth as a hinge where that fits better than a step and a filling, else None."""
    size = min(2 * bins, len(y))
    past = rest[: len(rest) - bins]
    phi = _correlation(past)
    window = y[len(y) - size :]
    base, shapes = _shapes(size, phi)
    z = _whitened(window[None, :], phi)[0]
    z = z - (z @ base) @ base.T
    total = float(z @ z) + size * 1e-10
    found: dict[str, tuple[float, int, float]] = {}
    for name, (unit, _) in shapes.items():
        fit = unit @ z
        gain = np.where(fit > 0, fit**2, 0.0)
        k = int(gain.argmax())
        found[name] = max(total - float(gain[k]), total * 1e-6), k, float(fit[k])
    left, place, weight = found["hinge"]
    if weight <= 0:
        return None
    against = {name: size / 2 * math.log(found[name][0] / left) for name in ("step", "filling")}
    if against["step"] < AGAINST_STEP or against["filling"] < AGAINST_FILLING:
        return None
    length = float(shapes["hinge"][1][place])
    slope, own = weight / length, math.sqrt(left / (size - 3)) / length
    # The placebo's error knows a slower wander than the window can show.
    error = max(own, slope / beyond)
    return Trend(
        slope / seconds, error / seconds, size - place, beyond, against["step"],
        against["filling"], size,
    )  # fmt: skip


def _correlation(past: FloatArray) -> float:
    """Return the correlation of one bin with the next, about a level that moves within a day."""
    known = np.isfinite(past[1:]) & np.isfinite(past[:-1])
    if known.sum() < 16:
        return PHI[1]
    a, b = past[1:][known], past[:-1][known]
    a, b = a - np.median(a), b - np.median(b)
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return min(max(float(a @ b) / scale if scale > 0 else PHI[0], PHI[0]), PHI[1])


def _whitened(rows: FloatArray, phi: float) -> FloatArray:
    first = rows[:, :1] * math.sqrt(1 - phi**2)
    return np.concatenate([first, rows[:, 1:] - phi * rows[:, :-1]], axis=1)


def _shapes(size: int, phi: float) -> tuple[FloatArray, dict[str, tuple[FloatArray, FloatArray]]]:
    return _cached(size, round(phi, 2))


@lru_cache(maxsize=256)
def _cached(size: int, phi: float) -> tuple[FloatArray, dict[str, tuple[FloatArray, FloatArray]]]:
    """Return the constant and the shapes, whitened, free of the constant, with their lengths."""
    t = np.arange(size, dtype=np.float64)
    last = size - max(3, size // 12)
    hinge = np.array([np.maximum(t - c, 0.0) for c in range(last)])
    step = np.array([(t >= k).astype(np.float64) for k in range(1, size - 1)])
    filling = np.array([
        1 - np.exp(-np.maximum(t - c, 0.0) / (tau * size))
        for c in range(0, last, 4) for tau in SATURATE
    ])  # fmt: skip
    base, _ = np.linalg.qr(_whitened(np.ones((1, size)), phi).T)
    out = {}
    for name, rows in (("hinge", hinge), ("step", step), ("filling", filling)):
        white = _whitened(rows, phi)
        white = white - (white @ base) @ base.T
        length = np.linalg.norm(white, axis=1)
        out[name] = white / np.maximum(length, 1e-12)[:, None], length
    return base, out
