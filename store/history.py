"""Keeps a panel current: a cycle costs its new points, not the whole history."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from catalog.panel import FloatArray, Labels, Panel
from store.grid import blank, key

Rows = slice | list[int]
ARRAYS = ("values", "load", "trials", "starts")


def extend(panel: Panel, newer: Panel, history: float | None = None) -> Panel:
    """Return *panel* with the points of *newer* appended.

    Where both have a value, *newer* wins (late samples); series that are new have NaN before;
    steps between the two that nobody read are NaN.

    Args:
        panel: What is known.
        newer: A later read on the same grid.
        history: Seconds kept, counted from the newest point; series without any value in them
            go. None keeps all.

    Raises:
        ValueError: The panels are of different signals or grids.
    """
    if panel.signal != newer.signal:
        raise ValueError(f"can't extend {panel.signal} by {newer.signal}")
    if len(newer.times) == 0:
        return panel
    if len(panel.times) == 0:
        return _bounded(newer, history)
    step = _step(panel, newer)
    times = _joined_times(panel, newer, step)
    labels, rows = _together(panel.labels, newer.labels)
    arrays: dict[str, Any] = {
        name: _joined((panel, newer), name, rows, (len(labels), times), step)
        for name in ARRAYS
        if getattr(panel, name) is not None or getattr(newer, name) is not None
    }
    whole = replace(panel, times=times, labels=labels, **arrays)
    return _bounded(whole, history)


def _step(panel: Panel, newer: Panel) -> float:
    steps = [p.step for p in (panel, newer) if math.isfinite(p.step)]
    if not steps:  # one point each: their distance is the best there is
        return float(abs(newer.times[0] - panel.times[0])) or 1.0
    offset = (newer.times[0] - panel.times[0]) / steps[0]
    if max(steps) - min(steps) > 1e-6 or abs(offset - round(offset)) > 1e-3:
        raise ValueError(f"panels of {panel.signal} lie on different grids")
    return steps[0]


def _joined_times(panel: Panel, newer: Panel, step: float) -> FloatArray:
    first = float(min(panel.times[0], newer.times[0]))
    last = float(max(panel.times[-1], newer.times[-1]))
    return first + step * np.arange(round((last - first) / step) + 1, dtype=np.float64)


def _together(
    old: tuple[Labels, ...], new: tuple[Labels, ...]
) -> tuple[tuple[Labels, ...], tuple[Rows, Rows]]:
    """Return the labels of both, and the rows that each has among them."""
    if old == new:  # nearly always, and much cheaper to tell than who is where
        return old, (slice(None), slice(None))
    rows: dict[tuple[str, ...], int] = {}
    labels: list[Labels] = []
    for one in (*old, *new):
        if rows.setdefault(key(one), len(labels)) == len(labels):
            labels.append(one)
    return tuple(labels), ([rows[key(one)] for one in old], [rows[key(one)] for one in new])


def _joined(
    panels: tuple[Panel, Panel],
    name: str,
    rows: tuple[Rows, Rows],
    shape: tuple[int, FloatArray],
    step: float,
) -> FloatArray:
    """Return one array of two panels, of which the second wins where it has a value."""
    series, times = shape
    whole = blank(series, len(times))
    for part, chosen in zip(panels, rows, strict=True):
        array: FloatArray | None = getattr(part, name)
        if array is None or not part.labels:
            continue
        at = round((part.times[0] - times[0]) / step)
        span = slice(at, at + len(part.times))
        if part is panels[0]:
            whole[chosen, span] = array
        else:
            whole[chosen, span] = np.where(np.isnan(array), whole[chosen, span], array)
    return whole


def _bounded(panel: Panel, history: float | None) -> Panel:
    """Return the last *history* seconds, without series that have no value there."""
    if history is None:
        return panel
    first = int(np.searchsorted(panel.times, panel.times[-1] - history, side="left"))
    if first == 0:
        return panel
    cut = replace(
        panel,
        times=panel.times[first:],
        **{
            name: getattr(panel, name)[:, first:]
            for name in ARRAYS
            if getattr(panel, name) is not None
        },
    )
    alive = np.isfinite(cut.values).any(axis=1)
    return cut if alive.all() else cut.rows(list(np.flatnonzero(alive)))
