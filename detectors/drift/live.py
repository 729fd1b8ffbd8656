"""Leaks at many moments of one history: a cycle costs what is new.

A window changes only when a bucket of it is over, so its screen and its fit are kept until then.
The findings are those of `leak.find_leaks` on the history known at that moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from catalog.panel import Panel
from detectors.drift.buckets import AGO, BUCKETS, BoolArray, Pyramid, segments
from detectors.drift.context import LimitsLike
from detectors.drift.leak import leaks_of
from detectors.drift.leak_growth import Growth
from detectors.drift.leak_windows import Key, fitted, lives_of, screen
from detectors.finding import Finding


class LeakReplay:
    """Judges one panel of private memory at ascending moments."""

    def __init__(self, panel: Panel, history: float = 7 * 86_400.0) -> None:
        """Prepare the buckets.

        Args:
            panel: All of the history.
            history: Seconds of it that a judgement may look back on.
        """
        self._panel = panel
        self._history = round(history / panel.step)
        origin = round(float(panel.times[0]) / panel.step)
        self._pyramid = Pyramid(panel.values, origin, whole=True)
        seen = np.isfinite(panel.values)
        self._first = np.where(seen.any(axis=1), seen.argmax(axis=1), panel.values.shape[1])
        self._raised: dict[int, BoolArray] = {}
        self._closed: dict[int, int] = {}
        self._fits: dict[Key, Growth | None] = {}
        self._begins: dict[int, tuple[int, list[int]]] = {}

    def at(self, end: int, panels: Mapping[str, Panel], limits: LimitsLike) -> list[Finding]:
        """Return the leaks when *end* points are known.

        Args:
            end: Number of known points; not less than at the call before.
            panels: Other panels as known by then, for the time to a limit.
            limits: Limits by flag or configuration.
        """
        panel = self._panel
        since = max(0, end - self._history)
        known = replace(
            panel,
            times=panel.times[since:end],
            values=panel.values[:, since:end],
            load=None if panel.load is None else panel.load[:, since:end],
            trials=None,
            starts=None if panel.starts is None else panel.starts[:, since:end],
        )
        return leaks_of(self.grow(end), {**panels, panel.signal: known}, panel.signal, limits)

    def grow(self, end: int) -> dict[int, list[Growth]]:
        """Return the growth of all raised series when *end* points are known."""
        since = max(0, end - self._history)
        fresh = self._advance(end, since)
        rows: dict[int, list[int]] = defaultdict(list)
        for width, raised in self._raised.items():
            for row in np.flatnonzero(raised).tolist():
                rows[row].append(width)
        for row in self._young(end, since):
            rows.setdefault(row, [])
        lives = {
            row: lives_of(row, self._begins_of(row, since, end, fresh & set(widths)), end, widths)
            for row, widths in rows.items()
        }
        first, step = float(self._panel.times[0]), self._panel.step
        found = fitted(self._pyramid, lives, first, step, self._fits)
        # What is older than any look back is not asked for again.
        oldest = {w: self._pyramid.closed(w, end) - 2 * AGO for w in self._pyramid.widths}
        self._fits = {
            key: kept
            for key, kept in self._fits.items()
            if key[4] >= oldest[key[2]] or key[1] != self._begins[key[0]][1][-1]
        }
        return found

    def _advance(self, end: int, since: int) -> set[int]:
        """Screen every window of which a bucket is over since the last moment; return those."""
        fresh = set()
        for width in self._pyramid.widths:
            closed = self._pyramid.closed(width, end)
            if end - since < BUCKETS // 2 * width or self._closed.get(width) == closed:
                continue
            self._closed[width] = closed
            self._raised[width] = screen(self._pyramid.window(width, end), self._panel.step)
            fresh.add(width)
        return fresh

    def _young(self, end: int, since: int) -> list[int]:
        """Return the series whose life is too short for any window of the screen."""
        young = np.maximum(self._first, since) > end - BUCKETS
        if self._panel.starts is not None:
            late = self._panel.starts[:, max(0, end - BUCKETS) : end]
            known = np.isfinite(late)
            newest = np.max(late, axis=1, initial=-np.inf, where=known)
            young |= newest - np.min(late, axis=1, initial=np.inf, where=known) > 5.0
        return [int(row) for row in np.flatnonzero(young & (self._first < end))]

    def _begins_of(self, row: int, since: int, end: int, new: set[int]) -> list[int]:
        """Return the first points of the incarnations, the running one last."""
        kept = self._begins.get(row)
        if kept is None or new or end - kept[0] > BUCKETS:
            starts = self._panel.starts
            begins = segments(
                self._panel.values[row, since:end],
                None if starts is None else starts[row, since:end],
            )
            self._begins[row] = kept = (end, [since + begin for begin in begins])
        later = [begin for begin in kept[1][1:] if begin > since]
        return [max(kept[1][0], since), *later]
