"""The pair of servers under traffic: started together, recorded, stopped with their stack."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.live.errors import LiveError
from benchmarks.live.install import Say, install, venv_python
from benchmarks.live.plugin import lay_plugin
from benchmarks.live.recorder import Recorder
from benchmarks.live.regular import every
from benchmarks.live.servers import (
    READY_SECONDS,
    Server,
    check_ports,
    environment,
    plans,
    program,
)
from benchmarks.live.traffic import Tally, drive
from stack.programs import Stack, answers

SAMPLE_SECONDS = 5.0
MODEL_SECONDS = 300.0


@dataclass
class Pair:
    """A running pair, its traffic and its record."""

    servers: list[Server]
    recorder: Recorder
    leak_file: Path
    tally: Tally = field(default_factory=Tally)

    @property
    def decode_url(self) -> str:
        """Where the decode server answers."""
        return self.servers[1].plan.url

    def leak(self, bytes_per_step: int) -> None:
        """Set how much decode's EngineCore keeps at each step from now on."""
        self.leak_file.write_text(str(bytes_per_step), encoding="ascii")


def prepare(cache: Path, say: Say) -> None:
    """Install vLLM and make the model, unless that is done."""
    install(cache, say)
    if (cache / "model" / "config.json").exists():
        return
    say("making a tiny model")
    script = Path(__file__).with_name("model.py")
    made = subprocess.run(
        [str(venv_python(cache)), str(script), str(cache / "model")],
        capture_output=True,
        text=True,
        timeout=MODEL_SECONDS,
        check=False,
    )
    if made.returncode:
        raise LiveError(f"could not make the model: {made.stderr.strip().splitlines()[-1]}")


@contextlib.contextmanager
def recorded_pair(stack: Stack, cache: Path, folder: Path, first_port: int) -> Iterator[Pair]:
    """Start both servers in the stack, and record them from their first moment on."""
    check_ports(first_port)
    leak_file = folder / "leak_bytes"
    plugin = lay_plugin(folder / "plugin")
    servers = []
    for plan in plans(first_port):
        leaky = plan.pool == "decode"
        env = environment(plan, plugin if leaky else None, leak_file if leaky else None)
        servers.append(Server(plan, stack.spawn(program(plan, cache, env))))
    pair = Pair(servers, Recorder(folder), leak_file)
    sample = every(SAMPLE_SECONDS, lambda: pair.recorder.sample(pair.servers))
    with contextlib.closing(pair.recorder), sample:
        yield pair


@contextlib.contextmanager
def traffic(pair: Pair, *, rate: float, seed: int) -> Iterator[None]:
    """Send requests through both servers as long as the block runs."""
    prefill, decode = (server.plan.url for server in pair.servers)
    enough = threading.Event()
    sending = threading.Thread(
        target=lambda: asyncio.run(
            drive(prefill, decode, pair.tally, enough, rate=rate, seed=seed)
        ),
        daemon=True,
    )
    sending.start()
    try:
        yield
    finally:
        enough.set()
        sending.join(10.0)


def await_ready(stack: Stack, pair: Pair) -> None:
    """Wait until both servers answer; one that died is said at once, with its last words."""
    limit = time.monotonic() + READY_SECONDS
    for server in pair.servers:
        while not answers(f"{server.plan.url}/health"):
            stack.check()
            if time.monotonic() > limit:
                raise LiveError(
                    f"{server.plan.pool} is not ready after {READY_SECONDS:.0f} s: "
                    f"see {server.running.log_file}"
                )
            time.sleep(1.0)
