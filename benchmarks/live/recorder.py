"""Keep what both servers showed: their /metrics pages and their processes' memory.

``processes.csv`` is in the long form that ``leadline detect --input`` reads, and every sample is
flushed, so that a run can be looked at while it goes on.
"""

from __future__ import annotations

import csv
import gzip
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from benchmarks.live.measure import History
from benchmarks.live.processes import Reading, read_tree
from benchmarks.live.servers import Server

COLUMNS = ("time", "signal", "value", "server", "pool", "process", "rank")
MEMORY: dict[str, Callable[[Reading], float]] = {
    "host_anon_swap": lambda r: r.anon + r.swap,
    "host_rss": lambda r: r.rss,
}
OTHER: dict[str, Callable[[Reading], float]] = {
    "host_shmem": lambda r: r.shmem,
    "host_threads": lambda r: r.threads,
    "host_fds": lambda r: r.fds,
    "start_time": lambda r: r.start,
    "cpu_seconds": lambda r: r.cpu_seconds,
}


def server_label(port: int) -> str:
    """The identity of a server: the node's name and the port, never loopback."""
    return f"{socket.gethostname()}:{port}"


class Recorder:
    """Writes one sample of all servers at each call."""

    def __init__(self, folder: Path) -> None:
        """Open the tables in ``folder``."""
        self.pages = folder / "pages"
        self.pages.mkdir(parents=True, exist_ok=True)
        self.history = History()
        self._memory = _Table(folder / "processes.csv")
        self._other = _Table(folder / "extras.csv")

    def sample(self, servers: Sequence[Server]) -> None:
        """Record one instant of all servers."""
        at = time.time()
        for server in servers:
            readings = read_tree(server.running.pid)
            labels = (server_label(server.plan.port), server.plan.pool)
            self._memory.write(at, labels, readings, MEMORY)
            self._other.write(at, labels, readings, OTHER)
            self.history.add(at, server.plan.pool, readings)
            self._page(server, at)

    def close(self) -> None:
        """Close the tables."""
        self._memory.close()
        self._other.close()

    def _page(self, server: Server, at: float) -> None:
        try:
            answer = httpx.get(f"{server.plan.url}/metrics", timeout=4.0)
            answer.raise_for_status()
        except httpx.HTTPError:
            return  # still starting, or too busy: the gap itself is part of the record
        path = self.pages / f"{server.plan.pool}-{at:.0f}.prom.gz"
        path.write_bytes(gzip.compress(answer.content, mtime=0))


class _Table:
    """A CSV in long form, flushed at each sample."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", newline="", encoding="utf-8")
        self._rows = csv.writer(self._file)
        self._rows.writerow(COLUMNS)

    def write(
        self,
        at: float,
        labels: tuple[str, str],
        readings: list[Reading],
        signals: dict[str, Callable[[Reading], float]],
    ) -> None:
        for reading in readings:
            for name, value in signals.items():
                row = (f"{at:.1f}", name, f"{value(reading):.10g}", *labels)
                self._rows.writerow((*row, reading.process, reading.rank))
        self._file.flush()

    def close(self) -> None:
        self._file.close()
