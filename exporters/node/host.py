"""Collector `host`: the memory of this node, its swap, shared memory, huge pages, and OOM kills."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Final

from exporters.look import Look, Result, Task
from exporters.node import names as node
from exporters.node import proc

MAX_SIZES: Final = 32
_SIZE = re.compile(r"hugepages-([0-9]{1,12})kB")
_AS_THEY_ARE: Final = {"Shmem": "memory_shmem_bytes", "AnonPages": "memory_anonymous_bytes",
                       "SwapTotal": "swap_total_bytes"}  # fmt: skip
_HUGE: Final = {"HugePages_Total": "huge_pages_total_bytes",
                "HugePages_Free": "huge_pages_free_bytes"}  # fmt: skip


def tasks(look: Look) -> Mapping[str, Task]:
    """Return the one task of this collector."""
    return {"": Task(partial(collect, look))}


def collect(look: Look) -> Result:
    """Read /proc/meminfo and /proc/vmstat, and huge pages of all sizes from /sys.

    Raises:
        OSError: Memory can't be read.
        ValueError: It lacks a line.
    """
    memory = proc.table(look.proc / "meminfo")
    if "MemTotal" not in memory or "MemAvailable" not in memory:
        raise ValueError("/proc/meminfo has no MemTotal or no MemAvailable")
    result = Result()
    for name, value in {**_memory(memory), **_huge_pages(look), **_kills(look)}.items():
        result.families.add(f"leadline_host_{name}", node.place(look), value)
    return result


def _memory(memory: Mapping[str, int]) -> dict[str, float]:
    total, available = memory["MemTotal"], memory["MemAvailable"]
    found: dict[str, float] = {
        "memory_total_bytes": total,
        "memory_available_bytes": available,
        "memory_used_bytes": total - available,
    }
    found |= {ours: memory[name] for name, ours in _AS_THEY_ARE.items() if name in memory}
    if "SwapTotal" in memory and "SwapFree" in memory:
        found["swap_used_bytes"] = memory["SwapTotal"] - memory["SwapFree"]
    size = memory.get("Hugepagesize", 0)  # the default one: what follows has all, where it is there
    if size:
        found |= {ours: memory[name] * size for name, ours in _HUGE.items() if name in memory}
    return found


def _huge_pages(look: Look) -> dict[str, float]:
    """Return huge pages of all sizes; none where /sys doesn't tell."""
    root = look.sys / "kernel" / "mm" / "hugepages"
    total = free = 0
    told = False
    for name in node.entries(root, MAX_SIZES):
        match = _SIZE.fullmatch(name)
        if match is None:
            continue
        size = int(match[1]) * proc.KIB
        try:
            total += proc.one(root / name / "nr_hugepages") * size
            free += proc.one(root / name / "free_hugepages") * size
        except OSError:
            return {}
        told = True
    return {"huge_pages_total_bytes": total, "huge_pages_free_bytes": free} if told else {}


def _kills(look: Look) -> dict[str, float]:
    try:
        counted = proc.table(look.proc / "vmstat")
    except OSError:
        return {}  # hidden in some containers
    return {"oom_kills_total": counted["oom_kill"]} if "oom_kill" in counted else {}
