"""Shapes that a memory series can have, as columns on an even grid of buckets.

Growth that goes on: a line, a hinge (flat, then a line), either of them with one step, and a line
on top of a warm-up. Growth or change that does not: steps, a filling that saturates, growth like
a logarithm, a ramp that has reached its plateau.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from catalog.panel import FloatArray

HINGE_AT = (0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75)
# A filling may begin wherever a hinge may, or a hinge would win by its place alone.
SATURATE_TAU = (1 / 12, 1 / 5, 1 / 2, 1.0)  # of the rest of the window
LOG_TAU = (1 / 64, 1 / 10)
# Fillings from the start of the window, finer: two of them make up for a time constant between.
FILL_TAU = (1 / 24, 1 / 12, 1 / 7, 1 / 4, 2 / 5, 3 / 5, 1.0)
FILL_LOG_TAU = (1 / 256, 1 / 64, 1 / 16, 1 / 4)
RAMP_END = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875)


def columns(size: int) -> Mapping[str, FloatArray]:
    """Return each family of shapes as rows (members, size), on time 0..1 over the window."""
    t = np.arange(size) / (size - 1.0)
    hinge = [np.maximum(t - c, 0.0) for c in HINGE_AT]
    warm = []
    for c in HINGE_AT:
        rest = np.maximum(t - c, 0.0) / (1 - c)
        warm += [1 - np.exp(-rest / tau) for tau in SATURATE_TAU]
        warm += [np.log1p(rest / tau) for tau in LOG_TAU]
    fill = [1 - np.exp(-t / tau) for tau in FILL_TAU]
    fill += [np.log1p(t / tau) for tau in FILL_LOG_TAU]
    ramp = [np.minimum(t, c) for c in RAMP_END]
    ramp += [
        np.clip(t - c, 0.0, d - c) for c in HINGE_AT[2:-1:2] for d in RAMP_END[3:] if d > c + 0.1
    ]
    step = [(np.arange(size) >= k).astype(float) for k in range(1, size)]
    return {
        "hinge": np.array(hinge),
        "warm_up": np.array(warm + fill),
        "fill": np.array(fill),
        "ramp": np.array(ramp),
        "step": np.array(step),
    }


def season(size: int, day: float) -> FloatArray:
    """Return a daily season of two harmonics as rows (4, size); *day* is in buckets."""
    angle = 2 * np.pi * np.arange(size) / day
    return np.array([f(k * angle) for k in (1, 2) for f in (np.cos, np.sin)])
