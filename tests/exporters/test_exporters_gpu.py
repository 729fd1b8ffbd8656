"""The GPU collector against readings recorded on a real H200 while known kernels ran."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from catalog.config import Config
from exporters.gpu import Gpu
from exporters.look import Look, Result

FIXTURES = Path(__file__).parent.parent / "fixtures" / "gpu"
READINGS: dict[str, dict[str, float]] = json.loads((FIXTURES / "readings.json").read_text())
GPM = {2: "sm_active_ratio", 3: "sm_occupancy_ratio", 5: "tensor_active_ratio"}
GPM |= {10: "dram_active_ratio"}


class Lost(Exception):
    """A GPU that fell off the bus."""


class NotSupported(Exception):
    """What this GPU can't tell."""


class Recorded:
    """The NVML binding, answering what a real one answered."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_GPM_METRICS_GET_VERSION = 1
    NVMLError = Exception
    NVMLError_NotSupported = NotSupported
    NVMLError_GpuIsLost = Lost
    NVMLError_Uninitialized = NVMLError_DriverNotLoaded = Lost

    def __init__(self, load: str, *, gpus: int = 1, lost: int | None = None) -> None:
        self._said = READINGS[load]
        self._gpus, self._lost = gpus, lost
        self.started = 0

    def nvmlInit(self) -> None:
        self.started += 1

    def nvmlDeviceGetCount(self) -> int:
        return self._gpus

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == self._lost:
            raise Lost("GPU is lost")
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-00000000-0000-0000-0000-{handle:012d}"

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        said = self._said
        return SimpleNamespace(gpu=said["utilization_ratio"], memory=said["memory_activity_ratio"])

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        said = self._said
        return SimpleNamespace(used=said["memory_used_bytes"], total=said["memory_total_bytes"])

    def nvmlDeviceGetPowerUsage(self, handle: int) -> float:
        return self._said["power_watts"]

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> float:
        return self._said["power_limit_watts"]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> float:
        return self._said["energy_joules_total"]

    def nvmlDeviceGetClockInfo(self, handle: int, clock: int) -> float:
        return self._said["sm_clock_hertz" if clock == self.NVML_CLOCK_SM else "memory_clock_hertz"]

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> float:
        return self._said["temperature_celsius"]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:
        return int(self._said["reasons"])

    def nvmlGpmQueryDeviceSupport(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(isSupportedDevice=1)

    def nvmlGpmSampleAlloc(self) -> object:
        return object()

    def nvmlGpmSampleGet(self, handle: int, sample: object) -> None:
        pass

    def c_nvmlGpmMetricsGet_t(self) -> SimpleNamespace:
        metrics = [SimpleNamespace(metricId=0, value=0.0, nvmlReturn=0) for _ in range(16)]
        return SimpleNamespace(metrics=metrics, numMetrics=0)

    def nvmlGpmMetricsGet(self, request: Any) -> None:
        assert request.sample1 is not request.sample2
        for metric in request.metrics[: request.numMetrics]:
            metric.value = self._said[GPM[metric.metricId]]


def _look() -> Look:
    return Look(Config(), "gpu-node", [], Path("/proc"), Path("/sys/fs/cgroup"), 5.0)


def _twice(collector: Gpu) -> Result:
    collector.tasks(_look())[""].run()
    return collector.tasks(_look())[""].run()


@pytest.mark.parametrize("load", sorted(READINGS))
def test_the_page_is_what_the_real_gpu_gave(load: str) -> None:
    """The same readings give, sample by sample, the page recorded beside them."""
    got = _twice(Gpu(Recorded(load))).families.write().decode().splitlines()
    recorded = (FIXTURES / f"{load}.prom").read_text().splitlines()
    assert [line.rpartition(" ")[0] for line in got] == [
        line.rpartition(" ")[0] for line in recorded
    ]
    for ours, theirs in zip(got, recorded, strict=True):
        if not ours.startswith("#"):
            value = float(theirs.rpartition(" ")[2])
            # The readings were taken a moment after the page: energy and power had moved on.
            assert float(ours.rpartition(" ")[2]) == pytest.approx(value, rel=0.005)


def test_a_spinning_gpu_is_told_from_a_busy_one() -> None:
    """Both read full utilisation; the cores, the memory and the power tell them apart."""
    spin, gemm = READINGS["spin"], READINGS["gemm"]
    assert spin["utilization_ratio"] == gemm["utilization_ratio"] == 100
    assert spin["sm_active_ratio"] < 2 < 90 < gemm["sm_active_ratio"]
    assert spin["power_watts"] < 0.25 * spin["power_limit_watts"]
    families = _twice(Gpu(Recorded("gemm"))).families
    capped = [s for s in families.samples("leadline_gpu_clock_event") if s[1]]
    assert [labels["reason"] for labels, _ in capped] == ["power_cap"]


def test_a_lost_gpu_is_named_and_the_others_stay() -> None:
    """One GPU of two falls off the bus: a problem with its number, and the other one's samples."""
    nvml = Recorded("decode", gpus=2, lost=0)
    collector = Gpu(nvml)
    result = _twice(collector)
    assert "GPU 0" in result.problem
    power = result.families.samples("leadline_gpu_power_watts")
    assert [labels["gpu"] for labels, _ in power] == ["1"]
    collector.tasks(_look())
    assert nvml.started == 3, "NVML is started anew after a GPU was lost"


def test_no_driver_is_no_error() -> None:
    """A node without GPUs has no task, hence no failed collector and no samples."""

    class NoDriver(Recorded):
        def nvmlInit(self) -> None:
            raise Lost("NVML Shared Library Not Found")

    assert Gpu(NoDriver("idle")).tasks(_look()) == {}


def test_what_a_gpu_cannot_tell_is_absent() -> None:
    """An old GPU without GPM and energy counter has neither, not zeros."""

    class Old(Recorded):
        def nvmlGpmQueryDeviceSupport(self, handle: int) -> SimpleNamespace:
            return SimpleNamespace(isSupportedDevice=0)

        def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> float:
            raise NotSupported

    families = _twice(Gpu(Old("decode"))).families
    assert not families.samples("leadline_gpu_sm_active_ratio")
    assert not families.samples("leadline_gpu_energy_joules_total")
    assert families.samples("leadline_gpu_power_watts")
