"""Threads for what may hang: they are bounded, and they never hold up the end of the program.

The standard executor waits for its threads when the interpreter ends, which a name server that
does not answer may delay by half a minute.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Threads(Generic[T]):
    """Runs functions in at most *limit* threads, started as they are needed and kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._idle = threading.Semaphore(0)
        self._todo: queue.SimpleQueue[tuple[Future[T], Callable[[], T]] | None] = (
            queue.SimpleQueue()
        )
        self._started = 0
        self._lock = threading.Lock()

    def submit(self, run: Callable[[], T]) -> Future[T]:
        """Have *run* called."""
        future: Future[T] = Future()
        self._todo.put((future, run))
        with self._lock:
            if not self._idle.acquire(blocking=False) and self._started < self._limit:
                self._started += 1
                threading.Thread(
                    target=self._work, name=f"leadline-{self._started}", daemon=True
                ).start()
        return future

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
            self._idle.release()
