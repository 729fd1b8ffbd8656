"""How much arrives: a day's mean times what the hour, the week, a burst or a trace makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from simulator.change import DAY, HOUR
from simulator.noise import FloatArray, keys, smooth
from simulator.replay import CELL, Trace, read
from simulator.sessions import Sessions

KINDS: Final = ("daily", "weekly", "poisson", "bursty", "agents")
"""And `replay:PATH`, the requests of a trace (`simulator.replay`), over and over."""

SEASON: Final = 0.25
PEAK: Final = -1.5 * HOUR
WEEKEND: Final = 0.45
"""Share of a working day's traffic that comes on Saturday and Sunday."""

PROMPT: Final = 8192.0
OUTPUT: Final = 800.0
ARRIVALS: Final = 11.5  # requests a second, mean of a day

_LOAD: Final = 3
"""Cells before and after, over which arrivals of sessions and traces are spread."""


class Traffic:
    """The traffic of one run relative to its mean.

    Args:
        kind: One of `KINDS`, or `replay:PATH`.
        seed: Seed of all noise.
        weekday: Days from the last Monday, 00:00, to the end of history.

    Raises:
        ValueError: The kind is unknown, or the trace can't be read as one.
    """

    def __init__(self, kind: str, seed: int, weekday: float = 2.6) -> None:
        name, _, path = kind.partition(":")
        if name not in (*KINDS, "replay"):
            known = ", ".join((*KINDS, "replay:PATH"))
            raise ValueError(f"unknown traffic {kind!r}: known are {known}")
        self.kind = name
        self._seed = seed
        self._weekday = weekday
        self._told = name in ("agents", "replay")
        self._sessions = Sessions(seed)
        self._trace = read(Path(path)) if name == "replay" else None

    def rate(self, at: FloatArray) -> FloatArray:
        """Return arrivals relative to the mean."""
        if self._told:
            counted: FloatArray = self._counted(at)[0] / (CELL * ARRIVALS)
            return counted
        slow = smooth(keys(self._seed, "arrivals/slow"), at, 1800.0)[0]
        fast = smooth(keys(self._seed, "arrivals/fast"), at, 300.0)[0]
        rate: FloatArray = 1.0 + 0.04 * slow + 0.03 * fast
        if self.kind == "poisson":
            return np.ones_like(at)
        if self.kind == "bursty":
            return rate * self._bursts(at)
        rate = rate * (1.0 + SEASON * np.cos(2.0 * np.pi * (at - PEAK) / DAY))
        return rate * self._week(at) if self.kind == "weekly" else rate

    def prompt(self, at: FloatArray) -> FloatArray:
        """Return the length of prompts relative to the mean."""
        if not self._told:
            return np.ones_like(at)
        requests, tokens, _, _ = self._counted(at)
        mean: FloatArray = np.maximum(tokens / np.maximum(requests, 1e-6), 16.0)
        return mean / PROMPT

    def output(self, at: FloatArray) -> FloatArray:
        """Return the length of answers relative to the mean."""
        if not self._trace:
            return np.ones_like(at)
        requests, _, written, _ = self._counted(at)
        mean: FloatArray = np.maximum(written / np.maximum(requests, 1e-6), 2.0)
        return mean / OUTPUT

    def reuse(self, at: FloatArray) -> FloatArray | None:
        """Return the share of prompt tokens that were seen before; None: as the deployment has."""
        if not self._told or (self._trace is not None and self._trace.seen is None):
            return None
        _, tokens, _, seen = self._counted(at)
        # Of what could be reused 97 % is: the rest was routed away or evicted.
        share: FloatArray = 0.97 * seen / np.maximum(tokens, 1.0)
        return np.clip(share, 0.0, 0.98)

    def _counted(self, at: FloatArray) -> FloatArray:
        """Return requests, prompt, output and seen tokens a cell around *at*, (4, instants)."""
        first = np.floor(at / CELL).astype(np.int64)
        lags = range(-_LOAD, _LOAD + 1)
        spread = np.array([_LOAD + 1.0 - abs(lag) for lag in lags])
        parts = [self._cells(first + lag) * w for lag, w in zip(lags, spread, strict=True)]
        counted: FloatArray = np.sum(parts, axis=0) / spread.sum()
        return counted

    def _cells(self, number: npt.NDArray[np.int64]) -> FloatArray:
        if self._trace:
            return _repeated(self._trace, number)
        work = self._sessions.cells(number)
        return np.stack([work.requests, work.tokens, OUTPUT * work.requests, work.seen])

    def _week(self, at: FloatArray) -> FloatArray:
        """Return the share of a working day, with an hour between one and the other."""
        day = (at / DAY + self._weekday) % 7.0
        off = np.clip((day - 5.0) * 24.0, 0.0, 1.0) - np.clip((day - 6.0) * 24.0 - 23.0, 0.0, 1.0)
        share: FloatArray = 1.0 - (1.0 - WEEKEND) * off
        return share

    def _bursts(self, at: FloatArray) -> FloatArray:
        """Return log-normal bursts of ten minutes: mean one, half of the time below .8."""
        z = smooth(keys(self._seed, "arrivals/burst"), at, 600.0)[0]
        burst: FloatArray = np.exp(0.6 * z - 0.18)
        return np.minimum(burst, 2.0)


def _repeated(trace: Trace, number: npt.NDArray[np.int64]) -> FloatArray:
    """Return the cells of a trace, at the rate at which they weigh on prefill as usual traffic."""
    place = number % len(trace.requests)
    seen = np.zeros_like(trace.prompt) if trace.seen is None else trace.seen
    weight = (trace.prompt - 0.97 * seen).sum() / (0.75 * PROMPT)
    scale = ARRIVALS * CELL * len(trace.requests) / max(weight, 1e-9)
    # Decode has its share too: answers that are long for their prompts weigh more there.
    scale = min(scale, ARRIVALS * CELL * len(trace.requests) * OUTPUT / trace.output.sum())
    rows = np.stack([trace.requests, trace.prompt, trace.output, seen])
    found: FloatArray = rows[:, place] * scale
    return found
