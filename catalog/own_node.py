"""Our metrics of processes, containers, hosts and GPUs."""

from __future__ import annotations

from typing import Final

from catalog.labels import LEVELS
from catalog.metric import Metric, ours

PROCESS: Final[tuple[Metric, ...]] = (
    ours("process", "process_resident_bytes", "bytes", "Resident memory (VmRSS).",
         traps="Swap hides growth from it and shared pages fake it: a leak is judged on anonymous "
               "memory and swap."),
    ours("process", "process_anonymous_bytes", "bytes", "Anonymous resident memory (RssAnon)."),
    ours("process", "process_swap_bytes", "bytes", "Anonymous memory swapped out (VmSwap)."),
    ours("process", "process_shared_bytes", "bytes",
         "Shared resident memory (RssShmem and RssFile).",
         traps="Pages shared by several processes count in each."),
    ours("process", "process_threads", "count", "Threads."),
    ours("process", "process_open_fds", "count", "Open file descriptors."),
    ours("process", "process_start_time_seconds", "seconds",
         "Start time since the epoch; of several processes the newest."),
    ours("process", "process_cpu_seconds_total", "seconds", "CPU time, user and system.",
         "counter"),
)  # fmt: skip

CONTAINER: Final[tuple[Metric, ...]] = (
    ours("container", "container_working_set_bytes", "bytes",
         "Memory of the server's cgroup less its inactive page cache.",
         traps="Page cache in use counts: growth here alone is no leak."),
    ours("container", "container_anonymous_bytes", "bytes",
         "Anonymous memory of the server's cgroup."),
    ours("container", "container_limit_bytes", "bytes",
         "Smallest memory limit of the cgroup and its parents; absent without a limit."),
)  # fmt: skip

HOST: Final[tuple[Metric, ...]] = (
    ours("host", "host_memory_total_bytes", "bytes", "Memory of the host (MemTotal)."),
    ours("host", "host_memory_available_bytes", "bytes", "Memory available (MemAvailable)."),
    ours("host", "host_memory_used_bytes", "bytes", "Memory in use: total less available."),
)  # fmt: skip

_SPIN: Final = "A kernel that spins counts: 100 % says nothing of work done."
_GPM: Final = "Of the time since the scrape before; needs Hopper or newer."

GPU: Final[tuple[Metric, ...]] = (
    ours("gpu", "gpu_utilization_ratio", "ratio", "Share of time in which a kernel ran (NVML).",
         traps=_SPIN),
    ours("gpu", "gpu_memory_activity_ratio", "ratio",
         "Share of time in which GPU memory was read or written (NVML)."),
    ours("gpu", "gpu_memory_used_bytes", "bytes", "GPU memory in use."),
    ours("gpu", "gpu_memory_total_bytes", "bytes", "GPU memory."),
    ours("gpu", "gpu_power_watts", "watts", "Power drawn, as the GPU averages it."),
    ours("gpu", "gpu_power_limit_watts", "watts", "Power limit in force."),
    ours("gpu", "gpu_energy_joules_total", "joules", "Energy since the driver was loaded.",
         "counter"),
    ours("gpu", "gpu_sm_clock_hertz", "hertz", "Clock of the streaming multiprocessors."),
    ours("gpu", "gpu_memory_clock_hertz", "hertz", "Clock of the memory."),
    ours("gpu", "gpu_temperature_celsius", "celsius", "Temperature of the GPU."),
    ours("gpu", "gpu_sm_active_ratio", "ratio",
         "Share of multiprocessors with a warp assigned (GPM).", traps=_GPM),
    ours("gpu", "gpu_sm_occupancy_ratio", "ratio",
         "Share of warp slots in use (GPM).", traps=_GPM),
    ours("gpu", "gpu_tensor_active_ratio", "ratio", "Share of time tensor cores worked (GPM).",
         traps=_GPM),
    ours("gpu", "gpu_dram_active_ratio", "ratio",
         "Share of the memory bandwidth in use (GPM).", traps=_GPM),
    Metric("leadline_gpu_clock_event", "gauge", "count",
           "Whether this reason holds the clocks down now: 1 or 0.",
           (*LEVELS["gpu"], "reason")),
)  # fmt: skip
