"""Leaks at moment after moment: a cycle costs what is new.

All series are screened on `LiveState`; the whole history is asked for of what it raises, and of
what that is compared with. The findings are those of `leak.find_leaks` on the whole history known
at that moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from catalog.panel import FloatArray, Labels, Panel
from detectors.drift.buckets import AGO, BUCKETS, BoolArray, IntArray, Pyramid, segments
from detectors.drift.context import LARGEST, LimitsLike, without
from detectors.drift.leak import find_leaks, leaks_of
from detectors.drift.leak_growth import Growth
from detectors.drift.leak_limit import PROCESS
from detectors.drift.leak_twins import PLACE
from detectors.drift.leak_windows import Key, fitted, grown, lives_of
from detectors.drift.live_state import LiveState
from detectors.finding import Finding

PEERS = 64  # of one kind, in their order, among which those of one age are looked for


class Past(Protocol):
    """Who knows more of some series than the newest points."""

    def fetch(self, labels: Sequence[Labels]) -> None:
        """Get the history of *labels*, as far as that can be."""

    def has(self, labels: Labels) -> bool:
        """Return whether the history of a series is here."""

    def panel(self, labels: Sequence[Labels]) -> Panel:
        """Return the history of *labels*, in their order, up to the newest point."""


def key(labels: Labels) -> str:
    """Return what names a series in a `LiveState`."""
    return "\0".join([f"{name}={labels[name]}" for name in sorted(labels) if labels[name]])


class LiveLeaks:
    """The leak detector with a state; `find` is its `judge.Detector`."""

    def __init__(self, signal: str, state: LiveState) -> None:
        """Judge *signal* by what *state* raises."""
        self.signal = signal
        self.state = state
        self._keys: list[tuple[tuple[Labels, ...], list[str]]] = []
        self._found: list[tuple[list[str], tuple[int, int], IntArray]] = []
        self._around: tuple[list[str], dict[object, list[int]]] = [], {}

    def take(self, panel: Panel) -> bool:
        """Take the new points of *panel*; whether the state could (`LiveState.add`)."""
        if not len(panel.times):
            return True
        values, starts = _cut(panel.values), panel.starts
        first = round(float(panel.times[0]) / self.state.step)
        rows = self._rows(panel.labels)
        if (rows < 0).any():
            rows = self.state.rows(self.named(panel.labels))
        return self.state.add(first, values, rows, starts)

    def raised(self, labels: tuple[Labels, ...]) -> dict[int, list[int]]:
        """Return position in *labels* -> widths in which that series is raised, if it is."""
        rows = self._rows(labels)
        place = {row: i for i, row in enumerate(rows.tolist())}
        up = self.state.rises()
        return {place[row]: widths for row, widths in up.items() if row in place}

    def alive(self, panel: Panel) -> BoolArray:
        """Return (s,): which series have a point in all that is looked back on."""
        rows = self._rows(panel.labels)
        known = np.append(self.state.alive(), False)[rows]  # -1: not known
        out: BoolArray = known | ((rows < 0) & np.isfinite(panel.values).any(axis=1))
        return out

    def find(
        self,
        panels: Mapping[str, Panel],
        limits: LimitsLike,
        as_of: float,
        past: Past | None = None,
    ) -> list[Finding]:
        """Return what `find_leaks` returns on the whole history.

        Args:
            panels: By signal; that of memory may hold the newest points only.
            limits: Limits by flag or configuration.
            as_of: Unix seconds; a moment before the newest point is judged without the state.
            past: Who knows more than the newest points; None where the panel holds all.
        """
        panel = panels.get(self.signal)
        if panel is None or len(panel.times) < 2:
            return []
        end = round(float(panel.times[-1]) / self.state.step) + 1
        if end != self.state.end or as_of < panel.times[-1]:
            return find_leaks(panels, limits, as_of) if past is None else []
        growths = self._grown(panel, self.raised(panel.labels), past)
        growths = {row: some for row, some in growths.items() if any(g.promising for g in some)}
        if not growths:
            return []
        if past is not None:
            rows = self._beside(panel.labels, growths)
            past.fetch([panel.labels[row] for row in rows])
            rows = [row for row in rows if past.has(panel.labels[row])]
            place = {row: i for i, row in enumerate(rows)}
            panel = past.panel([panel.labels[row] for row in rows])
            growths = {place[row]: [_at(g, place[row]) for g in growths[row]] for row in growths}
        return leaks_of(growths, {**panels, self.signal: panel}, self.signal, limits)

    def _grown(
        self, panel: Panel, raised: Mapping[int, list[int]], past: Past | None
    ) -> dict[int, list[Growth]]:
        """Return the growth of what is raised, by its row in *panel*."""
        rows = [row for row in raised if past is None or past.has(panel.labels[row])]
        if not rows:
            return {}
        labels = [panel.labels[row] for row in rows]
        some = panel.rows(rows) if past is None else past.panel(labels)
        pyramid = Pyramid(some.values, round(float(some.times[0]) / some.step))
        found = grown(some, pyramid, {i: raised[row] for i, row in enumerate(rows)})
        return {rows[i]: [_at(growth, rows[i]) for growth in every] for i, every in found.items()}

    def named(self, labels: tuple[Labels, ...]) -> list[str]:
        """Return the keys of *labels*, which are mostly those of one of the last calls."""
        keys = next(
            (keys for known, keys in self._keys if known is labels or known == labels), None
        )
        if keys is None:
            keys = [key(one) for one in labels]
        self._keys = [(labels, keys), *(one for one in self._keys if one[1] is not keys)][:2]
        return keys

    def _rows(self, labels: tuple[Labels, ...]) -> IntArray:
        """Return the rows of *labels* in the state, -1 for none; mostly those of a call before."""
        keys = self.named(labels)
        known = next((one for one in self._found if one[0] is keys), None)
        if known is None or known[1] != (self.state.moves, len(self.state.keys)):
            known = keys, (self.state.moves, len(self.state.keys)), self.state.find(keys)
            self._found = [known, *(one for one in self._found if one[0] is not keys)][:2]
        return known[2]

    def _beside(self, labels: tuple[Labels, ...], rows: Mapping[int, object]) -> list[int]:
        """Return *rows* with those that share a server with them, and peers, ascending."""
        keys = self.named(labels)
        if self._around[0] is not keys:
            around: dict[object, list[int]] = defaultdict(list)
            for row, one in enumerate(labels):
                around["tree", without(one, *PROCESS)].append(row)
                around["kind", without(one, *PLACE)].append(row)
            self._around = keys, dict(around)
        beside = self._around[1]
        out = set(rows)
        for row in rows:
            out.update(beside["tree", without(labels[row], *PROCESS)])
            out.update(beside["kind", without(labels[row], *PLACE)][: PEERS + 1])
        return sorted(out)


def _at(growth: Growth, row: int) -> Growth:
    ago = growth.ago
    return replace(growth, row=row, ago=ago and replace(ago, row=row))


def _cut(values: FloatArray) -> FloatArray:
    """Return *values* with those as missing that `context.believable` takes out."""
    with np.errstate(invalid="ignore"):
        absurd = np.abs(values) > LARGEST
    return np.where(absurd, np.nan, values) if absurd.any() else values


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
        self._origin = round(float(panel.times[0]) / panel.step)
        self._pyramid = Pyramid(panel.values, self._origin, whole=True)
        series = len(panel.labels)
        self._state = LiveState(panel.step, self._history, series)
        self._rows: IntArray = self._state.rows([str(row) for row in range(series)])
        self._known = 0
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
        fresh = self._advance(end)
        rows = self._state.rises()
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

    def _advance(self, end: int) -> set[int]:
        """Take the points up to *end*; return the widths of which a bucket is over since then."""
        values, starts, known = self._panel.values, self._panel.starts, self._known
        new = None if starts is None else starts[:, known:end]
        self._state.add(self._origin + known, values[:, known:end], self._rows, new)
        self._known = end
        now, before = self._origin + end, self._origin + known
        return {w for w in self._state.widths if now // w != before // w}

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
