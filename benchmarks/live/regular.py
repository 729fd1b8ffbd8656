"""Do one thing at regular instants in the background, as long as a block runs."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

log = logging.getLogger("leadline.live")


@contextlib.contextmanager
def every(seconds: float, action: Callable[[], None]) -> Iterator[None]:
    """Call ``action`` every so many seconds; late calls are not made up for.

    An action that raises is logged and called again: one failed sample must not end a record.
    """
    enough = threading.Event()

    def work() -> None:
        due = time.monotonic()
        while not enough.is_set():
            try:
                action()
            except Exception as error:  # noqa: BLE001 - whatever it was, the next may succeed
                log.warning("a sample failed: %s: %s", type(error).__name__, error)
            due = max(due + seconds, time.monotonic())
            enough.wait(due - time.monotonic())

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join(2 * seconds + 10.0)
