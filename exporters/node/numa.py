"""Collector `numa`: memory of each NUMA node, and pages that had to come from another one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from exporters.families import Families
from exporters.look import Look, Result, Task
from exporters.node import names as node
from exporters.node import proc

MAX_NODES: Final = 64
_NODE = re.compile(r"node([0-9]{1,4})")
_MEMORY: Final = {
    "MemTotal": "memory_total_bytes",
    "MemFree": "memory_free_bytes",
    "AnonPages": "memory_anonymous_bytes",
    "Shmem": "memory_shmem_bytes",
}
_PAGES: Final = {"numa_hit": "hit", "numa_miss": "miss", "numa_foreign": "foreign",
                 "other_node": "other_node"}  # fmt: skip


def tasks(look: Look) -> Mapping[str, Task]:
    """Return the one task of this collector."""
    return {"": Task(partial(collect, look))}


def collect(look: Look) -> Result:
    """Read the NUMA nodes; a kernel without NUMA has none, and one that goes meanwhile is left out.

    Raises:
        OSError: A node is there and can't be read.
    """
    result = Result()
    root = look.sys / "devices" / "system" / "node"
    numbers = [int(m[1]) for name in node.entries(root, 4096) if (m := _NODE.fullmatch(name))]
    for number in sorted(numbers)[:MAX_NODES]:
        labels = {**node.place(look), "numa": str(number)}
        _add(root / f"node{number}", labels, result.families)
    return result


def _add(folder: Path, labels: Mapping[str, str], families: Families) -> None:
    try:
        memory = proc.rows(proc.read(folder / "meminfo"), prefix=2)  # after `Node 0`
    except FileNotFoundError:
        return
    for name, ours in _MEMORY.items():
        if name in memory:
            families.add(f"leadline_numa_{ours}", labels, memory[name])
    try:
        pages = proc.table(folder / "numastat")
    except FileNotFoundError:
        return
    for name, kind in _PAGES.items():
        if name in pages:
            families.add("leadline_numa_pages_total", {**labels, "kind": kind}, pages[name])
