"""`docs/direct-scrapes.md` as it is printed, on a real Prometheus: same signals, never twice."""

from __future__ import annotations

import gzip
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml

import leadline
from alerts import rules
from catalog.config import Config, load
from catalog.labels import pool_of
from catalog.signals import SIGNALS
from detectors.service.cycle import Cycle
from detectors.service.ledger import Ledger
from exporters.scrape import Exporter
from exporters.server import ExporterServer
from store.prometheus import PromStore

if TYPE_CHECKING:
    from conftest import Server, StartPrometheus

GUIDE = (Path(__file__).parents[2] / "docs" / "direct-scrapes.md").read_text()
CAPTURES = Path(__file__).parents[1] / "fixtures" / "vllm"
CLUSTERS = {"direct": "vllm", "passed": "leadline"}
"""Each way is a cluster here, so that one Prometheus holds both; and its scrape job."""
POOLS = {"pd_prefill": "prefill", "pd_decode": "decode", "ngram_spec": "aggregate"}
ROLES = ("prefill", "decode", "encode", "both", "prefill-decode", "mystery")
CORE = ("ttft_mean", "tpot_mean", "itl_mean", "e2e_mean", "queue_mean", "request_rate",
        "ttft_user_mean", "kv_usage", "transfer_time_mean", "acceptance_ratio",
        "acceptance_by_position", "kv_fetch_waiting", "computed_tokens_rate")  # fmt: skip

PROMPTS = "vllm:prompt_tokens_total"

Series = tuple[str, tuple[tuple[str, str], ...]]


class _Page(BaseHTTPRequestHandler):
    """Answers with the page of its server."""

    server: Vllm

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(self.server.page)))
        self.end_headers()
        self.wfile.write(self.server.page)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Vllm(ThreadingHTTPServer):
    """A server of one recorded page."""

    daemon_threads = True

    def __init__(self, page: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Page)
        self.page = page
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.server_address[1]}"


class Ways(NamedTuple):
    """A Prometheus that scraped the same pages by both ways, and what arrived at two instants."""

    prometheus: Server
    earlier: dict[Series, str]
    later: dict[Series, str]


def blocks() -> list[str]:
    """Return the configurations that the guide prints."""
    return re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)


def scrape_configs(number: int) -> list[dict[str, Any]]:
    """Return the scrape configurations of one block of the guide."""
    return list(yaml.safe_load(blocks()[number])["scrape_configs"])


def pod(role: str, phase: str = "Running") -> Iterator[dict[str, Any]]:
    """Yield the targets that Prometheus discovers in a pod of llm-d, one for each port.

    Distributions build Prometheus without Kubernetes; relabelling sees the same labels.
    """
    ports = (("vllm", "metrics", 9000 + ROLES.index(role)), ("vllm", "nixl", 5600),
             ("routing-proxy", "http", 8000))  # fmt: skip
    for container, name, port in ports:
        meta = {
            "namespace": "serving", "pod_name": role, "pod_phase": phase, "pod_node_name": "n1",
            "pod_container_name": container, "pod_container_port_name": name,
            "pod_label_llm_d_ai_role": role, "pod_labelpresent_llm_d_ai_role": "true",
            "pod_label_llm_d_ai_model": "glm", "pod_labelpresent_llm_d_ai_model": "true",
        }  # fmt: skip
        labels = {f"__meta_kubernetes_{key}": value for key, value in meta.items()}
        yield {"targets": [f"127.0.0.1:{port}"], "labels": labels}


def half(page: bytes) -> bytes:
    """Return a page as it was when half of everything had happened."""
    rows = [line.rpartition(" ") for line in page.decode().splitlines()]
    return b"".join(
        f"{before} {float(value) / 2 if before[:1] != '#' else value}\n".encode()
        for before, _, value in rows
    )


def arrived(prometheus: Server) -> dict[Series, str]:
    """Return every sample of vLLM's own that Prometheus has now."""
    found = {}
    for sample in prometheus.query('{__name__=~"vllm:.+"}'):
        labels = dict(sample["metric"])
        name = labels.pop("__name__")
        found[name, tuple(sorted(labels.items()))] = sample["value"][1]
    return found


def prompts(page: bytes) -> float:
    """Return how many prompt tokens a page tells of."""
    found = re.search(rb"^" + PROMPTS.encode() + rb"{.*} (\S+)$", page, re.MULTILINE)
    assert found
    return float(found[1])


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until *condition* holds; fail with *what* after a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def history(samples: Mapping[float, dict[Series, str]], **more: str) -> Iterator[str]:
    """Yield samples as OpenMetrics at given instants, labels replaced by *more*."""
    for at, found in samples.items():
        for (name, labels), value in found.items():
            inner = ",".join(f'{k}="{v}"' for k, v in {**dict(labels), **more}.items())
            yield f"{name}{{{inner}}} {value} {at:.0f}"


def recorded(name: str) -> bytes:
    """Return a page of a real vLLM 0.32 server."""
    return gzip.decompress((CAPTURES / f"vllm_032_{name}.prom.gz").read_bytes())


def configs(servers: Mapping[str, Vllm], exporter: str) -> list[dict[str, Any]]:
    """Return the guide's scrape configurations, with the addresses of this test."""
    direct, ours = scrape_configs(0)
    [pods] = scrape_configs(1)
    labels = direct["static_configs"][0]["labels"]
    direct["static_configs"] = [
        {"targets": [server.address],
         "labels": {**labels, "cluster": "direct", "pool": POOLS[name]}}
        for name, server in servers.items()
    ]  # fmt: skip
    ours["static_configs"] = [{"targets": [exporter]}]
    assert pods.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    ended = pod("prefill", "Succeeded")
    pods["static_configs"] = [*(one for role in ROLES for one in pod(role)), *ended]
    [by_node] = yaml.safe_load(blocks()[2])
    rules = [*pods["relabel_configs"]]
    rules.insert([r.get("target_label") for r in rules].index("server") + 1, by_node)
    return [direct, ours, pods, {**pods, "job_name": "host-pods", "relabel_configs": rules}]


@contextmanager
def exporting(servers: Mapping[str, Vllm]) -> Iterator[str]:
    """Run our exporter over the same servers and yield its address."""
    targets = [
        {"url": f"http://{server.address}/metrics", "pool": POOLS[name], "deployment": "chat",
         "server": server.address}
        for name, server in servers.items()
    ]  # fmt: skip
    settings = {"discover": False, "targets": targets}
    exporter = Exporter(load(None, {}, {"cluster": "passed", "exporter": settings}))
    server = ExporterServer("127.0.0.1", 0, exporter)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    exporter.close()


@pytest.fixture(scope="module")
def ways(module_prometheus: StartPrometheus) -> Iterator[Ways]:
    """Three recorded servers, scraped directly and through our exporter."""
    servers = {name: Vllm(half(recorded(name))) for name in POOLS}

    def show(change: Callable[[bytes], bytes]) -> dict[Series, str]:
        for name, server in servers.items():
            server.page = change(recorded(name))
        # A scrape arrives as a whole: one series tells for all of its target.
        wanted = sorted(prompts(server.page) for server in servers.values() for _ in CLUSTERS)
        wait_for(
            lambda: sorted(float(s["value"][1]) for s in prometheus.query(PROMPTS)) == wanted,
            "the pages did not arrive",
        )
        return arrived(prometheus)

    with exporting(servers) as exporter:
        prometheus = module_prometheus(scrapes=configs(servers, exporter))
        yield Ways(prometheus, show(half), show(bytes))
    for server in servers.values():
        server.shutdown()
        server.server_close()


def by_cluster(found: Mapping[Series, str], cluster: str) -> dict[Series, str]:
    """Return the series of one way, without what tells the ways apart."""
    apart = {"cluster", "job", "instance"}
    return {
        (name, tuple(pair for pair in labels if pair[0] not in apart)): value
        for (name, labels), value in found.items()
        if dict(labels)["cluster"] == cluster
    }


def test_both_ways_bring_the_same_series(ways: Ways) -> None:
    """Each series that a signal reads, label for label and value for value."""
    read = {name for s in SIGNALS.values() for m in s.metrics for name in m.exposed}
    for found in (ways.earlier, ways.later):
        direct, passed = (
            {series: v for series, v in by_cluster(found, c).items() if series[0] in read}
            for c in CLUSTERS
        )
        assert len(direct) > 400
        assert direct == passed
    assert by_cluster(ways.earlier, "direct") != by_cluster(ways.later, "direct")
    jobs = {(dict(labels)["cluster"], dict(labels)["job"]) for _, labels in ways.later}
    assert jobs == {*CLUSTERS.items()}


@pytest.fixture(scope="module")
def filled(ways: Ways, module_prometheus: StartPrometheus) -> tuple[Server, float]:
    """A Prometheus with what arrived, a minute apart, and the instant of the later samples.

    Scrapes of two jobs are never of one instant, so their rates could not be equal to the digit.
    A third cluster, `east`, has both ways at once; for two hours, so that age is no excuse.
    """
    at = time.time() // 1 - 60
    rows = [*history({at - 60: ways.earlier, at: ways.later})]
    kept = ("spec_decode", "num_requests_running")
    twice = {at - 60 * i: ways.later for i in reversed(range(120))}
    rows += [row for row in history(twice, cluster="east") if any(k in row for k in kept)]
    return module_prometheus(openmetrics="\n".join([*rows, "# EOF\n"])), at


@pytest.mark.parametrize("name", [n for n, s in SIGNALS.items() if "vllm:" in s.expr])
def test_both_ways_give_the_same_signal(filled: tuple[Server, float], name: str) -> None:
    """To the last digit; and those that the recorded work moves are there."""
    prometheus, at = filled
    found: dict[str, list[Any]] = {cluster: [] for cluster in CLUSTERS}
    for sample in prometheus.query(SIGNALS[name].expr, at=at):
        labels = dict(sample["metric"])
        rows = found.setdefault(labels.pop("cluster"), [])
        rows.append((sorted(labels.items()), sample["value"][1]))
    direct, passed = (sorted(found[cluster]) for cluster in CLUSTERS)
    assert direct == passed
    assert direct or name not in CORE


def test_a_role_of_llm_d_gives_the_pool(ways: Ways) -> None:
    """As our exporter reads it, address and namespace with it; other ports and ended pods go."""
    wanted = {f"127.0.0.1:{9000 + i}": pool_of(role_label=role) for i, role in enumerate(ROLES)}

    active = ways.prometheus.get("/api/v1/targets", state="active")["data"]["activeTargets"]
    for job, host in (("vllm-pods", "127.0.0.1"), ("host-pods", "n1")):
        found = [t["labels"] for t in active if t["labels"]["job"] == job]
        pools = {labels["server"].replace(host, "127.0.0.1"): labels["pool"] for labels in found}
        assert pools == wanted
        for labels in found:
            assert labels["server"].startswith(f"{host}:")
            assert (labels["namespace"], labels["deployment"]) == ("serving", "glm")


def test_detect_refuses_what_arrives_twice(
    filled: tuple[Server, float], capsys: pytest.CaptureFixture[str]
) -> None:
    """One line a server that names it and the jobs, and exit 3: nothing else was there to judge."""
    assert leadline.main(["detect", "--prometheus", filled[0].url, "--last", "2h"]) == 3
    said = [line for line in capsys.readouterr().out.splitlines() if "arrives under" in line]
    assert 1 <= len(said) == len(set(said)) <= len(POOLS)
    for line in said:
        assert re.fullmatch(
            r"not judged: .*: (127\.0\.0\.1:\d+) arrives under the jobs leadline and vllm, "
            r"each value twice; scrape it once \(--no-vllm, or drop one job\)", line,
        )  # fmt: skip


def test_the_service_refuses_what_arrives_twice(
    filled: tuple[Server, float], tmp_path: Path
) -> None:
    """The same line on the board, once, and no judgement."""
    url = filled[0].url
    store, ledger = PromStore(url), Ledger(tmp_path)
    snapshot = Cycle(load(None, {}, {"prometheus": {"url": url}}), store, ledger).run_once()
    store.close()
    ledger.close()
    assert not snapshot.incidents
    causes = [f.cause for f in snapshot.unknown if "arrives under" in f.cause]
    assert causes
    assert all("under the jobs leadline and vllm, each value twice" in cause for cause in causes)


def test_the_rule_fires_on_what_arrives_twice(filled: tuple[Server, float]) -> None:
    """Each engine with two scrapes; none where each way is a cluster of its own."""
    [alert] = [a for a in rules.all_alerts(Config()) if a.name == "LeadlineScrapedTwice"]
    fired = filled[0].query(alert.expr, at=filled[1])
    assert [s["metric"]["cluster"] for s in fired] == ["east"] * len(POOLS)
    assert {s["value"][1] for s in fired} == {"2"}


def test_the_guides_command_is_understood() -> None:
    """It can be copied as it stands."""
    [command] = re.findall(r"```sh\nleadline (.*)\n```", GUIDE)
    assert leadline._parser().parse_args(shlex.split(command)).no_vllm
