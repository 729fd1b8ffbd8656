"""Private memory of every process: screened on arrays, judged on the history of what is raised.

While all of the history fits in memory it is held as of any signal. Of more series only the newest
points are: the past of the few that the screen raises, of their servers and of their peers is asked
for once and then kept current.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from catalog.panel import Labels, Panel
from catalog.signal import Signal
from catalog.signals import SIGNALS
from detectors.drift import judge as drift
from detectors.drift.context import LimitsLike
from detectors.drift.coverage import GLANCE
from detectors.drift.live import LiveLeaks, key
from detectors.drift.live_state import MOST_SERIES, LiveState
from detectors.finding import Finding
from detectors.service.checkpoint import Checkpoint
from detectors.service.histories import Histories
from store.errors import StoreError
from store.history import extend

log = logging.getLogger("leadline.service")

LEAK: Final = drift.SIGNALS["leak"][0]
MAX_CELLS: Final = 40_000_000
"""Series times points kept of one signal (320 MB an array)."""
TAIL_CELLS: Final = 10_000_000
"""The same of the newest points alone, where all do not fit,"""
LEAST: Final = GLANCE
"""but not fewer points than this."""
LATE: Final = 1
"""Points before the newest that are read again: a scrape may arrive after its grid point."""
TOGETHER: Final = 50
"""Servers whose history is asked for in one query."""
UNASKED: Final = 6 * 3600.0
"""Seconds after which a history is let go of that nothing was raised for."""
SAVED_EVERY: Final = 900.0
"""Seconds between two checkpoints."""
NOT_SCREENED: Final = "there is no room to follow it: share the fleet out over several services"
NOT_LOOKED_BACK: Final = "it grows, and so do too many others to look back on it"


class Source(Protocol):
    """Where panels come from; `store.prometheus.PromStore` is one."""

    def panel(
        self, signal: Signal, start: float, end: float, step: float, selector: str = ""
    ) -> Panel:
        """Return *signal* on the grid points of *step* in [start, end], of chosen series."""


class Lives:
    """Reads private memory and finds its leaks.

    Attributes:
        thin: Whether of most series the newest points alone are held.
        error: Why the last judgement lacked a history and told nothing; empty if it did.
        unjudged: What could not be judged for want of room, and how many series that is.
    """

    def __init__(self, source: Source, history: float, step: float, folder: Path | None) -> None:
        """Take up the state that was saved in *folder*, if there is one.

        Args:
            source: Where to read.
            history: Seconds looked back on.
            step: Seconds a point.
            folder: Where the state is saved; None for nowhere.
        """
        self._source = source
        self._step = step
        self._points = round(history / step) + 1
        self._checkpoint = None if folder is None else Checkpoint(folder)
        self._saved = 0.0
        self.thin = False
        self.error = ""
        self._told: set[str] = set()
        self.unjudged: dict[str, int] = {}
        self._anew()
        if self._checkpoint and (state := self._checkpoint.load(step, self._points)):
            self._leaks = LiveLeaks(LEAK, state)

    def _anew(self) -> None:
        self._leaks = LiveLeaks(LEAK, LiveState(self._step, self._points, MOST_SERIES))
        self._histories = Histories(LEAK, self._step, self._points)

    def read(self, panel: Panel | None, end: float) -> Panel:
        """Return *panel* with the points up to *end* (unix seconds); None is read back first.

        Raises:
            StoreError: Not all could be read.
        """
        if panel is None:
            series, start = self._begin(end)
        else:
            series, start = len(panel.labels), float(panel.times[-1]) - LATE * self._step
        for first, last in self._pieces(start, end, series):
            newer = self._source.panel(SIGNALS[LEAK], first, last, self._step)
            if not self._leaks.take(newer):  # the clock went back
                self._anew()
                return self.read(None, end)
            self._histories.follow(newer, self._leaks.named(newer.labels))
            panel = self._cut(newer if panel is None else extend(panel, newer))
        if panel is None:  # no grid point yet
            return self._source.panel(SIGNALS[LEAK], start, end, self._step)
        if self._fills(len(panel.labels)) and not self.thin:
            self.thin = True
            panel = self._cut(panel)
        self._lacks(NOT_SCREENED, self._leaks.state.left_out)
        if self.thin:
            grown = [panel.labels[row] for row in self._leaks.raised(panel.labels)]
            self.fetch(grown)
            self._lacks(NOT_LOOKED_BACK, sum(not self.has(one) for one in grown))
            self._histories.forget(round(UNASKED / self._step))
        self._save(end)
        return panel

    def _fills(self, series: int) -> bool:
        """Return whether all of the history of so many series is too much."""
        return series * self._points > MAX_CELLS

    def _begin(self, end: float) -> tuple[int, float]:
        """Return how many series there are, and from when on to read them for the first time."""
        start = end - (self._points - 1) * self._step
        series = len(self._source.panel(SIGNALS[LEAK], end - self._step, end, self._step).labels)
        self.thin = self._fills(series)
        state = self._leaks.state
        known = state.end * self._step
        if not self.thin or not start < known <= end + self._step:
            self._anew()
            return series, start
        tail = end - self._tail(series) * self._step
        return series, max(start, min(known - LATE * self._step, tail))

    def _pieces(self, start: float, end: float, series: int) -> Iterator[tuple[float, float]]:
        """Yield spans on the grid that are short enough to be held in memory."""
        most = max(1, MAX_CELLS // max(1, series)) if self.thin else self._points + LATE
        while start <= end:
            last = min(end, start + (most - 1) * self._step)
            yield start, last
            start = last + self._step

    def _tail(self, series: int) -> int:
        """Return how many of the newest points are held of so many series."""
        return min(self._points, max(LEAST, TAIL_CELLS // max(1, series)))

    def _cut(self, panel: Panel) -> Panel:
        """Return the points of *panel* that are held, of series that are looked back on."""
        held = self._tail(len(panel.labels)) if self.thin else self._points
        first = max(0, len(panel.times) - held)
        if first:
            panel = replace(
                panel,
                times=panel.times[first:],
                **{
                    name: array[:, first:]
                    for name in ("values", "load", "trials", "starts")
                    if (array := getattr(panel, name)) is not None
                },
            )
        alive = self._leaks.alive(panel)
        return panel if alive.all() else panel.rows(np.flatnonzero(alive).tolist())

    def fetch(self, labels: Sequence[Labels]) -> None:
        """Ask for the history of those of *labels* whose is not here, as far as there is room.

        Raises:
            StoreError: It can't be read.
        """
        missing = [one for one in labels if not self._histories.has(one)]
        room = max(0, MAX_CELLS // self._points - len(self._histories))
        end = self._leaks.state.end
        span = ((end - self._points) * self._step, (end - 1) * self._step, self._step)
        for selector, keys in _asked(missing[:room]):
            found = self._source.panel(SIGNALS[LEAK], *span, selector)
            rows = [row for row, one in enumerate(found.labels) if key(one) in keys]
            self._histories.put(found.rows(rows))

    def _lacks(self, why: str, series: int) -> None:
        """Note how many *series* can't be judged, and say so when it begins."""
        if series <= 0:
            self.unjudged.pop(why, None)
            return
        if why not in self._told:
            log.warning("%s: %d series: %s", LEAK, series, why)
            self._told.add(why)
        self.unjudged[why] = series

    def past(self, findings: Iterable[Finding]) -> Panel | None:
        """Return the history of the series of *findings*; None where panels hold all of it."""
        labels = [one.labels for one in findings if one.signal == LEAK and self.has(one.labels)]
        return self.panel(labels) if self.thin and labels else None

    def has(self, labels: Labels) -> bool:
        """Return whether the history of a series is here."""
        return self._histories.has(labels)

    def panel(self, labels: Sequence[Labels]) -> Panel:
        """Return the history of *labels*, all of which are here, in their order."""
        return self._histories.panel(labels)

    def find(self, panels: Mapping[str, Panel], limits: LimitsLike, as_of: float) -> list[Finding]:
        """Return the leaks (a `judge.Detector`); nothing, and why in `error`, without histories."""
        self.error = ""
        try:
            return self._leaks.find(panels, limits, as_of, self if self.thin else None)
        except StoreError as error:
            self.error = str(error)
            return []

    def _save(self, now: float) -> None:
        """Save the state, if it is due and spares anything: what is held whole is read anyway."""
        if self._checkpoint and self.thin and now - self._saved >= SAVED_EVERY:
            self._checkpoint.save(self._leaks.state)
            self._saved = now


def _asked(labels: Sequence[Labels]) -> Iterator[tuple[str, set[str]]]:
    """Yield conditions that choose few more series than *labels*, and the keys of those wanted."""
    by_process: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one in labels:
        by_process[one.get("process", "")][one.get("server", "")].append(key(one))
    for process, by_server in by_process.items():
        servers = sorted(by_server)
        for i in range(0, len(servers), TOGETHER):
            some = servers[i : i + TOGETHER]
            keys = {one for server in some for one in by_server[server]}
            yield f"{_one_of('process', [process])}, {_one_of('server', some)}", keys


def _one_of(label: str, values: Sequence[str]) -> str:
    pattern = "|".join(re.escape(value) for value in values).replace("\\", "\\\\")
    return f'{label}=~"{pattern}"'
