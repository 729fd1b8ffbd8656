"""Metrics of NVIDIA's dcgm-exporter, taken as they are: with NVIDIA's names, labels and units."""

from __future__ import annotations

from typing import Final

from catalog.metric import Metric, MetricType
from catalog.units import Unit

_GPU: Final = ("gpu", "UUID", "hostname")
_PROF: Final = "After an Xid 31 it can read 0 while the GPU works."


def _dcgm(name: str, unit: Unit, text: str, *traps: str, kind: MetricType = "gauge") -> Metric:
    return Metric(f"DCGM_FI_{name}", kind, unit, text, _GPU, traps=traps)


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

_NANO: Final = "Nanoseconds."

DCGM_OTHERS: Final[tuple[Metric, ...]] = (
    _dcgm("PROF_GR_ENGINE_ACTIVE", "ratio", "Share of time the graphics engine worked.", _PROF),
    _dcgm("PROF_PIPE_FP16_ACTIVE", "ratio", "Share of time FP16 pipes worked.", _OFF, _PROF),
    _dcgm("PROF_PIPE_FP32_ACTIVE", "ratio", "Share of time FP32 pipes worked.", _OFF, _PROF),
    _dcgm("PROF_PIPE_FP64_ACTIVE", "ratio", "Share of time FP64 pipes worked.", _OFF, _PROF),
    _dcgm("DEV_TOTAL_ENERGY_CONSUMPTION", "joules", "Energy since the driver was loaded.",
          "Millijoules.", kind="counter"),
    _dcgm("DEV_MEM_CLOCK", "hertz", "Clock of the memory.", "MHz."),
    _dcgm("DEV_MEMORY_TEMP", "celsius", "Temperature of the memory."),
    _dcgm("DEV_FB_FREE", "bytes", "GPU memory that is free.", "MiB."),
    _dcgm("DEV_FB_RESERVED", "bytes", "GPU memory that the driver reserves.", "MiB."),
    _dcgm("DEV_CLOCKS_EVENT_REASONS", "count", "What holds the clocks down, as bits.",
          "Bits of a number, not an amount.", _OFF),
    _dcgm("DEV_POWER_VIOLATION", "seconds", "Time held down by the power limit.", _NANO, _OFF,
          kind="counter"),
    _dcgm("DEV_THERMAL_VIOLATION", "seconds", "Time held down by the temperature.", _NANO, _OFF,
          kind="counter"),
    _dcgm("PROF_PCIE_TX_BYTES", "bytes_per_second", "Bytes sent over PCIe, a second.",
          "A rate already: no rate() of it.", _PROF),
    _dcgm("PROF_PCIE_RX_BYTES", "bytes_per_second", "Bytes received over PCIe, a second.",
          "A rate already: no rate() of it.", _PROF),
    _dcgm("DEV_PCIE_REPLAY_COUNTER", "count", "PCIe packets sent again.", kind="counter"),
    _dcgm("DEV_NVLINK_BANDWIDTH_TOTAL", "count", "Traffic of all NVLink lanes.",
          "In NVIDIA's own unit: compare with itself alone.", kind="counter"),
    *(_dcgm(f"DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL", "count", f"{text} of all NVLinks.", _OFF,
            kind="counter")
      for kind, text in (("CRC_FLIT", "Flow-control packets with a bad checksum"),
                         ("CRC_DATA", "Data packets with a bad checksum"),
                         ("REPLAY", "Packets sent again"), ("RECOVERY", "Links trained again"))),
    _dcgm("DEV_XID_ERRORS", "count", "Code of the last Xid error.",
          "The last code, 0 for none: neither a count nor a rate."),
    _dcgm("DEV_UNCORRECTABLE_REMAPPED_ROWS", "count",
          "Rows remapped after an error that could not be corrected.", kind="counter"),
    _dcgm("DEV_CORRECTABLE_REMAPPED_ROWS", "count", "Rows remapped after corrected errors.",
          kind="counter"),
    _dcgm("DEV_ROW_REMAP_FAILURE", "count", "Whether a row could not be remapped: 1 or 0."),
)  # fmt: skip
