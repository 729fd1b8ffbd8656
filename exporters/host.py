"""Collector `host`: the memory of this node."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from exporters import proc
from exporters.look import Look, Result, Task


def tasks(look: Look) -> Mapping[str, Task]:
    """Return the one task of this collector."""
    return {"": Task(partial(collect, look))}


def collect(look: Look) -> Result:
    """Read /proc/meminfo.

    Raises:
        OSError: It can't be read.
        ValueError: It lacks a line.
    """
    memory = proc.table(look.proc / "meminfo")
    if "MemTotal" not in memory or "MemAvailable" not in memory:
        raise ValueError("/proc/meminfo has no MemTotal or no MemAvailable")
    total, available = memory["MemTotal"], memory["MemAvailable"]
    result = Result()
    labels = {"cluster": look.config.cluster, "node": look.node}
    for name, value in (("total", total), ("available", available), ("used", total - available)):
        result.families.add(f"leadline_host_memory_{name}_bytes", labels, value)
    return result
