"""What the exporter's tests stand on: recorded trees and pages, and servers that behave badly."""

import gzip
import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from catalog.config import Config
from exporters.scrape import Exporter
from exporters.server import ExporterServer

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
ROOT = FIXTURES.parent.parent
PATIENCE = 60.0
CAPTURES = ("pd_prefill", "pd_decode", "ngram_spec")


def capture(name: str) -> bytes:
    """A page of a real vLLM 0.32 server."""
    return gzip.decompress((FIXTURES / "vllm" / f"vllm_032_{name}.prom.gz").read_bytes())


def data_parallel(page: bytes, size: int) -> bytes:
    """The page of a server with *size* engines, made from one engine's: values differ by rank."""
    lines: list[str] = []
    for line in page.decode().splitlines():
        if 'engine="0"' not in line or line.startswith("#"):
            lines.append(line)
            continue
        series, _, value = line.rpartition(" ")
        for rank in range(size):
            ranked = series.replace('engine="0"', f'engine="{rank}"')
            lines.append(f"{ranked} {float(value) + rank}")
    return ("\n".join(lines) + "\n").encode()


@pytest.fixture(params=CAPTURES)
def page(request: pytest.FixtureRequest) -> bytes:
    """Each recorded page in turn."""
    return capture(request.param)


@pytest.fixture
def decode_page() -> bytes:
    """The recorded page of the decode server."""
    return capture("pd_decode")


@pytest.fixture
def dp8_page(decode_page: bytes) -> bytes:
    """The page of a decode server with eight engines."""
    return data_parallel(decode_page, 8)


def plant(root: Path, files: dict[str, str]) -> Path:
    """Write files, by path below *root*."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return root


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A folder with `proc` and `cgroup` as recorded beside a real vLLM pair (cgroup version 1)."""
    files = json.loads((FIXTURES / "proc" / "vllm_032_pair.json").read_text())
    return plant(tmp_path / "recorded", files)


@pytest.fixture
def grow() -> Callable[[Path, dict[str, str]], Path]:
    """Plants files, by path below a root."""
    return plant


class _Behaviour(BaseHTTPRequestHandler):
    """Answers as its path says, well or badly."""

    server: "FakeServers"

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        name = self.path.strip("/")
        if name in self.server.pages:
            self._send(self.server.pages[name])
        else:
            getattr(self, f"_{name}", self._missing)()

    def do_POST(self) -> None:
        self.server.asked.append(self.path)
        self.rfile.read(int(self.headers["Content-Length"]))
        getattr(self, f"_{self.path.split('/')[1]}")()

    def _send(self, body: bytes, *headers: tuple[str, str], status: int = 200) -> None:
        self.send_response(status)
        for header in headers or (("Content-Length", str(len(body))),):
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(body)

    def _missing(self) -> None:
        self._send(b"", status=404)

    def _slow(self) -> None:
        self.server.release.wait(30)

    def _drip(self) -> None:
        self._send(b"", ("Content-Length", "100000"))
        while not self.server.release.wait(0.05):
            self.wfile.write(b"a")

    def _dripping_headers(self) -> None:
        self.wfile.write(b"HTTP/1.0 200 OK\r\nX: ")
        while not self.server.release.wait(0.05):
            self.wfile.write(b"a")

    def _huge(self) -> None:
        self._send(b"", ("Content-Type", "text/plain"))
        for _ in range(70):
            self.wfile.write(b"a 1\n" * (1 << 18))

    def _bomb(self) -> None:
        body = gzip.compress(b"a 1\n" * (18 << 20), 1)
        self._send(body, ("Content-Encoding", "gzip"), ("Content-Length", str(len(body))))

    def _stalling(self) -> None:
        self._send(b"a 1\n" * (1 << 20), ("Content-Length", str(1 << 23)))
        self.server.release.wait(30)

    def _endless(self) -> None:
        self._chunks(b"10000\r\n" + b"a 1\n" * (1 << 14) + b"\r\n")

    def _extended(self) -> None:
        self._chunks(b"1;" + b"x" * 60000 + b"\r\n\n\r\n")

    def _pouring(self) -> None:
        events = b"data: " + b"x" * (1 << 16)
        self._chunks(b"%x\r\n%s\r\n" % (len(events), events), kind="text/event-stream")

    def _chunks(self, chunk: bytes, kind: str = "text/plain") -> None:
        self._send(b"", ("Transfer-Encoding", "chunked"), ("Content-Type", kind))
        while not self.server.release.is_set():
            self.wfile.write(chunk)

    def _continuing(self) -> None:
        while not self.server.release.is_set():
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 2000)

    def _cut(self) -> None:
        self._send(b"whole 1\nhalf 12", ("Content-Length", "1000"))

    def _colourful(self) -> None:
        self.wfile.write(b"HTTP/1.0 503 \x1b[31mall\x9b is\x07 well\r\n\r\n")

    def _redirect(self) -> None:
        self._send(b"", ("Location", "/good"), status=302)

    def _failing(self) -> None:
        self._send(b"whole 1\n", status=500)

    def _html(self) -> None:
        self._send(b"<!doctype html>\n<p>This is no exposition.</p>\n")

    def log_message(self, *_: Any) -> None:
        """Stay quiet."""


class FakeServers(ThreadingHTTPServer):
    """Servers by path: the pages given, and ways to misbehave."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Behaviour)
        self.pages: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.release = threading.Event()

    def url(self, name: str) -> str:
        """Return the address of one of them."""
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients are meant to hang up."""


class Running:
    """`leadline exporter` as a process of its own."""

    def __init__(self, folder: Path, config: Mapping[str, Any], **how: Any) -> None:
        self._said = folder / "said"
        path = folder / "leadline.yaml"
        path.write_text(json.dumps(config))
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "leadline", "exporter", "--config", str(path)],
                **{"stderr": said, "cwd": ROOT, **how},
            )

    @property
    def said(self) -> str:
        """What it logged."""
        return self._said.read_text("utf-8", "replace")

    def wait(self) -> str:
        """Return the address of its page, once it serves it."""
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(r"serving (http\S+)\n", self.said)):
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)
        return found[1]

    def memory(self, what: str = "VmRSS") -> int:
        """Return bytes of memory that it holds; `VmHWM`: most that it ever held."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition(f"{what}:")[2].split()[0]) << 10

    def stop(self) -> int:
        """Ask it to end, and return its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts exporters, each a process of its own with a configuration of its own."""
    started: list[Running] = []

    def start(how: Mapping[str, Any] | None = None, **exporter: Any) -> Running:
        folder = tmp_path / f"exporter{len(started)}"
        folder.mkdir()
        told = {"listen": "127.0.0.1:0", "node": "node7", "discover": False, **exporter}
        one = Running(folder, {"cluster": "c1", "exporter": told}, **(how or {}))
        started.append(one)
        return one

    yield start
    for one in started:
        one.stop()


@contextmanager
def _serving(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def fakes() -> Iterator[FakeServers]:
    """Servers of pages, well and badly behaved."""
    server = FakeServers()
    with _serving(server):
        yield server
        server.release.set()


@pytest.fixture
def config() -> Callable[..., Config]:
    """Makes a configuration of an exporter that discovers nothing and hurries."""

    def make(**exporter: Any) -> Config:
        defaults = {
            "listen": "127.0.0.1:0", "node": "node7", "discover": False, "deadline": 5.0,
            "target_timeout": 4.0,
        }  # fmt: skip
        return Config.model_validate({"cluster": "c1", "exporter": {**defaults, **exporter}})

    return make


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Serves an exporter on loopback, with more of its server, and returns its page's address."""
    stops: list[Any] = []

    def start(exporter: Exporter, **more: Any) -> str:
        server = ExporterServer("127.0.0.1", 0, exporter, **more)
        context = _serving(server)
        context.__enter__()
        stops.append((context, exporter))
        return server.url

    yield start
    for context, exporter in stops:
        context.__exit__(None, None, None)
        exporter.close()


@pytest.fixture
def get() -> Callable[..., bytes]:
    """Reads a page over HTTP."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def read(url: str, **headers: str) -> bytes:
        request = urllib.request.Request(  # noqa: S310 - addresses of this test's own servers
            url, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )
        with opener.open(request, timeout=60) as answer:
            body: bytes = answer.read()
            return gzip.decompress(body) if answer.headers["Content-Encoding"] == "gzip" else body

    return read
