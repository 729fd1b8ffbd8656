"""Hosts and GPUs: memory by process, container and host; what the GPUs do and draw."""

from __future__ import annotations

from typing import Final

from catalog import promql
from catalog.signals import SIGNALS
from dashboards.make import signals
from dashboards.panel import Board, Panel, Query, Row
from dashboards.variables import condition


def _age() -> Panel:
    start = promql.selector(SIGNALS["process_start_time"].record, condition("process"))
    return Panel(
        "Age of processes",
        "Time since each process started: a fall to zero is a restart, and ends what was judged.",
        "s", (Query(f"time() - {start}", "{{server}} {{process}} {{rank}}"),), width=8, low=0.0,
    )  # fmt: skip


_PROCESSES: Final = Row(
    "Processes",
    (
        signals(("host_anon_swap",), width=12),
        signals(("host_rss", "host_shmem"), title="Resident and shared memory", width=12),
        signals(("host_threads",)),
        signals(("host_fds",)),
        _age(),
    ),
)

_MEMORY: Final = Row(
    "Containers and hosts",
    (
        signals(("container_working_set", "container_limit"),
                title="Container working set and limit", width=12),
        signals(("host_memory_used", "host_memory_total"), title="Host memory", width=12),
    ),
)  # fmt: skip

_GPUS: Final = Row(
    "GPUs",
    (
        signals(("gpu_utilization", "gpu_memory_activity"), title="GPU busy, and its memory busy",
                high=1.0),
        signals(("gpu_sm_active", "gpu_sm_occupancy"), title="SMs active and occupied", high=1.0),
        signals(("gpu_tensor_active", "gpu_dram_active"), title="Tensor cores and DRAM active",
                high=1.0),
        signals(("gpu_power", "gpu_power_limit"), title="Power and its limit", width=6),
        signals(("gpu_sm_clock",), width=6, low=None),
        signals(("gpu_temperature",), width=6),
        signals(("gpu_memory_used",), width=6),
    ),
)  # fmt: skip

BOARD: Final = Board(
    "leadline-hosts",
    "Leadline / Hosts and GPUs",
    "Where host memory goes, and what the GPUs do: busy at a fifth of the power is a spin-wait.",
    (_PROCESSES, _MEMORY, _GPUS),
)
