"""Collector `container`: memory of the cgroups that the vLLM servers run in, version 1 and 2.

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

from exporters import proc
from exporters.instances import Instance
from exporters.look import Look, Result, Task

_NO_LIMIT: Final = 1 << 60  # version 1 says "none" by the largest number of pages
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")


class _Layout(NamedTuple):
    """Where a version of cgroups keeps things."""

    usage: str
    limit: str
    inactive: str
    anonymous: str


_V1: Final = _Layout(
    "memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file", "total_rss"
)
_V2: Final = _Layout("memory.current", "memory.max", "inactive_file", "anon")


class Memory(NamedTuple):
    """Memory of one cgroup, in bytes; `limit` is None without one."""

    working_set: int
    anonymous: int
    limit: int | None


def tasks(look: Look) -> Mapping[str, Task]:
    """Return one task per server that runs here."""
    here = [i for i in look.instances if i.found is not None]
    return {i.server: Task(partial(collect, look, i)) for i in here}


def collect(look: Look, instance: Instance) -> Result:
    """Read the cgroups of one server's processes; the host's root is no container."""
    result = Result()
    seen: set[tuple[Path, PurePosixPath]] = set()
    names: set[str] = set()
    for member in instance.found.members if instance.found else ():
        try:
            place = _place(look, member.pid)
            if place is None or place in seen:
                continue
            seen.add(place)
            memory = read_memory(*place)
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended since, or the cgroup of a host without the memory controller
        except (OSError, ValueError) as error:
            result.problem = error.strerror or "" if isinstance(error, OSError) else str(error)
            continue
        name = short_name(place[1])
        if name == "/" and memory.limit is None and _layout(place[0]) is _V1:
            continue  # version 1 keeps accounts of the whole host there
        if name in names:
            result.problem = f"two cgroups are called {name}: only the first is shown"
            continue
        names.add(name)
        labels = {**instance.place, "cgroup": name}
        add = result.families.add
        add("leadline_container_working_set_bytes", labels, memory.working_set)
        add("leadline_container_anonymous_bytes", labels, memory.anonymous)
        if memory.limit is not None:
            add("leadline_container_limit_bytes", labels, memory.limit)
    return result


def _place(look: Look, pid: int) -> tuple[Path, PurePosixPath] | None:
    """Return the mount and the path below it of a process' memory cgroup; None for the root.

    Raises:
        OSError: The process is gone.
        ValueError: Its cgroup lies outside what is mounted here.
    """
    paths: dict[str, str] = {}
    for line in proc.read(look.proc / str(pid) / "cgroup").decode("utf-8", "replace").split("\n"):
        _, _, rest = line.partition(":")
        controllers, _, where = rest.partition(":")
        if where.startswith("/"):
            paths.update(dict.fromkeys(controllers.split(","), where))
    for controller, mount in (("memory", look.cgroup / "memory"), ("", look.cgroup)):
        path = PurePosixPath(paths.get(controller, "/"))
        if ".." in path.parts:
            raise ValueError(f"cgroup {path} lies outside of this mount: run in the host's cgroups")
        if (mount / path.relative_to("/") / _layout(mount).usage).exists():
            return mount, path
    return None


def _layout(mount: Path) -> _Layout:
    return _V1 if mount.name == "memory" else _V2


def read_memory(mount: Path, path: PurePosixPath) -> Memory:
    """Return the memory of the cgroup at *path* below *mount*.

    Raises:
        OSError: It is gone.
        ValueError: Its files make no sense.
    """
    layout = _layout(mount)
    here = mount / path.relative_to("/")
    usage = int(proc.read(here / layout.usage))
    stat = proc.table(here / "memory.stat")
    limits = [limit for folder in _upwards(mount, here) if (limit := _limit(folder, layout))]
    return Memory(
        max(0, usage - stat.get(layout.inactive, 0)),
        stat.get(layout.anonymous, 0),
        min(limits, default=None),
    )


def _upwards(mount: Path, here: Path) -> Iterator[Path]:
    while here != mount.parent:
        yield here
        here = here.parent


def _limit(folder: Path, layout: _Layout) -> int | None:
    try:
        text = proc.read(folder / layout.limit).strip()
    except FileNotFoundError:
        return None  # the root has no limit
    return int(text) if text.isdigit() and int(text) < _NO_LIMIT else None


def short_name(path: PurePosixPath) -> str:
    """Return the last element of a cgroup's path, container ids cut to 12 digits as Docker does."""
    return _CONTAINER_ID.sub(lambda m: m[0][:12], path.name) or "/"
