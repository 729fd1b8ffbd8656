"""Metrics that nobody upstream measures: ours, beginning with `leadline_`."""

from __future__ import annotations

from typing import Final

from catalog.labels import LEVELS, Level
from catalog.metric import Metric, MetricType
from catalog.units import Unit


def _own(
    level: Level, name: str, unit: Unit, text: str, kind: MetricType = "gauge", traps: str = ""
) -> Metric:
    return Metric(
        f"leadline_{name}", kind, unit, text, LEVELS[level], traps=(traps,) if traps else ()
    )


PROCESS: Final[tuple[Metric, ...]] = (
    _own("process", "process_resident_bytes", "bytes", "Resident memory (VmRSS).",
         traps="Swap hides growth from it and shared pages fake it: a leak is judged on anonymous "
               "memory and swap."),
    _own("process", "process_anonymous_bytes", "bytes", "Anonymous resident memory (RssAnon)."),
    _own("process", "process_swap_bytes", "bytes", "Anonymous memory swapped out (VmSwap)."),
    _own("process", "process_shared_bytes", "bytes",
         "Shared resident memory (RssShmem and RssFile).",
         traps="Pages shared by several processes count in each."),
    _own("process", "process_threads", "count", "Threads."),
    _own("process", "process_open_fds", "count", "Open file descriptors."),
    _own("process", "process_start_time_seconds", "seconds",
         "Start time since the epoch; of several processes the newest."),
    _own("process", "process_cpu_seconds_total", "seconds", "CPU time, user and system.",
         "counter"),
)  # fmt: skip

CONTAINER: Final[tuple[Metric, ...]] = (
    _own("container", "container_working_set_bytes", "bytes",
         "Memory of the server's cgroup less its inactive page cache.",
         traps="Page cache in use counts: growth here alone is no leak."),
    _own("container", "container_anonymous_bytes", "bytes",
         "Anonymous memory of the server's cgroup."),
    _own("container", "container_limit_bytes", "bytes",
         "Smallest memory limit of the cgroup and its parents; absent without a limit."),
)  # fmt: skip

HOST: Final[tuple[Metric, ...]] = (
    _own("host", "host_memory_total_bytes", "bytes", "Memory of the host (MemTotal)."),
    _own("host", "host_memory_available_bytes", "bytes", "Memory available (MemAvailable)."),
    _own("host", "host_memory_used_bytes", "bytes", "Memory in use: total less available."),
)  # fmt: skip

_SPIN: Final = "A kernel that spins counts: 100 % says nothing of work done."
_GPM: Final = "Of the time since the scrape before; needs Hopper or newer."

GPU: Final[tuple[Metric, ...]] = (
    _own("gpu", "gpu_utilization_ratio", "ratio", "Share of time in which a kernel ran (NVML).",
         traps=_SPIN),
    _own("gpu", "gpu_memory_activity_ratio", "ratio",
         "Share of time in which GPU memory was read or written (NVML)."),
    _own("gpu", "gpu_memory_used_bytes", "bytes", "GPU memory in use."),
    _own("gpu", "gpu_memory_total_bytes", "bytes", "GPU memory."),
    _own("gpu", "gpu_power_watts", "watts", "Power drawn, as the GPU averages it."),
    _own("gpu", "gpu_power_limit_watts", "watts", "Power limit in force."),
    _own("gpu", "gpu_energy_joules_total", "joules", "Energy since the driver was loaded.",
         "counter"),
    _own("gpu", "gpu_sm_clock_hertz", "hertz", "Clock of the streaming multiprocessors."),
    _own("gpu", "gpu_memory_clock_hertz", "hertz", "Clock of the memory."),
    _own("gpu", "gpu_temperature_celsius", "celsius", "Temperature of the GPU."),
    _own("gpu", "gpu_sm_active_ratio", "ratio",
         "Share of multiprocessors with a warp assigned (GPM).", traps=_GPM),
    _own("gpu", "gpu_sm_occupancy_ratio", "ratio",
         "Share of warp slots in use (GPM).", traps=_GPM),
    _own("gpu", "gpu_tensor_active_ratio", "ratio", "Share of time tensor cores worked (GPM).",
         traps=_GPM),
    _own("gpu", "gpu_dram_active_ratio", "ratio",
         "Share of the memory bandwidth in use (GPM).", traps=_GPM),
    Metric("leadline_gpu_clock_event", "gauge", "count",
           "Whether this reason holds the clocks down now: 1 or 0.",
           (*LEVELS["gpu"], "reason")),
)  # fmt: skip

PROBE: Final[tuple[Metric, ...]] = (
    _own("deployment", "probe_ttft_seconds", "seconds",
         "Time to first token of our own requests, sent as a user sends them.", "histogram"),
    _own("deployment", "probe_tpot_seconds", "seconds",
         "Mean time per output token of our own requests.", "histogram"),
)  # fmt: skip

_COLLECTOR: Final = ("collector", "server")
EXPORTER: Final[tuple[Metric, ...]] = (
    Metric("leadline_instance_info", "gauge", "count",
           "One per vLLM server: how it is set up; always 1.",
           (*LEVELS["server"], "node", "kv_role", "kv_connector", "vllm_version",
            "tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel")),
    Metric("leadline_target_up", "gauge", "count",
           "Whether the last scrape of this vLLM server gave a page: 1 or 0.", LEVELS["server"]),
    Metric("leadline_collector_success", "gauge", "count",
           "Whether the collector's last run succeeded: 1 or 0.", _COLLECTOR),
    Metric("leadline_collector_duration_seconds", "gauge", "seconds",
           "Time of the collector's last run.", _COLLECTOR),
    Metric("leadline_dropped_lines_total", "counter", "count",
           "Lines of a vLLM page that were not passed on, by reason.", ("server", "reason")),
    Metric("leadline_build_info", "gauge", "count", "Version of the exporter; always 1.",
           ("version",)),
)  # fmt: skip

_FINDING: Final = (*LEVELS["process"], "kind", "detector", "signal", "severity", "state")
SERVICE: Final[tuple[Metric, ...]] = (
    Metric("leadline_slo_target", "gauge", "count",
           "Service level or limit of a signal, in the signal's unit.",
           ("signal", "deployment", "model_name")),
    Metric("leadline_finding_effect", "gauge", "count", "Effect of a finding in its unit.",
           _FINDING),
    Metric("leadline_finding_time_to_breach_seconds", "gauge", "seconds",
           "Time that a finding predicts to be left; absent when unknown.", _FINDING),
    Metric("leadline_finding_state", "gauge", "count", "One per finding of the last cycle.",
           _FINDING),
    Metric("leadline_detector_last_cycle_timestamp_seconds", "gauge", "seconds",
           "When the last complete cycle ended."),
    Metric("leadline_detector_cycle_seconds", "gauge", "seconds", "Time of the last cycle."),
    Metric("leadline_detector_series", "gauge", "count", "Series by signal, judged or unknown.",
           ("signal", "state")),
    Metric("leadline_detector_judged_since_timestamp_seconds", "gauge", "seconds",
           "First sample that judging of this signal rests on.", ("signal",)),
    Metric("leadline_detector_query_failures_total", "counter", "count",
           "Queries that failed.", ("signal",)),
    Metric("leadline_alertmanager_send_failures_total", "counter", "count",
           "Posts to Alertmanager that failed; they are tried again."),
)  # fmt: skip

OWN: Final[tuple[Metric, ...]] = (
    *PROCESS,
    *CONTAINER,
    *HOST,
    *GPU,
    *PROBE,
    *EXPORTER,
    *SERVICE,
)
