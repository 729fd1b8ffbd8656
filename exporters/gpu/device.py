"""One GPU: its readings, clocks held down and by what, and the parts in files of their own.

Some answers come from the GPU's firmware and cost milliseconds of CPU each (measured on an H200:
energy 4, each kind of clock event 1 to 2, each error counter of each NVLink 1): those are asked for
once a minute and repeated in between.

NVML's utilisation is the share of time in which any kernel ran, and spinning counts: it reads 100 %
while nothing is computed. What the cores do comes from GPM (Hopper and newer) where there is GPM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from exporters.families import Families
from exporters.gpu import errors as gpu_errors
from exporters.gpu import links as gpu_links
from exporters.gpu.errors import Xids
from exporters.gpu.gpm import Gpm
from exporters.gpu.nvml import Nvml, text
from exporters.gpu.processes import Processes
from exporters.look import Look, Result

_MEGA: Final = 1e6
_PERCENT: Final = 0.01
_MILLI: Final = 1e-3
_NANO: Final = 1e-9

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


_MEMORY_TEMPERATURE: Final = 82
_POWER_INSTANT: Final = 186
HELD: Final = {74: "power_cap", 76: "sync_boost", 269: "sw_thermal", 270: "hw_thermal",
               271: "hw_power_brake"}  # fmt: skip
"""Field of the nanoseconds that a reason has held the clocks down (nvml.h), and the reason."""

SELDOM_SECONDS: Final = 60.0


class _Reading(NamedTuple):
    """One metric: the call and its arguments after the handle, what of the answer, the factor."""

    name: str
    call: str
    arguments: tuple[int, ...] = ()
    member: str = ""
    factor: float = 1.0


READINGS: Final = (
    _Reading("memory_used_bytes", "nvmlDeviceGetMemoryInfo", (), "used"),
    _Reading("memory_total_bytes", "nvmlDeviceGetMemoryInfo", (), "total"),
    _Reading("power_watts", "nvmlDeviceGetPowerUsage", factor=_MILLI),
    _Reading("power_limit_watts", "nvmlDeviceGetEnforcedPowerLimit", factor=_MILLI),
    _Reading("sm_clock_hertz", "nvmlDeviceGetClockInfo", (1,), factor=_MEGA),
    _Reading("memory_clock_hertz", "nvmlDeviceGetClockInfo", (2,), factor=_MEGA),
    _Reading("temperature_celsius", "nvmlDeviceGetTemperature", (0,)),
)
"""Clock 1 is the multiprocessors', 2 the memory's; sensor 0 is the GPU's."""

_ENERGY: Final = _Reading(
    "energy_joules_total", "nvmlDeviceGetTotalEnergyConsumption", factor=_MILLI
)

Part = Callable[[Nvml, Any, Mapping[str, str], Families], None]


class Device:
    """One GPU by its number.

    Args:
        nvml: To ask.
        index: Number of the GPU.
        clock: Monotonic seconds.

    Attributes:
        lost: Whether it had fallen off the bus, or NVML was gone, when it was read last.
        answers: Whether any of `READINGS` came then.
        uuid: Its name, once it was read; it outlives the GPU.
    """

    def __init__(self, nvml: Nvml, index: int, clock: Callable[[], float]) -> None:
        self._nvml = nvml
        self._index = index
        self._clock = clock
        self._handle: Any = None
        self.uuid = ""
        self._gpm = Gpm(nvml.library)
        self._xids = Xids(nvml)
        self._processes = Processes()
        self._again = float("-inf")
        self._seldom = Result()
        self.lost = False
        self.answers = False

    def read(self, look: Look) -> Result:
        """Read all there is; a part that fails is the problem, and the others stay."""
        self.lost = self.answers = False
        labels = {"cluster": look.config.cluster, "node": look.node,
                  "gpu": str(self._index), "uuid": self.uuid}  # fmt: skip
        try:
            if self._handle is None:
                self._open()
                labels["uuid"] = self.uuid
            if self._clock() >= self._again:
                self._seldom = self._run(self._dear(), labels)
                self._again = self._clock() + SELDOM_SECONDS
            result = self._run(self._cheap(look), labels)
        except self._nvml.gone as error:
            self.lost, self._handle, self._again = True, None, float("-inf")
            return self._last_words(labels, _line(error))
        except self._nvml.error as error:
            return Result(problem=_line(error))
        self.answers = any(
            result.families.samples(f"leadline_gpu_{reading.name}") for reading in READINGS
        )
        result.families.take(self._seldom.families)
        result.problem = result.problem or self._seldom.problem
        return result

    def _last_words(self, labels: Mapping[str, str], problem: str) -> Result:
        """Return the Xid events of a lost GPU: the one that it was lost with is among them."""
        result = Result(problem=problem)
        try:
            self._xids.add(self._nvml, None, labels, result.families)
        except self._nvml.error:
            self._xids.tell(labels, result.families)
        return result

    def close(self) -> None:
        """Give back what NVML keeps for us."""
        try:
            self._gpm.close()
            self._xids.close()
        except self._nvml.error:
            pass  # it goes with NVML itself

    def _open(self) -> None:
        handle = self._nvml.library.nvmlDeviceGetHandleByIndex(self._index)
        self.uuid = text(self._nvml.library.nvmlDeviceGetUUID(handle))
        self._handle = handle
        self._xids.watch(handle)

    def _run(self, parts: Iterable[Part], labels: Mapping[str, str]) -> Result:
        result = Result()
        for part in parts:
            try:
                part(self._nvml, self._handle, labels, result.families)
            except self._nvml.gone:
                raise
            except Exception as error:  # noqa: BLE001 - a binding that answers oddly costs a part
                result.problem = _line(error)
        return result

    def _dear(self) -> list[Part]:
        return [
            partial(_reading, _ENERGY), _fields, _info, gpu_errors.ecc, gpu_errors.remapped,
            gpu_links.pcie, gpu_links.nvlink, self._processes.divide,
        ]  # fmt: skip

    def _cheap(self, look: Look) -> list[Part]:
        return [
            *(partial(_reading, reading) for reading in READINGS),
            _utilization, _power, _reasons, self._xids.add, partial(self._processes.add, look),
            self._gpm.add,
        ]  # fmt: skip


def _utilization(nvml: Nvml, handle: Any, labels: Mapping[str, str], families: Families) -> None:
    rates = nvml.ask("nvmlDeviceGetUtilizationRates", handle)
    if rates is not None:
        families.add("leadline_gpu_utilization_ratio", labels, rates.gpu * _PERCENT)
        families.add("leadline_gpu_memory_activity_ratio", labels, rates.memory * _PERCENT)


def _reading(
    reading: _Reading, nvml: Nvml, handle: Any, labels: Mapping[str, str], families: Families
) -> None:
    value = nvml.ask(reading.call, handle, *reading.arguments)
    if value is None:
        return
    number = getattr(value, reading.member) if reading.member else value
    families.add(f"leadline_gpu_{reading.name}", labels, float(number) * reading.factor)


def _power(nvml: Nvml, handle: Any, labels: Mapping[str, str], families: Families) -> None:
    said = nvml.fields(handle, [(_POWER_INSTANT, 0)])
    if (_POWER_INSTANT, 0) in said:
        value = said[_POWER_INSTANT, 0] * _MILLI
        families.add("leadline_gpu_power_instant_watts", labels, value)


def _fields(nvml: Nvml, handle: Any, labels: Mapping[str, str], families: Families) -> None:
    said = nvml.fields(handle, [(field, 0) for field in (_MEMORY_TEMPERATURE, *HELD)])
    if (_MEMORY_TEMPERATURE, 0) in said:
        value = said[_MEMORY_TEMPERATURE, 0]
        families.add("leadline_gpu_memory_temperature_celsius", labels, value)
    for number, reason in HELD.items():
        if (number, 0) in said:
            families.add("leadline_gpu_clock_event_seconds_total", {**labels, "reason": reason},
                         said[number, 0] * _NANO)  # fmt: skip


def _reasons(nvml: Nvml, handle: Any, labels: Mapping[str, str], families: Families) -> None:
    bits = nvml.ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if bits is None:
        return
    for bit, reason in REASONS.items():
        on = float(bool(int(bits) & bit))
        families.add("leadline_gpu_clock_event", {**labels, "reason": reason}, on)


def _info(nvml: Nvml, handle: Any, labels: Mapping[str, str], families: Families) -> None:
    name = nvml.ask("nvmlDeviceGetName", handle)
    driver = nvml.ask("nvmlSystemGetDriverVersion")
    told = {
        "name": text(name or ""), "driver": text(driver or ""),
        "device": gpu_links.device(nvml, handle),
    }  # fmt: skip
    families.add("leadline_gpu_info", {**labels, **told}, 1.0)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
