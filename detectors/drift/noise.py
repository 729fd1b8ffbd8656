"""The noise that slow growth has to be told from: a small grid of covariance families.

A straight line is only evidence of growth against noise that could have drawn it. The families are
white noise, AR(1), a local level (random walk with and without white noise: Harvey, "Forecasting,
Structural Time Series Models and the Kalman Filter", 1989, section 2.3) and a smooth wander
(Matern 5/2: Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, eq. 4.17).
A random-walk null is what keeps the false alarms of trend tests on autocorrelated series down.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from catalog.panel import FloatArray

AR_PHI = (0.5, 0.8, 0.9, 0.96)
AR_WITH_WHITE = ((0.9, 0.5), (0.97, 0.5))  # (phi, share of white noise)
WALK_RATIO = (1.0, 0.1, 0.01, 0.001)  # variance of a random-walk step to that of white noise
# Smooth wander: (window over correlation length, share of white noise).
WANDER = ((8, 0.1), (8, 0.01), (4, 0.1), (4, 0.01), (4, 0.001), (2.5, 0.01))
STAND_FOR_ALL = (0, 5, 10, 15)  # white, AR(1) with white, a local level, a smooth wander


def covariances(size: int) -> Iterator[FloatArray]:
    """Yield the covariance (size, size) of every noise family, up to a scale."""
    lag = np.abs(np.subtract.outer(np.arange(size), np.arange(size))).astype(float)
    unit = np.eye(size)
    yield unit
    for phi in AR_PHI:
        yield phi**lag
    for phi, white in AR_WITH_WHITE:
        yield white * unit + (1 - white) * phi**lag
    walk = np.minimum.outer(np.arange(size), np.arange(size)).astype(float)
    # The level of a walk is free (every model has a constant), so its start may be anywhere.
    walk += 10.0 * size
    yield walk + 1e-6 * unit
    for ratio in WALK_RATIO:
        yield unit + ratio * walk
    for parts, white in WANDER:
        x = np.sqrt(5.0) * lag / (size / parts)
        yield white * unit + (1 - white) * (1 + x + x**2 / 3) * np.exp(-x)
