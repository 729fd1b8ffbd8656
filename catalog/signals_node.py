"""Signals of processes, containers, hosts and GPUs."""

from __future__ import annotations

from typing import Final

from catalog import promql
from catalog.forms import gauge
from catalog.labels import LEVELS
from catalog.metrics import ours
from catalog.peers import DCGM
from catalog.signal import Direction, Signal


def _anon_swap() -> Signal:
    by = LEVELS["process"]
    anon = ours("process_anonymous_bytes")
    swap = ours("process_swap_bytes")
    expr = f"{promql.gauge(anon, by)} + {promql.gauge(swap, by)}"
    return Signal(
        "host_anon_swap", "Private host memory (anonymous and swap)", "bytes", "process", expr,
        "sum", "up", (anon, swap), load="request_rate",
        note="What a leak is judged on: swap can't hide it and page cache can't fake it.",
    )  # fmt: skip


def _gpu(
    name: str, title: str, metric: str, scale: str = "", bad: Direction | None = None
) -> Signal:
    """Return a gauge by GPU: ours, else dcgm-exporter's in base units."""
    own, dcgm = ours(f"gpu_{metric}"), DCGM[metric]
    return Signal(
        f"gpu_{name}", title, own.unit, "gpu",
        promql.gpu_gauge(own, dcgm, LEVELS["gpu"], scale), "max", bad, (own, dcgm),
        note=" ".join(own.traps),
    )  # fmt: skip


NODE: Final[tuple[Signal, ...]] = (
    gauge("host_rss", "Resident memory", ours("process_resident_bytes"), "process", bad="up"),
    _anon_swap(),
    gauge("host_shmem", "Shared memory", ours("process_shared_bytes"), "process", bad="up"),
    gauge("host_threads", "Threads", ours("process_threads"), "process", bad="up"),
    gauge("host_fds", "Open file descriptors", ours("process_open_fds"), "process", bad="up"),
    gauge("process_start_time", "Process start time", ours("process_start_time_seconds"),
           "process", agg="max"),
    gauge("container_working_set", "Container working set",
           ours("container_working_set_bytes"), "container", agg="max", bad="up"),
    gauge("container_limit", "Container memory limit", ours("container_limit_bytes"),
           "container", agg="min"),
    gauge("host_memory_used", "Host memory in use", ours("host_memory_used_bytes"), "host",
           agg="max", bad="up"),
    gauge("host_memory_total", "Host memory", ours("host_memory_total_bytes"), "host",
           agg="max"),
)  # fmt: skip

GPU: Final[tuple[Signal, ...]] = (
    _gpu("utilization", "Share of time in which a kernel ran", "utilization_ratio", "/ 100"),
    _gpu("memory_activity", "Share of time in which GPU memory was in use",
         "memory_activity_ratio", "/ 100"),
    _gpu("memory_used", "GPU memory in use", "memory_used_bytes", "* 1048576"),
    _gpu("power", "Power drawn", "power_watts"),
    _gpu("power_limit", "Power limit in force", "power_limit_watts", bad="down"),
    _gpu("sm_clock", "Clock of the multiprocessors", "sm_clock_hertz", "* 1e6", bad="down"),
    _gpu("temperature", "GPU temperature", "temperature_celsius", bad="up"),
    _gpu("sm_active", "Share of multiprocessors with work", "sm_active_ratio"),
    _gpu("sm_occupancy", "Share of warp slots in use", "sm_occupancy_ratio"),
    _gpu("tensor_active", "Share of time tensor cores worked", "tensor_active_ratio"),
    _gpu("dram_active", "Share of GPU memory bandwidth in use", "dram_active_ratio"),
)  # fmt: skip
