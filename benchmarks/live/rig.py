"""The pair of servers under traffic: started together, recorded, stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.live import servers as run
from benchmarks.live.errors import LiveError
from benchmarks.live.install import install, venv_python
from benchmarks.live.plugin import lay_plugin
from benchmarks.live.recorder import Recorder
from benchmarks.live.servers import Plan, Server
from benchmarks.live.traffic import Tally, drive

SAMPLE_SECONDS = 5.0
MODEL_SECONDS = 300.0

Say = Callable[[str], None]


@dataclass
class Rig:
    """A running pair, its traffic and its record."""

    folder: Path
    servers: list[Server]
    recorder: Recorder
    leak_file: Path
    tally: Tally = field(default_factory=Tally)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def leak(self, bytes_per_step: int) -> None:
        """Set how much decode's EngineCore keeps at each step from now on."""
        self.leak_file.write_text(str(bytes_per_step), encoding="ascii")

    def check(self) -> None:
        """Say which server died, if one did."""
        for server in self.servers:
            if not server.alive():
                raise LiveError(f"the {server.plan.pool} server died: see {server.log}")


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


def plans(first_port: int) -> list[Plan]:
    """The two servers: their API and side-channel ports count up from the first port."""
    return [
        Plan("prefill", first_port, first_port + 2, core=0),
        Plan("decode", first_port + 1, first_port + 3, core=1),
    ]


@contextlib.asynccontextmanager
async def running(
    cache: Path, folder: Path, first_port: int, *, rate: float, seed: int
) -> AsyncIterator[Rig]:
    """Start both servers and the recorder at once, the traffic when they are ready."""
    folder.mkdir(parents=True, exist_ok=True)
    leak_file = folder / "leak_bytes"
    plugin = lay_plugin(folder / "plugin")
    started: list[Server] = []
    rig = Rig(folder, started, Recorder(folder), leak_file)
    tasks: list[asyncio.Task[None]] = []
    try:
        for plan in plans(first_port):
            leaky = plan.pool == "decode"
            env = run.environment(plan, plugin if leaky else None, leak_file if leaky else None)
            started.append(run.start(plan, cache, folder, env))
        tasks.append(asyncio.create_task(_record(rig)))
        await _ready(rig)
        prefill, decode = (server.url for server in started)
        tasks.append(
            asyncio.create_task(drive(prefill, decode, rig.tally, rig.stop, rate=rate, seed=seed))
        )
        yield rig
    finally:
        rig.stop.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        rig.recorder.close()
        run.stop(started)


async def _record(rig: Rig) -> None:
    due = time.monotonic()
    while not rig.stop.is_set():
        await asyncio.to_thread(rig.recorder.sample, rig.servers)
        due = max(due + SAMPLE_SECONDS, time.monotonic())
        await asyncio.sleep(due - time.monotonic())


async def _ready(rig: Rig) -> None:
    limit = time.monotonic() + run.READY_SECONDS
    waiting = list(rig.servers)
    while waiting:
        if time.monotonic() > limit:
            late = ", ".join(s.plan.pool for s in waiting)
            raise LiveError(f"not ready within {run.READY_SECONDS:.0f} s: {late}: see {rig.folder}")
        waiting = [s for s in waiting if not await asyncio.to_thread(run.is_ready, s)]
        await asyncio.sleep(1.0)
