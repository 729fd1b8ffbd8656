"""Files of /proc and of cgroups, read with a bound, from whatever root they are mounted at."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

MAX_BYTES: Final = 1 << 18
KIB: Final = 1024


class Stat(NamedTuple):
    """What is needed of /proc/<pid>/stat. Times are in clock ticks, `start` since boot."""

    parent: int
    cpu: int
    start: int


def read(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return at most *limit* bytes of a file.

    Raises:
        OSError: It can't be read; for /proc/<pid> also: the process is gone.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, limit)
        while len(data) < limit and (more := os.read(fd, limit - len(data))):
            data += more
    finally:
        os.close(fd)
    return data


def pids(root: Path) -> list[int]:
    """Return the ids of all processes."""
    with os.scandir(root) as entries:
        return [int(e.name) for e in entries if e.name.isdecimal() and e.name.isascii()]


def stat(root: Path, pid: int) -> Stat:
    """Return parent, CPU time and start of a process.

    Raises:
        OSError: It is gone.
        ValueError: The file makes no sense.
    """
    # The name in parentheses may hold spaces and parentheses: count from its end.
    fields = read(root / str(pid) / "stat").rpartition(b")")[2].split()
    if len(fields) < 20:
        raise ValueError(f"/proc/{pid}/stat has {len(fields)} fields after the name")
    return Stat(int(fields[1]), int(fields[11]) + int(fields[12]), int(fields[19]))


def table(path: Path) -> dict[str, int]:
    """Return a file of `Name: 123 kB` or `name 123` lines; kB become bytes, text is left out.

    Raises:
        OSError: It can't be read.
    """
    found: dict[str, int] = {}
    for line in read(path).split(b"\n"):
        words = line.replace(b":", b" ", 1).split()
        if 2 <= len(words) <= 3 and words[1].isdigit():
            scale = KIB if words[-1] == b"kB" else 1
            found[words[0].decode("ascii", "replace")] = int(words[1]) * scale
    return found


def boot_time(root: Path) -> float:
    """Return when the host was booted, unix seconds.

    Raises:
        OSError: /proc/stat can't be read.
        ValueError: It has no boot time.
    """
    for line in read(root / "stat", 1 << 20).split(b"\n"):
        if line.startswith(b"btime "):
            return float(line.split()[1])
    raise ValueError("/proc/stat has no btime")
