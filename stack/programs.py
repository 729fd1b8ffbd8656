"""Starts programs, waits until they are ready, and stops what it started and nothing else.

Each program runs in a session of its own, so that Ctrl-C at the terminal reaches only us and the
order of stopping is ours; its output goes to a log file. A child that has ended stays a zombie
until we stop it: that keeps its process group's number from being given to somebody else.
"""

import atexit
import http.client
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from stack import launch
from stack.errors import NotReadyError, ProgramDiedError

log = logging.getLogger("leadline.stack")

LOG_TAIL_BYTES = 4096
LOG_TAIL_LINES = 3
STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Program:
    """What to run, and how to tell that it is ready."""

    name: str
    argv: Sequence[str | Path]
    health: str | None = None  # a URL that answers 200 once the program is ready
    ready_within: float = 120.0
    environment: Mapping[str, str | None] = field(default_factory=dict)  # None: taken away


@dataclass(frozen=True)
class Running:
    """A program that was started."""

    program: Program
    process: subprocess.Popen[bytes]
    log_file: Path

    @property
    def pid(self) -> int:
        """Process id, which is its process group's too."""
        return self.process.pid

    def status(self) -> int | None:
        """Exit status, negative for a signal, None while it runs; leaves the zombie in place."""
        if self.process.returncode is not None:
            return self.process.returncode
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def last_words(self) -> str:
        """The last lines of its log, on one line."""
        with self.log_file.open("rb") as handle:
            handle.seek(max(0, self.log_file.stat().st_size - LOG_TAIL_BYTES))
            text = handle.read(LOG_TAIL_BYTES).decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " | ".join(lines[-LOG_TAIL_LINES:]) or "it wrote nothing"

    def signal_group(self, number: int) -> None:
        """Signal the whole process group; only called before the leader is reaped."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            log.debug("%s was gone already", self.program.name)


class Stack:
    """Programs that live as long as the `with` block, stopped in reverse order."""

    def __init__(self, logs: Path, *, grace: float = 10.0) -> None:
        self.logs = logs
        self.grace = grace
        self.running: list[Running] = []
        self._handlers: dict[int, object] = {}

    def __enter__(self) -> Self:
        self.logs.mkdir(parents=True, exist_ok=True)
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                self._handlers[number] = signal.signal(number, _leave)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        waiting = _ignore(*STOP_SIGNALS, signal.SIGINT)  # a second Ctrl-C must not orphan anything
        try:
            self.stop()
        finally:
            _restore({**waiting, **self._handlers})

    def start(self, program: Program) -> Running:
        """Start a program and wait until it is ready."""
        started = self.spawn(program)
        self.wait_ready(started)
        return started

    def spawn(self, program: Program) -> Running:
        """Start a program without waiting for it.

        It dies with the thread that calls this (the kernel counts threads, not processes), so
        call it from one that lives as long as the stack.
        """
        launcher = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid())]
        log_file = self.logs / f"{program.name}.log"
        with log_file.open("ab") as output:
            process = subprocess.Popen(
                [*launcher, *map(str, program.argv)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=_environment(program.environment),
            )
        running = Running(program, process, log_file)
        self.running.append(running)
        return running

    def wait_ready(self, running: Running) -> None:
        """Wait until a spawned program answers at its health URL, if it has one."""
        program, url = running.program, running.program.health
        deadline = time.monotonic() + program.ready_within
        while url is not None and not answers(url):
            self.check()
            if time.monotonic() > deadline:
                raise NotReadyError(
                    f"{program.name} did not answer at {url} within {program.ready_within:.0f} s "
                    f"({running.log_file}): {running.last_words()}"
                )
            time.sleep(0.05)
        self.check()  # somebody else's server on that port may have answered

    def finish(self, program: Program, *, within: float) -> None:
        """Run a program to its end; raises unless it ends with 0 in time."""
        running = self.spawn(program)
        deadline = time.monotonic() + within
        while (status := running.status()) is None:
            if time.monotonic() > deadline:
                raise NotReadyError(
                    f"{program.name} took more than {within:.0f} s, see {running.log_file}"
                )
            self.check(but=running)
            time.sleep(0.05)
        if status != 0:
            raise _died(running, status)
        self._stop_one(running)

    def check(self, *, but: Running | None = None) -> None:
        """Raise if a program that should run has ended."""
        for running in self.running:
            if running is not but and (status := running.status()) is not None:
                raise _died(running, status)

    def stop(self) -> None:
        """Stop everything, the last started first."""
        while self.running:
            self._stop_one(self.running[-1])

    def _stop_one(self, running: Running) -> None:
        if running.status() is None:
            running.signal_group(signal.SIGTERM)
            deadline = time.monotonic() + self.grace
            while running.status() is None and time.monotonic() < deadline:
                time.sleep(0.02)
        # Always: what the program itself started may outlive it, and a zombie doesn't mind.
        running.signal_group(signal.SIGKILL)
        running.process.wait()
        self.running.remove(running)


def answers(url: str, *, timeout: float = 5.0) -> bool:
    """Whether a URL answers 200 now; proxies are not used, these are our own programs."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError, http.client.HTTPException):
        return False


def free_port(preferred: int = 0) -> int:
    """A free TCP port of the loopback address, the preferred one if nobody has it or will."""
    for port in (preferred, 0):
        if port and not _claim(port):
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise NotReadyError("no free port on 127.0.0.1")


def _claim(port: int) -> bool:
    """Whether no other of our processes means to use a port; true once, for as long as we live.

    Some seconds pass until a program listens, and two demos would choose the same port meanwhile.
    The kernel frees an abstract name with its process.
    """
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0leadline-port-{port}")
    except OSError:
        claim.close()
        return False
    atexit.register(claim.close)
    return True


def _environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    merged: dict[str, str | None] = {**os.environ, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def _died(running: Running, status: int) -> ProgramDiedError:
    how = f"status {status}" if status >= 0 else signal.Signals(-status).name
    return ProgramDiedError(
        f"{running.program.name} ended with {how} ({running.log_file}): {running.last_words()}"
    )


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _ignore(*numbers: int) -> dict[int, object]:
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, signal.SIG_IGN) for number in numbers}


def _restore(handlers: Mapping[int, object]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler if handler is not None else signal.SIG_DFL)  # type: ignore[arg-type]
