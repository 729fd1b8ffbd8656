"""Threads for what may hang: they are bounded, and they never hold up the end of the program.

The standard executor waits for its threads when the interpreter ends, which a name server that
does not answer may delay by half a minute.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MAX_REPLACED: Final = 512


class Threads(Generic[T]):
    """Runs functions in at most *limit* threads, started as they are needed and kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._todo: queue.SimpleQueue[tuple[Future[T], Callable[[], T]] | None] = (
            queue.SimpleQueue()
        )
        self._started = 0
        self._open = 0  # what is queued or runs
        self._replaced = 0
        self._lock = threading.Lock()

    def submit(self, run: Callable[[], T]) -> Future[T]:
        """Have *run* called."""
        future: Future[T] = Future()
        self._todo.put((future, run))
        with self._lock:
            self._open += 1
            if self._open > self._started and self._started < self._limit:
                self._start()
        return future

    def _start(self) -> None:
        name = f"leadline-{self._started + 1}"
        # Without memory for another one those that are there do it, one after the other.
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=self._work, name=name, daemon=True).start()
            self._started += 1

    def replace(self, future: Future[T]) -> None:
        """Let another thread be started for the one that hangs in *future*, until that is done."""
        with self._lock:
            if self._replaced >= MAX_REPLACED:
                return
            self._replaced += 1
            self._limit += 1
        future.add_done_callback(self._back)

    def _back(self, _: Future[T]) -> None:
        with self._lock:
            self._replaced -= 1
            self._limit -= 1

    def close(self) -> None:
        """Let each thread end with what it does now."""
        for _ in range(self._started):
            self._todo.put(None)

    def _work(self) -> None:
        while (item := self._todo.get()) is not None:
            future, run = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(run())
                except BaseException as error:  # noqa: BLE001 - the waiting side gets it
                    future.set_exception(error)
            with self._lock:
                self._open -= 1
                if self._started > self._limit:
                    self._started -= 1
                    return
