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
        signals(("host_rss", "host_shmem", "host_proportional"),
                title="Resident, shared and proportional memory", width=12),
        signals(("host_threads",)),
        signals(("host_fds",)),
        _age(),
        signals(("major_faults_rate",), width=12),
        signals(("context_switches_rate",), width=12),
    ),
)  # fmt: skip

_CONTAINERS: Final = Row(
    "Containers",
    (
        signals(("container_working_set", "container_limit", "container_shmem"),
                title="Container working set, shared memory and limit"),
        signals(("container_events_rate",)),
        signals(("container_pressure",)),
    ),
)  # fmt: skip

_MEMORY: Final = Row(
    "Memory of hosts",
    (
        signals(("host_memory_used", "host_memory_total", "host_memory_shmem"),
                title="Host memory", width=12),
        signals(("numa_memory_free",), width=12),
        signals(("host_swap_used", "huge_pages_free"), title="Swap in use, huge pages unused"),
        signals(("host_oom_kills_rate", "numa_foreign_rate"),
                title="Kills for want of memory, pages from another NUMA node"),
        signals(("host_pressure",)),
    ),
)  # fmt: skip

_NETWORK: Final = Row(
    "Network and PCIe",
    (
        signals(("network_bytes_rate",), width=12),
        signals(("rdma_bytes_rate",), width=12),
        signals(("network_errors_rate", "network_drops_rate"),
                title="Network errors and drops", width=12),
        signals(("rdma_errors_rate", "rdma_congestion_rate"),
                title="RDMA errors and congestion", width=12),
        signals(("rdma_up",), high=1.0),
        signals(("pcie_link",), high=1.0),
        signals(("gpu_pcie_replays_rate",)),
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
        signals(("gpu_temperature", "gpu_memory_temperature"),
                title="Temperature of GPU and memory", width=6),
        signals(("gpu_clock_held",), width=6),
        signals(("gpu_memory_used", "gpu_other_memory"), title="GPU memory in use", width=12),
        signals(("gpu_process_memory",), width=12),
        signals(("gpu_pcie_rate",), width=12),
        signals(("gpu_nvlink_rate",), width=12),
    ),
)  # fmt: skip

_HEALTH: Final = Row(
    "Health of GPUs",
    (
        signals(("gpu_xid_rate",), width=6),
        signals(("gpu_ecc_rate",), width=6),
        signals(("gpu_rows_pending",), width=6, high=1.0),
        signals(("gpu_nvlinks_up",), width=6),
        signals(("gpu_nvlink_errors_rate",), width=12),
    ),
)

BOARD: Final = Board(
    "leadline-hosts",
    "Leadline / Hosts and GPUs",
    "Where host memory goes, and what the GPUs do: busy at a fifth of the power is a spin-wait.",
    (_PROCESSES, _CONTAINERS, _MEMORY, _NETWORK, _GPUS, _HEALTH),
)
