"""Collector `container`: what the cgroups that the vLLM servers run in hold, and hold back.

Version 1, version 2, and hybrid hosts, where version 1 keeps the accounts and version 2 knows the
pressure.

The working set is what the kernel can't take back easily: usage less inactive file pages, as the
kubelet reckons it when it evicts. The limit is the smallest of the cgroup and its parents, since a
pod's limit is set above its containers; without any the series is absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from exporters.look import Look, Result, Task
from exporters.node import cgroups, proc
from exporters.node.cgroups import Place
from exporters.targets.instances import Instance

_NO_LIMIT: Final = 1 << 60  # version 1 says "none" by the largest number of pages
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")


class _Layout(NamedTuple):
    """Where a version of cgroups keeps things."""

    usage: str
    limit: str
    inactive: str
    anonymous: str
    shmem: str
    events: dict[str, tuple[str, str]]
    """What happened, by our name: the file, and the line in it (empty: its one number)."""


_V1: Final = _Layout(
    "memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file", "total_rss",
    "total_shmem",
    {"max": ("memory.failcnt", ""), "oom_kill": ("memory.oom_control", "oom_kill")},
)  # fmt: skip
_V2: Final = _Layout(
    "memory.current", "memory.max", "inactive_file", "anon", "shmem",
    {name: ("memory.events", name) for name in ("high", "max", "oom", "oom_kill")},
)  # fmt: skip
_RESOURCES: Final = ("cpu", "memory", "io")


class Memory(NamedTuple):
    """Memory of one cgroup, in bytes; what it does not tell is None."""

    usage: int
    working_set: int
    anonymous: int
    shmem: int | None
    limit: int | None


def tasks(look: Look) -> Mapping[str, Task]:
    """Return one task per server that runs here."""
    here = [i for i in look.instances if i.found is not None]
    return {i.server: Task(partial(collect, look, i)) for i in here}


def collect(look: Look, instance: Instance) -> Result:
    """Read the cgroups of one server's processes; the host's root is no container."""
    result = Result()
    places: dict[str, Place] = {}
    for member in instance.found.members if instance.found else ():
        try:
            place = cgroups.place(look, member.pid)
            if place is None:
                continue
            name = short_name(place.path)
            if name not in places:
                places[name] = place
                labels = {**instance.place, "cgroup": name}
                if _add(result, labels, place):
                    _pressure(result, labels, place)
                    _cpu(result, labels, place)
            elif places[name] != place:
                result.problem = f"two cgroups are called {name}: only the first is shown"
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended since, or the cgroup of a host without the memory controller
        except (OSError, ValueError) as error:
            result.problem = error.strerror or "" if isinstance(error, OSError) else str(error)
    return result


def _add(result: Result, labels: Mapping[str, str], place: Place) -> bool:
    """Add the memory of a cgroup; tell whether it is one of its own."""
    memory = read_memory(place.mount, place.folder)
    layout = _layout(place.mount)
    if labels["cgroup"] == "/" and memory.limit is None and layout is _V1:
        return False  # version 1 keeps accounts of the whole host there
    for name, value in (
        ("memory", memory.usage), ("working_set", memory.working_set),
        ("anonymous", memory.anonymous), ("shmem", memory.shmem), ("limit", memory.limit),
    ):  # fmt: skip
        if value is not None:
            result.families.add(f"leadline_container_{name}_bytes", labels, value)
    for event, (file, line) in layout.events.items():
        count = _event(place.folder / file, line)
        if count is not None:
            told = {**labels, "event": event}
            result.families.add("leadline_container_memory_events_total", told, count)
    return True


def _event(path: Path, line: str) -> int | None:
    try:
        return proc.table(path).get(line) if line else proc.one(path)
    except FileNotFoundError:
        return None  # an older kernel


def _pressure(result: Result, labels: Mapping[str, str], place: Place) -> None:
    """Add what tasks of the cgroup waited for; on a hybrid host version 2 has it beside."""
    if place.pressure is None:
        return
    for resource in _RESOURCES:
        try:
            seconds = proc.pressure(proc.read(place.pressure / f"{resource}.pressure", 4096))
        except OSError:
            continue  # a kernel without it, or told to do without
        for kind, value in seconds.items():
            told = {**labels, "resource": resource, "kind": kind}
            result.families.add("leadline_container_pressure_seconds_total", told, value)


def _cpu(result: Result, labels: Mapping[str, str], place: Place) -> None:
    """Add what a limit of processor time did; nothing where there is none."""
    if place.cpu is None:
        return
    try:
        told = proc.table(place.cpu / "cpu.stat")
    except OSError:
        return  # a kernel without the controller
    if not told.get("nr_periods"):
        return
    for name, value in (
        ("periods_total", told["nr_periods"]),
        ("throttled_periods_total", told.get("nr_throttled", 0)),
        ("throttled_seconds_total",
         told.get("throttled_usec", 0) / 1e6 or told.get("throttled_time", 0) / 1e9),
    ):  # fmt: skip
        result.families.add(f"leadline_container_cpu_{name}", labels, value)


def _layout(mount: Path) -> _Layout:
    return _V1 if cgroups.first(mount) else _V2


def read_memory(mount: Path, folder: Path) -> Memory:
    """Return the memory of the cgroup in *folder* of the hierarchy at *mount*.

    Raises:
        OSError: It is gone.
        ValueError: Its files make no sense.
    """
    layout = _layout(mount)
    usage = proc.one(folder / layout.usage)
    stat = proc.table(folder / "memory.stat")
    limits = [limit for above in _upwards(mount, folder) if (limit := _limit(above, layout))]
    for needed in (layout.anonymous, layout.inactive):
        if needed not in stat:
            raise ValueError(f"memory.stat has no {needed}")
    return Memory(
        usage, max(0, usage - stat[layout.inactive]), stat[layout.anonymous],
        stat.get(layout.shmem), min(limits, default=None),
    )  # fmt: skip


def _upwards(mount: Path, here: Path) -> Iterator[Path]:
    while here != mount.parent:
        yield here
        here = here.parent


def _limit(folder: Path, layout: _Layout) -> int | None:
    try:
        text = proc.read(folder / layout.limit).strip()
    except FileNotFoundError:
        return None  # the root has no limit
    if text == b"max":
        return None
    limit = proc.number(text)
    return limit if limit < _NO_LIMIT else None


def short_name(path: PurePosixPath) -> str:
    """Return the last element of a cgroup's path, container ids cut to 12 digits as Docker does."""
    return _CONTAINER_ID.sub(lambda m: m[0][:12], path.name) or "/"
