"""What one scrape of a node costs: CPU time and memory of the exporter's process.

The node has eight engines of one data-parallel server, some 450 samples each, on a recorded page of
a real vLLM, and eight GPUs that answer as a recorded H200 did (the driver's own time is not in it);
a hundred engines are thirteen such servers. The measure of comparison is the same text of the
engines read and written again by prometheus_client's own parser and writer, in the same run. CPU
time only: wall time on a shared machine says nothing.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import psutil
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from catalog.pages import merge
from catalog.splice import Splicer
from exporters.targets.discovery import Discovery

ROOT: Final = Path(__file__).resolve().parent.parent
GPUS: Final = ROOT / "tests" / "fixtures" / "gpu" / "readings.json"
CAPTURE: Final = ROOT / "tests" / "fixtures" / "vllm" / "vllm_032_pd_decode.prom.gz"
ENGINES: Final = 8
PROCESSES: Final = 2000
SERVERS: Final = 13
START_SECONDS: Final = 60.0
NOTHING: Final[Mapping[str, str]] = {}
AS_PROMETHEUS: Final = {
    "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
    "Accept-Encoding": "gzip",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; `--json` for programs."""
    parser = argparse.ArgumentParser(prog="benchmarks exporter", description=__doc__)
    parser.add_argument("--scrapes", type=int, default=100, help="scrapes measured")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args(argv)
    show(measure(arguments.scrapes), as_json=arguments.json)
    return 0


def show(figures: Mapping[str, float], *, as_json: bool) -> None:
    """Print figures: for a person a line each, or as JSON."""
    if as_json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:48} {value:10.3f}")


def measure(scrapes: int) -> dict[str, float]:
    """Return all figures; CPU in milliseconds a scrape, memory in MiB."""
    page = node_page()
    text = page.decode()
    with page_server(page) as url:
        with _exporter(url) as (process, address):
            for _ in range(5):
                get(address)
            memory = process.memory_info().rss
            exporter, opened, peer = _interleaved(process, address, text, scrapes)
            size = len(get(address))
            memory = max(memory, process.memory_info().rss)
        many, took, most = _many(url)
    splicer = Splicer({"server": "node:8000", "pool": "decode"})
    splicer.splice(page)
    return {
        "samples on the node's page": float(samples(text)),
        "page out, KiB": size / 1024,
        "CPU ms a scrape, exporter": exporter,
        "CPU ms, prometheus_client parse and write": peer,
        "ratio exporter / prometheus_client": exporter / peer,
        "CPU ms a scrape, OpenMetrics and gzip": opened,
        "ratio of that": opened / peer,
        "CPU ms of it, splicing alone": cpu_milliseconds(lambda: merge([splicer.splice(page)]), 50),
        "RSS MiB, exporter": memory / 2**20,
        "CPU ms a scrape of 104 engines": many,
        "ms that it took": took,
        "RSS MiB, exporter of 104 engines": most / 2**20,
        "CPU ms, looking through 2,000 processes": _discovery(),
    }


def node_page() -> bytes:
    """Return the recorded page with each engine's series eight times, once per rank."""
    lines: list[str] = []
    for line in gzip.decompress(CAPTURE.read_bytes()).decode().splitlines():
        ranks = range(ENGINES) if 'engine="0"' in line and line[0] != "#" else (0,)
        lines += [line.replace('engine="0"', f'engine="{rank}"') for rank in ranks]
    return ("\n".join(lines) + "\n").encode()


def samples(text: str) -> int:
    """Return how many samples a page has."""
    return sum(1 for line in text.splitlines() if line and line[0] != "#")


def _interleaved(
    process: psutil.Process, address: str, text: str, scrapes: int
) -> tuple[float, float, float]:
    """Return CPU milliseconds of a scrape in each format and of the peer, turn by turn."""
    exporter = opened = peer = 0.0
    peers = 0
    for scrape in range(scrapes):
        exporter += _scraped(process, address)
        opened += _scraped(process, address, AS_PROMETHEUS)
        if scrape % 10 == 0:
            peer += cpu_milliseconds(lambda: parse_and_write(text), 1)
            peers += 1
    return exporter / scrapes * 1000, opened / scrapes * 1000, peer / peers


def _scraped(process: psutil.Process, address: str, headers: Mapping[str, str] = NOTHING) -> float:
    """Return the CPU seconds that one scrape cost the exporter."""
    before = sum(process.cpu_times()[:2])
    get(address, headers)
    return float(sum(process.cpu_times()[:2]) - before)


def _many(url: str, scrapes: int = 5) -> tuple[float, float, float]:
    """Return CPU and wall milliseconds and memory of a scrape of many servers, as Prometheus."""
    with _exporter(*[f"{url}?{n},server=s{n}" for n in range(SERVERS)]) as (process, address):
        for _ in range(2):
            get(address, AS_PROMETHEUS)
        begun = time.monotonic()
        cpu = sum(_scraped(process, address, AS_PROMETHEUS) for _ in range(scrapes))
        took = time.monotonic() - begun
        return cpu / scrapes * 1000, took / scrapes * 1000, float(process.memory_info().rss)


def cpu_milliseconds(work: Callable[[], object], times: int) -> float:
    """Return the CPU time of one call of *work*, the mean of so many."""
    begun = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - begun) / times * 1000


class _Parsed(Collector):
    def __init__(self, text: str) -> None:
        self._families = list(text_string_to_metric_families(text))

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def parse_and_write(text: str) -> bytes:
    """Return a page as prometheus_client parses and writes it: the measure of comparison."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Parsed(text))
    return generate_latest(registry)


@contextmanager
def page_server(page: bytes) -> Iterator[str]:
    """Serve the page as vLLM would."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: Any) -> None:
            """Stay quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        server.server_close()


# Stands in for NVML's binding in the exporter's process.
_BINDING: Final = """\
import json
from benchmarks.gpu_record import Replayer

class NVMLError(Exception): pass
class NVMLError_NotSupported(NVMLError): pass
class NVMLError_Timeout(NVMLError): pass

class Node(Replayer):
    def nvmlDeviceGetCount(self): return {gpus}
    def nvmlDeviceGetHandleByIndex(self, index): return object()
    def nvmlDeviceGetUUID(self, handle): return f"GPU-{{id(handle)}}"

errors = {{c.__name__: c for c in (NVMLError, NVMLError_NotSupported, NVMLError_Timeout)}}
node = Node(json.load(open({record!r}))["decode"], errors)
__getattr__ = lambda name: getattr(node, name)
"""


@contextmanager
def _exporter(*urls: str) -> Iterator[tuple[psutil.Process, str]]:
    """Run `leadline exporter` on targets; other servers of this machine are left out."""
    with TemporaryDirectory() as folder:
        text = _BINDING.format(gpus=ENGINES, record=str(GPUS))
        (Path(folder) / "pynvml.py").write_text(text)
        with running(folder, urls) as ran:
            yield ran


@contextmanager
def running(folder: str, urls: Sequence[str]) -> Iterator[tuple[psutil.Process, str]]:
    """Run `leadline exporter` with the modules in a folder before all others, on targets alone."""
    environment = {
        **os.environ,
        "LEADLINE_EXPORTER__DISCOVER": "false",
        "PYTHONPATH": os.pathsep.join([folder, str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "leadline", "exporter", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, *(f"--target={url},pool=decode,deployment=bench" for url in urls)],
        cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield psutil.Process(process.pid), address_of(process)
        finally:
            process.terminate()


def address_of(process: subprocess.Popen[str]) -> str:
    """Return where the exporter says that it serves."""
    deadline = time.monotonic() + START_SECONDS
    assert process.stderr is not None
    for line in process.stderr:
        if "serving http" in line:
            return "http" + line.partition("serving http")[2].strip()
        if time.monotonic() > deadline:
            break
    raise SystemExit("the exporter did not start")


def get(address: str, headers: Mapping[str, str] = NOTHING) -> bytes:
    """Return the page at an address."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(address, headers=dict(headers))  # noqa: S310 - our own
    with opener.open(request, timeout=30) as answer:
        body: bytes = answer.read(1 << 26)
    return body


def _discovery() -> float:
    """Return the CPU cost of looking for servers among two thousand processes, once known."""
    with TemporaryDirectory() as folder:
        for pid in range(2, PROCESSES + 2):
            (Path(folder) / str(pid)).mkdir()
            (Path(folder) / str(pid) / "cmdline").write_bytes(b"sleep\0infinity\0")
        now = [0.0]
        discovery = Discovery(Path(folder), lambda: now[0])

        def look() -> None:
            now[0] += 15
            discovery.find()

        for _ in range(20):
            look()
        return cpu_milliseconds(look, 40)


if __name__ == "__main__":
    sys.exit(main())
