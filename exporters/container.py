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


class Place(NamedTuple):
    """A memory cgroup: where its hierarchy is mounted, its folder there, and its own path."""

    mount: Path
    folder: Path
    path: PurePosixPath


def collect(look: Look, instance: Instance) -> Result:
    """Read the cgroups of one server's processes; the host's root is no container."""
    result = Result()
    places: dict[str, Place] = {}
    for member in instance.found.members if instance.found else ():
        try:
            place = _place(look, member.pid)
            if place is None:
                continue
            name = short_name(place.path)
            if name not in places:
                places[name] = place
                _add(result, {**instance.place, "cgroup": name}, place)
            elif places[name] != place:
                result.problem = f"two cgroups are called {name}: only the first is shown"
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended since, or the cgroup of a host without the memory controller
        except (OSError, ValueError) as error:
            result.problem = error.strerror or "" if isinstance(error, OSError) else str(error)
    return result


def _add(result: Result, labels: Mapping[str, str], place: Place) -> None:
    memory = read_memory(place.mount, place.folder)
    if labels["cgroup"] == "/" and memory.limit is None and _layout(place.mount) is _V1:
        return  # version 1 keeps accounts of the whole host there
    add = result.families.add
    add("leadline_container_working_set_bytes", labels, memory.working_set)
    add("leadline_container_anonymous_bytes", labels, memory.anonymous)
    if memory.limit is not None:
        add("leadline_container_limit_bytes", labels, memory.limit)


def _place(look: Look, pid: int) -> Place | None:
    """Return a process' memory cgroup; None where there is no account of it.

    Raises:
        OSError: The process is gone.
        ValueError: Its cgroup lies outside what is mounted here.
    """
    paths = _paths(look.proc / str(pid))
    for controller, mount in (("memory", look.cgroup / "memory"), ("", look.cgroup)):
        path = PurePosixPath(paths.get(controller, "/"))
        if ".." in path.parts:
            raise ValueError(f"cgroup {path} lies outside of this mount: run in the host's cgroups")
        folder = mount / path.relative_to("/")
        if (folder / _layout(mount).usage).exists():
            return Place(mount, folder, path)
        if (mount / _layout(mount).usage).exists() and _paths(look.proc / "self") == paths:
            # In one container with it: only that container's part is mounted, as the root.
            return Place(mount, mount, path)
    return None


def _paths(process: Path) -> dict[str, str]:
    """Return the cgroup paths of a process by controller; version 2 has none by name."""
    paths: dict[str, str] = {}
    for line in proc.read(process / "cgroup").decode("utf-8", "replace").split("\n"):
        _, _, rest = line.partition(":")
        controllers, _, where = rest.partition(":")
        if where.startswith("/"):
            paths.update(dict.fromkeys(controllers.split(","), where))
    return paths


def _layout(mount: Path) -> _Layout:
    return _V1 if mount.name == "memory" else _V2


def read_memory(mount: Path, folder: Path) -> Memory:
    """Return the memory of the cgroup in *folder* of the hierarchy at *mount*.

    Raises:
        OSError: It is gone.
        ValueError: Its files make no sense.
    """
    layout = _layout(mount)
    usage = int(proc.read(folder / layout.usage))
    stat = proc.table(folder / "memory.stat")
    limits = [limit for above in _upwards(mount, folder) if (limit := _limit(above, layout))]
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
