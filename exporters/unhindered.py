"""Log lines to standard error that hold up nobody: a pipe that nobody reads may block for ever.

A journal that hangs, or a terminal that was stopped, would else stop the first thread that has
something to say, and with it the page. Lines wait for their turn up to a number; of those beyond it
the count is told once lines are read again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sys
import threading
from collections.abc import Iterator
from typing import Final

MAX_WAITING: Final = 1000
_LAST_SECONDS: Final = 1.0


class Unhindered(logging.Handler):
    """Hands lines to a thread that writes them to a file descriptor.

    Args:
        descriptor: Where to; it may block, be full, or have no other side any more.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lost = 0
        self._lines: queue.Queue[str | None] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._write, name="leadline-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Have a record written when its turn comes."""
        line = self.format(record) + "\n"
        if self._lost and not self._lines.full():
            line, self._lost = f"({self._lost} lines were lost: nobody read them)\n{line}", 0
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._lost += 1

    def last(self) -> None:
        """Give what still waits a moment to be written."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(None)
        self._thread.join(_LAST_SECONDS)

    def _write(self) -> None:
        # Not by the stream: the interpreter could not end while another thread is at that.
        while (line := self._lines.get()) is not None:
            data = line.encode("utf-8", "backslashreplace")
            with contextlib.suppress(OSError):
                while data:
                    data = data[os.write(self._descriptor, data) :]


@contextlib.contextmanager
def unhindered() -> Iterator[None]:
    """Write what the root logger writes to standard error without waiting for its reader."""
    root = logging.getLogger()
    found = [
        one for one in root.handlers
        if type(one) is logging.StreamHandler and one.stream is sys.stderr
    ]  # fmt: skip
    instead = [Unhindered(sys.stderr.fileno()) for _ in found]
    for before, after in zip(found, instead, strict=True):
        after.setFormatter(before.formatter)
        after.setLevel(before.level)
        root.removeHandler(before)
        root.addHandler(after)
    try:
        yield
    finally:
        for before, after in zip(found, instead, strict=True):
            after.last()
            root.removeHandler(after)
            root.addHandler(before)
