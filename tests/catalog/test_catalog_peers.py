"""Signals of the programs beside vLLM on a real Prometheus, under every name they ever had.

Pages are written by hand from the names that the projects document or have in their sources up to
September 2026: of vllm-router and NIXL alone live pages are kept here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from catalog.metric import Metric
from catalog.peers import DCGM, PEERS
from catalog.peers_gpu import DCGM_OTHERS
from catalog.signals import SIGNALS
from catalog.signals_beside import CACHE, ROUTER

if TYPE_CHECKING:
    from conftest import Server, StartPrometheus

T0 = 1_700_000_040
MINUTES = 7
AT = T0 + 60 * (MINUTES - 1)
EPP = {"today": "llm_d_epp", "interim": "llm_d_router_epp", "legacy": "inference_objective"}
EXTENSION = {**EPP, "legacy": "inference_extension"}
Labels = Mapping[str, str]
Rows = Iterator[str]


def line(name: str, labels: Labels, value: float, minute: int) -> str:
    """Return one sample of OpenMetrics."""
    inside = ",".join(f'{k}="{v}"' for k, v in labels.items() if v)
    return f"{name}{{{inside}}} {value} {T0 + 60 * minute}"


def grows(name: str, labels: Labels, *, by: float) -> Rows:
    """Yield a counter that grows by so much a minute."""
    yield from (line(name, labels, by * m, m) for m in range(MINUTES))


def stands(name: str, labels: Labels, value: float) -> Rows:
    """Yield a gauge."""
    yield from (line(name, labels, value, m) for m in range(MINUTES))


def observed(name: str, labels: Labels, total: float, count: float) -> Rows:
    """Yield a histogram's sum and count."""
    yield from grows(f"{name}_sum", labels, by=total)
    yield from grows(f"{name}_count", labels, by=count)


def router(generations: tuple[str, ...], base: Labels) -> Rows:
    """Yield a router that writes these generations of names at once: 60 requests a minute."""
    for age in generations:
        request, flow = EPP[age], EXTENSION[age]
        tenants = [{}] if age == "legacy" else [{"fairness_id": t, "priority": "0"} for t in "ab"]
        plugin = {} if age == "legacy" else {"plugin_name": "p", "plugin_type": "t"}
        for tenant in tenants:
            asked = {**base, "target_model_name": "m", **tenant}
            share = 1 / len(tenants)
            yield from grows(f"{request}_request_total", asked, by=60 * share)
            yield from grows(
                f"{request}_request_error_total", {**asked, "error_code": "x"}, by=3 * share
            )
            # Flow control always knew its tenants.
            queued = {**asked, "fairness_id": tenant.get("fairness_id", "a"), "priority": "0",
                      "inference_pool": "i"}  # fmt: skip
            name = f"{flow}_flow_control_request_queue_duration_seconds"
            yield from observed(name, {**queued, "outcome": "Dispatched"}, 12 * share, 48 * share)
            yield from observed(name, {**queued, "outcome": "EvictedTTL"}, 600, 12 * share)
            yield from stands(f"{flow}_flow_control_queue_size", queued, 4 * share)
        whole = {"cluster": base["cluster"], "deployment": "chat"}
        stage = {} if age == "legacy" else {"stage": "decode"}
        pool = {**whole, "inference_pool": "i", **stage}
        yield from stands(f"{flow}_flow_control_pool_saturation", pool, 0.8)
        name = f"{'llm_d_inference_scheduler' if age == 'legacy' else request}_pd_decision_total"
        name = name.replace("pd_decision", "disagg_decision") if age == "today" else name
        for decision, many in (("decode-only", 45), ("prefill-decode", 15)):
            yield from grows(name, {**base, **plugin, "decision_type": decision}, by=many)
        yield from observed(f"{flow}_prefix_indexer_hit_ratio", {**whole, **plugin}, 30, 60)


FLEETS: dict[str, tuple[str, ...]] = {
    "today": ("today",), "interim": ("interim",), "legacy": ("legacy",),
    "both": ("today", "legacy"), "between": ("interim", "legacy"),
    "all": ("today", "interim", "legacy"),
}  # fmt: skip


def vllm_router(base: Labels, *, split: bool) -> Rows:
    """Yield vllm-router: of 60 requests six fail, counted as live pages of its modes do."""
    if split:
        yield from grows("vllm_router_pd_requests_total", {**base, "route": "/v1/c"}, by=60)
        yield from grows("vllm_router_pd_prefill_errors_total", {**base, "worker": "p"}, by=4)
        yield from grows("vllm_router_pd_decode_errors_total", {**base, "worker": "d"}, by=2)
    else:
        yield from grows("vllm_router_requests_total", {**base, "route": "/v1/c"}, by=54)
        yield from grows("vllm_router_retries_exhausted_total", {**base, "route": "/v1/c"}, by=6)


def caches(cluster: str) -> Rows:
    """Yield LMCache in both modes, and NIXL with two processes."""
    pool = {"cluster": cluster, "deployment": "chat", "pool": "prefill", "model_name": "m",
            "server": "p0:8080"}  # fmt: skip
    if cluster == "mp":
        for salt, hits in (("s1", 300), ("s2", 450)):
            salted = {**pool, "cache_salt": salt}
            yield from grows("lmcache_mp_lookup_requested_tokens_total", salted, by=1500)
            yield from grows("lmcache_mp_lookup_hit_tokens_total", salted, by=hits)
            yield from grows("lmcache_mp_l1_evicted_chunks_total", salted, by=30)
        for way, phase, total in (("h2d", "kernel", 6e8), ("h2d", "staging", 6e8),
                                  ("d2h", "kernel", 9e9)):  # fmt: skip
            labels = {**pool, "device_index": "0", "direction": way, "phase": phase}
            yield from grows("lmcache_mp_transfer_phase_bytes_total", labels, by=total)
        bare = {k: v for k, v in pool.items() if k != "model_name"}
        yield from stands("lmcache_mp_l1_usage_ratio", bare, 0.9)
        yield from grows(
            "lmcache_mp_l1_allocation_failure_chunks_total", {**pool, "during": "store"}, by=6
        )
    else:
        inside = {**pool, "worker_id": "0"}
        yield from grows("lmcache:num_lookup_tokens_total", inside, by=3000)
        yield from grows("lmcache:num_lookup_hits_total", inside, by=750)
    for pid, made, gone in (("7", 4e9, 1e9), ("8", 4e9, 0.0)):
        agent = {**pool, "agent_name": f"a{pid}", "pid": pid, "hostname": "h"}
        yield from stands("agent_memory_registered_total", agent, made)
        if gone:
            yield from stands("agent_memory_deregistered_total", agent, gone)
        yield from grows("agent_errors_total", {**agent, "status": "backend"}, by=3)


@pytest.fixture(scope="module")
def fleets(module_prometheus: StartPrometheus) -> Server:
    """A Prometheus that holds one cluster for each way to say it."""
    rows: list[str] = []
    for cluster, generations in FLEETS.items():
        base = {"cluster": cluster, "deployment": "chat", "model_name": "m", "pool": "router",
                "server": "epp:9090"}  # fmt: skip
        rows += router(generations, base)
    for cluster, split in (("vllm-router", False), ("vllm-router-pd", True)):
        rows += vllm_router({"cluster": cluster, "deployment": "chat", "pool": "router"},
                            split=split)  # fmt: skip
    for cluster in ("mp", "inside"):
        rows += caches(cluster)
    return module_prometheus(openmetrics="\n".join([*rows, "# EOF\n"]))


def read(fleets: Server, name: str, cluster: str) -> dict[str, float]:
    """Return a signal's values by what it keeps beside its level."""
    found: dict[str, float] = {}
    for sample in fleets.query(SIGNALS[name].expr, at=AT):
        labels = sample["metric"]
        assert set(labels) <= set(SIGNALS[name].labels)
        if labels["cluster"] == cluster:
            key = "/".join(labels.get(extra, "") for extra in SIGNALS[name].extra)
            assert key not in found, "two series where one is meant"
            found[key] = float(sample["value"][1])
    return found


OF_ROUTER = {
    "router_request_rate": {"": 1.0}, "router_error_ratio": {"": 0.05},
    "router_queue_mean": {"": 0.25}, "router_queue_size": {"": 4.0}, "pd_share": {"": 0.25},
    "router_prefix_ratio": {"": 0.5}, "router_saturation": {"decode": 0.8},
}  # fmt: skip


@pytest.mark.parametrize("cluster", FLEETS)
@pytest.mark.parametrize("name", OF_ROUTER)
def test_all_generations_of_the_router_say_the_same(
    fleets: Server, name: str, cluster: str
) -> None:
    """Whichever names it writes, and once where it writes several at a time."""
    wanted = OF_ROUTER[name]
    if name == "router_saturation" and cluster == "legacy":
        wanted = {"": 0.8}  # it did not tell stages apart
    assert read(fleets, name, cluster) == pytest.approx(wanted)


@pytest.mark.parametrize("cluster", ["vllm-router", "vllm-router-pd"])
def test_vllm_router_counts_either_way(fleets: Server, cluster: str) -> None:
    """With P/D or without: requests and failures, under the names of that mode."""
    assert read(fleets, "router_request_rate", cluster) == pytest.approx({"": 1.0})
    assert read(fleets, "router_error_ratio", cluster) == pytest.approx({"": 0.1})


OF_CACHE = {
    "mp": {
        "cache_hit_ratio": {"": 0.25}, "restore_bytes_rate": {"": 1e7}, "cache_usage": {"": 0.9},
        "cache_evictions_rate": {"": 1.0}, "cache_failures_rate": {"": 0.1},
        "nixl_registered": {"": 7e9}, "nixl_errors_rate": {"backend": 0.1},
        "external_hit_ratio": {"": 0.25},
    },
    "inside": {
        "cache_hit_ratio": {"": 0.25}, "restore_bytes_rate": {}, "cache_usage": {},
        "external_hit_ratio": {"": 0.25}, "nixl_registered": {"": 7e9},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("cluster", "name"), [(c, name) for c, names in OF_CACHE.items() for name in names]
)
def test_caches_say_what_vllm_does_not(fleets: Server, cluster: str, name: str) -> None:
    """LMCache in both modes: hits, restored bytes; NIXL: live registered memory of all ranks."""
    assert read(fleets, name, cluster) == pytest.approx(OF_CACHE[cluster][name])


def test_every_signal_of_a_peer_is_tried() -> None:
    """None is left out above."""
    tried = {*OF_ROUTER, *OF_CACHE["mp"], "external_hit_ratio", "restore_bytes_rate"}
    assert {s.name for s in (*ROUTER, *CACHE)} <= tried


CAPTURED = sorted((Path(__file__).parents[1] / "fixtures/peers").glob("*.prom"))
"""vllm-router 0.1.17 before stand-ins for vLLM, with P/D and without; two agents of NIXL 1.5.1 that
moved a few MiB over UCX, by both of its exporters."""


@pytest.mark.parametrize("path", CAPTURED, ids=lambda path: path.stem)
def test_live_pages_are_known(path: Path) -> None:
    """Every family by its name, its type and its labels."""
    by_name = {m.name: m for m in PEERS}
    families = [
        family
        for family in text_string_to_metric_families(path.read_text())
        if not family.name.startswith("exposer_")  # of the library that serves the page
    ]
    assert len(families) > 10
    for family in families:
        metric = by_name[family.name + ("_total" if family.type == "counter" else "")]
        assert metric.type == family.type
        for sample in family.samples:
            told = set(sample.labels) - {"le", "quantile"}
            assert told <= set(metric.labels)
            if path.stem.startswith("vllm_router"):
                assert told == set(metric.labels)


OTEL = Path(__file__).parents[1] / "fixtures/peers/lmcache_056_otel.txt"
"""What OpenTelemetry's Prometheus exporter makes of the instruments in the source of LMCache 0.5.6,
each created anew with its name, kind and unit."""


def test_lmcaches_instruments_are_known_as_they_come_out() -> None:
    """With the units and endings that OpenTelemetry puts into their names."""
    known = {m.name: m.type for m in PEERS}
    told = dict(line.split() for line in OTEL.read_text().splitlines())
    assert len(told) > 40
    assert {name: known.get(name) for name in told} == told


FACTS = Path(__file__).parents[1] / "fixtures" / "peers" / "names.txt"


def test_every_documented_family_is_known() -> None:
    """By its name today; what is told of it is whole."""
    known = {m.name for m in PEERS} | {name for m in PEERS for name in m.former}
    assert set(FACTS.read_text().split()) <= known


@pytest.mark.parametrize("metric", PEERS, ids=lambda m: m.name)
def test_a_peers_metric_is_whole(metric: Metric) -> None:
    """A sentence, the unit that its name says or a trap that says otherwise, no name twice."""
    assert metric.help.endswith(".")
    assert len({metric.name, *metric.former}) == 1 + len(metric.former)
    told = re.search(r"_(seconds|bytes|ratio|us)(_total)?$", metric.name)
    if told and told[1] != "us" and "utilization" not in metric.name:
        assert metric.unit in (told[1], f"{told[1]}_per_second")
    if told and told[1] == "us":
        assert "Microseconds." in metric.traps
    if metric.former and {"fairness_id", "plugin_name"} & set(metric.labels):
        assert metric.varying


def test_units_of_dcgm_are_told() -> None:
    """NVIDIA's percent, MiB, MHz, millijoules and nanoseconds each have their trap."""
    traps = {m.name: " ".join(m.traps) for m in (*DCGM.values(), *DCGM_OTHERS)}
    for word, names in {
        "Percent": ("GPU_UTIL", "MEM_COPY_UTIL"), "MiB": ("FB_USED", "FB_FREE", "FB_RESERVED"),
        "MHz": ("SM_CLOCK", "MEM_CLOCK"), "Millijoules": ("TOTAL_ENERGY_CONSUMPTION",),
        "Nanoseconds": ("POWER_VIOLATION", "THERMAL_VIOLATION"),
    }.items():  # fmt: skip
        assert all(word in traps[f"DCGM_FI_DEV_{name}"] for name in names)
