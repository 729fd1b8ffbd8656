"""What the rig itself measured: levels and growth of private memory, process by process.

Kept apart from Leadline's own numbers, which it is there to check.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from benchmarks.live.processes import Reading


@dataclass
class History:
    """Private memory (anonymous and swapped) of every process over the run."""

    times: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    values: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, at: float, pool: str, readings: Iterable[Reading]) -> None:
        """Take in one sample of one server."""
        sums: dict[str, float] = {}
        for reading in readings:
            sums[reading.process] = sums.get(reading.process, 0.0) + reading.anon + reading.swap
        for process, value in sums.items():
            self.times.setdefault((pool, process), []).append(at)
            self.values.setdefault((pool, process), []).append(value)

    def level(self, pool: str) -> float:
        """The private memory of a server's whole process tree, now, in bytes."""
        return sum(v[-1] for (where, _), v in self.values.items() if where == pool and v)

    def growth(self, pool: str, process: str, since: float) -> float:
        """The growth of one kind of process since an instant, in bytes a second."""
        times = np.asarray(self.times.get((pool, process), ()))
        values = np.asarray(self.values.get((pool, process), ()))
        late = times >= since
        if late.sum() < 3:
            return float("nan")
        return float(np.polyfit(times[late] - since, values[late], 1)[0])

    def pool_growth(self, pool: str, since: float) -> float:
        """The growth of a server's whole process tree, in bytes a second."""
        slopes = [self.growth(where, p, since) for where, p in self.values if where == pool]
        return float(np.nansum(slopes))


def table(history: History, since: float) -> str:
    """The growth of every process since an instant, for people to read."""
    lines = ["pool     process      MB now   MB/min"]
    for pool, process in sorted(history.values):
        now = history.values[pool, process][-1] / 1e6
        rate = history.growth(pool, process, since) * 60 / 1e6
        lines.append(f"{pool:8} {process:11} {now:7.0f} {rate:8.2f}")
    return "\n".join(lines)


def breach_at(history: History, limit: float, rate: float, now: float) -> float:
    """When decode's tree meets the limit at this rate; now if it has."""
    left = limit - history.level("decode")
    return now if left <= 0 else now + left / rate
