"""Metrics of the programs beside vLLM: llm-d's router and NVIDIA's dcgm-exporter."""

from __future__ import annotations

from typing import Final

from catalog.metric import Metric
from catalog.units import Unit

# The router measures what the user waits for; it writes old names beside the new ones.
EPP_TTFT: Final = Metric(
    "llm_d_epp_request_ttft_seconds", "histogram", "seconds",
    "Time from a request's arrival at the llm-d router to the first byte of its answer.",
    ("model_name", "target_model_name", "fairness_id", "priority", "streaming"), lazy=True,
    former=("llm_d_router_epp_request_ttft_seconds", "inference_objective_request_ttft_seconds"),
    varying=("fairness_id", "priority", "streaming", "plugin_name", "plugin_type"),
    traps=("A request that does not stream observes its whole time; older names don't tell which "
           "ones did.",),
)  # fmt: skip

_GPU: Final = ("gpu", "UUID", "hostname")
_PROF: Final = "After an Xid 31 it can read 0 while the GPU works."


def _dcgm(name: str, unit: Unit, text: str, *traps: str) -> Metric:
    return Metric(f"DCGM_FI_{name}", "gauge", unit, text, _GPU, traps=traps)


_OFF: Final = "Not among the exporter's default counters."

DCGM: Final[dict[str, Metric]] = {
    "utilization_ratio": _dcgm(
        "DEV_GPU_UTIL", "ratio", "Percent of time in which a kernel ran.", "Percent, 0 to 100."
    ),
    "memory_activity_ratio": _dcgm(
        "DEV_MEM_COPY_UTIL", "ratio", "Percent of time in which GPU memory was read or written.",
        "Percent, 0 to 100.",
    ),
    "memory_used_bytes": _dcgm(
        "DEV_FB_USED", "bytes", "GPU memory in use.", "MiB.",
        "Without the memory that the driver reserves, which NVML counts.",
    ),
    "power_watts": _dcgm("DEV_POWER_USAGE", "watts", "Power drawn."),
    "power_limit_watts": _dcgm(
        "DEV_ENFORCED_POWER_LIMIT", "watts", "Power limit in force.", _OFF
    ),
    "sm_clock_hertz": _dcgm(
        "DEV_SM_CLOCK", "hertz", "Clock of the streaming multiprocessors.", "MHz."
    ),
    "temperature_celsius": _dcgm("DEV_GPU_TEMP", "celsius", "Temperature of the GPU."),
    "sm_active_ratio": _dcgm(
        "PROF_SM_ACTIVE", "ratio", "Share of multiprocessors with a warp assigned.", _OFF, _PROF
    ),
    "sm_occupancy_ratio": _dcgm(
        "PROF_SM_OCCUPANCY", "ratio", "Share of warp slots in use.", _OFF, _PROF
    ),
    "tensor_active_ratio": _dcgm(
        "PROF_PIPE_TENSOR_ACTIVE", "ratio", "Share of time tensor cores worked.", _PROF
    ),
    "dram_active_ratio": _dcgm(
        "PROF_DRAM_ACTIVE", "ratio", "Share of the memory bandwidth in use.", _PROF
    ),
}  # fmt: skip
"""By the name of ours that each stands in for, without `leadline_gpu_`."""

PEERS: Final[tuple[Metric, ...]] = (EPP_TTFT, *DCGM.values())
