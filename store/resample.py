"""Puts samples of many series, taken whenever, on one even grid."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from catalog.panel import FloatArray

PROBES: Final = 64
"""Series whose spacing is looked at."""
REGULAR: Final = 0.7
"""Resultant length of sampling phases (1: like clockwork) from which a series is regular."""
DEFAULT_STEP: Final = 60.0

IntArray = npt.NDArray[np.int64]
Series = npt.NDArray[np.integer[Any]]


def step_of(series: Series, times: FloatArray) -> float:
    """Return the median over series of their usual spacing, in whole seconds if over one.

    Usual is the mean of the gaps near the median one: holes don't count, and jitter cancels out.
    """
    ids = np.unique(series)
    chosen = np.zeros(int(ids[-1]) + 1, dtype=bool)
    chosen[ids[:: max(1, len(ids) // PROBES)][:PROBES]] = True
    mask = chosen[series]
    some, at = series[mask], times[mask]
    order = np.lexsort((at, some))
    gaps, same = np.diff(at[order]), np.diff(some[order]) == 0
    gaps, owner = gaps[same & (gaps > 0)], some[order][1:][same & (gaps > 0)]
    spacings = [_usual(gaps[owner == one]) for one in np.unique(owner)]
    if not spacings:
        return DEFAULT_STEP
    step = sorted(spacings)[len(spacings) // 2]
    return float(round(step)) if step >= 1 else max(round(step, 3), 1e-3)


def _usual(gaps: FloatArray) -> float:
    # The lower median is one of the gaps, so there is always one near it.
    median = np.partition(gaps, (len(gaps) - 1) // 2)[(len(gaps) - 1) // 2]
    return float(gaps[(gaps > median / 2) & (gaps < median * 1.5)].mean())


def buckets(series: Series, times: FloatArray, count: int, step: float) -> IntArray:
    """Return the grid number of each sample: `floor(time / step)`, but steady under jitter.

    A series that samples like clockwork near a bucket's edge would now and then fall twice into
    one bucket and leave the next empty; its buckets are centred on its own phase instead, and
    named by the grid point at or before it.
    """
    phase = times / step
    phase -= np.floor(phase)
    if not phase.any():
        return (times / step).astype(np.int64)
    angle = 2 * np.pi * phase
    many = np.maximum(np.bincount(series, minlength=count), 1)
    cosine = np.bincount(series, np.cos(angle), count) / many
    sine = np.bincount(series, np.sin(angle), count) / many
    centre = np.arctan2(sine, cosine) / (2 * np.pi)  # -0.5 .. 0.5
    # A phase a hair before a grid point is meant to be on it.
    centre = np.where(centre < -0.02, centre + 1, centre)
    regular = np.hypot(cosine, sine) > REGULAR
    offset = np.where(regular, centre - 0.5, 0.0)
    return np.floor(times / step - offset[series]).astype(np.int64)


def average(cells: IntArray, values: FloatArray, shape: tuple[int, int]) -> FloatArray:
    """Return the mean of the known values of each cell, NaN where there is none."""
    known = np.isfinite(values)
    size = shape[0] * shape[1]
    cells = cells if known.all() else cells[known]
    many = np.bincount(cells, minlength=size)
    summed = np.bincount(cells, values if known.all() else values[known], size)
    mean: FloatArray = summed / np.where(many > 0, many, np.nan)
    return mean.reshape(shape)


def total(cells: IntArray, values: FloatArray, shape: tuple[int, int]) -> FloatArray:
    """Return the sum of the known values of each cell, NaN where there is none."""
    known = np.isfinite(values)
    size = shape[0] * shape[1]
    summed: FloatArray = np.bincount(cells[known], values[known], size).astype(np.float64)
    summed[np.bincount(cells[known], minlength=size) == 0] = np.nan
    return summed.reshape(shape)
