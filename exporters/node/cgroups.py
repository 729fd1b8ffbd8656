"""Where a process' memory cgroup is, in version 1, version 2 and hybrid hosts, and in containers.

/proc/PID/cgroup tells paths as seen from the cgroup namespace of who reads it. In one of its own a
container is the root and sees others as `/../other.scope`. Where the host's cgroups are mounted,
its own place in them is found by inode, and paths are taken from there.
"""

from __future__ import annotations

import os
from collections import deque
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from exporters.look import Look
from exporters.node import proc

OWN: Final = Path("/sys/fs/cgroup")
"""Where our own cgroups are mounted; in a container its own is the root of that."""
MAX_FOLDERS: Final = 50_000
_ROOT: Final = PurePosixPath("/")
# Controller by name (version 2 has none), and the folder of its hierarchy.
_HIERARCHIES: Final = (("memory", "memory"), ("", "unified"), ("", ""))


class Place(NamedTuple):
    """A memory cgroup: where its hierarchy is mounted, its folder there, and its own path.

    `pressure` is its folder in version 2, where the process is in a cgroup of both; `cpu` where its
    processor time is limited.
    """

    mount: Path
    folder: Path
    path: PurePosixPath
    pressure: Path | None = None
    cpu: Path | None = None


def first(mount: Path) -> bool:
    """Tell whether a hierarchy is of version 1."""
    return mount.name == "memory"


def usage(mount: Path) -> str:
    """Return the name of the file with the memory in use."""
    return "memory.usage_in_bytes" if first(mount) else "memory.current"


def place(look: Look, pid: int) -> Place | None:
    """Return a process' memory cgroup; None where there is no account of it.

    Raises:
        OSError: The process is gone.
        ValueError: Its cgroup lies outside what is mounted here.
    """
    paths = _paths(look.proc / str(pid))
    outside = ""
    for controller, name in _HIERARCHIES:
        mount = look.cgroup / name
        if controller not in paths or not (mount.exists()):
            continue
        path = _whole(look, controller, name, paths)
        if path is None:
            outside = outside or paths[controller]
            continue
        folder = mount / path.relative_to(_ROOT)
        if (folder / usage(mount)).exists():
            return Place(mount, folder, path, *_beside(look, mount, folder, paths))
        if (mount / usage(mount)).exists() and _paths(look.proc / "self") == paths:
            # In one container with it: only that container's part is mounted, as the root.
            return Place(mount, mount, path, *_beside(look, mount, mount, paths))
    if outside:
        raise ValueError(
            f"cgroup {outside} lies outside of what is mounted at {look.cgroup}: mount the host's "
            "/sys and name it in exporter.sys, or run in the host's cgroup namespace"
        )
    return None


def _beside(
    look: Look, mount: Path, folder: Path, paths: dict[str, str]
) -> tuple[Path | None, Path | None]:
    """Return where pressure and processor time of what *folder* is are told.

    Version 2 has all in one place; beside version 1 it may know the pressure.
    """
    if not first(mount):
        return folder, folder
    found: list[Path | None] = []
    for controller, name in (("", "unified"), ("cpu", "cpu")):
        path = _whole(look, controller, name, paths) if controller in paths else None
        there = look.cgroup / name
        found.append(None if path is None else there / path.relative_to(_ROOT))
    return found[0], found[1]


def _whole(look: Look, controller: str, name: str, paths: dict[str, str]) -> PurePosixPath | None:
    """Return a path below the hierarchy's mount; None if it isn't there."""
    parts = list(_root(look, controller, name).parts)
    for part in PurePosixPath(paths[controller]).parts[1:]:
        if part != "..":
            parts.append(part)
        elif len(parts) > 1:
            parts.pop()
        else:
            return None
    return PurePosixPath(*parts)


def _root(look: Look, controller: str, name: str) -> PurePosixPath:
    """Return where the root of our cgroup namespace is below a hierarchy's mount.

    What is mounted as our own is that root, or our own cgroup: then its path in our namespace ends
    it.
    """
    own = _own_path(look.cgroup / name, OWN / name)
    if own == _ROOT:
        return own
    try:
        ours = PurePosixPath(_paths(look.proc / "self").get(controller, "/")).parts[1:]
    except OSError:
        return own
    outer = own.parts[: len(own.parts) - len(ours)]
    return PurePosixPath(*outer) if ours and own.parts[len(outer) :] == ours else own


def _own_path(mount: Path, own: Path) -> PurePosixPath:
    """Return where our own cgroups' mount is below *mount*; its root where nobody can tell."""
    try:
        here, root = own.stat(), mount.stat()
    except OSError:
        return _ROOT
    if (here.st_dev, here.st_ino) == (root.st_dev, root.st_ino):
        return _ROOT
    return _found(mount, here.st_dev, here.st_ino) or _ROOT


@lru_cache(maxsize=8)  # a process' own cgroup stays where it is, and there are thousands of others
def _found(mount: Path, device: int, inode: int) -> PurePosixPath | None:
    waiting, seen = deque([mount]), 0
    while waiting and seen < MAX_FOLDERS:
        folder = waiting.popleft()
        seen += 1
        for path, at in _below(folder):
            if at == (device, inode):
                return _ROOT / path.relative_to(mount)
            waiting.append(path)
    return None


def _below(folder: Path) -> list[tuple[Path, tuple[int, int]]]:
    """Return the folders in a folder, each with its device and inode."""
    try:
        with os.scandir(folder) as entries:
            below = [e for e in entries if e.is_dir(follow_symlinks=False)]
            device = folder.stat().st_dev
            return [(Path(e.path), (device, e.inode())) for e in below]
    except OSError:
        return []  # gone since


def _paths(process: Path) -> dict[str, str]:
    """Return the cgroup paths of a process by controller; version 2 has none by name."""
    paths: dict[str, str] = {}
    for line in proc.read(process / "cgroup").decode("utf-8", "replace").split("\n"):
        _, _, rest = line.partition(":")
        controllers, _, where = rest.partition(":")
        if where.startswith("/"):
            paths.update(dict.fromkeys(controllers.split(","), where))
    return paths
