"""One request: `/metrics`, `/probe`, `/healthz`, `/readyz` and a landing page.

`/healthz` and `/readyz` need no password and know no limit, for those who ask them have none and
would restart the exporter; they say one word.
"""

from __future__ import annotations

import gzip
import io
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from catalog import exposition
from exporters.fetch import DeadlineReader
from exporters.web.answer import Answer
from exporters.web.auth import Login
from exporters.web.listen import Settings
from exporters.web.negotiation import takes_gzip, wants_openmetrics
from exporters.web.on_request import UnknownTargetError

if TYPE_CHECKING:
    import socket

    from exporters.server import ExporterServer

MAX_REQUEST_BYTES: Final = 1 << 17
ANSWER_SECONDS: Final = 10.0
_MAX_FIELDS: Final = 8
_MARGIN: Final = 0.5  # left of Prometheus' timeout for the way back, as blackbox_exporter does
_COMPRESSION: Final = 1  # a page shrinks twentyfold at any level, and level 6 costs thrice the CPU
_TEXT: Final = "text/plain; charset=utf-8"
_LANDING: Final = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Leadline exporter</title></head>
<body><h1>Leadline exporter</h1>
<p>vLLM servers of this node, their processes, containers and host.</p>
<p><a href="/metrics">Metrics</a> <a href="/healthz">Health</a> <a href="/readyz">Ready</a></p>
</body></html>
"""
_SAID: Final[dict[HTTPStatus, tuple[tuple[str, str], ...]]] = {
    HTTPStatus.UNAUTHORIZED: (("WWW-Authenticate", 'Basic realm="leadline", charset="UTF-8"'),),
    HTTPStatus.TOO_MANY_REQUESTS: (("Retry-After", "5"),),
    HTTPStatus.METHOD_NOT_ALLOWED: (("Allow", "GET, HEAD"),),
}


@dataclass(frozen=True)
class Request:
    """A connection on which one request is made.

    Attributes:
        socket: Plain or TLS.
        settings: Of the web configuration, as they were when it came.
        deadline: When the request must be there, by `time.monotonic`.
        arrived: To be called once it is; false: the place is another's by now.
        answering: Given the size of an answer, holds it while it is written.
    """

    socket: socket.socket
    settings: Settings
    deadline: float
    arrived: Callable[[], bool]
    answering: Callable[[int], AbstractContextManager[None]]


class Writer:
    """Writes to a socket until a deadline, however slowly its other side reads."""

    closed = False

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._deadline: float | None = None

    def write(self, data: bytes) -> int:
        """Write all of *data*; the time runs from the first of it."""
        self._deadline = self._deadline or time.monotonic() + ANSWER_SECONDS
        left = memoryview(data)
        while left:
            seconds = self._deadline - time.monotonic()
            if seconds <= 0:
                raise TimeoutError
            self._sock.settimeout(seconds)
            left = left[self._sock.send(left) :]
        return len(data)

    def flush(self) -> None:
        """Do nothing: nothing is held back."""


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD."""

    server: ExporterServer
    request: Request
    server_version = "leadline-exporter"
    sys_version = ""
    default_request_version = "HTTP/1.0"

    def setup(self) -> None:
        """Bound the time that the request may take to arrive, and its size."""
        self.settings = self.request.settings
        self.connection = self.request.socket
        reader = DeadlineReader(
            self.connection, self.request.deadline, time.monotonic, MAX_REQUEST_BYTES
        )
        self.rfile = io.BufferedReader(reader)
        self.wfile = Writer(self.connection)  # type: ignore[assignment]

    def finish(self) -> None:
        """Let go of the reader; the server closes the connection."""
        self.rfile.close()

    def do_GET(self) -> None:
        """Serve one page."""
        if not self.request.arrived():
            return
        path, _, query = self.path.partition("?")
        if path == "/healthz":
            self._say(HTTPStatus.OK, "ok")
        elif path == "/readyz":
            self._ready()
        elif not self.server.web.within_limit(self.settings.limit):
            self._say(HTTPStatus.TOO_MANY_REQUESTS)
        elif self._let_in():
            self._serve(path, query)

    do_HEAD = do_GET  # noqa: N815 - the name http.server looks for

    def _serve(self, path: str, query: str) -> None:
        if path == "/metrics":
            self._page(self.server.exporter.scrape)
        elif path == "/probe" and self.server.on_request:
            self._probe(query)
        elif path == "/":
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", _LANDING)
        else:
            self._say(HTTPStatus.NOT_FOUND, "see /metrics")

    def _probe(self, query: str) -> None:
        assert self.server.on_request is not None  # noqa: S101 - for the type checker
        try:
            named = parse_qs(query, max_num_fields=_MAX_FIELDS).get("target", [])
        except ValueError:
            named = []
        if len(named) != 1:
            self._say(HTTPStatus.BAD_REQUEST, "name one target: /probe?target=SERVER")
            return
        try:
            self._page(partial(self.server.on_request.scrape, named[0]))
        except UnknownTargetError as error:
            self._say(HTTPStatus.FORBIDDEN, str(error))

    def _page(self, scrape: Callable[[float | None, bool], Answer]) -> None:
        opened = wants_openmetrics(self._header("Accept"))
        kind = exposition.OPENMETRICS if opened else exposition.CONTENT_TYPE
        # No name for what was found: while a slow client reads, its page alone is held.
        self._answer(HTTPStatus.OK, kind, scrape(self._seconds(), opened).written(opened))

    def _ready(self) -> None:
        if self.server.web.problem:
            self._say(HTTPStatus.SERVICE_UNAVAILABLE, "the web configuration is wrong, see the log")
        elif not self.server.exporter.ready:
            self._say(HTTPStatus.SERVICE_UNAVAILABLE, "has not looked for servers yet")
        else:
            self._say(HTTPStatus.OK, "ready")

    def _let_in(self) -> bool:
        """Whether the client may see the page; tells it if not."""
        users = self.settings.users
        if not users:
            return True
        login = self.server.web.logins.login(
            users, self._header("Authorization"), str(self.client_address[0])
        )
        if login is Login.RIGHT:
            return True
        busy = login is Login.BUSY
        self._say(HTTPStatus.TOO_MANY_REQUESTS if busy else HTTPStatus.UNAUTHORIZED)
        return False

    def _seconds(self) -> float | None:
        """Return how long Prometheus waits for the page, if it says so."""
        try:
            told = float(self._header("X-Prometheus-Scrape-Timeout-Seconds"))
        except ValueError:
            return None
        return max(told - _MARGIN, told / 2) if told > 0 else None

    def _header(self, name: str) -> str:
        headers = getattr(self, "headers", None)
        return ",".join(headers.get_all(name, [])) if headers else ""

    def _say(self, status: HTTPStatus, line: str = "") -> None:
        self._answer(status, _TEXT, f"{line or status.phrase}\n".encode())

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        packed = status == HTTPStatus.OK and takes_gzip(self._header("Accept-Encoding"))
        body = gzip.compress(body, _COMPRESSION, mtime=0) if packed else body
        self.send_response(status)
        said = {
            "Content-Type": kind, "Content-Length": str(len(body)),
            "Vary": "Accept, Accept-Encoding", "X-Content-Type-Options": "nosniff",
            **dict(_SAID.get(status, ())), **self.settings.headers,
        }  # fmt: skip
        if packed:
            said["Content-Encoding"] = "gzip"
        for name, value in said.items():
            self.send_header(name, value)
        with self.request.answering(len(body)):
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    def send_error(
        self,
        code: int,
        message: str | None = None,  # noqa: ARG002
        explain: str | None = None,  # noqa: ARG002
    ) -> None:
        """Refuse a request in one line, without repeating what it said."""
        known = HTTPStatus(code)
        status = HTTPStatus.METHOD_NOT_ALLOWED if known == HTTPStatus.NOT_IMPLEMENTED else known
        self.close_connection = True
        self._say(status)

    def log_message(self, *_: Any) -> None:
        """Stay quiet: a line a scrape is no event."""
