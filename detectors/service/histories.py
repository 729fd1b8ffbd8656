"""The whole history of the few series that are judged by it, kept current in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from catalog.panel import FloatArray, Labels, Panel
from detectors.drift.live import key

ARRAYS: Final = ("values", "load", "starts")
SLACK: Final = 8
"""A part of the points, as one in so many, is room for new ones before all are moved."""


class Histories:
    """Series on one grid, the newest points last.

    Attributes:
        points: Points kept of each.
        needed: By key, the number of the point at which it was asked for last.
    """

    def __init__(self, signal: str, step: float, points: int) -> None:
        self._signal = signal
        self._step = step
        self.points = points
        self.needed: dict[str, int] = {}
        self._rows: dict[str, int] = {}
        self._labels: list[Labels] = []
        self._arrays: dict[str, FloatArray] = {}
        self._places: tuple[list[str], dict[str, int]] = [], {}
        self._first = 0  # number of the first column
        self._end = 0  # of the point after the last

    def __len__(self) -> int:
        return len(self._labels)

    def has(self, labels: Labels) -> bool:
        """Return whether the history of a series is here."""
        return key(labels) in self._rows

    def put(self, panel: Panel) -> None:
        """Take series with all of their history, which may be here already."""
        keys = [key(one) for one in panel.labels]
        fresh = [i for i, one in enumerate(keys) if one not in self._rows]
        for i in fresh:
            self._rows[keys[i]] = len(self._labels)
            self._labels.append(panel.labels[i])
        self._arrays = {name: _longer(array, len(fresh)) for name, array in self._arrays.items()}
        self.follow(panel, keys)
        self.needed.update(dict.fromkeys(keys, self._end))

    def follow(self, panel: Panel, keys: list[str]) -> None:
        """Take the points of the series that are here, known by *keys*; what is known now wins."""
        if not len(panel.times) or not self._rows:
            return
        first = round(float(panel.times[0]) / self._step)
        last = first + len(panel.times)
        if not self._arrays:
            self._first = last - self.points
        self._room(last)
        self._end = max(self._end, last)
        if keys is not self._places[0]:
            self._places = keys, {one: i for i, one in enumerate(keys)}
        places = self._places[1]
        here = [(places[one], row) for one, row in self._rows.items() if one in places]
        skip = max(0, self._first - first)
        begin = first + skip - self._first
        columns = slice(begin, begin + len(panel.times) - skip)
        for name in ARRAYS:
            array: FloatArray | None = getattr(panel, name)
            if array is None or not here or columns.stop <= columns.start:
                continue
            whole = self._array(name)
            rows = [row for _, row in here]
            new = array[[i for i, _ in here], skip:]
            whole[rows, columns] = np.where(np.isnan(new), whole[rows, columns], new)

    def _array(self, name: str) -> FloatArray:
        if name not in self._arrays:
            width = self.points + self.points // SLACK + 1
            self._arrays[name] = np.full((len(self._labels), width), np.nan)
        return self._arrays[name]

    def _room(self, last: int) -> None:
        """Make room up to point number *last*."""
        array = self._array("values")
        if last - self._first <= array.shape[1]:
            return
        by = last - self.points - self._first
        for one in self._arrays.values():
            one[:, : max(0, one.shape[1] - by)] = one[:, by:].copy()
            one[:, max(0, one.shape[1] - by) :] = np.nan
        self._first += by

    def panel(self, labels: Sequence[Labels]) -> Panel:
        """Return all that is known of *labels*, in their order."""
        rows = [self._rows[key(one)] for one in labels]
        for one in labels:
            self.needed[key(one)] = self._end
        first = max(self._first, self._end - self.points)
        columns = slice(first - self._first, self._end - self._first)
        times = self._step * np.arange(first, self._end, dtype=np.float64)
        parts = {name: array[rows, columns] for name, array in self._arrays.items()}
        return Panel(self._signal, times, labels=tuple(labels), **parts)

    def forget(self, unasked: int) -> None:
        """Let go of series that were not asked for in the last *unasked* points."""
        keep = [
            row
            for name, row in self._rows.items()
            if self.needed.get(name, 0) > self._end - unasked
        ]
        if len(keep) == len(self._labels):
            return
        if not keep:
            self._arrays = {}
        self._labels = [self._labels[row] for row in keep]
        self._rows = {key(one): row for row, one in enumerate(self._labels)}
        self._arrays = {name: array[keep] for name, array in self._arrays.items()}
        self.needed = {name: at for name, at in self.needed.items() if name in self._rows}


def _longer(array: FloatArray, rows: int) -> FloatArray:
    blank = np.full((rows, array.shape[1]), np.nan)
    return np.concatenate([array, blank]) if rows else array
