"""The bench of a node with real GPUs asks the driver about those, and the record about the rest."""

from __future__ import annotations

import ctypes
import json
from types import SimpleNamespace
from typing import Any

from benchmarks.exporter import GPUS
from benchmarks.gpu import _look
from benchmarks.gpu_mixed import Mixed
from benchmarks.gpu_node import verdict
from benchmarks.gpu_record import Replayer
from exporters.gpu.collector import Gpu

RECORD: dict[str, Any] = json.loads(GPUS.read_text())["decode"]
ERRORS = {"NVMLError": type("NVMLError", (Exception,), {})}
for _name in ("NotSupported", "Timeout", "LibraryNotFound"):
    ERRORS[f"NVMLError_{_name}"] = type(f"NVMLError_{_name}", (ERRORS["NVMLError"],), {})


class Driver:
    """A driver with one GPU, whose power and GPM differ from the record's.

    Args:
        here: Whether there is one at all.
    """

    NVML_GPM_METRICS_GET_VERSION = 1

    def __init__(self, *, here: bool = True) -> None:
        self._here = here
        self._record = Replayer(RECORD, ERRORS)
        self._samples: list[Any] = []
        for name, error in ERRORS.items():
            setattr(self, name, error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._record, name)

    def nvmlInit(self) -> None:
        if not self._here:
            raise ERRORS["NVMLError_LibraryNotFound"]

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object:
        assert index == 0
        return object()

    def nvmlDeviceGetUUID(self, handle: object) -> str:
        return "GPU-real"

    def nvmlDeviceGetPowerUsage(self, handle: object) -> int:
        return 123_000

    def nvmlGpmSampleAlloc(self) -> Any:
        self._samples.append(ctypes.c_uint64())
        return ctypes.pointer(self._samples[-1])

    def nvmlEventSetCreate(self) -> Any:
        return self.nvmlGpmSampleAlloc()

    def nvmlDeviceRegisterEvents(self, handle: object, types: int, events: Any) -> None:
        events.contents.value = 1

    def nvmlEventSetWait_v2(self, events: Any, timeout: int) -> None:
        # A set without a GPU of this driver: nobody knows what it says, so nobody shall ask.
        assert events.contents.value == 1
        raise ERRORS["NVMLError_Timeout"]

    def nvmlGpmMetricsGet(self, request: SimpleNamespace) -> None:
        for metric in request.metrics[: request.numMetrics]:
            metric.nvmlReturn, metric.value = 0, 42.0


def page(mixed: Mixed) -> dict[str, dict[str, float]]:
    """Return two metrics of each GPU, of the second scrape: GPM has none before."""
    collector = Gpu(mixed)
    collector.tasks(_look())[""].run()
    result = collector.tasks(_look())[""].run()
    assert result.problem == ""
    return {
        name: {
            told["gpu"]: value for told, value in result.families.samples(f"leadline_gpu_{name}")
        }
        for name in ("power_watts", "sm_active_ratio")
    }


def test_a_real_gpu_is_asked_through_the_driver_and_the_rest_is_replayed() -> None:
    """Its own figures for the first, the record's for those that the machine lacks."""
    recorded = page(Mixed(Driver(here=False), RECORD, 1))
    told = page(Mixed(Driver(), RECORD, 3))
    assert told["power_watts"].pop("0") == 123
    assert told["sm_active_ratio"].pop("0") == 0.42
    for name, values in told.items():
        assert values == dict.fromkeys(("1", "2"), recorded[name]["0"])


def test_a_bar_that_is_missed_is_the_exit_status() -> None:
    """Memory, CPU, a GPU that is not on the page, a collector that failed."""
    good = {"GPUs, real": 1.0, "GPUs, replayed": 7.0, "GPUs on the page": 8.0,
            "RSS MiB, most": 60.0, "ratio to parse and re-emit": 0.15,
            "collectors that failed": 0.0}  # fmt: skip
    assert verdict(good, as_json=False) == 0
    for name, value in (("RSS MiB, most", 81.0), ("ratio to parse and re-emit", 0.21),
                        ("GPUs on the page", 7.0), ("collectors that failed", 1.0)):  # fmt: skip
        assert verdict({**good, name: value}, as_json=False) == 1
