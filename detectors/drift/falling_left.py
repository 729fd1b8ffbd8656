"""When a falling ratio meets its floor: a hinge under the healthy wander, told to the future.

share(t) = usual + slope * max(t - onset, 0) + wander(t) + noise. The wander of hours is a Gaussian
process (Matern 3/2: Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, eq.
4.17) as wide as the reference shows it, or as the rule believes while that is short; noise is what
neighbours do not share. Onset and slope have flat priors and are averaged over by generalised least
squares (section 2.7 there); the wander that is seen now fades into the future. The time left is
where the share lies below the floor in 5, 50 and 95 of 100 cases.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky
from scipy.special import ndtr

from catalog.panel import FloatArray

HOUR = 3600.0
MEMORY = 2 * HOUR  # length of the kernel
BELIEVED = 2.0  # independent looks that the rule's wander is worth against the reference
FIRST = 0.5  # deviations of the wander by which it meets the floor before its mean does
RANGE = 5.0  # deviations from the lowest to the highest healthy level
FARTHEST = 400 * HOUR
STEPS = 160  # instants of the future, closer to now the nearer
QUANTILES = (0.5, 0.05, 0.95)


class Left(NamedTuple):
    """Seconds until the floor is met: the median and 90 % of it; None for not within weeks."""

    usual: float | None
    low: float | None
    high: float | None


def left(
    times: FloatArray,
    share: FloatArray,
    usual: float,
    floor: float,
    reference: float,
    wander: float,
) -> Left:
    """Return when a share that falls meets its floor.

    Args:
        times: (n,) seconds, ascending, the earlier half of them before the fall.
        share: (n,) at them, without its season.
        usual: Mean of the reference.
        floor: The share that is met.
        reference: Seconds of it.
        wander: Share of the usual level that health itself may cost.
    """
    y = share - usual
    size = len(y)
    step = float(np.median(np.diff(times)))
    noise = float(np.median(np.diff(y) ** 2)) / 0.91  # twice the variance, of a normal one
    noise = max(noise / 2, 1e-8)
    quiet = y[: size // 2]
    looks = min(reference, size // 2 * step) / (4 * HOUR)
    seen = max(float(np.mean(quiet**2)) - noise, 0.0)
    wide = (looks * seen + BELIEVED * (wander * usual / RANGE) ** 2) / (looks + BELIEVED)
    now = float(times[-1]) + step / 2
    own = _kernel(times[:, None] - times[None, :], wide)
    factor = (cholesky(own + noise * np.eye(size), lower=True), True)
    onsets = times[size // 8 : size - 3]
    hinge = np.maximum(times[:, None] - onsets[None, :], 0.0) / HOUR
    solved = cho_solve(factor, np.column_stack([y, hinge]))
    weight = np.einsum("ij,ij->j", hinge, solved[:, 1:])  # of each slope: 1 / variance
    slope = hinge.T @ solved[:, 0] / weight
    spread = 1 / np.sqrt(weight)
    # Likelihood of each onset with slopes below zero, flat in both.
    log = slope**2 * weight / 2 + np.log(spread) + np.log(np.maximum(ndtr(-slope / spread), 1e-300))
    chance = np.exp(log - log.max())
    chance /= chance.sum()
    ahead = FARTHEST * np.linspace(0.0, 1.0, STEPS) ** 3
    at = now + ahead
    cross = _kernel(at[:, None] - times[None, :], wide)
    gain = cho_solve(factor, cross.T)
    rest = y[:, None] - hinge * slope[None, :]
    lean = np.maximum(at[:, None] - onsets[None, :], 0.0) / HOUR - gain.T @ hinge
    level = usual + np.maximum(at[:, None] - onsets[None, :], 0.0) / HOUR * slope + gain.T @ rest
    error = wide - np.einsum("ij,ji->i", cross, gain)
    deviation = np.sqrt(np.maximum(error, 0.0)[:, None] + noise + lean**2 * spread**2)
    meets = floor + FIRST * np.sqrt(np.maximum(error, 0.0))[:, None]
    below = np.maximum.accumulate(ndtr((meets - level) / deviation) @ chance)
    return Left(*(_first(below, ahead, q) for q in QUANTILES))


def _kernel(lag: FloatArray, wide: float) -> FloatArray:
    x = math.sqrt(3.0) * np.abs(lag) / MEMORY
    out: FloatArray = wide * (1 + x) * np.exp(-x)
    return out


def _first(below: FloatArray, ahead: FloatArray, chance: float) -> float | None:
    """Return the instant at which the chance is reached, between two steps in a line."""
    k = int(np.searchsorted(below, chance))
    if k == len(below):
        return None
    if k == 0:
        return 0.0
    part = (chance - below[k - 1]) / max(float(below[k] - below[k - 1]), 1e-12)
    return float(ahead[k - 1] + part * (ahead[k] - ahead[k - 1]))
