"""What is read on the nodes as panels: processes, containers, hosts and GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from catalog.labels import identity
from catalog.panel import Panel
from catalog.signals import SIGNALS
from simulator.grid import Grid
from simulator.own import Row

_GAUGES: Final = {
    "host_rss": "process_resident_bytes",
    "host_shmem": "process_shared_bytes",
    "host_threads": "process_threads",
    "host_fds": "process_open_fds",
    "process_start_time": "process_start_time_seconds",
    "container_working_set": "container_working_set_bytes",
    "container_limit": "container_limit_bytes",
    "host_memory_total": "host_memory_total_bytes",
    "host_memory_used": "host_memory_used_bytes",
    "gpu_utilization": "gpu_utilization_ratio",
    "gpu_memory_activity": "gpu_memory_activity_ratio",
    "gpu_memory_used": "gpu_memory_used_bytes",
    "gpu_power": "gpu_power_watts",
    "gpu_power_limit": "gpu_power_limit_watts",
    "gpu_sm_clock": "gpu_sm_clock_hertz",
    "gpu_temperature": "gpu_temperature_celsius",
    "gpu_sm_active": "gpu_sm_active_ratio",
    "gpu_sm_occupancy": "gpu_sm_occupancy_ratio",
    "gpu_tensor_active": "gpu_tensor_active_ratio",
    "gpu_dram_active": "gpu_dram_active_ratio",
}
READ: Final = ("host_anon_swap", *_GAUGES)


class Nodes:
    """Makes the panels on a grid."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def make(self, signal: str) -> Panel:
        """Return the panel of *signal*."""
        return self.private() if signal == "host_anon_swap" else self.hosts(signal)

    def private(self) -> Panel:
        """Return private memory, with the start of each process."""
        pairs = zip(self.grid.rows["process_anonymous_bytes"], self.grid.rows["process_swap_bytes"],
                    strict=True)  # fmt: skip
        chosen = [replace(row, values=row.values + swap.values) for row, swap in pairs]
        return self.chosen("host_anon_swap", chosen)

    def hosts(self, signal: str) -> Panel:
        """Return what is read on the nodes."""
        return self.chosen(signal, self.grid.rows[_GAUGES[signal]])

    def chosen(self, signal: str, chosen: Sequence[Row]) -> Panel:
        """Return a panel of some rows; of processes with the start of each."""
        level = SIGNALS[signal].level
        labels = [identity(row.labels, level) for row in chosen]
        values = np.array([self.grid.while_there(row.labels, row.values) for row in chosen])
        found = self.grid.panel(signal, values, labels)
        if signal not in ("host_anon_swap", "host_rss"):
            return found
        begun = np.array([row.values for row in self.grid.rows["process_start_time_seconds"]])
        return replace(found, starts=begun)
