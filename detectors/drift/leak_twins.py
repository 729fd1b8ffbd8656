"""Twins of a growing process: its peers, and its own growth by load instead of by time."""

from __future__ import annotations

from itertools import islice

import numpy as np

from catalog.panel import FloatArray, Panel
from detectors.drift.buckets import segment_start
from detectors.drift.context import without
from detectors.drift.leak_growth import Growth

PLACE = ("server", "node", "rank", "engine", "cgroup")
SAME_AGE = 0.2  # lives that differ by less than this share are compared
MOST_PEERS = 16  # more would cost and tell nothing
FLAT = 0.25  # a peer that grew by less than this share of it is flat


def unlike_peers(panel: Panel, row: int, growth: Growth) -> bool:
    """Return whether processes of the same kind, pool and age stayed flat over the same time.

    One flat peer is enough and all that can be compared must be flat: with two or three of them
    there is no spread to estimate.
    """
    kind = without(panel.labels[row], *PLACE)
    first = int(np.searchsorted(panel.times, growth.start))
    own = float(_changes(panel.values[[row], first:])[0])
    if not own > 0:
        return False
    age = _age(panel, row)
    alike = (
        other
        for other in range(len(panel.labels))
        if other != row
        and without(panel.labels[other], *PLACE) == kind
        and abs(_age(panel, other) - age) <= SAME_AGE * age
    )
    changes = _changes(panel.values[list(islice(alike, MOST_PEERS)), first:])
    known = changes[np.isfinite(changes)]
    return bool(len(known)) and bool(known.max() < FLAT * own)


def per_load(panel: Panel, row: int, growth: Growth) -> tuple[str, float | None]:
    """Return whether growth follows the load or the clock, and growth per unit of load.

    The better straight line decides: memory against time, or memory against the work done so far.
    """
    if panel.load is None:
        return "hour", None
    first = int(np.searchsorted(panel.times, growth.start))
    load = np.nan_to_num(panel.load[row, first:])
    done = np.interp(growth.times, panel.times[first:], np.cumsum(load) * panel.step)
    if np.ptp(done) <= 0:
        return "hour", None
    _, by_time = _line(growth.times - growth.times[0], growth.values)
    slope, by_load = _line(done - done[0], growth.values)
    return ("load" if by_load < by_time else "hour"), slope


def _line(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    """Return slope and residual sum of squares of a least-squares line."""
    centred, level = x - x.mean(), y - y.mean()
    slope = float(centred @ level / (centred @ centred))
    return slope, float(((level - slope * centred) ** 2).sum())


def _changes(values: FloatArray) -> FloatArray:
    """Return (s,) newest levels less the first: medians of an eighth each; NaN without data."""
    part = max(1, values.shape[1] // 8)
    return _middles(values[:, -part:]) - _middles(values[:, :part])


def _middles(values: FloatArray) -> FloatArray:
    """Return the median of what is known of each row; NaN where nothing is."""
    if np.isfinite(values).all():
        out: FloatArray = np.median(values, axis=1)
        return out
    rows = [row[np.isfinite(row)] for row in values]
    return np.array([np.median(row) if len(row) else np.nan for row in rows], dtype=np.float64)


def _age(panel: Panel, row: int) -> int:
    """Return the points since the incarnation began."""
    starts = None if panel.starts is None else panel.starts[row]
    return len(panel.times) - segment_start(panel.values[row], starts)
