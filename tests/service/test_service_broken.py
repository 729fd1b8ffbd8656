"""What the service says when judging, Prometheus, an Alertmanager or the ledger is broken."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from catalog.config import load
from catalog.panel import Panel
from catalog.signal import Signal
from detectors.drift.judge import judge
from detectors.finding import Finding
from detectors.service import api
from detectors.service.alertmanager import Alertmanagers
from detectors.service.cycle import Cycle
from detectors.service.ledger import Ledger
from detectors.service.view import View
from store.errors import BadAnswerError
from store.prometheus import Sample

NOW = 1_795_000_000.0
STEP = 60.0
PLACE = {"deployment": "chat", "pool": "decode", "server": "n1:8000", "node": "n1"}
LEAKS = {**PLACE, "process": "engine_core", "rank": "DP0"}


class Service:
    """A service whose parts break on demand; cycles are run by hand."""

    def __init__(self, folder: Path) -> None:
        self.now = NOW
        self.breaks: Exception | None = None
        self.rubbish = ""
        config = load(None, {}, {"service": {"history": "5h", "state": str(folder)}})
        self.cycle = Cycle(config, self, Ledger(folder), self._judge, lambda: self.now)
        peers = Alertmanagers(("http://am:9093",), 1.0)
        self.view = View.of(config, lambda: self.cycle.snapshot, peers, lambda: self.now)
        self.app = api.create(self.view)

    def _judge(self, panels: Mapping[str, Panel], config: Any) -> list[Finding]:
        if self.breaks is not None:
            for panel in panels.values():
                if panel.signal == "host_anon_swap":
                    raise self.breaks
        return judge(panels, config)

    def panel(
        self, signal: Signal, start: float, end: float, step: float, selector: str = ""
    ) -> Panel:
        """Return a leak of 1.3 GiB an hour."""
        if self.rubbish:
            raise BadAnswerError(self.rubbish)
        times = np.arange(np.ceil(start / step), np.floor(end / step) + 1) * step
        if signal.name != "host_anon_swap":
            return Panel(signal.name, times, np.empty((0, len(times))), ())
        noise = np.random.default_rng(3).normal(0, 3e6, len(times))
        values = (8 + 1.3 * (times - NOW) / 3600) * 2.0**30 + noise
        return Panel(signal.name, times, values[None], (LEAKS,))

    def instant(self, query: str, at: float) -> list[Sample]:
        """Nobody is scraped twice."""
        return []

    def run(self, after: float = STEP) -> None:
        """Run a cycle, *after* the last one."""
        self.now += after
        self.cycle.run_once()

    def get(self, path: str, method: str = "GET") -> httpx.Response:
        """Return what a path answers."""

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path)

        return asyncio.run(ask())

    def status(self) -> Any:
        """Return the service's status."""
        return self.get("/api/v1/status").json()

    def judged_at(self) -> str:
        """Return the metric that an alert on a dead detector rests on."""
        name = "leadline_detector_last_cycle_timestamp_seconds "
        return next(x for x in self.get("/metrics").text.splitlines() if x.startswith(name))


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """A service that has found a leak."""
    made = Service(tmp_path)
    made.run()
    assert [f["state"] for f in made.get("/api/v1/findings").json()] == ["firing"]
    return made


def test_a_judge_that_raises_is_told_until_it_succeeds(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """Old findings stay, nothing claims to be well, a cycle without points changes nothing."""
    found, judged_at = service.get("/api/v1/findings").json(), service.judged_at()
    service.breaks = OverflowError("too\x1b[2J large")
    for after in (STEP, STEP, 1.0):  # the last brings no new point
        service.run(after)
        assert service.get("/api/v1/findings").json() == found
        assert service.judged_at() == judged_at
        assert service.get("/readyz").status_code == 503
        assert "OverflowError" in service.status()["judging"]
        assert "Judging fails" in service.get("/").text
    [line] = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert "host_anon_swap: OverflowError: too\\x1b[2J large" in line
    assert line.isprintable()
    service.breaks = None
    service.run(1.0)
    assert service.get("/readyz").status_code == 503  # nothing has been judged since
    service.run()
    assert service.get("/readyz").status_code == 200
    assert service.status()["judging"] == ""
    assert service.judged_at() != judged_at
    assert "Judging fails" not in service.get("/").text


def test_rubbish_stays_told_until_a_query_succeeds(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """Cycles shorter than a step neither clear what a query failed with nor log it again."""
    service.rubbish = "http://prom: answer is not the query API's"
    for after in (STEP, 1.0, 1.0, STEP):
        service.run(after)
        peer = service.status()["prometheus"]
        assert (peer["ok"], peer["error"]) == (False, service.rubbish)
        assert any("can't be read" in line for line in service.status()["warnings"])
    told = [r for r in caplog.records if "signal host_anon_swap" in r.getMessage()]
    assert len(told) == 1
    service.rubbish = ""
    service.run()
    assert service.status()["prometheus"]["ok"]
    assert not any("can't be read" in line for line in service.status()["warnings"])


@pytest.mark.parametrize("row", ["{}", "{bad", "[]", '{"finding": {}}'])
def test_a_broken_row_of_the_ledger_is_left_out(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture, row: str
) -> None:
    """The rest is read; one line for each broken row names the file."""
    ledger = service.cycle._ledger
    with ledger._db as db:
        db.execute("INSERT INTO findings VALUES ('x', 'firing', 1, ?)", (row,))
        db.execute("INSERT INTO incidents VALUES ('y', 'firing', 1, ?)", (row,))
    assert list(ledger.findings()) == list(service.cycle.snapshot.tracked)
    assert len(ledger.incidents()) == 1
    lines = [r.getMessage() for r in caplog.records]
    assert len(lines) == 2
    assert all(str(tmp_path / "ledger.sqlite3") in x and "left out" in x for x in lines)


class Refuses(BaseHTTPRequestHandler):
    """An Alertmanager that answers 400 with what a terminal would obey."""

    def do_POST(self) -> None:
        """Refuse."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(400)
        self.end_headers()
        self.wfile.write(b"bad\n\x1b[2J alert")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def refusing() -> Iterator[str]:
    """The address of an Alertmanager that refuses."""
    with HTTPServer(("127.0.0.1", 0), Refuses) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}"
        httpd.shutdown()
        thread.join(5)


def test_what_a_peer_says_is_escaped(refusing: str, caplog: pytest.LogCaptureFixture) -> None:
    """A log line holds no control characters of others."""
    peers = Alertmanagers((refusing,), 5.0)
    assert not peers.post([{"labels": {}}])
    [line] = [r.getMessage() for r in caplog.records if r.name == "leadline.service"]
    assert line.isprintable()
    assert r"400 bad \x1b[2J alert" in peers.errors[refusing]
    peers.close()


def test_head_answers_as_get_does(service: Service) -> None:
    """Probes that ask for the head only are no error."""
    for path in ("/", "/healthz", "/readyz", "/api/v1/status"):
        assert service.get(path, "HEAD").status_code == 200
    assert service.get("/nothing", "HEAD").status_code == 404
