"""The exporter's server: on loopback unless told, each connection in a thread of its own.

One request a connection, as many at once as `MAX_CONNECTIONS`, and so long to be made: a client
that sends a byte a second holds its place for seconds, and gives it up to the next who comes when
all are taken. A TLS handshake is part of that time, in the connection's own thread: one that is
never finished holds up nobody.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Collection
from functools import partial
from typing import Any, Final

from catalog.address import listen_address
from catalog.config import Config, ConfigError
from exporters.budget import Budget
from exporters.memory import give_back_large_blocks
from exporters.scrape import Exporter
from exporters.targets.places import Place, Places
from exporters.unhindered import unhindered
from exporters.web.handler import Handler, Request
from exporters.web.listen import Settings, Web
from exporters.web.on_request import OnRequest
from exporters.web.tls import may_connect

MAX_CONNECTIONS: Final = 32
REQUEST_SECONDS: Final = 10.0
COULD_NOT_RUN: Final = 2
_NO_DESCRIPTORS_SECONDS: Final = 0.1
_UNREAD_CHUNK: Final = 1 << 16
_UNREAD_CHUNKS: Final = 16
_PLAIN: Final = b"HTTP/1.0 400 Bad Request\r\n\r\nthis page is served over https\n"
_HANGUP: Final = (
    "SIGHUP: certificates, passwords and files of targets are read again when they change; "
    "for leadline.yaml restart"
)
log = logging.getLogger("leadline.exporters")


class ExporterServer(socketserver.TCPServer):
    """Serves an exporter's page at an address.

    Args:
        host, port: Where to listen.
        exporter: Whose page.
        web: TLS, passwords and headers.
        on_request: What `/probe` answers; None: nothing.

    Raises:
        OSError: The address can't be had.
    """

    allow_reuse_address = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(
        self,
        host: str,
        port: int,
        exporter: Exporter,
        web: Web | None = None,
        on_request: OnRequest | None = None,
    ) -> None:
        self.exporter = exporter
        self.web = web or Web()
        self.on_request = on_request
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._places = Places(MAX_CONNECTIONS, exporter.most_answers)
        exporter.closed = self._places.closed
        super().__init__((host, port), Handler)

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host, port = self.server_address[:2]
        name = host.decode() if isinstance(host, bytes | bytearray) else str(host)
        scheme = "https" if self.web.settings().context else "http"
        return f"{scheme}://{f'[{name}]' if ':' in name else name}:{port}/metrics"

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; without a descriptor to spare wait a moment, not in a busy loop."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(_NO_DESCRIPTORS_SECONDS)
            raise

    def service_actions(self) -> None:
        """Let go of targets that nobody asks for any more; called several times a second."""
        if self.on_request:
            self.on_request.sweep()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve in a thread if there is a place; else hang up."""
        place = self._places.enter(request)
        if place is None:
            self.shutdown_request(request)
            return
        try:
            threading.Thread(
                target=self._serve, args=(place, client_address), name="leadline-http", daemon=True
            ).start()
        except RuntimeError:  # no more threads
            self._places.leave(place)
            self.shutdown_request(request)

    def _serve(self, place: Place, client_address: Any) -> None:
        """Serve one connection, then give the place back."""
        deadline = time.monotonic() + REQUEST_SECONDS
        try:
            settings = self.web.settings()
            if settings.context and not _secured(place, settings, deadline):
                return
            request = Request(
                place.socket,
                settings,
                deadline,
                partial(self._places.arrived, place),
                partial(self._places.answering, place),
            )
            Handler(request, client_address, self)  # type: ignore[arg-type]
        except Exception:  # a client went away or took too long: it is its own loss
            log.debug("a client was not served to the end", exc_info=True)
        finally:
            _close(place)
            self._places.leave(place)


def _secured(place: Place, settings: Settings, deadline: float) -> bool:
    """Whether TLS is up, by the deadline and with somebody who may connect."""
    assert settings.context is not None  # noqa: S101 - for the type checker
    place.socket.settimeout(max(0.01, deadline - time.monotonic()))
    plain = place.socket
    place.socket = secure = settings.context.wrap_socket(
        plain, server_side=True, do_handshake_on_connect=False
    )
    try:
        secure.do_handshake()
    except ssl.SSLError as error:
        if error.reason == "HTTP_REQUEST":
            socket.socket.sendall(secure, _PLAIN)
        return False
    return settings.sans is None or may_connect(secure.getpeercert(), settings.sans)


def _close(place: Place) -> None:
    """Say goodbye without waiting for an answer, and let go of the socket."""
    sock = place.socket
    with contextlib.suppress(OSError, ValueError):
        if isinstance(sock, ssl.SSLSocket) and not place.evicted:
            sock.settimeout(0)
            sock.unwrap()
    with contextlib.suppress(OSError):
        # What is left unread when a socket closes resets the connection, and the answer with it.
        socket.socket.shutdown(sock, socket.SHUT_WR)
        sock.setblocking(False)
        for _ in range(_UNREAD_CHUNKS):
            if not socket.socket.recv(sock, _UNREAD_CHUNK):
                break
    place.hang_up()
    with contextlib.suppress(OSError):
        sock.close()


def run(
    config: Config,
    stop: threading.Event | None = None,
    only: Collection[str] | None = None,
) -> int:
    """Serve this node's page until *stop* is set, by default by SIGINT or SIGTERM.

    Args:
        config: As loaded.
        stop: Ends it.
        only: The collectors that run; None: all.

    Returns:
        0 once stopped; 2 if the address or the web configuration can't be had, with one line in
        the log.
    """
    give_back_large_blocks()
    with unhindered():
        return _run(config, stop, only)


def _run(config: Config, stop: threading.Event | None, only: Collection[str] | None) -> int:
    listen = config.exporter.listen
    try:
        web = Web(config.exporter.web_config_file)
    except ConfigError as error:
        log.error("%s", error)
        return COULD_NOT_RUN
    budget = Budget(int(config.exporter.page_budget))
    exporter = Exporter(config, only=only, budget=budget)
    on_request = OnRequest(config, budget=budget)
    try:
        host, port = listen_address(listen)
        server = ExporterServer(host, port, exporter, web, on_request)
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
    # Looks for servers before anybody asks, so that `/readyz` can tell.
    threading.Thread(target=exporter.page, name="leadline-first", daemon=True).start()
    try:
        stop.wait()
    finally:
        server.shutdown()
        server.server_close()
        exporter.close()
        on_request.close()
        thread.join()
    return 0


def _stopped_by_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    # Whoever sends it wants files read again, or closed a terminal: neither is a reason to end.
    signal.signal(signal.SIGHUP, lambda *_: log.info(_HANGUP))
    return stop
