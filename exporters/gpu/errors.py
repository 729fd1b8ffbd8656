"""What is wrong with a GPU: memory errors, remapped rows, and Xid events of the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from exporters.families import Families
from exporters.gpu.nvml import Nvml

_ERRORS: Final = {0: "corrected", 1: "uncorrected"}
_SCOPES: Final = {0: "volatile", 1: "aggregate"}
_XID_EVENT: Final = 8
_DRAIN: Final = 64
MAX_XIDS: Final = 32
"""Kinds of Xid counted by number; further ones are counted together as `other`."""


def ecc(nvml: Nvml, handle: Any, labels: Mapping[str, str], families: Families) -> None:
    """Add the memory errors since the driver was loaded, and over the GPU's life."""
    for error, error_name in _ERRORS.items():
        for scope, scope_name in _SCOPES.items():
            count = nvml.ask("nvmlDeviceGetTotalEccErrors", handle, error, scope)
            if count is not None:
                told = {**labels, "error": error_name, "scope": scope_name}
                families.add("leadline_gpu_ecc_errors_total", told, float(count))


def remapped(nvml: Nvml, handle: Any, labels: Mapping[str, str], families: Families) -> None:
    """Add the rows of memory that were replaced, and whether that waits for a reset or failed."""
    rows = nvml.ask("nvmlDeviceGetRemappedRows", handle)
    if rows is None:
        return
    corrected, uncorrected, pending, failure = rows
    for error, count in (("corrected", corrected), ("uncorrected", uncorrected)):
        families.add("leadline_gpu_remapped_rows_total", {**labels, "error": error}, float(count))
    families.add("leadline_gpu_row_remap_pending", labels, float(bool(pending)))
    families.add("leadline_gpu_row_remap_failure", labels, float(bool(failure)))


class Xids:
    """The Xid events of one GPU, counted from when it is watched; the driver queues them for us."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._events: Any = None
        self._counts: Counter[str] = Counter()

    def watch(self, handle: Any) -> None:
        """Have the driver queue the events of this GPU, where it can."""
        if self._events is not None:
            self.close()
        events = self._nvml.ask("nvmlEventSetCreate")
        if events is None:
            return
        self._events = events
        try:
            supported = self._nvml.ask("nvmlDeviceGetSupportedEventTypes", handle) or 0
            if int(supported) & _XID_EVENT:
                self._nvml.library.nvmlDeviceRegisterEvents(handle, _XID_EVENT, events)
                return
        except self._nvml.cannot:
            pass  # an instance of a shared GPU, a driver that lets root alone do it
        self.close()

    def add(self, nvml: Nvml, _: Any, labels: Mapping[str, str], families: Families) -> None:
        """Count what has come since the last time."""
        self._drain(nvml)
        self.tell(labels, families)

    def tell(self, labels: Mapping[str, str], families: Families) -> None:
        """Add what was counted so far."""
        for xid, count in self._counts.items():
            families.add("leadline_gpu_xid_events_total", {**labels, "xid": xid}, float(count))

    def close(self) -> None:
        """Give the event set back."""
        events, self._events = self._events, None
        if events is not None:
            self._nvml.library.nvmlEventSetFree(events)

    def _drain(self, nvml: Nvml) -> None:
        timeout = getattr(nvml.library, "NVMLError_Timeout", ())
        for _ in range(_DRAIN if self._events is not None else 0):
            try:
                event = nvml.library.nvmlEventSetWait_v2(self._events, 0)
            except timeout:
                return
            if int(event.eventType) & _XID_EVENT:
                self._count(str(int(event.eventData)))

    def _count(self, xid: str) -> None:
        known = xid in self._counts or len(self._counts) < MAX_XIDS
        self._counts[xid if known else "other"] += 1
