"""Collector `gpu`: what NVML says of each GPU; a node without GPU or driver has none of it.

NVML's utilisation is the share of time in which any kernel ran, and spinning counts: it reads 100 %
while nothing is computed. What the cores do comes from GPM (Hopper and newer) where there is GPM.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from catalog.address import printable
from exporters.gpm import Gpm
from exporters.look import Look, Result, Task

log = logging.getLogger("leadline.exporters")

_MEGA: Final = 1e6
_PERCENT: Final = 0.01
_MILLI: Final = 1e-3

# Bit of nvmlClocksEventReasons, and its name as DCGM spells it.
REASONS: Final = {
    0x1: "gpu_idle",
    0x2: "clocks_setting",
    0x4: "power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}


class _Reading(NamedTuple):
    """One metric: how NVML is asked for it, and the factor to its base unit."""

    name: str
    ask: Callable[[Any, Any], float]
    factor: float = 1.0


READINGS: Final = (
    _Reading("utilization_ratio", lambda n, h: n.nvmlDeviceGetUtilizationRates(h).gpu, _PERCENT),
    _Reading(
        "memory_activity_ratio", lambda n, h: n.nvmlDeviceGetUtilizationRates(h).memory, _PERCENT
    ),
    _Reading("memory_used_bytes", lambda n, h: n.nvmlDeviceGetMemoryInfo(h).used),
    _Reading("memory_total_bytes", lambda n, h: n.nvmlDeviceGetMemoryInfo(h).total),
    _Reading("power_watts", lambda n, h: n.nvmlDeviceGetPowerUsage(h), _MILLI),
    _Reading("power_limit_watts", lambda n, h: n.nvmlDeviceGetEnforcedPowerLimit(h), _MILLI),
    _Reading("energy_joules_total", lambda n, h: n.nvmlDeviceGetTotalEnergyConsumption(h), _MILLI),
    _Reading("sm_clock_hertz", lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM), _MEGA),
    _Reading(
        "memory_clock_hertz", lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM), _MEGA
    ),
    _Reading(
        "temperature_celsius",
        lambda n, h: n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU),
    ),
)


class Gpu:
    """Reads all GPUs of the node.

    Args:
        library: The NVML binding; None: pynvml, where it and the driver are there.
    """

    def __init__(self, library: Any = None) -> None:
        self._library = library
        self._ready = False
        self._said = False
        self._gpm: dict[str, Gpm] = {}

    def tasks(self, look: Look) -> Mapping[str, Task]:
        """Return the one task of this collector; none where there is no GPU or no driver."""
        if not self._ready and not self._start():
            return {}
        return {"": Task(partial(self.collect, look))}

    def _start(self) -> bool:
        """Start NVML; a driver that is loaded later is found by a later scrape."""
        try:
            if self._library is None:
                import pynvml  # noqa: PLC0415 - a node without GPUs never loads it

                self._library = pynvml
            self._library.nvmlInit()
        except Exception as error:  # noqa: BLE001 - no binding, no library, no driver: no GPU here
            if not self._said:
                log.info("no GPU metrics: %s", printable(" ".join(str(error).split())))
            self._said = True
            return False
        self._ready = True
        return True

    def collect(self, look: Look) -> Result:
        """Read every GPU; one that fails is named and the others stay."""
        nvml = self._library
        result = Result()
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                self._one(look, index, result)
            except nvml.NVMLError as error:
                result.problem = f"GPU {index}: {error}"
                if isinstance(error, _gone(nvml)):
                    self._ready = False  # NVML keeps dead handles: start it anew next time
        return result

    def _one(self, look: Look, index: int, result: Result) -> None:
        nvml = self._library
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        labels = {
            "cluster": look.config.cluster,
            "node": look.node,
            "gpu": str(index),
            "uuid": uuid,
        }
        for reading in READINGS:
            value = self._ask(reading.ask, handle)
            if value is not None:
                result.families.add(f"leadline_gpu_{reading.name}", labels, value * reading.factor)
        self._reasons(handle, labels, result)
        gpm = self._gpm.get(uuid)
        if gpm is None:
            gpm = self._gpm[uuid] = Gpm(nvml)
        for name, share in gpm.read(handle).items():
            result.families.add(f"leadline_gpu_{name}", labels, share)

    def _reasons(self, handle: Any, labels: Mapping[str, str], result: Result) -> None:
        bits = self._ask(lambda n, h: n.nvmlDeviceGetCurrentClocksEventReasons(h), handle)
        if bits is None:
            return
        for bit, reason in REASONS.items():
            on = float(bool(int(bits) & bit))
            result.families.add("leadline_gpu_clock_event", {**labels, "reason": reason}, on)

    def _ask(self, ask: Callable[[Any, Any], float], handle: Any) -> float | None:
        """Return a reading; None where this GPU or driver has none."""
        try:
            return float(ask(self._library, handle))
        except (self._library.NVMLError_NotSupported, AttributeError):
            return None


def _gone(nvml: Any) -> tuple[type[Exception], ...]:
    names = ("NVMLError_GpuIsLost", "NVMLError_Uninitialized", "NVMLError_DriverNotLoaded")
    return tuple(getattr(nvml, name) for name in names)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
