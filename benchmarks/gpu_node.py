"""What one scrape costs on a node with real GPUs: memory and CPU time of the exporter's process.

As `benchmarks exporter`, with the driver's own memory and time in it: NVML is the real one, the
pages of eight engines are replayed, and where the machine has fewer GPUs than asked for the rest
answer from a record. Once a minute the exporter asks for what costs the GPU's firmware milliseconds
(energy, ECC, links); that is measured apart and spread over the scrapes of a minute, one every 15
seconds.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import psutil

from benchmarks.exporter import (
    AS_PROMETHEUS,
    GPUS,
    cpu_milliseconds,
    get,
    node_page,
    page_server,
    parse_and_write,
    running,
    samples,
    show,
)
from benchmarks.gpu_mixed import count
from exporters.gpu.device import SELDOM_SECONDS

BAR_MEMORY: Final = 80.0
BAR_RATIO: Final = 0.2
BETWEEN_SECONDS: Final = 0.15
_A_MINUTE: Final = 4
_PEER_TIMES: Final = 10

_BINDING: Final = """\
import json
from benchmarks.gpu_mixed import Mixed, beyond

mixed = Mixed(beyond({folder!r}), json.load(open({record!r}))["decode"], {gpus})
__getattr__ = lambda name: getattr(mixed, name)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 where a bar is missed or a GPU can't be read."""
    parser = argparse.ArgumentParser(prog="benchmarks gpu-node", description=__doc__)
    parser.add_argument("--scrapes", type=int, default=60, help="scrapes between dear ones")
    parser.add_argument("--minutes", type=int, default=2, help="dear scrapes, one a minute")
    parser.add_argument("--gpus", type=int, default=8,
                        help="replay GPUs until there are so many; 0: real ones alone")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args(argv)
    if arguments.scrapes < 1 or arguments.minutes < 0 or arguments.gpus < 0:
        parser.error("--scrapes must be 1 or more, --minutes and --gpus 0 or more")
    figures = measure(arguments.scrapes, arguments.minutes, arguments.gpus)
    show(figures, as_json=arguments.json)
    return verdict(figures, as_json=arguments.json)


def verdict(figures: dict[str, float], *, as_json: bool) -> int:
    """Say which bars hold, and return the exit status."""
    whole = figures["GPUs, real"] + figures["GPUs, replayed"]
    checks = {
        f"RSS at most {BAR_MEMORY:g} MiB": figures["RSS MiB, most"] <= BAR_MEMORY,
        f"ratio at most {BAR_RATIO:g}": figures["ratio to parse and re-emit"] <= BAR_RATIO,
        "every GPU is on the page": figures["GPUs on the page"] == whole,
        "no collector failed": figures["collectors that failed"] == 0,
    }
    for name, holds in checks.items():
        print(f"{'ok' if holds else 'MISSED':7} {name}", file=sys.stderr if as_json else sys.stdout)
    return 0 if all(checks.values()) else 1


def measure(scrapes: int, minutes: int, gpus: int) -> dict[str, float]:
    """Return all figures; CPU in milliseconds a scrape, memory in MiB.

    Args:
        scrapes: Scrapes measured in between.
        minutes: Dear scrapes measured, one a minute.
        gpus: How many GPUs there shall be; real ones count, and are never left out.
    """
    real = _real()
    page = node_page()
    text = page.decode()
    with page_server(page) as url, _exporter(url, gpus if gpus > real else 0) as (process, address):
        first = get(address)
        begun = time.monotonic()
        for _ in range(4):
            get(address)
        settled = process.memory_info().rss
        plain, opened = _Cost(process, address, {}), _Cost(process, address, AS_PROMETHEUS)
        while plain.scrapes < scrapes and time.monotonic() < begun + SELDOM_SECONDS - 5:
            plain.scrape()
            opened.scrape()
        peer = cpu_milliseconds(lambda: parse_and_write(text), _PEER_TIMES)
        dear = _Cost(process, address, {})
        for minute in range(minutes):
            # Each GPU is due a minute after it was read last, the last of them later.
            due = begun + (minute + 1) * (SELDOM_SECONDS + 3)
            time.sleep(max(0.0, due - time.monotonic()))
            dear.scrape()
        last = get(address)
        shares = _shares(process)
    extra = max(0.0, dear.milliseconds - plain.milliseconds) if minutes else 0.0
    spread = plain.milliseconds + extra / _A_MINUTE
    return {
        "GPUs, real": float(real),
        "GPUs, replayed": float(max(0, gpus - real)),
        "GPUs on the page": float(_lines(last, "leadline_gpu_info")),
        "collectors that failed": float(_failed(first) + _failed(last)),
        "samples of the engines": float(samples(text)),
        "page out, KiB": len(last) / 1024,
        "scrapes, in each format": float(plain.scrapes),
        "RSS MiB, after 5 scrapes": settled / 2**20,
        "RSS MiB, most": max(settled, plain.memory, opened.memory, dear.memory) / 2**20,
        **shares,
        "ms that a scrape took": plain.took / plain.scrapes * 1000,
        "CPU ms a scrape": plain.milliseconds,
        "CPU ms a scrape, OpenMetrics and gzip": opened.milliseconds,
        "ms that the scrape once a minute took": dear.took / minutes * 1000 if minutes else 0.0,
        "CPU ms more, once a minute": extra,
        "CPU ms a scrape, one every 15 s": spread,
        "CPU ms, prometheus_client parse and write": peer,
        "ratio to parse and re-emit": spread / peer,
        "ratio without what is asked once a minute": plain.milliseconds / peer,
        "ratio of that, OpenMetrics and gzip": opened.milliseconds / peer,
    }


def _real() -> int:
    import pynvml  # noqa: PLC0415 - a run of its own, closed again

    found = count(pynvml)
    if found:
        pynvml.nvmlShutdown()
    return found


@contextmanager
def _exporter(url: str, gpus: int) -> Iterator[tuple[psutil.Process, str]]:
    """Run the exporter, with replayed GPUs until there are so many."""
    with TemporaryDirectory() as folder:
        if gpus:
            text = _BINDING.format(folder=folder, record=str(GPUS), gpus=gpus)
            (Path(folder) / "pynvml.py").write_text(text)
        with running(folder, [url]) as ran:
            yield ran


@dataclass
class _Cost:
    """What scrapes in one format cost the exporter: seconds of CPU and of the clock, bytes."""

    process: psutil.Process
    address: str
    headers: Mapping[str, str]
    scrapes: int = 0
    cpu: float = 0.0
    took: float = 0.0
    memory: float = 0.0

    @property
    def milliseconds(self) -> float:
        """CPU of one scrape."""
        return self.cpu / self.scrapes * 1000

    def scrape(self) -> None:
        """Scrape once more, and let some time pass: GPM takes means between two scrapes."""
        before, begun = sum(self.process.cpu_times()[:2]), time.monotonic()
        get(self.address, self.headers)
        self.took += time.monotonic() - begun
        self.cpu += sum(self.process.cpu_times()[:2]) - before
        self.memory = max(self.memory, float(self.process.memory_info().rss))
        self.scrapes += 1
        time.sleep(BETWEEN_SECONDS)


def _shares(process: psutil.Process) -> dict[str, float]:
    """Return what the resident memory is of: its own, and files such as the driver's library."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    found = dict(re.findall(r"^(RssAnon|RssFile):\s+(\d+) kB$", status, re.MULTILINE))
    names = {"RssAnon": "RSS MiB of that, anonymous", "RssFile": "RSS MiB of that, files"}
    return {ours: float(found[name]) / 1024 for name, ours in names.items() if name in found}


def _lines(page: bytes, name: str) -> int:
    return len(re.findall(rf"^{name}\{{".encode(), page, re.MULTILINE))


def _failed(page: bytes) -> int:
    found = re.findall(rb"^leadline_collector_success\{[^\n]*\} 0(?:\.0)?$", page, re.MULTILINE)
    for line in found:
        print(line.decode(), file=sys.stderr)
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
