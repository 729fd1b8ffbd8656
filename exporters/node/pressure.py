"""Collector `pressure`: the time that tasks of this node waited for CPU, memory or input/output.

A kernel without pressure stall information has none of it, and that is no failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from exporters.look import Look, Result, Task
from exporters.node import names as node
from exporters.node import proc

RESOURCES: Final = ("cpu", "memory", "io")


class Pressure:
    """Reads /proc/pressure."""

    def __init__(self) -> None:
        self._absent = node.Absent()

    def tasks(self, look: Look) -> Mapping[str, Task]:
        """Return the one task of this collector."""
        return {"": Task(partial(self.collect, look))}

    def collect(self, look: Look) -> Result:
        """Read the pressure on each resource."""
        result = Result()
        for resource in RESOURCES:
            try:
                seconds = proc.pressure(proc.read(look.proc / "pressure" / resource, 4096))
            except OSError as error:  # with `psi=0` the files are there and can't be read
                self._absent.say("pressure of the host", error)
                continue
            except ValueError as error:
                result.problem = f"/proc/pressure/{resource}: {error}"
                continue
            for kind, value in seconds.items():
                labels = {**node.place(look), "resource": resource, "kind": kind}
                result.families.add("leadline_host_pressure_seconds_total", labels, value)
        return result
