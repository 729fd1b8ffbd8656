"""Collector `pss`: each vLLM process' share of memory, shared pages divided among who shares them.

The kernel walks all page tables for it and holds the process' memory lock meanwhile: one process at
a time, and seldom. A series says what was read last; beside it stands when.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from exporters.look import Look, Result, Task
from exporters.node import names as node
from exporters.node import proc
from exporters.targets.discovery import Member

EVERY_SECONDS: Final = 30.0


class Pss:
    """Reads one process at a time, in turn.

    Args:
        clock: Monotonic seconds.
        now: Unix seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._now = now
        self._absent = node.Absent()
        self._again = float("-inf")
        self._read: dict[int, tuple[float, float]] = {}  # what and when, by process id
        self._tried: dict[int, float] = {}

    def tasks(self, look: Look) -> Mapping[str, Task]:
        """Return the one task of this collector; none without servers that run here."""
        if not any(instance.found for instance in look.instances):
            return {}
        return {"": Task(partial(self.collect, look))}

    def collect(self, look: Look) -> Result:
        """Read the process that was read longest ago, and return what is known of all."""
        members = [m for i in look.instances if i.found for m in i.found.members]
        pids = {member.pid for member in members}
        self._read = {pid: said for pid, said in self._read.items() if pid in pids}
        self._tried = {pid: at for pid, at in self._tried.items() if pid in pids}
        if members and self._clock() >= self._again:
            self._again = self._clock() + EVERY_SECONDS
            next_one = min(members, key=lambda m: self._tried.get(m.pid, float("-inf")))
            self._tried[next_one.pid] = self._clock()
            self._one(look.proc, next_one)
        return self._known(look)

    def _one(self, root: Path, member: Member) -> None:
        try:
            said = proc.table(root / str(member.pid) / "smaps_rollup")
        except (FileNotFoundError, ProcessLookupError):
            return  # ended since, or an old kernel
        except OSError as error:
            self._absent.say(f"proportional memory of {member.kind} processes", error)
            return
        if "Pss" in said:
            self._read[member.pid] = (said["Pss"], self._now())

    def _known(self, look: Look) -> Result:
        """Return sums by server, kind and rank, of those of which every process was read."""
        result = Result()
        for instance in look.instances:
            groups: dict[tuple[str, str], list[int]] = {}
            for member in instance.found.members if instance.found else ():
                groups.setdefault((member.kind, member.rank), []).append(member.pid)
            for (kind, rank), pids in groups.items():
                said = [self._read[pid] for pid in pids if pid in self._read]
                if len(said) < len(pids):
                    continue
                labels = {**instance.place, "process": kind, "rank": rank}
                add = result.families.add
                add("leadline_process_proportional_bytes", labels, sum(s for s, _ in said))
                add("leadline_process_proportional_timestamp_seconds", labels,
                    min(when for _, when in said))  # fmt: skip
        return result
