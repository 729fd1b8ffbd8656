"""One page for all simulated nodes: the pages of their vLLM servers, spliced, and our own families.

Everything but the numbers is written once. A scrape fills one long row of numbers and joins it with
the prepared text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np

from catalog.exposition import escape, header, series
from simulator.flow import CELL, engines
from simulator.layout import Layout
from simulator.memory import readings
from simulator.noise import FloatArray
from simulator.own import rows
from simulator.template import Slot
from simulator.world import CELLS, SIDES, Chunk, Side, World, at_edges

READY: Final = 95.0
"""Seconds from the start of a process to its first counters."""

_ONE: Final = ("vllm:cache_config_info", "python_info")


class Page:
    """The live page of a run. Not safe for two threads at once.

    Args:
        world: The run.
        epoch: Unix seconds of the end of history.
    """

    def __init__(self, world: World, epoch: float) -> None:
        self._world = world
        self._epoch = epoch
        self._layout = Layout(world.fleet)
        self._first = {
            side: np.cumsum([0, *(s.ranks for s in world.fleet.pool(side))])[:-1] for side in SIDES
        }
        self._hosts = Hosts(world, epoch)

    def text(self, now: float) -> str:
        """Return the page at *now*, unix seconds."""
        at = now - self._epoch
        chunk = self._world.chunk(at)
        place = min((at - float(chunk.edges[0])) / CELL, CELLS - 1e-6)
        self._hosts.read(chunk)
        filled = [number for side in SIDES for number in self._numbers(side, chunk, place)]
        numbers = np.concatenate(filled)[self._layout.places]
        return _join(self._layout.texts, numbers) + self._hosts.text(int(place))

    def _numbers(self, side: Side, chunk: Chunk, place: float) -> Iterator[FloatArray]:
        """Yield the numbers of a pool, slot by slot, as the layout has them."""
        pool, edges = chunk.pools[side], np.array([place])
        values = {
            key: whole(key, at_edges(counter, edges)[:, 0])
            for key, counter in pool.counters.items()
        }
        values |= {key: gauge[:, int(place)] for key, gauge in pool.gauges.items()}
        buckets = {f: np.floor(pool.buckets(f, place)[:, :, 0]) for f in pool.before}
        begun = self._begun(side, chunk)
        api = self._hosts.api_servers[side]
        seen: Counter[str] = Counter()
        for slot in self._layout.slots[side]:
            name = slot.name
            if name in api:
                yield api[name][:, int(place)]
            elif slot.le is not None:
                family = name.removesuffix("_bucket")
                yield self._merged(side, slot, buckets[family][:, seen[family]])
                seen[family] += 1
            elif name.endswith("_created"):
                yield begun if slot.engine else begun[self._first[side]]
            elif slot.key in values:
                yield self._merged(side, slot, values[slot.key])
            else:
                yield self._steady(side, slot)

    def _merged(self, side: Side, slot: Slot, value: FloatArray) -> FloatArray:
        """Return a number by engine, or added up by server where the page has one for each."""
        if slot.engine:
            return value
        total: FloatArray = np.add.reduceat(value, self._first[side])
        return total

    def _steady(self, side: Side, slot: Slot) -> FloatArray:
        """Return a number that the run does not move: zero, unless it is about Python or set up."""
        constant = slot.captured if slot.name.startswith(("python_", "process_")) else 0.0
        count = len(engines(self._world.fleet, side)) if slot.engine else len(self._first[side])
        return np.full(count, 1.0 if slot.name in _ONE else constant)

    def _begun(self, side: Side, chunk: Chunk) -> FloatArray:
        """Return when each engine's counters began."""
        started = [s.started(chunk.edges[:1])[0] for s, _ in engines(self._world.fleet, side)]
        return np.array(started) + self._epoch + READY


class Hosts:
    """Our own families, read once for all instants of a chunk.

    Attributes:
        api_servers: By pool, what the Python client says of its API servers, by sample name:
            shape (servers, edges).
    """

    def __init__(self, world: World, epoch: float) -> None:
        self._world = world
        self._epoch = epoch
        self._begin: float | None = None
        self._texts: list[str] = []
        self._values: FloatArray = np.zeros((0, 0))
        self.api_servers: dict[Side, dict[str, FloatArray]] = {}

    def read(self, chunk: Chunk) -> None:
        """Read all nodes at the edges of *chunk*, unless that was done last time."""
        if self._begin == chunk.edges[0]:
            return
        # A setup that no server has in this half hour has no line.
        every = rows(self._world, self._epoch, chunk.edges)
        found = [row for row in every if np.isfinite(row.values[0])]
        self._values = np.array([row.values for row in found])
        self._texts = []
        last = ""
        for row in found:
            name = row.metric.name
            labels = tuple((k, escape(v)) for k, v in row.labels.items() if v)
            head = header(name, row.metric.type, row.metric.help) if name != last else ""
            self._texts.append(f"{head}{series(name, labels)} ")
            last = name
        self.api_servers = {side: self._client(side, chunk) for side in SIDES}
        self._begin = float(chunk.edges[0])

    def text(self, cell: int) -> str:
        """Return our families as read at edge *cell* of the chunk."""
        return _join(self._texts, self._values[:, cell])

    def _client(self, side: Side, chunk: Chunk) -> dict[str, FloatArray]:
        read = [
            next(iter(readings(self._world, server, chunk.edges).processes.values()))
            for server in self._world.fleet.pool(side)
        ]
        stacked = {name: np.array([r[name] for r in read]) for name in read[0]}
        return {
            "process_resident_memory_bytes": stacked["resident_bytes"],
            "process_virtual_memory_bytes": 3.0 * stacked["resident_bytes"],
            "process_start_time_seconds": stacked["start_time_seconds"] + self._epoch,
            "process_cpu_seconds_total": stacked["cpu_seconds_total"],
            "process_open_fds": stacked["open_fds"],
        }


def _join(texts: list[str], numbers: FloatArray) -> str:
    lines = zip(texts, numbers.tolist(), strict=True)
    return "".join([f"{text}{number!r}\n" for text, number in lines])


def whole(key: str, value: FloatArray) -> FloatArray:
    """Return counts and tokens whole; seconds are left as they are."""
    return value if "seconds_sum" in key else np.floor(value)
