"""Serves the live page of a run on /metrics until it is told to stop."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType
from typing import Final

from catalog.exposition import CONTENT_TYPE
from simulator.page import Page
from simulator.scenario import HOUR
from simulator.world import World

log = logging.getLogger("leadline.simulator")

TIMEOUT: Final = 10.0


class PageServer(ThreadingHTTPServer):
    """An HTTP server of one page; give it port 0 for a free one."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], page: Page, clock: Callable[[], float]) -> None:
        super().__init__(address, _Handler)
        self._page = page
        self._clock = clock
        self._lock = threading.Lock()

    def text(self) -> str:
        """Return the page as of now."""
        with self._lock:
            return self._page.text(self._clock())


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = TIMEOUT

    def do_GET(self) -> None:
        """Answer /metrics with the page, /-/ready and / with a line, all else with 404."""
        path = self.path.partition("?")[0]
        known = {"/": "See /metrics\n", "/-/ready": "ready\n"}
        if path == "/metrics":
            self._send(200, self.server.text(), CONTENT_TYPE)
        elif path in known:
            self._send(200, known[path], "text/plain; charset=utf-8")
        else:
            self._send(404, "not found: see /metrics\n", "text/plain; charset=utf-8")

    def _send(self, status: int, text: str, content_type: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base names it so
        """Keep quiet: one line a scrape helps nobody."""


def serve(
    listen: str,
    scenario: str,
    seed: int = 0,
    *,
    until: float | None = None,
    span: float = 72 * HOUR,
    clock: Callable[[], float] = time.time,
) -> PageServer:
    """Return a server that is bound and has its first page ready, but does not serve yet.

    Args:
        listen: Address such as `127.0.0.1:9840`; port 0 for a free one.
        scenario: Name of the scenario.
        seed: Seed of all noise.
        until: Unix seconds of the end of history, to which the scenario's times refer; whole
            minutes, and the same as history was written with. Now by default.
        span: Seconds of history before it.
        clock: What tells the time.

    Raises:
        ValueError: The address is none, or the scenario is unknown.
        OSError: The address can't be bound.
    """
    epoch = last_minute(clock() if until is None else until)
    page = Page(World(scenario, seed, span), epoch)
    try:
        server = PageServer(address(listen), page, clock)
    except OSError as error:
        raise OSError(error.errno, f"can't listen on {listen}: {error.strerror}") from error
    server.text()
    return server


def run(
    listen: str,
    scenario: str,
    seed: int = 0,
    *,
    until: float | None = None,
    span: float = 72 * HOUR,
) -> int:
    """Serve the page until SIGINT or SIGTERM; return the exit code."""
    server = serve(listen, scenario, seed, until=until, span=span)

    def stop(_number: int, _frame: FrameType | None) -> None:
        threading.Thread(target=server.shutdown, daemon=True).start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    host, port = server.server_address[:2]
    log.info("simulating %s on http://%s:%s/metrics", scenario, host, port)
    try:
        server.serve_forever(poll_interval=0.2)
    finally:
        server.server_close()
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


def last_minute(instant: float) -> float:
    """Return the last whole minute: the end of a history that is written in minutes."""
    return instant // 60 * 60


def address(listen: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`.

    Raises:
        ValueError: It is none; one line that says so.
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{listen!r} is no address to listen on (as 127.0.0.1:9840)")
    return host.strip("[]") or "127.0.0.1", int(port)
