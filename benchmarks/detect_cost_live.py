"""What a cycle of the live service costs for a large fleet, beside its queries."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.detect_series import DAY, MIB, ORIGIN
from catalog.config import load
from catalog.panel import FloatArray, Labels, Panel
from catalog.signal import Signal
from detectors.drift.live import LiveLeaks, key
from detectors.drift.live_state import LiveState
from detectors.service.checkpoint import Checkpoint
from detectors.service.cycle import Cycle
from detectors.service.ledger import Ledger
from detectors.service.lives import LEAK
from store.prometheus import Sample

STEP = 60.0
FIRST = round(ORIGIN / STEP)
PROCESSES = 10  # of a server
SERVERS = 20  # of a deployment
PIECE = 2_000_000  # cells fed at once
BEGUN = DAY  # points since which the leaks leak


class Fleet:
    """Many processes that each tell one of few series, shifted in level; some leak of late.

    Attributes:
        end: Number of points that are known.
        spent: CPU seconds in queries.
        asked: Points answered of all series.
    """

    def __init__(self, noise: FloatArray, series: int, leaks: int) -> None:
        """Play *noise* (s, n) to *series* processes, of which the first of some servers leak."""
        rng = np.random.default_rng(5)
        self._noise = noise
        self._of = rng.integers(0, len(noise), series)
        self._leak = np.zeros(series)
        if leaks:
            self._leak[:: series // leaks // PROCESSES * PROCESSES] = 50 * MIB / 60
        self.end = noise.shape[1]
        self.spent = 0.0
        self.asked = 0
        self._names = [_labels(i) for i in range(series)]

    @property
    def now(self) -> float:
        """Unix seconds of the newest point."""
        return float((FIRST + self.end - 1) * STEP)

    def values(
        self, first: int, last: int, rows: Sequence[int] | slice = slice(None)
    ) -> FloatArray:
        """Return points *first* to *last* (exclusive) of some processes."""
        columns = np.arange(first, last)
        since = np.maximum(columns - (self._noise.shape[1] - BEGUN), 0)
        quiet = self._noise[:, columns % self._noise.shape[1]][self._of[rows]]
        out: FloatArray = quiet + self._leak[rows][:, None] * since
        return out

    def panel(
        self, signal: Signal, start: float, end: float, step: float, selector: str = ""
    ) -> Panel:
        """Return private memory, and nothing of other signals; labels are made for each answer."""
        before = time.process_time()
        first, last = round(start / step), round(end / step) + 1
        times = step * np.arange(first, last, dtype=np.float64)
        if signal.name != LEAK:
            answer = Panel(signal.name, times, np.empty((0, len(times))), ())
        else:
            rows = [
                i
                for i, one in enumerate(self._names)
                if not selector
                or (f'"{one["process"]}"' in selector and one["server"][:-5] in selector)
            ]
            values = self.values(first - FIRST, last - FIRST, rows)
            values[:, times > self.now] = np.nan
            starts = np.full_like(values, ORIGIN - DAY * STEP)
            labels = tuple(dict(self._names[i]) for i in rows)
            answer = Panel(signal.name, times, values, labels, starts=starts)
            self.asked += values.size
        self.spent += time.process_time() - before
        return answer

    def instant(self, query: str, at: float) -> list[Sample]:  # noqa: ARG002
        """Nobody is scraped twice."""
        return []


def _labels(i: int) -> Labels:
    server = i // PROCESSES
    return {
        "namespace": "llm",
        "deployment": f"chat{server // SERVERS}",
        "pool": "decode",
        "model_name": "glm",
        "server": f"n{server}x:8000",
        "node": f"n{server}x",
        "process": f"worker{i % PROCESSES}",
    }


def fed(fleet: Fleet, series: int) -> LiveState:
    """Return the state of *fleet* after all of its points but the last hour's."""
    state = LiveState(STEP, 7 * DAY + 1, series)
    leaks = LiveLeaks(LEAK, state)
    names = tuple(_labels(i) for i in range(series))
    rows = state.rows([key(one) for one in names])
    some = max(1, PIECE // series)
    for first in range(0, fleet.end - 60, some):
        last = min(first + some, fleet.end - 60)
        values = fleet.values(first, last)
        leaks.state.add(FIRST + first, values, rows, np.full_like(values, ORIGIN - DAY * STEP))
    return state


def cycle(noise: FloatArray, series: int, leaks: int, cycles: int = 5) -> tuple[float, float, int]:
    """Return CPU seconds of a cycle beside its queries, bytes a series, and leaks that fire.

    The service takes up a saved state, and then runs one cycle a minute.
    """
    fleet = Fleet(noise, series, leaks)
    with tempfile.TemporaryDirectory() as folder:
        state = fed(fleet, series)
        Checkpoint(Path(folder)).save(state)
        size = state.nbytes / series
        config = load(None, {}, {
            "service": {"state": folder},
            "limits": {LEAK: "64GiB"},
        })  # fmt: skip
        ledger = Ledger(Path(folder))
        service = Cycle(config, fleet, ledger, clock=lambda: fleet.now)
        service.run_once()
        fleet.spent, before = 0.0, time.process_time()
        for _ in range(cycles):
            fleet.end += 1
            service.run_once()
        spent = (time.process_time() - before - fleet.spent) / cycles
        ledger.close()
    held = service.snapshot.panels[LEAK]
    arrays = [one for one in (held.values, held.starts) if one is not None]
    size += sum(one.nbytes for one in arrays) / len(held.labels)
    firing = sum(t.finding.state == "firing" for t in service.snapshot.tracked.values())
    return spent, size, firing
