"""The live page: the families of real captures, numbers that real servers could have, one run."""

from __future__ import annotations

import gzip
import http.client
import re
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from catalog.signals import METRICS
from simulator.page import Page
from simulator.server import PageServer, serve
from simulator.world import World
from stack.configs import Job

if TYPE_CHECKING:
    from conftest import StartPrometheus

FIXTURES = Path(__file__).parents[1] / "fixtures" / "vllm"
NOW = 1_800_000_000.0
IDENTITY = {"cluster", "deployment", "pool", "model_name", "server", "engine"}
CHILDREN = ("le", "source", "reason", "stage", "position", "finished_reason", "sleep_state",
            "generation", "handler", "method", "status")  # fmt: skip

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def page() -> Page:
    """A page of a healthy run."""
    return Page(World("none", seed=1, span=12 * 3600), NOW)


@pytest.fixture(scope="module")
def first(page: Page) -> Samples:
    return samples(page.text(NOW))


def samples(text: str) -> Samples:
    """Return the samples of a page by name and labels, as the official parser reads them."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for s in family.samples:
            key = s.name, frozenset(s.labels.items())
            assert key not in found, f"twice: {key}"
            found[key] = s.value
    return found


def lines(text: str) -> dict[str, float]:
    """Return the values of a page by the text before them."""
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {series: float(value) for series, value in pairs}


def shapes(read: Samples, **where: str) -> set[tuple[str, frozenset[str], frozenset[str]]]:
    """Return what a page is made of: sample name, label names, and the values of children."""
    return {
        (
            name,
            frozenset(k for k, _ in labels) - IDENTITY,
            frozenset(f"{k}={v}" for k, v in labels if k in CHILDREN),
        )
        for name, labels in read
        if where.items() <= dict(labels).items() and not name.startswith("leadline_")
    }


def captured(name: str) -> Samples:
    return samples(gzip.decompress((FIXTURES / f"vllm_032_{name}.prom.gz").read_bytes()).decode())


@pytest.mark.parametrize(("pool", "depth"), [("prefill", 1), ("decode", 3)])
def test_a_page_has_what_real_pages_have(first: Samples, pool: str, depth: int) -> None:
    """Every family, label and bucket of the 0.32 captures is there, and nothing else."""
    spec = {s for s in shapes(captured("ngram_spec")) if "spec_decode" in s[0]}
    spec = {s for s in spec if not s[2] or int(next(iter(s[2])).partition("=")[2]) < depth}
    real = shapes(captured(f"pd_{pool}")) | spec
    assert shapes(first, pool=pool) == real


def test_our_own_families_are_the_catalogue_s(first: Samples) -> None:
    """Ours have the names and labels of the catalogue, and each process has its place."""
    ours = [(name, dict(labels)) for name, labels in first if name.startswith("leadline_")]
    for name, labels in ours:
        assert set(labels) <= set(METRICS[name].labels), name
    processes = [la for name, la in ours if name == "leadline_process_anonymous_bytes"]
    kinds = defaultdict(int)
    for labels in processes:
        kinds[labels["pool"], labels["process"]] += 1
    assert kinds == {
        ("prefill", "api_server"): 4, ("prefill", "dp_coordinator"): 4,
        ("prefill", "engine_core"): 16, ("prefill", "worker"): 16,
        ("decode", "api_server"): 1, ("decode", "dp_coordinator"): 1,
        ("decode", "engine_core"): 8, ("decode", "worker"): 8,
    }  # fmt: skip


def test_a_prefill_server_counts_as_real_ones_do(first: Samples) -> None:
    """max_tokens=1 on prefill: zero TPOT, no ITL, reason length; the KV is read by decode."""

    def total(name: str, **where: str) -> float:
        return sum(
            value
            for (sample, labels), value in first.items()
            if sample == name and where.items() <= dict(labels).items()
        )

    prefill, decode = {"pool": "prefill"}, {"pool": "decode"}
    tpot = "vllm:request_time_per_output_token_seconds"
    count = total(f"{tpot}_count", **prefill)
    assert count > 100_000
    assert total(f"{tpot}_sum", **prefill) == 0.0
    assert total(f"{tpot}_bucket", le="0.01", **prefill) == count
    assert total("vllm:inter_token_latency_seconds_count", **prefill) == 0.0
    assert total("vllm:request_success_total", finished_reason="length", **prefill) == count
    assert total("vllm:generation_tokens_total", **prefill) == count
    assert total("vllm:spec_decode_num_drafts_total", **prefill) == 0.0
    assert total("vllm:nixl_bytes_transferred_count", **prefill) == 0.0
    source = "vllm:prompt_tokens_by_source_total"
    assert total(source, source="external_kv_transfer", **prefill) == 0.0
    assert total(source, source="local_compute", **decode) == 0.0
    fetched = total(source, source="external_kv_transfer", **decode)
    assert fetched == total("vllm:external_prefix_cache_hits_total", **decode) > 0
    assert total("vllm:request_prefill_kv_computed_tokens_sum", **decode) > 0
    assert total("vllm:nixl_bytes_transferred_sum", **decode) == pytest.approx(
        fetched * 78 * (512 + 64), rel=1e-6
    )
    accepted = "vllm:spec_decode_num_accepted_tokens"
    positions = [total(f"{accepted}_per_pos_total", position=p) for p in "012"]
    assert sum(positions) == pytest.approx(total(f"{accepted}_total"), rel=1e-6)
    assert positions == sorted(positions, reverse=True)


def test_counters_only_grow(page: Page, first: Samples) -> None:
    """Within and over the half hours that are computed at once."""
    before = lines(page.text(NOW))
    assert len(before) == len(first)
    for later in (1.0, 20.0, 34.5, 1799.0, 1800.0, 1801.0, 3700.0):
        after = lines(page.text(NOW + later))
        assert after.keys() == before.keys()
        fell = [
            (series, before[series], value)
            for series, value in after.items()
            if value < before[series] and re.match(r"\w*:?\w+_(total|sum|count|bucket)\b", series)
        ]
        assert not fell
        assert sum(value > before[series] for series, value in after.items()) > 500
        before = after


def test_buckets_add_up(first: Samples) -> None:
    """Buckets of every histogram rise with their bound, the last one to the count."""
    ladders: dict[tuple[str, frozenset[tuple[str, str]]], list[tuple[float, float]]]
    ladders = defaultdict(list)
    for (name, labels), value in first.items():
        if name.endswith("_bucket"):
            bound = float(dict(labels)["le"])
            rest = frozenset(pair for pair in labels if pair[0] != "le")
            ladders[name.removesuffix("_bucket"), rest].append((bound, value))
    assert len(ladders) > 400
    for (family, rest), ladder in ladders.items():
        values = [value for _, value in sorted(ladder)]
        assert values == sorted(values), family
        assert values[-1] == first[f"{family}_count", rest], family


def test_the_same_seed_is_the_same_run(page: Page) -> None:
    """A run is its scenario, its seed and its end: asked twice or in another order, the same."""
    again = Page(World("none", seed=1, span=12 * 3600), NOW)
    late, early = again.text(NOW + 4000.0), again.text(NOW + 30.0)
    assert early == page.text(NOW + 30.0)
    assert late == page.text(NOW + 4000.0)
    other = Page(World("none", seed=2, span=12 * 3600), NOW)
    assert other.text(NOW + 30.0) != early


def test_a_scrape_is_cheap(page: Page) -> None:
    """24 engines of 450 samples cost a tenth of a second at most, a third of it on a free core."""
    costs = []
    for i in range(7):
        begin = time.process_time()
        page.text(NOW + 4000.0 + i)
        costs.append(time.process_time() - begin)
    assert sorted(costs)[3] < 0.2


@pytest.fixture
def served() -> Iterator[PageServer]:
    server = serve("127.0.0.1:0", "none", seed=1, span=12 * 3600)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_prometheus_takes_every_line(served: PageServer, prometheus: StartPrometheus) -> None:
    """As many series arrive as the page has lines: none is a duplicate, none is refused."""
    sent = lines(served.text())
    target = f"127.0.0.1:{served.server_address[1]}"
    server = prometheus(jobs=[Job("leadline", [target])], interval="2s")
    deadline = time.monotonic() + 40
    arrived: list[dict[str, object]] = []
    while not arrived and time.monotonic() < deadline:
        time.sleep(0.5)
        arrived = server.query("scrape_series_added > 0 and up == 1")
    count = server.query('count({job="leadline", __name__=~"(vllm:|leadline_|http_|p).*"})')
    assert [r["value"][1] for r in count] == [str(len(sent))]


def test_the_program_serves_until_it_is_told_to_stop(free_port: int) -> None:
    """`leadline simulate` answers while it runs and ends with 0 on SIGTERM."""
    argv = [sys.executable, "-m", "leadline", "simulate", "--scenario", "none"]
    process = subprocess.Popen([*argv, "--listen", f"127.0.0.1:{free_port}"])
    try:
        status, text = _get(free_port, "/metrics", within=60.0)
        assert status == 200
        assert "vllm:num_requests_running{" in text
        assert _get(free_port, "/nothing", within=10.0)[0] == 404
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait(timeout=20)


def _get(port: int, path: str, within: float) -> tuple[int, str]:
    """Return status and text, trying until the server is there."""
    deadline = time.monotonic() + within
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        finally:
            connection.close()


def test_an_address_that_is_taken_is_named(served: PageServer) -> None:
    """Whoever starts a second one on the same port is told which address it is."""
    taken = f"127.0.0.1:{served.server_address[1]}"
    with pytest.raises(OSError, match=f"can't listen on {taken}: "):
        serve(taken, "none", span=12 * 3600)
    with pytest.raises(ValueError, match="'9840' is no address"):
        serve("9840", "none", span=12 * 3600)
