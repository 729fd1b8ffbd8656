"""What a host of 2,000 processes costs the exporter, beside prometheus-process-exporter.

Three servers of vLLM's process kinds (eight ranks each) run among processes that are none of it,
and the exporters are scraped turn by turn, a second apart, each for the same processes: the peer
with its threads and smaps switched off, which ours does not read at each scrape either, and once
more as it comes. Ours is the whole page of the node. All their CPU time counts, also that between
scrapes.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import psutil

from benchmarks.exporter import ROOT, address_of, get, show
from stack import binaries
from stack.errors import MissingProgramError

PEER: Final = "prometheus-process-exporter"
PROCESSES: Final = 2000
SERVERS: Final = 3
RANKS: Final = 8
SETTLE_SCRAPES: Final = 15
START_SECONDS: Final = 30.0

# vLLM's processes show nothing but their title: `cat`, which waits for its input, does so too.
_SERVE: Final = """\
import os, sys, time
started_by = os.getppid()
titles = ["VLLM::EngineCore_DP%d", "VLLM::Worker_DP%d_TP0"]
end, _ = os.pipe()
for rank in range(int(sys.argv[-1])):
    for title in titles:
        if os.fork() == 0:
            os.dup2(end, 0)
            os.execv("/bin/cat", [title % rank])
while os.getppid() == started_by:
    time.sleep(1)
"""
_CONFIG: Final = """\
process_names:
  - name: "{{.Comm}}"
    cmdline: ["^VLLM::|^vllm serve"]
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; `--json` for programs."""
    parser = argparse.ArgumentParser(prog="benchmarks processes", description=__doc__)
    parser.add_argument("--scrapes", type=int, default=40, help="scrapes measured")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args(argv)
    try:
        binaries.find(PEER)
    except MissingProgramError as error:
        print(error, file=sys.stderr)
        return 2
    show(measure(arguments.scrapes), as_json=arguments.json)
    return 0


def measure(scrapes: int) -> dict[str, float]:
    """Return CPU milliseconds of a scrape by exporter, the ratios, and what they cost in memory."""
    with TemporaryDirectory() as folder, ExitStack() as running:
        enter = running.enter_context
        enter(_host(Path(folder)))
        config = Path(folder) / "names.yaml"
        config.write_text(_CONFIG)
        lean = ("-threads=false", "-gather-smaps=false")
        ran = {
            "ours": enter(_ours()),
            "peer": enter(_peer(config, *lean)),
            "peer as it comes": enter(_peer(config)),
        }
        for _ in range(SETTLE_SCRAPES):
            _round(ran)
        before = {name: _cpu(process) for name, (process, _) in ran.items()}
        for _ in range(scrapes):
            _round(ran)
        cost = {
            name: (_cpu(process) - before[name]) / scrapes * 1000
            for name, (process, _) in ran.items()
        }
        seen = get(ran["ours"][1]).decode().count("\nleadline_process_threads{")
        return {
            "processes on the host": float(len(psutil.pids())),
            "series of vLLM processes (kind and rank)": float(seen),
            **{f"CPU ms a scrape, {name}": value for name, value in cost.items()},
            "ratio ours / peer": cost["ours"] / cost["peer"],
            "ratio ours / peer as it comes": cost["ours"] / cost["peer as it comes"],
            **{f"RSS MiB, {name}": p.memory_info().rss / 2**20 for name, (p, _) in ran.items()},
        }


Ran = dict[str, tuple[psutil.Process, str]]


def _round(ran: Ran) -> None:
    for _, address in ran.values():
        get(address)
    time.sleep(1)


def _cpu(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))


@contextmanager
def _host(folder: Path) -> Iterator[None]:
    """Run servers of vLLM's kinds and, up to the number wanted, processes that are none."""
    (folder / "serve").write_text(_SERVE)
    end, start = os.pipe()
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(SERVERS):
            command = ["vllm", "serve", "m", "--port", str(18000 + number), str(RANKS)]
            started.append(subprocess.Popen(command, executable=sys.executable, cwd=folder))
        missing = PROCESSES - len(psutil.pids())
        missing -= 2 * SERVERS * RANKS
        started += [subprocess.Popen(["/bin/cat"], stdin=end) for _ in range(missing)]
        time.sleep(2)
        yield
    finally:
        for process in started[:SERVERS]:
            for child in psutil.Process(process.pid).children():
                child.kill()
        for process in started:
            process.kill()
            process.wait()
        os.close(end)
        os.close(start)


@contextmanager
def _ours() -> Iterator[tuple[psutil.Process, str]]:
    """Run our exporter as on a node whose servers are scraped directly."""
    command = [sys.executable, "-m", "leadline", "exporter", "--listen", "127.0.0.1:0", "--no-vllm"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield psutil.Process(process.pid), address_of(process)
        finally:
            process.terminate()


@contextmanager
def _peer(config: Path, *options: str) -> Iterator[tuple[psutil.Process, str]]:
    """Run the Debian package's exporter."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    program = binaries.find(PEER)
    listen = f"-web.listen-address=127.0.0.1:{port}"
    command = [str(program), f"-config.path={config}", listen, *options]
    address = f"http://127.0.0.1:{port}/metrics"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait(address)
            yield psutil.Process(process.pid), address
        finally:
            process.terminate()


def _wait(address: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            get(address)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


if __name__ == "__main__":
    sys.exit(main())
