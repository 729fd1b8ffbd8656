"""Panels in memory: the past is read back once, then each cycle costs its new points.

A query that fails leaves the old panel as it is; the next one that succeeds reads the gap too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from catalog.panel import Panel
from catalog.signals import SIGNALS
from detectors.service.lives import LEAK, MAX_CELLS, Lives, Source
from store.errors import StoreError, UnreachableError
from store.history import extend

log = logging.getLogger("leadline.service")

LATE: Final = 1
"""Points before the newest that are read again: a scrape may arrive after its grid point."""
BACK: Final = 5
"""Points by which the clock may go back before the past is read anew."""


class Memory:
    """The panels of some signals, kept current.

    Attributes:
        panels: By signal, once read.
        errors: By signal, what its last query failed with.
        failures: By signal, how many queries failed.
        away: Why the source can't be reached; empty from its next answer on.
        lives: Private memory, of which more series are followed than can be held.
    """

    def __init__(
        self, source: Source, history: float, step: float, folder: Path | None = None
    ) -> None:
        """Remember *history* seconds of points every *step*; *folder* keeps the live state."""
        self._source = source
        self._history = history
        self._step = step
        self.panels: dict[str, Panel] = {}
        self.errors: dict[str, str] = {}
        self.failures: dict[str, int] = {}
        self.away = ""
        self.lives = Lives(source, history, step, folder)

    def refresh(self, names: Iterable[str], now: float) -> set[str]:
        """Read what is new of each signal; return those that brought new points.

        When the source can't be reached, the rest of the signals is left for the next cycle, so
        that one that hangs costs one timeout and not one per signal. An error stays until a query
        of its signal succeeds: a cycle that had nothing to ask has learnt nothing.
        """
        fresh: set[str] = set()
        gone = False
        for name in names:
            if gone:
                self.errors[name] = self.away
                continue
            try:
                if self._read(name, now):
                    fresh.add(name)
                    self.errors.pop(name, None)
                    self.away = ""
            except StoreError as error:
                gone = self._failed(name, error)
        return fresh

    def _failed(self, name: str, error: StoreError) -> bool:
        """Note a failure, log it if it is news, and return whether the source is away."""
        said = str(error)
        if self.errors.get(name) != said:
            log.warning("signal %s: %s", name, said)
        self.errors[name] = said
        self.failures[name] = self.failures.get(name, 0) + 1
        self.away = said if isinstance(error, UnreachableError) else ""
        return bool(self.away)

    def _read(self, name: str, now: float) -> bool:
        """Read from the last point on (or all the history); return whether points were added."""
        panel = self.panels.get(name)
        end = np.floor(now / self._step) * self._step
        start = end - self._history
        if panel is not None and len(panel.times) and panel.times[-1] >= start:
            if end <= panel.times[-1] <= end + BACK * self._step:
                return False
            if panel.times[-1] > end:  # the clock was put back: what is later was never there
                panel = None
        else:
            panel = None
        if name == LEAK:
            self.panels[name] = self.lives.read(panel, float(end))
            return True
        if panel is not None:
            start = float(panel.times[-1]) - LATE * self._step
        # The store reads in chunks and answers all or nothing: half a history would be judged
        # as all there is.
        newer = self._source.panel(SIGNALS[name], float(start), float(end), self._step)
        panel = newer if panel is None else extend(panel, newer, self._history)
        self.panels[name] = self._bounded(panel)
        return True

    def _bounded(self, panel: Panel) -> Panel:
        keep = MAX_CELLS // max(1, len(panel.labels))
        if len(panel.times) <= keep:
            return panel
        return extend(panel.until(panel.times[0]), panel, keep * self._step)


def since(panel: Panel) -> float | None:
    """Return the instant of the first sample, or None."""
    seen = np.isfinite(panel.values).any(axis=0)
    return float(panel.times[int(seen.argmax())]) if seen.any() else None


def latest(panel: Panel, bad: str | None) -> float | None:
    """Return the newest value of the worst series, or None; successes become a ratio."""
    values = ratio_of(panel)
    width = 3 if not panel.step > 0 else max(3, int(np.ceil(300.0 / panel.step)))
    recent = values[:, -width:]
    seen = np.isfinite(recent)
    last = recent.shape[1] - 1 - seen[:, ::-1].argmax(axis=1)
    known = recent[np.arange(len(recent)), last][seen.any(axis=1)]
    if not len(known):
        return None
    return float(known.min() if bad == "down" else known.max())


def ratio_of(panel: Panel) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return the values; of counts, the ratio of successes to trials (NaN without trials)."""
    if panel.trials is None:
        return panel.values
    trials = np.where(panel.trials > 0, panel.trials, np.nan)
    return np.asarray(panel.values / trials, dtype=np.float64)
