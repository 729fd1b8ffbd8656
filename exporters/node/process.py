"""Collector `process`: memory, threads, descriptors, CPU and start of each vLLM process.

Processes of one server, kind and rank are one series: sums, and the newest start, so that the
restart of any of them shows. A process that ended since it was found is no failure; one that
can't be read is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from exporters.look import Look, Result, Task
from exporters.node import proc
from exporters.targets.discovery import Member
from exporters.targets.instances import Instance

_TICK: Final = os.sysconf("SC_CLK_TCK")
_START: Final = "start_time_seconds"
_FIELDS: Final = {
    "resident_bytes": ("VmRSS",),
    "anonymous_bytes": ("RssAnon",),
    "swap_bytes": ("VmSwap",),
    "shared_bytes": ("RssShmem", "RssFile"),
    "shmem_bytes": ("RssShmem",),
    "file_bytes": ("RssFile",),
    "threads": ("Threads",),
}
"""Our names, and the lines of /proc/<pid>/status that they sum."""

# Of the first thread alone: those of all threads would be a file for each of some hundred.
_SWITCHES: Final = {"voluntary_ctxt_switches": "voluntary", "nonvoluntary_ctxt_switches": "forced"}
_WANTED: Final = proc.lines(
    *dict.fromkeys(line for lines in _FIELDS.values() for line in lines), *_SWITCHES
)


class Process:
    """Reads processes; the boot time once only.

    The kernel reckons it anew from two clocks each time it is asked, and a start time that moved by
    a second would look like a restart.
    """

    def __init__(self) -> None:
        self._booted: float | None = None

    def tasks(self, look: Look) -> Mapping[str, Task]:
        """Return one task per server that runs here."""
        here = [i for i in look.instances if i.found is not None]
        if here and self._booted is None:
            self._booted = proc.boot_time(look.proc)
        return {i.server: Task(partial(self.collect, look.proc, i)) for i in here}

    def collect(self, root: Path, instance: Instance) -> Result:
        """Read the processes of one server."""
        result = Result()
        sums: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
        for member in instance.found.members if instance.found else ():
            try:
                for name, value, kind in _read(root, member, self._booted or 0.0):
                    group = sums.setdefault((member.kind, member.rank), {})
                    same = group.get((name, kind), 0.0)
                    newest = name == _START
                    group[name, kind] = max(same, value) if newest else same + value
            except (FileNotFoundError, ProcessLookupError):
                continue
            except (OSError, ValueError) as error:
                what = f"{member.kind} {member.rank}".rstrip()
                reason = error.strerror if isinstance(error, OSError) else str(error)
                result.problem = f"{what}: {reason}"
        for (process, rank), values in sums.items():
            labels = {**instance.place, "process": process, "rank": rank}
            for (name, kind), value in values.items():
                told = {**labels, "kind": kind} if kind else labels
                result.families.add(f"leadline_process_{name}", told, value)
        return result


def _read(root: Path, member: Member, booted: float) -> Iterator[tuple[str, float, str]]:
    """Yield what can be read of a process: name, value, and kind where there are several.

    The descriptors, which need its user or root, come last.
    """
    here = f"{root}/{member.pid}"
    status = proc.pick(proc.read(f"{here}/status"), _WANTED)
    if "VmRSS" not in status:
        return  # ended, waiting for its parent
    status.setdefault("VmSwap", 0)  # a kernel built without swap has no such line, and no swap
    stat = proc.stat(root, member.pid)
    yield "cpu_seconds_total", stat.cpu / _TICK, ""
    yield "major_faults_total", float(stat.major_faults), ""
    yield _START, booted + stat.start / _TICK, ""
    for name, lines in _FIELDS.items():
        if any(line in status for line in lines):
            yield name, float(sum(status.get(line, 0) for line in lines)), ""
    for line, kind in _SWITCHES.items():
        if line in status:
            yield "context_switches_total", float(status[line]), kind
    with os.scandir(f"{here}/fd") as descriptors:
        yield "open_fds", float(sum(1 for _ in descriptors)), ""
