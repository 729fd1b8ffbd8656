"""Files of /proc and of cgroups, read with a bound, from whatever root they are mounted at."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

MAX_BYTES: Final = 1 << 18
KIB: Final = 1024
_U64: Final = 1 << 64
_DIGITS: Final = 20


class Stat(NamedTuple):
    """What is needed of /proc/<pid>/stat. Times are in clock ticks, `start` since boot."""

    parent: int
    cpu: int
    start: int
    major_faults: int


def read(path: Path | str, limit: int = MAX_BYTES) -> bytes:
    """Return at most *limit* bytes of a file; a text is the cheaper path.

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
    fields = read(f"{root}/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) < 20:
        raise ValueError(f"/proc/{pid}/stat has {len(fields)} fields after the name")
    parent, faults, user, system, start = (number(fields[at]) for at in (1, 9, 11, 12, 19))
    return Stat(parent, user + system, start, faults)


def number(text: bytes) -> int:
    """Return a number as the kernel writes it: digits alone, no more than 64 bits of them.

    Raises:
        ValueError: It is none: a sign, an underscore or a longer number is no number of a counter.
    """
    text = text.strip()
    if text.isdigit() and len(text) <= _DIGITS and (value := int(text)) < _U64:
        return value
    raise ValueError(f"{text[:40].decode('ascii', 'replace')!r} is no number")


def one(path: Path) -> int:
    """Return the one number that a file holds.

    Raises:
        OSError: It can't be read.
        ValueError: It holds no number.
    """
    try:
        return number(read(path, 4096))
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None


def table(path: Path) -> dict[str, int]:
    """Return a file of `Name: 123 kB` or `name 123` lines; kB become bytes, text is left out.

    Raises:
        OSError: It can't be read.
    """
    return rows(read(path))


def lines(*names: str) -> re.Pattern[bytes]:
    """Return what finds the lines of these names in a file as `table` reads it, for `pick`."""
    either = "|".join(map(re.escape, names))
    return re.compile(rf"^({either}):?[ \t]+([0-9]{{1,20}})( kB)?$".encode(), re.MULTILINE)


def pick(data: bytes, wanted: re.Pattern[bytes]) -> dict[str, int]:
    """Return the wanted lines, as `table` does, at a fraction of its cost."""
    return {
        name.decode(): number(digits) * (KIB if kib else 1)
        for name, digits, kib in wanted.findall(data)
    }


def rows(data: bytes, prefix: int = 0) -> dict[str, int]:
    """Return the lines of `table`, each after *prefix* words; those that make no sense left out."""
    found: dict[str, int] = {}
    for line in data.split(b"\n"):
        words = line.replace(b":", b" ", 1).split()[prefix:]
        if not 2 <= len(words) <= 3 or (len(words) == 3 and words[2] != b"kB"):
            continue
        try:
            value = number(words[1])
        except ValueError:
            continue
        found[words[0].decode("ascii", "replace")] = value * (KIB if len(words) == 3 else 1)
    return found


def pressure(data: bytes) -> dict[str, float]:
    """Return the seconds lost to pressure by kind (`some`, `full`), of a file of PSI.

    Raises:
        ValueError: It is no such file.
    """
    found: dict[str, float] = {}
    for line in data.split(b"\n"):
        kind, _, rest = line.partition(b" ")
        if kind in (b"some", b"full"):
            total = rest.rpartition(b" total=")[2] if b" total=" in rest else b""
            found[kind.decode()] = number(total) / 1e6
    if not found:
        raise ValueError("neither `some` nor `full` in a pressure file")
    return found


def boot_time(root: Path) -> float:
    """Return when the host was booted, unix seconds.

    Raises:
        OSError: /proc/stat can't be read.
        ValueError: It has no boot time, or one that makes no sense.
    """
    for line in read(root / "stat", 1 << 20).split(b"\n"):
        if line.startswith(b"btime "):
            return float(number(line[6:]))
    raise ValueError("/proc/stat has no btime")
