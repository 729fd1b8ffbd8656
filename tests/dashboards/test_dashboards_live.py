"""Every query of panels and runbooks on real Prometheus servers.

One scrapes the simulated cluster, one is given what the exporter said in a run of real vLLM.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from alerts import generate as rules
from benchmarks.live.scrapes import read_scrapes
from catalog.config import Config
from catalog.signals import METRICS, SIGNALS
from catalog.signals_beside import CACHE, ROUTER
from catalog.signals_probe import LOGS, PROBE
from dashboards import generate
from dashboards.adapter import to_grafana
from exporters.scrape import Exporter
from simulator import server as simulator
from stack.configs import Job

if TYPE_CHECKING:
    from conftest import Server, StartPrometheus

RUNBOOKS = sorted((Path(__file__).parents[2] / "runbooks").glob("*.md"))
BOARDS = {uid: to_grafana(board) for uid, board in generate.BOARDS.items()}

# The service's own page, as it is while one leak is found.
FOUND = (
    'deployment="chat",pool="decode",server="d0:8000",process="engine_core",rank="DP0",kind="leak",'
    'detector="leak",signal="host_anon_swap",severity="ticket",state="firing"'
)
SERVICE = f"""\
leadline_finding_time_to_breach_seconds{{{FOUND}}} 90000
leadline_finding_effect{{{FOUND}}} 5e8
leadline_finding_state{{{FOUND}}} 1
leadline_detector_cycle_seconds 0.8
leadline_detector_series{{signal="host_anon_swap",state="judged"}} 40
leadline_detector_series{{signal="tpot_mean",state="unknown"}} 1
leadline_detector_judged_since_timestamp_seconds{{signal="host_anon_swap"}} 1
leadline_detector_query_failures_total{{signal="tpot_mean"}} 0
leadline_alertmanager_send_failures_total 0
leadline_detector_last_cycle_timestamp_seconds """

GPUS = Path(__file__).parents[1] / "fixtures" / "gpu" / "decode.prom"
"""What the exporter said of a real H200 that decoded."""

TREE = json.loads((Path(__file__).parents[1] / "fixtures" / "sys" / "node.json").read_text())
PCIE = {
    f"sys/bus/pci/devices/0000:18:00.0/{name}": text
    for name, text in {
        "class": "0x020700", "vendor": "0x15b3", "current_link_speed": "32.0 GT/s PCIe",
        "current_link_width": "16", "max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16",
    }.items()
}  # fmt: skip


def _node(root: Path) -> str:
    """Return what the exporter says of a node that was built by hand."""
    for name, text in {**TREE, **PCIE}.items():
        if name != "about":
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
    exporter = {"node": "n1", "vllm": False}
    made = Exporter(Config.model_validate({"exporter": exporter}), proc=root / "proc",
                    cgroup=root / "cgroup", sys=root / "sys")  # fmt: skip
    page = made.page().decode()
    made.close()
    return page


NO_DATA = tuple(
    SIGNALS[name].record
    for name in (
        "external_hit_ratio", "restore_bytes_rate", "gpu_xid_rate",
        *(s.name for s in (*ROUTER, *CACHE, *PROBE, *LOGS)),
    )
)  # fmt: skip
"""The simulated cluster has no offloading, no KV tiers, no router's metrics, logs or probe,
and its GPUs no Xid events."""


RECORD = Path(__file__).parents[1] / "fixtures" / "live" / "scrapes.xz"
"""A real pair of vLLM servers with NIXL, under traffic."""

ABSENT_LIVE = {"external_hit_ratio", "restore_bytes_rate"}
"""Signals of vLLM whose panels stay empty on the recorded run: no offloading, no KV tiers."""


class _Page(BaseHTTPRequestHandler):
    """Answers every request with the text that the server's `page` gives."""

    def do_GET(self) -> None:
        body = self.server.page().encode()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _served(page: Any) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    server.page = page  # type: ignore[attr-defined]
    return server


@contextmanager
def _watched(
    start: StartPrometheus, folder: Path, pages: Sequence[ThreadingHTTPServer], last: str
) -> Iterator[Server]:
    """Yield a Prometheus with all rules over *pages* once the query *last* has an answer."""
    written = [path for path in rules.write(Config(), folder) if path.parent.name == "rules"]
    for path in written:
        # Twice a minute is for fleets; a test can't wait that long.
        path.write_text(re.sub(r"interval: \w+", "interval: 2s", path.read_text()))
    jobs = []
    for n, page in enumerate(pages):
        threading.Thread(target=page.serve_forever, args=(0.1,), daemon=True).start()
        name = "leadline-service" if n else "leadline"
        jobs.append(Job(name, [f"127.0.0.1:{page.server_address[1]}"]))
    server = start(jobs=jobs, rules=written, interval="2s")
    deadline = time.monotonic() + 60
    while not server.query(last) and time.monotonic() < deadline:
        time.sleep(0.5)
    time.sleep(3)
    try:
        yield server
    finally:
        for page in pages:
            page.shutdown()
            page.server_close()


@pytest.fixture(scope="module")
def fleet(
    module_prometheus: StartPrometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A Prometheus over the simulated cluster in which nothing is wrong."""
    node = _node(tmp_path_factory.mktemp("node"))
    service = _served(lambda: f"{SERVICE}{time.time()}\n{GPUS.read_text()}{node}")
    pages = (simulator.serve("127.0.0.1:0", "none", 1), service)
    # The last in the chain of rules: a target of a mean of two scrapes.
    last = "pool:leadline_tpot_mean:target"
    with _watched(module_prometheus, tmp_path_factory.mktemp("rules"), pages, last) as server:
        yield server


@pytest.fixture(scope="module")
def recorded(
    module_prometheus: StartPrometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A Prometheus that is given the scrapes of a real run, one after another, only faster."""
    # From where both servers serve; the last stays.
    scrapes = [page for _, page in read_scrapes(RECORD)][40:]
    turn = iter(scrapes)
    pages = [_served(lambda: next(turn, scrapes[-1]))]
    folder = tmp_path_factory.mktemp("recorded")
    last = "pool:leadline_tpot_mean:target and pool:leadline_transfer_time_mean:mean5m"
    with _watched(module_prometheus, folder, pages, last) as server:
        yield server


def _expand(text: str) -> str:
    """Put in what Grafana puts in for `All`."""
    return re.sub(r"\$\{?(cluster|deployment|pool|model_name)\}?", ".*", text)


def _queries() -> Iterator[Any]:
    for uid, board in BOARDS.items():
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                name = f"{uid}-{panel['title']}-{target['refId']}"
                yield pytest.param(_expand(target["expr"]), id=name)


@pytest.mark.parametrize("expr", list(_queries()))
def test_every_query_of_every_panel_has_data(fleet: Server, expr: str) -> None:
    """A healthy cluster fills every panel, but for what it doesn't have."""
    found = fleet.query(expr)
    assert found or expr.startswith(NO_DATA)


def test_every_query_answers_on_real_vllm(recorded: Server) -> None:
    """Real vLLM fills the panels of every signal that its setup has."""
    told = {
        s.record: name
        for name, s in SIGNALS.items()
        if any(m.name.startswith(("vllm:", "leadline_process_anon")) for m in s.metrics)
    }
    empty, full = set(), set()
    for query in (q.values[0] for q in _queries()):
        names = {name for record, name in told.items() if record in query}
        (full if recorded.query(query) else empty).update(names)
    assert empty == ABSENT_LIVE
    assert len(full) > 40


def test_variables_list_the_cluster(fleet: Server) -> None:
    """Each variable finds the values of its label."""
    for board in BOARDS.values():
        for variable in board["templating"]["list"]:
            if variable["type"] != "query":
                continue
            inner = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
            assert inner
            found = {s["metric"].get(inner[2]) for s in fleet.query(_expand(inner[1]))}
            assert found, variable["name"]
    pools = {s["metric"]["pool"] for s in fleet.query(SIGNALS["request_rate"].record)}
    assert pools >= {"prefill", "decode"}


def test_a_healthy_cluster_raises_no_rule_alert(fleet: Server) -> None:
    """Neither firing nor pending: only the detector's sign of life."""
    alerts = fleet.get("/api/v1/alerts")["data"]["alerts"]
    assert {alert["labels"]["alertname"] for alert in alerts} == {"LeadlineDetectorAlive"}
    groups = fleet.get("/api/v1/rules")["data"]["groups"]
    broken = {
        r["name"]: r.get("lastError") for g in groups for r in g["rules"] if r["health"] != "ok"
    }
    assert not broken


def _commands() -> Iterator[Any]:
    for path in RUNBOOKS:
        for n, query in enumerate(
            re.findall(r"promtool query instant \S+ '([^']+)'", path.read_text())
        ):
            yield pytest.param(query, id=f"{path.stem}-{n}")


@pytest.mark.parametrize("query", list(_commands()))
def test_every_query_of_a_runbook_can_be_copied(fleet: Server, query: str) -> None:
    """It runs as it stands, and reads only what the catalogue names."""
    fleet.query(query)
    names = set(re.findall(r"\b(?:vllm:\w+|[a-z]+:leadline_\w+:\w+|leadline_\w+)", query))
    known = {signal.record for signal in SIGNALS.values()}
    known |= {name for metric in METRICS.values() for name in metric.exposed}
    plain = {name for name in names if not name.startswith("leadline_") or "_" in name[9:]}
    assert plain <= known
