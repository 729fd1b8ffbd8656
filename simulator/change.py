"""What a scenario changes in a healthy run: one quantity, one shape over time, one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

GIB: Final = 2.0**30
MIB: Final = 2.0**20
HOUR: Final = 3600.0
DAY: Final = 86400.0

Shape = Literal[
    "step", "ramp", "growth", "saturate", "stairs", "log", "wave", "daily", "saw", "cold", "image"
]
What = Literal[
    "traffic", "prompt", "output", "share",
    "prefix_hits", "decode_hits", "tier_hits", "accepted", "position_0", "position_1",
    "step", "step_fixed", "step_mixed", "prefill", "backlog", "queue_tail", "link",
    "errors", "aborts", "uncounted", "transfer_failures", "leases", "late_reads", "preemptions",
    "frozen", "private", "cache", "shared", "limit", "spin", "clock", "power_limit",
]  # fmt: skip
Driver = Literal["tokens", "requests", "steps", "hours"]


@dataclass(frozen=True)
class Change:
    """One change of a run.

    Attributes:
        what: The quantity; `simulator.flow`, `memory` and `gpu` say what a value of it means:
            a share more (traffic, times) or an amount added (hits, seconds, GiB).
        size: Its value once fully there; an hour's for `ramp` and `growth`.
        start: Seconds from the end of history.
        end: When it is over; a ramp stays where it was.
        shape: How it comes.
        span: Seconds: time constant, period or length of day of the shape.
        pool: Only in this pool; empty for all.
        server: Only on the pool's server of this number.
        rank: Only on this rank of it.
        process: Only in this kind of process.
    """

    what: What
    size: float
    start: float = -inf
    end: float = inf
    shape: Shape = "step"
    span: float = HOUR
    pool: str = ""
    server: int | None = None
    rank: int | None = None
    process: str = ""

    def concerns(self, pool: str, server: int, rank: int | None, process: str = "") -> bool:
        """Return whether it is made there; a rank of None is the whole server."""
        pairs = ((self.server, server), (self.rank, rank))
        here = all(mine is None or mine == theirs for mine, theirs in pairs)
        return here and self.pool in ("", pool) and self.process in ("", process)

    def at(self, at: FloatArray, started: FloatArray) -> FloatArray:
        """Return its value at instants *at*.

        Args:
            at: Seconds from the end of history.
            started: Start of the incarnation that runs at each instant.
        """
        begun: npt.NDArray[np.bool_] = at >= self.start
        if self.shape in ("ramp", "growth", "log", "saturate", "stairs"):
            age = np.clip(at, self.start, self.end) - self.start
            value = self.size * _GROWN[self.shape](age, self.span)
        else:
            begun = begun & (at < self.end)
            if self.shape == "image":
                begun = begun & (started >= self.start)
            value = self.size * _HELD[self.shape](at, at - started, self.span)
        return np.where(begun, value, 0.0)


def _stairs(age: FloatArray, span: float) -> FloatArray:
    return np.floor(6.0 * (1.0 - np.exp(-age / span))) / 6.0


def _daily(at: FloatArray, _age: FloatArray, span: float) -> FloatArray:
    """Return 1 in the first *span* seconds of each day of 24 hours before now."""
    return ((at % DAY) < span).astype(np.float64)


_GROWN: Final[dict[str, Callable[[FloatArray, float], FloatArray]]] = {
    "ramp": lambda age, _: age / HOUR,
    "growth": lambda age, _: age / HOUR,
    "log": lambda age, span: np.log1p(age / span),
    "saturate": lambda age, span: 1.0 - np.exp(-age / span),
    "stairs": _stairs,
}
_HELD: Final[dict[str, Callable[[FloatArray, FloatArray, float], FloatArray]]] = {
    "step": lambda at, _age, _span: np.ones_like(at),
    "image": lambda at, _age, _span: np.ones_like(at),
    "wave": lambda at, _age, span: np.sin(2.0 * np.pi * at / span),
    "saw": lambda at, _age, span: (at % span) / span,
    "daily": _daily,
    "cold": lambda _at, age, span: np.exp(-np.maximum(age, 0.0) / span),
}


@dataclass(frozen=True)
class Loss:
    """Memory that is never given back.

    Attributes:
        pool: Pool of the processes.
        process: Their kind.
        rate: Bytes an hour over all of them: the mean from `start` up to now.
        by: What it grows with.
        start: Seconds from the end of history.
        end: When it is mended; what was lost stays until a restart.
        server: Only on the pool's server of this number.
        rank: Only this rank.
        swapped: Whether the host swaps it out: then resident memory doesn't show it.
    """

    pool: str
    process: str
    rate: float
    by: Driver = "tokens"
    start: float = 0.0
    end: float = inf
    server: int | None = None
    rank: int | None = None
    swapped: bool = False

    def concerns(self, pool: str, server: int, rank: int | None, process: str) -> bool:
        """Return whether a process loses."""
        pairs = ((self.server, server), (self.rank, rank))
        here = all(mine is None or mine == theirs for mine, theirs in pairs)
        return here and (self.pool, self.process) == (pool, process)


Place = tuple[str, int, int | None]
"""Pool, number of the server in it, rank."""


def total(
    changes: Sequence[Change],
    what: What,
    at: FloatArray,
    places: Sequence[Place],
    started: Sequence[FloatArray],
    process: str = "",
) -> FloatArray:
    """Return the sum of all changes of *what*, shape (places, instants); (1, 1) where none is."""
    mine = [change for change in changes if change.what == what]
    if not mine:
        return np.zeros((1, 1))
    rows = np.zeros((len(places), len(at)))
    for i, place in enumerate(places):
        for change in mine:
            if change.concerns(*place, process):
                rows[i] += _as_share(change, change.at(at, started[i]))
    return rows


def _as_share(change: Change, value: FloatArray) -> FloatArray:
    """Return *value*; of a growth so many per cent an hour upon the last hour's."""
    return (
        np.expm1(value * np.log1p(change.size) / change.size) if change.shape == "growth" else value
    )
