"""The cheap look at every series: is it lately above what its load would make it?

A few dozen points of each series, a parabola in the logarithm of the load through the older ones,
and the mean of the newest beside it: all series at once. What passes is judged in full; a screen
that lets too much through costs time and nothing else.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from catalog.panel import FloatArray, Panel

RECENT = 3 * 3600.0  # seconds looked at
EVERY = 1200.0  # seconds between the points of it
APART = 6 * 3600.0  # what is newer is no past
POINTS = 36  # of the past
FEWEST = 16  # points of the past without which nothing can be said
ABOVE = 0.02  # share above what is usual that is worth a closer look

BoolArray = npt.NDArray[np.bool_]


def raised(panel: Panel) -> list[int]:
    """Return the rows of *panel* that are worth a closer look."""
    size, step = len(panel.times), panel.step
    split = size - round(APART / step)
    if split < FEWEST or not panel.labels:
        return []
    past = np.unique(np.linspace(0, split - 1, min(POINTS, split)).astype(np.intp))
    every = max(1, round(EVERY / step))
    recent = np.arange(size - 1, max(size - 1 - round(RECENT / step), 0), -every)[::-1]
    at = np.concatenate([past, recent])
    y, known = _logs(panel.values[:, at])
    if panel.load is not None:
        x, loaded = _logs(panel.load[:, at])
        known &= loaded
    else:
        x = np.zeros_like(y)
    return [int(i) for i in np.flatnonzero(_above(x, y, known, len(past)) > ABOVE)]


def _logs(values: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return logarithms, zero where there is none, and where there is one."""
    known = values > 0
    return np.log(np.where(known, values, 1.0)), known


def _dot(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the sums of products along each row."""
    return np.asarray(np.einsum("ij,ij->i", a, b))


def _above(x: FloatArray, y: FloatArray, known: BoolArray, split: int) -> FloatArray:
    """Return how far the newest points lie above a parabola through the older ones."""
    w = known[:, :split].astype(np.float64)
    count = np.maximum(w.sum(axis=1), 1.0)
    middle = _dot(x[:, :split], w) / count
    level = _dot(y[:, :split], w) / count
    x, y = x - middle[:, None], y - level[:, None]
    wx = w * x[:, :split]
    past, squares = x[:, :split], x[:, :split] ** 2
    s2, s3, s4 = _dot(wx, past), _dot(wx, squares), _dot(wx * past, squares)
    t1, t2 = _dot(wx, y[:, :split]), _dot(w * squares, y[:, :split])
    # Centred: the constant and the line only meet the parabola through its mean.
    c2 = s2 / count
    s4 = s4 - c2 * s2
    ridge = 1e-6 * count
    a, d = s2 + ridge, s4 + ridge
    determinant = a * d - s3 * s3
    safe = np.where(determinant > 1e-12, determinant, 1.0)
    line = np.where(determinant > 1e-12, (t1 * d - t2 * s3) / safe, 0.0)
    bend = np.where(determinant > 1e-12, (t2 * a - t1 * s3) / safe, 0.0)
    tail = slice(split, None)
    seen = known[:, tail]
    expected = line[:, None] * x[:, tail] + bend[:, None] * (x[:, tail] ** 2 - c2[:, None])
    rest = np.where(seen, y[:, tail] - expected, 0.0).sum(axis=1)
    mean = rest / np.maximum(seen.sum(axis=1), 1)
    return np.where((count >= FEWEST) & seen.any(axis=1), mean, 0.0)
