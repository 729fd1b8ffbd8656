"""GPU performance monitoring: what the units of a Hopper or newer GPU did between two scrapes.

NVML gives means between two samples that the caller keeps; the sample of one scrape is the start
of the next one's span, so the means are over the whole time between scrapes.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from exporters.families import Families
from exporters.gpu.nvml import Nvml

# Two threads at once crashed the process (two H200s, driver 580). A GPU that hangs in here costs
# the others their means, not the page.
_ONE_AT_A_TIME = threading.Lock()
_PATIENCE_SECONDS: Final = 0.2
_PERCENT: Final = 0.01
_MIB: Final = 2.0**20


class _Metric(NamedTuple):
    """Our name of a metric, the factor to its base unit, and the direction of what flows."""

    name: str
    factor: float
    direction: str = ""


METRICS: Final = {
    2: _Metric("sm_active_ratio", _PERCENT),
    3: _Metric("sm_occupancy_ratio", _PERCENT),
    5: _Metric("tensor_active_ratio", _PERCENT),
    10: _Metric("dram_active_ratio", _PERCENT),
    20: _Metric("pcie_bytes_per_second", _MIB, "transmit"),
    21: _Metric("pcie_bytes_per_second", _MIB, "receive"),
    60: _Metric("nvlink_bytes_per_second", _MIB, "receive"),
    61: _Metric("nvlink_bytes_per_second", _MIB, "transmit"),
}
"""By the number in nvmlGpmMetricId_t (nvml.h)."""


class Gpm:
    """The samples of one GPU.

    Args:
        nvml: The NVML binding.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._supported: bool | None = None
        self._before: Any = None
        self._spare: Any = None

    def add(self, nvml: Nvml, handle: Any, labels: Mapping[str, str], families: Families) -> None:
        """Add the means since the last call; nothing at the first, or without GPM.

        A GPU that is divided (MIG) supports it and gives no sample of the whole.
        """
        try:
            means = self.read(handle)
        except nvml.cannot:
            return
        for number, value in means.items():
            metric = METRICS[number]
            told = {**labels, "direction": metric.direction}
            families.add(f"leadline_gpu_{metric.name}", told, value * metric.factor)

    def read(self, handle: Any) -> Mapping[int, float]:
        """Return means since the last call by number, as NVML says them.

        Raises:
            NVMLError: The GPU fails, other than by lacking GPM.
        """
        if self._supported is None:
            self._supported = self._ask_support(handle)
        if not self._supported or not _ONE_AT_A_TIME.acquire(timeout=_PATIENCE_SECONDS):
            return {}
        try:
            return self._sample(handle)
        finally:
            _ONE_AT_A_TIME.release()

    def _sample(self, handle: Any) -> Mapping[int, float]:
        nvml = self._nvml
        now = self._spare if self._spare is not None else nvml.nvmlGpmSampleAlloc()
        # A call that fails below must not lose the sample: it is not ours to free by accident.
        self._spare = now
        nvml.nvmlGpmSampleGet(handle, now)
        before, self._before, self._spare = self._before, now, None
        if before is None:
            return {}
        self._spare = before
        return self._means(before, now)

    def close(self) -> None:
        """Give the samples back."""
        samples, self._before, self._spare = (self._before, self._spare), None, None
        for sample in samples:
            if sample is not None:
                self._nvml.nvmlGpmSampleFree(sample)

    def _ask_support(self, handle: Any) -> bool:
        try:
            return bool(self._nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
        except (self._nvml.NVMLError, AttributeError):
            return False

    def _means(self, before: Any, now: Any) -> Mapping[int, float]:
        nvml = self._nvml
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(METRICS)
        request.sample1, request.sample2 = before, now
        for place, number in enumerate(METRICS):
            request.metrics[place].metricId = number
        nvml.nvmlGpmMetricsGet(request)
        means = {}
        for place, number in enumerate(METRICS):
            metric = request.metrics[place]
            # NVML answers NaN for a span that is too short: no data, not zero.
            if metric.nvmlReturn == 0 and math.isfinite(metric.value):
                means[number] = metric.value
        return means
