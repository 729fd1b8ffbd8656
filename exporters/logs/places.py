"""Which logs there are, and the server each is of: by its name, its port, or who writes to it."""

from __future__ import annotations

import glob
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from catalog.config_words import Log
from exporters.look import Look
from exporters.node import proc
from exporters.targets.instances import Instance

MAX_FILES: Final = 256

_PACKED: Final = (".gz", ".zst", ".xz", ".bz2", ".lz4", ".zip")

# Beside `vllm.log`, `vllm.log.1` is its past: copied there, it would be counted again.
_ROTATED = re.compile(r"(.+?)[.-](?:[0-9]{1,3}|[0-9]{8}[0-9T.-]{0,12}|old)", re.DOTALL)

Inode = tuple[int, int]


@dataclass(frozen=True)
class Place:
    """Where one log is, and the server it is of: a file with its inode, or a unit."""

    server: str
    key: str
    path: Path | None = None
    inode: Inode | None = None
    unit: str = ""
    opened: bool = False


def places(
    look: Look, owners: Mapping[str, str], matched: set[Inode], problems: list[str]
) -> Iterator[Place]:
    """Yield every log to read, each file once; what can't be placed is a problem.

    A file that is being replaced is held by nobody for a while: it stays with its last owner.

    Args:
        look: This scrape's.
        owners: Server by path, of the files read so far.
        matched: Gets all files that are there, placed or not: they are history from now on.
        problems: Gets a line for each that can't be placed.
    """
    held = _held(look)
    taken: set[Inode] = set()
    for number, log in enumerate(look.config.exporter.logs):
        found = 0
        for place in _of_entry(look, log, held, owners):
            found += 1
            matched |= {place.inode} if place.inode else set()
            if not place.server:
                problems.append(f"exporter.logs.{number}: {_nobodys(log, place)}")
            elif place.inode is None or place.inode not in taken:
                taken |= {place.inode} if place.inode else set()
                yield place
        if not found:
            problems.append(f"exporter.logs.{number}: {_nothing(log)}")


def _nothing(log: Log) -> str:
    if log.opened:
        return "no server found here writes to a file: its output is a pipe, or not ours to see"
    return "no file there" if log.path else "no server runs in that unit"


def _nobodys(log: Log, place: Place) -> str:
    if log.port or log.server:
        return f"no server here has {f'port {log.port}' if log.port else f'name {log.server}'}"
    return f"no server writes to {place.path or place.unit}: name its port"


def _of_entry(
    look: Look, log: Log, held: Mapping[Inode | None, tuple[str, Path]], owners: Mapping[str, str]
) -> Iterator[Place]:
    server = _named(look, log)
    if log.unit:
        yield Place(server or _in_unit(look, log.unit), f"unit {log.unit}", unit=log.unit)
    elif log.opened:
        for inode, (owner, path) in held.items():
            yield Place(owner, f"inode {inode}", path, inode, opened=True)
    else:
        for path in _files(log.path):
            at = _inode(path)
            owner = held[at][0] if at in held else owners.get(str(path), "")
            named = log.port or log.server
            yield Place(server if named else owner, str(path), path, at)


def _files(pattern: str) -> Iterator[Path]:
    """Yield the files of a pattern that aren't packed; a plain path even if nothing is there."""
    if not glob.has_magic(pattern):
        yield Path(pattern)
        return
    names = set(islice(glob.iglob(pattern), MAX_FILES))  # noqa: PTH207 - as people write patterns
    for name in sorted(names):
        old = _ROTATED.fullmatch(name)
        if not name.endswith(_PACKED) and not (old and old[1] in names):
            yield Path(name)


def _inode(path: Path) -> Inode | None:
    try:
        there = path.stat()
    except OSError:
        return None
    return there.st_dev, there.st_ino


def _named(look: Look, log: Log) -> str:
    """Return the server that an entry names, if it is there."""
    for instance in look.instances:
        if log.server and instance.server == log.server:
            return instance.server
        if log.port and not log.server and _port(instance) == log.port:
            return instance.server
    return ""


def _port(instance: Instance) -> int:
    if instance.found is not None:
        return instance.found.launch.port
    try:
        return urlsplit(instance.url).port or 0
    except ValueError:
        return 0


def _held(look: Look) -> dict[Inode | None, tuple[str, Path]]:
    """Return the files that servers' output goes to, by inode."""
    held: dict[Inode | None, tuple[str, Path]] = {}
    for instance in look.instances:
        for member in instance.found.members if instance.found else ():
            for number in (1, 2):
                path = look.proc / str(member.pid) / "fd" / str(number)
                try:
                    there = path.stat()
                except OSError:
                    continue
                if stat.S_ISREG(there.st_mode):
                    held.setdefault((there.st_dev, there.st_ino), (instance.server, path))
    return held


def _in_unit(look: Look, unit: str) -> str:
    """Return the server whose cgroup is that unit's."""
    inside = re.compile(rf"/{re.escape(unit)}(?:/|$)".encode(), re.MULTILINE)
    for instance in look.instances:
        if instance.found is not None:
            try:
                groups = proc.read(look.proc / str(instance.found.pid) / "cgroup")
            except OSError:
                continue
            if inside.search(groups):
                return instance.server
    return ""
