"""Runs the service: cycles, the pulse to Alertmanager, and the pages, until SIGTERM or SIGINT."""

from __future__ import annotations

import fcntl
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from catalog.config import Config
from detectors.service.alertmanager import LAPSES_AFTER, Alertmanagers, alerts, outgoing
from detectors.service.cycle import Cycle
from detectors.service.ledger import Ledger, LedgerError
from detectors.service.links import LinkError
from detectors.service.view import View
from store.errors import StoreError
from store.prometheus import PromStore

if TYPE_CHECKING:
    import uvicorn

log = logging.getLogger("leadline.service")

STOPS_WITHIN: Final = 5.0
"""Seconds that threads get to end; a query that hangs is left behind (the ledger can take it)."""


class StartError(Exception):
    """The service can't start; one line with the remedy."""


class Service:
    """The threads of a running service."""

    def __init__(self, config: Config, cycle: Cycle, alertmanagers: Alertmanagers, view: View):
        self._every = config.service.every
        self._cycle = cycle
        self._alertmanagers = alertmanagers
        self._view = view
        self._stop = threading.Event()
        self._news = threading.Event()
        self._threads: list[threading.Thread] = []

    def notify(self) -> None:
        """Start to notify of what the ledger knows, and of what is found later."""
        self._start("pulse", self._pulse)

    def judge(self) -> None:
        """Start to judge."""
        self._start("cycle", self._judge)

    def _start(self, name: str, target: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=target, name=name, daemon=True))
        self._threads[-1].start()

    def stop(self) -> None:
        """Ask the threads to end and wait a little."""
        self._stop.set()
        self._news.set()
        deadline = time.monotonic() + STOPS_WITHIN
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _judge(self) -> None:
        """Run a cycle every `every`, counted from start to start."""
        due = time.monotonic()
        while not self._stop.is_set():
            try:
                self._cycle.run_once()
            except Exception:  # whatever goes wrong, the next cycle must come
                log.exception("cycle failed; the next one comes in %g s", self._every)
            self._news.set()
            due = max(due + self._every, time.monotonic())
            self._stop.wait(max(0.0, due - time.monotonic()))

    def _pulse(self) -> None:
        """Post what fires, every `every` and after each cycle, however long a cycle takes."""
        while not self._stop.is_set():
            self._news.clear()
            try:
                self._post()
            except Exception:  # alerts must be kept alive whatever one post does
                log.exception("posting alerts failed; trying again in %g s", self._every)
            self._news.wait(self._every)

    def _post(self) -> None:
        snapshot = self._cycle.snapshot
        now = time.time()
        payload = alerts(snapshot, self._view.links, now, LAPSES_AFTER * self._every)
        if payload and self._alertmanagers.post(payload):
            self._cycle.deliver(i.id for i in outgoing(snapshot.incidents, now))


def run(config: Config) -> int:
    """Run the service until a signal; return the exit code (2: it could not start)."""
    try:
        with _locked(Path(config.service.state)), _listening(config.service.listen) as listener:
            ledger = Ledger(Path(config.service.state))
            try:
                _serve(config, ledger, listener)
            finally:
                ledger.close()
    except (StartError, LedgerError, LinkError, StoreError) as error:
        log.error("%s", error)
        return 2
    return 0


def _serve(config: Config, ledger: Ledger, listener: socket.socket) -> None:
    prom = config.prometheus
    store = PromStore(prom.url, timeout=prom.timeout, bearer_token_file=prom.bearer_token_file)
    cycle = Cycle(config, store, ledger)
    alertmanagers = Alertmanagers(config.alertmanager.urls, config.alertmanager.timeout)
    view = View.of(config, lambda: cycle.snapshot, alertmanagers)
    service = Service(config, cycle, alertmanagers, view)
    # One line for each post, each cycle, is what nobody reads.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    # After a restart alerts must be repeated before they lapse: before anything slow.
    service.notify()
    web = _web(view)
    # Off the main thread uvicorn leaves the signals to us.
    pages = threading.Thread(target=web.run, args=([listener],), name="pages", daemon=True)
    pages.start()
    service.judge()
    log.info("board: %s/ (judging every %g s)", view.links.board, config.service.every)
    stopped.wait()
    log.info("stopping")
    web.should_exit = True
    service.stop()
    pages.join(STOPS_WITHIN)
    alertmanagers.close()


def _web(view: View) -> uvicorn.Server:
    """Return the web server; importing FastAPI takes longer than all the rest of the start."""
    import uvicorn  # noqa: PLC0415

    from detectors.service import api  # noqa: PLC0415

    return uvicorn.Server(
        uvicorn.Config(
            api.create(view), log_config=None, access_log=False, lifespan="off",
            timeout_graceful_shutdown=2, server_header=False,
        )
    )  # fmt: skip


@contextmanager
def _locked(folder: Path) -> Iterator[TextIO]:
    """Hold the state folder: two services on one ledger would end each other's incidents."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a")
    except OSError as error:
        raise StartError(
            f"state folder {folder}: {error.strerror}; choose a writable one with --state DIR"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StartError(
                f"state folder {folder}: another leadline serve uses it; "
                "stop that, or choose another with --state DIR"
            ) from None
        yield lock


@contextmanager
def _listening(listen: str) -> Iterator[socket.socket]:
    host, _, port = listen.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host.strip("[]") or "0.0.0.0", int(port)))  # noqa: S104 - if asked
        except (OSError, ValueError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else "write it as HOST:PORT"
            raise StartError(
                f"cannot listen on {listen}: {reason}; choose another with --listen HOST:PORT"
            ) from None
        yield listener
