"""GPU performance monitoring: what the units of a Hopper or newer GPU did between two scrapes.

NVML gives shares between two samples that the caller keeps; the sample of one scrape is the start
of the next one's span, so the shares are means over the whole time between scrapes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

# Metric id of nvmlGpmMetricId_t (nvml.h), our name. All are percentages.
METRICS: Final = {
    2: "sm_active_ratio",
    3: "sm_occupancy_ratio",
    5: "tensor_active_ratio",
    10: "dram_active_ratio",
}


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

    def read(self, handle: Any) -> Mapping[str, float]:
        """Return shares (0 to 1) since the last call; nothing at the first, or without GPM.

        Raises:
            NVMLError: The GPU fails, other than by lacking GPM.
        """
        nvml = self._nvml
        if self._supported is None:
            self._supported = self._ask_support(handle)
        if not self._supported:
            return {}
        now = self._spare if self._spare is not None else nvml.nvmlGpmSampleAlloc()
        # A call that fails below must not lose the sample: it is not ours to free by accident.
        self._spare = now
        nvml.nvmlGpmSampleGet(handle, now)
        before, self._before, self._spare = self._before, now, None
        if before is None:
            return {}
        self._spare = before
        return self._shares(before, now)

    def _ask_support(self, handle: Any) -> bool:
        try:
            return bool(self._nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
        except (self._nvml.NVMLError, AttributeError):
            return False

    def _shares(self, before: Any, now: Any) -> Mapping[str, float]:
        nvml = self._nvml
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(METRICS)
        request.sample1, request.sample2 = before, now
        for place, number in enumerate(METRICS):
            request.metrics[place].metricId = number
        nvml.nvmlGpmMetricsGet(request)
        shares = {}
        for place, name in enumerate(METRICS.values()):
            metric = request.metrics[place]
            # NVML answers NaN for a span that is too short: no data, not zero.
            if metric.nvmlReturn == 0 and math.isfinite(metric.value):
                shares[name] = metric.value / 100
        return shares
