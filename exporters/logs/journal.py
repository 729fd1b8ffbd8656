"""Reads a unit's messages from systemd's journal, from a cursor on, by `journalctl`.

It is started anew each time, with a bound on its output and its time, and never through a shell.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Final

from exporters.logs.tail import CHUNK, Piece

MAX_ENTRY: Final = 1 << 17
_CURSOR = re.compile(r"[!-~]{1,512}")
_FIRST_WAIT: Final = 15.0
_LONGEST_WAIT: Final = 300.0
_FLAGS: Final = ("--quiet", "--no-pager", "--output=json", "--output-fields=MESSAGE")


class JournalError(Exception):
    """The journal can't be read; the message is one line."""


class Journal:
    """The messages of one unit. Not safe for two threads at once.

    Args:
        unit: Checked to be one.
        program: journalctl; looked for if empty.
        clock: Monotonic seconds.
    """

    def __init__(
        self, unit: str, program: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._unit = unit
        self._program = program
        self._clock = clock
        self._cursor = ""
        self._since = ""
        self._wait = 0.0
        self._again = 0.0
        self._why = ""

    def read(self, budget: int, seconds: float, take: Callable[[bytes], None]) -> Piece:
        """Read at most *budget* bytes for at most *seconds*, lines to *take*.

        After a failure it is left alone for a while, longer each time.

        Raises:
            JournalError: It can't be read.
        """
        if self._clock() < self._again:
            raise JournalError(self._why)
        try:
            piece = self._read(budget, seconds, take)
        except JournalError as error:
            self._wait = min(max(_FIRST_WAIT, 2 * self._wait), _LONGEST_WAIT)
            self._again = self._clock() + self._wait
            self._why = f"{error}; asked again every {self._wait:.0f} s"
            raise
        self._wait = 0.0
        return piece

    def _read(self, budget: int, seconds: float, take: Callable[[bytes], None]) -> Piece:
        piece = Piece()
        if not self._cursor and not self._since:
            self._since = f"--since=@{time.time():.0f}"
            # Where we are now: nothing that was said before is counted.
            self._run(["--lines=1"], budget, seconds, piece, lambda _: None)
            return piece
        start = f"--after-cursor={self._cursor}" if self._cursor else self._since
        self._run([start], budget, seconds, piece, take)
        return piece

    def _run(
        self,
        more: Sequence[str],
        budget: int,
        seconds: float,
        piece: Piece,
        take: Callable[[bytes], None],
    ) -> None:
        program = self._program or shutil.which("journalctl")
        if not program:
            raise JournalError("journalctl is not installed: name the log's file instead")
        argv = [program, *_FLAGS, f"--unit={self._unit}", *more]
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env={"PATH": os.defpath, "LC_ALL": "C"},
            )  # fmt: skip
        except OSError as error:
            raise JournalError(f"journalctl can't be started: {error.strerror}") from None
        with process:
            try:
                whole = self._entries(process, budget, self._clock() + seconds, piece, take)
            finally:
                process.kill()  # nothing happens to one that has ended
            code = process.wait()
        if whole and code not in (0, -9):
            raise JournalError(f"journalctl failed ({code}): may this user read the journal?")

    def _entries(
        self,
        process: subprocess.Popen[bytes],
        budget: int,
        until: float,
        piece: Piece,
        take: Callable[[bytes], None],
    ) -> bool:
        """Read what it says; return whether to the end."""
        assert process.stdout is not None  # noqa: S101 - asked for above
        fd = process.stdout.fileno()
        rest = b""
        budget = max(
            budget, MAX_ENTRY
        )  # or an entry that is larger would be asked for again for ever
        while budget > 0:
            ready, _, _ = select.select([fd], [], [], max(0.0, until - self._clock()))
            if not ready:
                raise JournalError("journalctl did not answer in time")
            data = os.read(fd, min(CHUNK, budget))
            if not data:
                return True
            budget -= len(data)
            piece.size += len(data)
            *whole, rest = (rest + data).split(b"\n")
            for entry in whole:
                self._entry(entry, take)
            if len(rest) > MAX_ENTRY:
                raise JournalError("an entry is too large")
        return False

    def _entry(self, entry: bytes, take: Callable[[bytes], None]) -> None:
        try:
            said = json.loads(entry)
        except (ValueError, RecursionError):
            return
        if not isinstance(said, dict):
            return
        cursor = said.get("__CURSOR")
        if isinstance(cursor, str) and _CURSOR.fullmatch(cursor):
            self._cursor = cursor
        for line in _message(said.get("MESSAGE")).split(b"\n"):
            take(line)


def _message(said: object) -> bytes:
    """Return a message; journald gives bytes that are no text as a list of numbers."""
    if isinstance(said, str):
        return said.encode("utf-8", "replace")
    if isinstance(said, list) and all(isinstance(n, int) and 0 <= n < 256 for n in said):
        return bytes(said)
    return b""
