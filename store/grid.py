"""One even grid for all reads: its points are multiples of the step, so successive reads join."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np

from catalog.panel import FloatArray, Labels

SLACK = 1e-6  # of a step: instants that are a rounding error away from a grid point are on it


def grid(start: float, end: float, step: float) -> FloatArray:
    """Return the multiples of *step* in [start, end]; empty if there is none."""
    if not step > 0:
        raise ValueError(f"step must be above zero, not {step:g}")
    first = math.ceil(start / step - SLACK)
    last = math.floor(end / step + SLACK)
    return np.arange(first, last + 1, dtype=np.float64) * step


def frozen(labels: Mapping[str, str], keep: Iterable[str] | None = None) -> Labels:
    """Return read-only labels without the metric's name and without empty values."""
    names = labels if keep is None else keep
    return MappingProxyType(
        {name: labels[name] for name in names if name != "__name__" and labels.get(name)}
    )


def key(labels: Mapping[str, str], names: Iterable[str] | None = None) -> tuple[str, ...]:
    """Return what identifies a series: values of *names*, or of all labels it has, by name."""
    if names is None:
        return tuple(f"{name}\0{labels[name]}" for name in sorted(labels))
    return tuple(labels.get(name, "") for name in names)


def blank(series: int, points: int) -> FloatArray:
    """Return an array of NaN."""
    return np.full((series, points), np.nan)


def sum_known(rows: FloatArray) -> FloatArray:
    """Return the sum over rows of what is known; NaN where nothing is."""
    known = np.isfinite(rows)
    total = np.where(known, rows, 0.0).sum(axis=0)
    return np.where(known.any(axis=0), total, np.nan)
