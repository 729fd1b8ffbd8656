"""Who uses a GPU's memory: vLLM's processes by kind and rank, all others together; MIG instances.

A process of vLLM is one by its id, so the exporter must see the host's process ids, as NVML does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from exporters.families import Families
from exporters.gpu.nvml import Nvml, text
from exporters.look import Look

_CALLS: Final = (
    "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3",
)  # fmt: skip
MAX_INSTANCES: Final = 16


class Processes:
    """Who uses one GPU, and how it is divided."""

    def __init__(self) -> None:
        self._instances: list[Any] = []

    def divide(
        self, nvml: Nvml, handle: Any, labels: Mapping[str, str], families: Families
    ) -> None:
        """Look for the GPU's instances, and add their memory."""
        self._instances = _instances(nvml, handle, labels, families)

    def add(
        self, look: Look, nvml: Nvml, handle: Any, labels: Mapping[str, str], families: Families
    ) -> None:
        """Add memory by process, in all instances where the GPU is divided."""
        used: dict[int, float] = {}
        told = False
        for part in self._instances or [handle]:
            for call in _CALLS:
                running = nvml.ask(call, part)
                told = told or running is not None
                for process in running or ():
                    memory = process.usedGpuMemory
                    if memory is not None:
                        used[process.pid] = used.get(process.pid, 0.0) + float(memory)
        for place, memory in _by_place(look, used).items() if told else ():
            name = "process_memory_used_bytes" if place else "other_memory_used_bytes"
            families.add(f"leadline_gpu_{name}", {**dict(place), **labels}, memory)


def _by_place(look: Look, used: Mapping[int, float]) -> dict[tuple[tuple[str, str], ...], float]:
    """Return memory by the labels of vLLM's processes; what is nobody's under no labels."""
    places = {
        member.pid: {**instance.place, "process": member.kind, "rank": member.rank}
        for instance in look.instances if instance.found is not None
        for member in instance.found.members
    }  # fmt: skip
    sums: dict[tuple[tuple[str, str], ...], float] = {(): 0.0}
    for pid, memory in used.items():
        place = tuple(places.get(pid, {}).items())
        sums[place] = sums.get(place, 0.0) + memory
    return sums


def _instances(nvml: Nvml, handle: Any, labels: Mapping[str, str], families: Families) -> list[Any]:
    """Add whether the GPU is divided (MIG) and the memory of its instances, and return them."""
    mode = nvml.ask("nvmlDeviceGetMigMode", handle)
    if mode is None:
        return []
    families.add("leadline_gpu_mig_enabled", labels, float(bool(mode[0])))
    if not mode[0]:
        return []
    most = int(nvml.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0)
    found = []
    for index in range(min(most, MAX_INSTANCES)):
        instance = nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        if instance is None:
            continue
        found.append(instance)
        memory = nvml.ask("nvmlDeviceGetMemoryInfo", instance)
        if memory is not None:
            told = {**labels, "mig": str(index), "profile": _profile(nvml, instance)}
            families.add("leadline_gpu_mig_memory_used_bytes", told, float(memory.used))
            families.add("leadline_gpu_mig_memory_total_bytes", told, float(memory.total))
    return found


def _profile(nvml: Nvml, instance: Any) -> str:
    """Return an instance's profile, such as `3g.71gb`: its name is that of the GPU, MIG, and it."""
    name = text(nvml.ask("nvmlDeviceGetName", instance) or "")
    return name.partition(" MIG ")[2]
