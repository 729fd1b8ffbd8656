"""The grid of a table, and the labels and shapes of what stands on it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from catalog.labels import identity
from catalog.panel import Labels, Panel
from simulator.fleet import Server
from simulator.flow import engines
from simulator.noise import FloatArray
from simulator.own import Row, rows
from simulator.totals import Totals
from simulator.world import SIDES, Side, World


class Grid:
    """A run at the instants *at*, seconds from the end of history.

    Args:
        world: The run.
        epoch: Unix seconds of the end of history.
        at: Instants, ascending, *step* apart.
        step: Seconds between them.
    """

    def __init__(self, world: World, epoch: float, at: FloatArray, step: float) -> None:
        self.world = world
        self.fleet = world.fleet
        self.at = at
        self.step = step
        self.times = at + epoch
        self.epoch = epoch

    @cached_property
    def totals(self) -> Totals:
        """What vLLM servers count."""
        return Totals(self.world, self.at)

    @cached_property
    def rows(self) -> dict[str, list[Row]]:
        """What is read on the nodes, by name without `leadline_`."""
        found: dict[str, list[Row]] = {}
        for row in rows(self.world, self.epoch, self.at):
            found.setdefault(row.metric.name.removeprefix("leadline_"), []).append(row)
        return found

    def panel(self, signal: str, values: FloatArray, labels: Sequence[Labels]) -> Panel:
        """Return a panel on this grid."""
        return Panel(signal, self.times, values, tuple(labels))

    def pool(self, side: Side) -> dict[str, str]:
        """Return the labels of a pool."""
        return identity(self.fleet.labels(self.fleet.pool(side)[0]), "pool")

    def deployment(self) -> dict[str, str]:
        """Return the labels of the deployment."""
        return identity(self.fleet.labels(self.fleet.servers[0]), "deployment")

    def servers(self) -> list[Server]:
        """Return the servers, pool by pool."""
        return [server for side in SIDES for server in self.fleet.pool(side)]

    def places(self, level: str) -> list[dict[str, str]]:
        """Return labels of every server or engine, pool by pool."""
        if level == "server":
            return [identity(self.fleet.labels(s), "server") for s in self.servers()]
        return [
            identity(self.fleet.labels(server) | {"engine": str(rank)}, "engine")
            for side in SIDES
            for server, rank in engines(self.fleet, side)
        ]

    def while_up(self, values: FloatArray) -> FloatArray:
        """Return values by engine, with none while its server is away."""
        up = np.array([s.up(self.at) for side in SIDES for s, _ in engines(self.fleet, side)])
        return np.where(up, values, np.nan)

    def while_there(self, labels: Labels, values: FloatArray) -> FloatArray:
        """Return values with none where the server is away; hosts are never away."""
        for server in self.fleet.servers:
            if server.name == labels.get("server"):
                return np.where(server.up(self.at), values, np.nan)
        return values
