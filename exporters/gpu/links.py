"""A GPU's links: PCIe generation, lanes, replays and errors; NVLinks up, bytes and errors.

Bytes over PCIe come from GPM as a mean between scrapes: NVML's own counters of them are 32 bits
wide and wrap several times a second under load, and its throughput call looks at 20 ms only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from exporters.families import Families
from exporters.gpu.nvml import ALL_LINKS, Nvml, text

_KIB: Final = 1024
_LINK: Final = {
    "pcie_generation": "nvmlDeviceGetCurrPcieLinkGeneration",
    "pcie_generation_max": "nvmlDeviceGetMaxPcieLinkGeneration",
    "pcie_lanes": "nvmlDeviceGetCurrPcieLinkWidth",
    "pcie_lanes_max": "nvmlDeviceGetMaxPcieLinkWidth",
}
# Field values of nvml.h.
_PCIE_REPLAYS: Final = 94
_PCIE_ERRORS: Final = {173: "correctable", 179: "nonfatal", 180: "fatal"}
_NVLINK_BYTES: Final = {138: "transmit", 139: "receive"}
_NVLINK_ERRORS: Final = {161: "replay", 162: "recovery", 163: "crc"}
# What stands for those of Hopper in nvml.h: sums of all links on Ampere, each link on Blackwell.
_OLDER_ERRORS: Final = {52: "replay", 59: "recovery", 38: "crc", 45: "crc_data"}
_NEWER_ERRORS: Final = {
    208: "receive", 211: "link_integrity", 214: "recovery_failed", 219: "effective",
}  # fmt: skip
_LINK_COUNT: Final = 91
MAX_LINKS: Final = 36


def device(nvml: Nvml, handle: Any) -> str:
    """Return the GPU's PCI address as sysfs spells it; empty if it has none."""
    info = nvml.ask("nvmlDeviceGetPciInfo", handle)
    if info is None:
        return ""
    domain, _, rest = text(info.busId).lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def pcie(nvml: Nvml, handle: Any, labels: Mapping[str, str], families: Families) -> None:
    """Add the PCIe link as it is and as it could be, and what went wrong on it."""
    for name, call in _LINK.items():
        value = nvml.ask(call, handle)
        if value is not None:
            families.add(f"leadline_gpu_{name}", labels, float(value))
    said = nvml.fields(handle, [(field, 0) for field in (_PCIE_REPLAYS, *_PCIE_ERRORS)])
    if (_PCIE_REPLAYS, 0) in said:
        families.add("leadline_gpu_pcie_replays_total", labels, said[_PCIE_REPLAYS, 0])
    for field, error in _PCIE_ERRORS.items():
        if (field, 0) in said:
            told = {**labels, "error": error}
            families.add("leadline_gpu_pcie_errors_total", told, said[field, 0])


def nvlink(nvml: Nvml, handle: Any, labels: Mapping[str, str], families: Families) -> None:
    """Add the state and errors of each NVLink, and the bytes of all together."""
    counted = nvml.fields(handle, [(_LINK_COUNT, 0)]).get((_LINK_COUNT, 0), 0.0)
    links = range(min(int(counted), MAX_LINKS))
    active = [link for link in links if _add_state(nvml, handle, link, labels, families)]
    if not active:
        return
    said = nvml.fields(handle, [(field, ALL_LINKS) for field in (*_NVLINK_BYTES, *_NVLINK_ERRORS)])
    errors: dict[str, float] = {}
    for (field, _), value in said.items():
        if field in _NVLINK_BYTES:
            told = {**labels, "direction": _NVLINK_BYTES[field]}
            families.add("leadline_gpu_nvlink_bytes_total", told, value * _KIB)
        else:
            errors[_NVLINK_ERRORS[field]] = value
    # A counter of a link costs a millisecond: they are asked for where there are errors at all.
    bad = {f: name for f, name in _NVLINK_ERRORS.items() if errors.get(name)}
    by_link = _by_link(nvml, handle, bad, active)
    if not errors:
        older = nvml.fields(handle, [(field, 0) for field in _OLDER_ERRORS])
        errors = {_OLDER_ERRORS[field]: value for (field, _), value in older.items()}
    if not errors:
        by_link = _by_link(nvml, handle, _NEWER_ERRORS, active)
        for (_, error), value in by_link.items():
            errors[error] = errors.get(error, 0.0) + value
        by_link = {key: value for key, value in by_link.items() if errors[key[1]]}
    for error, value in errors.items():
        families.add("leadline_gpu_nvlink_errors_total", {**labels, "error": error}, value)
    for (link, error), value in by_link.items():
        told = {**labels, "link": str(link), "error": error}
        families.add("leadline_gpu_nvlink_link_errors_total", told, value)


def _by_link(
    nvml: Nvml, handle: Any, wanted: Mapping[int, str], links: Sequence[int]
) -> dict[tuple[int, str], float]:
    """Return counters by link and name."""
    asked = [(field, link) for field in wanted for link in links]
    said = nvml.fields(handle, asked) if asked else {}
    return {(link, wanted[field]): value for (field, link), value in said.items()}


def _add_state(
    nvml: Nvml, handle: Any, link: int, labels: Mapping[str, str], families: Families
) -> bool:
    state = nvml.ask("nvmlDeviceGetNvLinkState", handle, link)
    if state is None:
        return False
    families.add("leadline_gpu_nvlink_up", {**labels, "link": str(link)}, float(state == 1))
    return bool(state == 1)
