"""Follows one log file as it grows, is replaced, cut, or goes away; a bounded piece at a time.

The file stays open, so that what is written to a replaced one is read to its end first. Whether a
file was cut and has grown again is told by the bytes before the place where we stopped.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from exporters.logs.lines import MAX_LINE

MAX_LAG: Final = 64 << 20
"""Bytes behind which the older ones are passed over."""

CHUNK: Final = 1 << 16
_MEMORY: Final = 64


class Lines:
    """Cuts bytes into lines; the last one waits for its end, a long one is cut."""

    def __init__(self) -> None:
        self._rest = b""
        self._cut = False
        self.long = 0

    def add(self, data: bytes) -> list[bytes]:
        """Return the lines that are whole now."""
        *whole, rest = (self._rest + data).split(b"\n")
        if whole and self._cut:
            del whole[0]  # the end of one whose beginning was returned already
            self._cut = False
        self._rest = rest
        if self._cut:
            self._rest = b""
        elif len(rest) > MAX_LINE:
            whole.append(rest[:MAX_LINE])
            self._rest, self._cut = b"", True
        self.long += sum(len(line) >= MAX_LINE for line in whole)
        return whole

    def skip(self) -> None:
        """Pass over the rest of the line that the next bytes belong to."""
        self._rest, self._cut = b"", True

    def end(self) -> list[bytes]:
        """Return what waits for an end that won't come."""
        rest, self._rest, self._cut = self._rest, b"", False
        return [rest] if rest else []


@dataclass
class Piece:
    """What was read at once.

    Attributes:
        size: Bytes read.
        skipped: Bytes passed over.
        lag: Bytes that are there and not read.
        rotations: How often the file was replaced or cut.
    """

    size: int = 0
    skipped: int = 0
    lag: int = 0
    rotations: int = 0


class Tail:
    """One file. Not safe for two threads at once.

    Args:
        path: Followed by name; for /proc/<pid>/fd/<n> that is whatever the process writes to.
        from_start: Whether to read what is there already.
    """

    def __init__(self, path: Path, *, from_start: bool) -> None:
        self.path = path
        self.lines = Lines()
        self._from_start = from_start
        self._fd: int | None = None
        self._at = 0
        self._before = b""
        self.lag = 0

    def read(self, budget: int, take: Callable[[bytes], None]) -> Piece:
        """Read at most *budget* bytes and have *take* called with each line.

        Raises:
            OSError: The file can't be opened; one that vanished while open is read to its end.
        """
        piece = Piece()
        if self._fd is None:
            self._first()
        self._read(piece, budget, take)
        if piece.lag == 0 and self._replaced():
            self._last_line(take)
            self.close()
            piece.rotations += 1
            try:
                self._open(from_start=True)
            except FileNotFoundError:
                return piece  # not made again yet
            self._read(piece, budget - piece.size, take)
        return piece

    def _first(self) -> None:
        """Open it for the first time; one that isn't there yet will be read from its start."""
        try:
            self._open(from_start=self._from_start)
        finally:
            self._from_start = True

    def _last_line(self, take: Callable[[bytes], None]) -> None:
        for line in self.lines.end():
            take(line)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    @property
    def identity(self) -> tuple[int, int] | None:
        """Device and inode of the open file."""
        if self._fd is None:
            return None
        held = os.fstat(self._fd)
        return held.st_dev, held.st_ino

    def _open(self, *, from_start: bool) -> None:
        # To open a pipe or a terminal does something to it; a log is neither.
        if not stat.S_ISREG(self.path.stat().st_mode):
            raise OSError(errno.EINVAL, "is no regular file", str(self.path))
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self._at = 0 if from_start else os.fstat(self._fd).st_size
        self._remember()
        if self._before and not self._before.endswith(b"\n"):
            self.lines.skip()

    def _read(self, piece: Piece, budget: int, take: Callable[[bytes], None]) -> None:
        assert self._fd is not None  # noqa: S101 - opened by every caller
        size = os.fstat(self._fd).st_size
        if size < self._at or self._rewritten():
            self._last_line(take)
            piece.rotations += 1
            self._at = 0
        if size - self._at > MAX_LAG:
            passed = size - self._at - MAX_LAG
            self._at += passed
            piece.skipped += passed
            self.lines.skip()
        while budget > 0 and (data := os.pread(self._fd, min(CHUNK, budget), self._at)):
            self._at += len(data)
            budget -= len(data)
            piece.size += len(data)
            for line in self.lines.add(data):
                take(line)
        self._remember()
        piece.lag = self.lag = max(0, os.fstat(self._fd).st_size - self._at)

    def _remember(self) -> None:
        assert self._fd is not None  # noqa: S101
        start = max(0, self._at - _MEMORY)
        self._before = os.pread(self._fd, self._at - start, start)

    def _rewritten(self) -> bool:
        """Whether other bytes stand before our place now."""
        assert self._fd is not None  # noqa: S101
        return os.pread(self._fd, len(self._before), self._at - len(self._before)) != self._before

    def _replaced(self) -> bool:
        """Whether the path leads to another file now, or to none."""
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return (there.st_dev, there.st_ino) != self.identity
