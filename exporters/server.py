"""The exporter's HTTP side: `/metrics`, `/healthz` and a landing page, on loopback unless told.

Each request has a connection of its own, as many as `MAX_CONNECTIONS` at once, and so long to be
made: a client that sends a byte a second holds its place for seconds, not for ever.
"""

from __future__ import annotations

import gzip
import io
import logging
import signal
import socket
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from catalog.address import listen_address
from catalog.config import Config
from catalog.exposition import CONTENT_TYPE
from exporters.fetch import DeadlineReader
from exporters.scrape import Exporter

MAX_CONNECTIONS: Final = 32
REQUEST_SECONDS: Final = 10.0
COULD_NOT_RUN: Final = 2
_MARGIN: Final = 0.5  # left of Prometheus' timeout for the way back, as blackbox_exporter does
_COMPRESSION: Final = 1  # a page shrinks twentyfold at any level, and level 6 costs thrice the CPU
_LANDING: Final = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Leadline exporter</title></head>
<body><h1>Leadline exporter</h1>
<p>vLLM servers of this node, their processes, containers and host.</p>
<p><a href="/metrics">Metrics</a> <a href="/healthz">Health</a></p></body></html>
"""
log = logging.getLogger("leadline.exporters")


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD."""

    server: ExporterServer
    server_version = "leadline-exporter"
    sys_version = ""

    def setup(self) -> None:
        """Bound the time that the request may take to arrive."""
        super().setup()
        deadline = time.monotonic() + REQUEST_SECONDS
        self.rfile.close()
        self.rfile = io.BufferedReader(DeadlineReader(self.connection, deadline, time.monotonic))

    def do_GET(self) -> None:
        """Serve one page."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            page = self.server.exporter.page(self._seconds())
            self._answer(HTTPStatus.OK, CONTENT_TYPE, page)
        elif path == "/healthz":
            self._answer(HTTPStatus.OK, "text/plain; charset=utf-8", b"ok\n")
        elif path == "/":
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", _LANDING)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"see /metrics\n")

    do_HEAD = do_GET  # noqa: N815 - the name http.server looks for

    def _seconds(self) -> float | None:
        """Return how long Prometheus waits for the page, if it says so."""
        try:
            told = float(self.headers.get("X-Prometheus-Scrape-Timeout-Seconds", ""))
        except ValueError:
            return None
        return max(told - _MARGIN, told / 2) if told > 0 else None

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        packed = "gzip" in self.headers.get("Accept-Encoding", "")
        body = gzip.compress(body, _COMPRESSION, mtime=0) if packed else body
        self.connection.settimeout(REQUEST_SECONDS)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Stay quiet: a line a scrape is no event."""


class ExporterServer(ThreadingHTTPServer):
    """Serves an exporter's page at an address.

    Raises:
        OSError: The address can't be had.
    """

    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, host: str, port: int, exporter: Exporter) -> None:
        self.exporter = exporter
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._places = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host, port = self.server_address[:2]
        name = host.decode() if isinstance(host, bytes | bytearray) else str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}/metrics"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve in a thread if there is a place; else hang up."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection, then give the place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Pass over a client that went away or took too long."""
        log.debug("a client was not served to the end", exc_info=True)


def run(config: Config, stop: threading.Event | None = None) -> int:
    """Serve this node's page until *stop* is set, by default by SIGINT or SIGTERM.

    Returns:
        0 once stopped; 2 if the address can't be had, with one line in the log.
    """
    listen = config.exporter.listen
    exporter = Exporter(config)
    try:
        host, port = listen_address(listen)
        server = ExporterServer(host, port, exporter)
    except ValueError as error:
        log.error("exporter.listen: %s", error)
        return COULD_NOT_RUN
    except OSError as error:
        log.error("can't listen on %s: %s; choose another by --listen", listen, error.strerror)
        return COULD_NOT_RUN
    stop = stop or _stopped_by_signals()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
    thread.start()
    log.info("serving %s", server.url)
    try:
        stop.wait()
    finally:
        server.shutdown()
        server.server_close()
        exporter.close()
        thread.join()
    return 0


def _stopped_by_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop
