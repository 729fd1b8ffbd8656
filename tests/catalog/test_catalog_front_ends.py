"""vLLM's two front ends: the Python one's text and the Rust one's OpenMetrics are the same series.

No page of the Rust front end was captured. The one here is a real page of the Python front end
rewritten in the form that the Rust one has: OpenMetrics' names on TYPE lines, labels as declared,
counters as whole numbers, sum and count before the buckets, no `_created`, `# EOF`.
"""

from __future__ import annotations

import gzip
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog.metrics import METRICS
from catalog.signals import SIGNALS
from catalog.vllm import VLLM

if TYPE_CHECKING:
    from conftest import Server, StartPrometheus

FIXTURES = Path(__file__).parents[1] / "fixtures" / "vllm"
BY_SAMPLE = {name: metric for metric in VLLM for name in metric.exposed}
TYPES = {"python": "text/plain; version=1.0.0; charset=utf-8",
         "rust": "application/openmetrics-text; version=1.0.0; charset=utf-8"}  # fmt: skip
FINAL = {"_sum": 0, "_count": 1, "_bucket": 2}

Series = tuple[str, frozenset[tuple[str, str]]]


def captured(name: str) -> str:
    """Return a recorded page of the Python front end."""
    return gzip.decompress((FIXTURES / f"vllm_032_{name}.prom.gz").read_bytes()).decode()


def _rust_line(line: str) -> str:
    """Return a sample as the Rust front end writes it."""
    head, value = line.rsplit(" ", 1)
    name, _, rest = head.partition("{")
    pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', rest)
    first = ("model_name", "engine")
    ordered = sorted(pairs, key=lambda pair: (*first, pair[0]).index(pair[0]))
    # Bounds come out as Rust prints a number: never with an exponent.
    shown = ((k, f"{float(v)}" if k == "le" and v != "+Inf" else v) for k, v in ordered)
    inner = ",".join(f'{k}="{v}"' for k, v in shown)
    whole = BY_SAMPLE[name].type == "counter" or not name.endswith(("_sum", "_perc"))
    return f"{name}{{{inner}}} {int(float(value)) if whole else float(value)}"


def rust(page: str, version: str = "0.33") -> str:
    """Return *page* as the Rust front end would give it: what it has, and what was used."""
    families: dict[str, list[str]] = {}
    for line in page.splitlines():
        name = re.match(r"[\w:]+", line)
        metric = BY_SAMPLE.get(name[0]) if name else None
        if metric and metric.rust and metric.name.startswith("vllm:"):
            families.setdefault(metric.name, []).append(line)
    return "".join(_family(name, lines) for name, lines in families.items()) + "# EOF\n"


def _family(name: str, lines: list[str]) -> str:
    metric = METRICS[name]
    base = name.removesuffix("_total") if metric.type == "counter" else name

    def part(line: str) -> int:
        sample = re.match(r"[\w:]+", line)
        return FINAL.get(sample[0].removeprefix(name), 0) if sample else 0

    ordered = sorted(lines, key=part) if metric.type == "histogram" else lines
    rows = [f"# HELP {base} Something.", f"# TYPE {base} {metric.type}", *map(_rust_line, ordered)]
    return "\n".join(rows) + "\n"


class _Page(BaseHTTPRequestHandler):
    """Answers with the page of the path's front end."""

    server: Pages

    def do_GET(self) -> None:
        front, _, pool = self.path.strip("/").partition("/")
        body = self.server.pages[front, pool].encode()
        self.send_response(200)
        self.send_header("Content-Type", TYPES[front])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Pages(ThreadingHTTPServer):
    """A server of both front ends' pages, by `/<front end>/<pool>`."""

    daemon_threads = True

    def __init__(self) -> None:
        """Serve the recorded pair, and the same as the Rust front end says it."""
        super().__init__(("127.0.0.1", 0), _Page)
        self.pages = {}
        for pool in ("prefill", "decode"):
            page = captured(f"pd_{pool}")
            self.pages["python", pool], self.pages["rust", pool] = page, rust(page)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture(scope="module")
def scraped(module_prometheus: StartPrometheus) -> Iterator[Server]:
    """A Prometheus that scraped both front ends' pages, the front end as `cluster`."""
    pages = Pages()
    target = f"127.0.0.1:{pages.server_address[1]}"
    scrapes = [
        {
            "job_name": f"{front}-{pool}", "metrics_path": f"/{front}/{pool}",
            "static_configs": [{"targets": [target], "labels": {
                "cluster": front, "pool": pool, "deployment": "d", "server": f"{pool}:8000"}}],
        }
        for front, pool in pages.pages
    ]  # fmt: skip
    prometheus = module_prometheus(scrapes=scrapes, interval="1s")
    deadline = time.monotonic() + 60
    while len(prometheus.query("up == 1")) < len(scrapes):
        assert time.monotonic() < deadline, "a page was not scraped"
        time.sleep(0.2)
    yield prometheus
    pages.shutdown()
    pages.server_close()


def _series(prometheus: Server, front: str) -> dict[Series, float]:
    found = {}
    query = f'{{__name__=~"vllm:.+", __name__!~".+_created", cluster="{front}"}}'
    for sample in prometheus.query(query):
        labels = {k: v for k, v in sample["metric"].items() if k not in {"cluster", "job"}}
        name = labels.pop("__name__")
        if labels.get("le", "+Inf") != "+Inf":
            labels["le"] = f"{float(labels['le'])}"
        found[name, frozenset(labels.items())] = float(sample["value"][1])
    return found


def test_both_front_ends_bring_the_same_series(scraped: Server) -> None:
    """Names, labels and values; what Rust lacks is what the catalogue says."""
    python, rust_ = (_series(scraped, front) for front in ("python", "rust"))
    assert len(rust_) > 600
    assert rust_.items() <= python.items()
    lacking = {BY_SAMPLE[name].name for name, _ in python.keys() - rust_.keys()}
    assert lacking == {m.name for m in VLLM if not m.rust} & {
        BY_SAMPLE[name].name for name, _ in python
    }
    assert "vllm:num_requests_kv_fetch_by_stage" in lacking


def test_no_suffix_is_doubled_or_lost(scraped: Server) -> None:
    """OpenMetrics' TYPE lines leave `_total` out; samples have it, and the histogram its own."""
    names = {name for name, _ in _series(scraped, "rust")}
    assert not [name for name in names if "_total_total" in name]
    assert "vllm:iteration_tokens_total_bucket" in names
    assert "vllm:estimated_flops_per_gpu_total" in names
    assert {name for name in names if BY_SAMPLE[name].type == "counter"} == {
        name for name in names if name.endswith("_total")
    }


LACKING = {"kv_fetch_waiting", "kv_fetch_by_stage", "kv_fetch_time_mean", "reads_after_expiry_rate"}
"""Signals of what the Rust front end lacks."""
CORE = {
    "ttft_mean", "ttft_p99", "tpot_mean", "itl_mean", "queue_mean", "request_rate", "kv_usage",
    "requests_running", "tokens_per_step", "transfer_time_mean", "computed_tokens_rate",
}  # fmt: skip
T0 = 1_700_000_040


@pytest.fixture(scope="module")
def filled(scraped: Server, module_prometheus: StartPrometheus) -> Server:
    """What arrived, as it would be after one to seven minutes of the same work."""
    rows = []
    for front in TYPES:
        for (name, labels), value in _series(scraped, front).items():
            inner = ",".join(f'{k}="{v}"' for k, v in (*sorted(labels), ("cluster", front)))
            still = BY_SAMPLE[name].type == "gauge"
            rows += [
                f"{name}{{{inner}}} {value * (1 if still else minute)!r} {T0 + 60 * minute}"
                for minute in range(1, 8)
            ]
    return module_prometheus(openmetrics="\n".join([*rows, "# EOF\n"]))


@pytest.mark.parametrize("name", [n for n, s in SIGNALS.items() if "vllm:" in s.expr])
def test_both_front_ends_give_the_same_signal(filled: Server, name: str) -> None:
    """To the digit, where the Rust front end has what it is made of; else none at all."""
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {front: {} for front in TYPES}
    for sample in filled.query(SIGNALS[name].expr, at=T0 + 420):
        labels = dict(sample["metric"])
        found[labels.pop("cluster")][frozenset(labels.items())] = float(sample["value"][1])
    if name == "queue_own_mean":  # on decode it needs the wait for KV
        pools = {front: {dict(key)["pool"] for key in series} for front, series in found.items()}
        assert pools == {"python": {"prefill", "decode"}, "rust": {"prefill"}}
    elif name in LACKING:
        assert found["python"]
        assert not found["rust"]
    else:
        assert found["python"] == found["rust"]
        assert found["python"] or name not in CORE


# What the recorded pair did: 12 requests, 5435 prompt tokens, 441 output tokens asked for.
REAL = {
    "tpot_mean": {"decode"}, "itl_mean": {"decode"}, "decode_time_mean": {"decode"},
    "output_tokens_rate": {"decode"}, "input_tokens_rate": {"prefill"},
    "external_hit_ratio": set(), "kv_fetch_time_mean": {"decode"},
    "queue_own_mean": {"prefill", "decode"}, "transfer_time_mean": {"decode"},
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_a_real_pair_says_no_more_than_it_knows(filled: Server, name: str) -> None:
    """By pool; prefill's zeros and decode's hits of 100 % are nowhere."""
    samples = filled.query(SIGNALS[name].expr, at=T0 + 420)
    pools = {s["metric"]["pool"] for s in samples if s["metric"]["cluster"] == "python"}
    assert pools == REAL[name]


def test_a_real_pair_counts_each_prompt_once(filled: Server) -> None:
    """Both count 5435 prompt tokens a minute; prefill alone computed them."""
    found = {
        s["metric"]["pool"]: float(s["value"][1])
        for s in filled.query(SIGNALS["computed_tokens_rate"].expr, at=T0 + 420)
        if s["metric"]["cluster"] == "python"
    }
    assert found == pytest.approx({"prefill": 5435 / 60, "decode": 0})
    whole = f"sum by (cluster) (rate({METRICS['vllm:prompt_tokens_total'].name}[5m]))"
    bare = [float(s["value"][1]) for s in filled.query(whole, at=T0 + 420)]
    assert bare == pytest.approx([2 * 5435 / 60] * 2)


def test_no_guard_makes_an_expression_dearer_than_a_quantile(filled: Server) -> None:
    """A quantile reads every bucket; rules with more to read than that would be felt."""
    read = {
        name: filled.get("/api/v1/query", query=s.expr, time=T0 + 420, stats="all")
        for name, s in SIGNALS.items()
        if "vllm:" in s.expr
    }
    samples = {n: r["data"]["stats"]["samples"]["totalQueryableSamples"] for n, r in read.items()}
    assert samples["ttft_p99"] > 0
    assert not [name for name, count in samples.items() if count > samples["ttft_p99"]]
