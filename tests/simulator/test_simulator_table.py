"""Tables of a run: every scenario's truth holds in them, and what scraping does to samples."""

from __future__ import annotations

from functools import cache
from typing import get_args

import numpy as np
import pytest

from catalog.panel import FloatArray, Panel
from catalog.signals import SIGNALS
from detectors.finding import Kind, Verdict
from simulator.change import GIB, HOUR
from simulator.memory import lost
from simulator.scenario import SCENARIOS, listing, scenario
from simulator.table import EPOCH, KNOWN, panels
from simulator.world import World

INTERFACE = """
    ttft_user_mean ttft_mean ttft_p50 ttft_p90 ttft_p99 tpot_mean tpot_p50 tpot_p99 itl_mean itl_p99
    e2e_mean queue_mean prefill_time_mean decode_time_mean request_rate error_ratio
    input_tokens_rate output_tokens_rate computed_tokens_rate tokens_per_step requests_running
    requests_waiting requests_waiting_capacity kv_fetch_waiting kv_usage prefix_hit_ratio
    external_hit_ratio preemption_rate acceptance_ratio acceptance_length acceptance_by_position
    drafts_rate transfer_time_mean transfer_bytes_rate transfer_failures_rate leases_expired_rate
    restore_bytes_rate host_rss host_anon_swap host_shmem host_threads host_fds
    container_working_set container_limit host_memory_used host_memory_total gpu_utilization
    gpu_memory_activity gpu_memory_used gpu_power gpu_power_limit gpu_sm_clock gpu_temperature
    gpu_sm_active gpu_sm_occupancy gpu_tensor_active gpu_dram_active probe_ttft probe_tpot
""".split()
RATED = """
    vllm-project/vllm#44175 vllm-project/vllm#52089 vllm-project/vllm#50150
    vllm-project/vllm-ascend#15193 sgl-project/sglang#6914 sgl-project/sglang#28902
    ggml-org/llama.cpp#25740 ollama/ollama#18106 FootprintAI/Containarium#1349
    sgl-project/sglang#28771 vllm-project/vllm#41838
""".split()


@cache
def table(name: str, span: float = 8 * HOUR, until: float = 0.0) -> dict[str, Panel]:
    return panels(name, seed=2, span=span, until=until, step=120.0)


def hours(panel: Panel) -> FloatArray:
    return (panel.times - EPOCH) / HOUR


def now(panel: Panel, **where: str) -> float:
    """Return the mean of the last half hour over the series with some labels."""
    rows = [i for i, la in enumerate(panel.labels) if where.items() <= la.items()]
    assert rows
    last = slice(-16, -1)
    if panel.trials is not None:
        return float(np.nansum(panel.values[rows, last]) / np.nansum(panel.trials[rows, last]))
    return float(np.nanmean(panel.values[rows, last]))


def test_every_signal_of_the_interface_is_played() -> None:
    """All 59 of the design have series, with the labels that the catalogue gives them."""
    found = table("none")
    assert not set(INTERFACE) - found.keys()
    assert set(found) == set(KNOWN)
    for name, panel in found.items():
        assert panel.labels, name
        assert all(set(la) <= set(SIGNALS[name].labels) for la in panel.labels), name
        assert np.isfinite(panel.values).any(axis=1).all(), name
        keys = [tuple(sorted(la.items())) for la in panel.labels]
        assert len(keys) == len(set(keys)), name


def test_the_registry_is_whole() -> None:
    """Truths use the words of findings and signals, and every reported rate is one."""
    sources = {s.source for s in SCENARIOS.values()}
    assert not set(RATED) - sources
    for s in SCENARIOS.values():
        assert s.title, s.name
        assert s.signal in SIGNALS or not s.signal, s.name
        assert s.verdict in get_args(Verdict) or not s.verdict, s.name
        assert s.negative == (s.kind == "none"), s.name
        assert s.negative or (s.kind in get_args(Kind) and s.verdict and s.signal), s.name
        assert s.breach is None or (s.limit is not None and s.breach >= s.start), s.name
        assert s.kind != "leak" or sum(loss.rate for loss in s.losses) == s.rate, s.name
    assert all(f" {name} " in listing() for name in SCENARIOS if SCENARIOS[name].live)


@pytest.mark.parametrize("name", [n for n, s in SCENARIOS.items() if s.kind == "leak"])
def test_a_leak_loses_what_its_truth_says(name: str) -> None:
    """Up to now and over its pool, unless restarts gave it back; nobody else loses a byte."""
    s = SCENARIOS[name]
    start = max(s.start, -10 * HOUR)
    world = World(name, 2, 12 * HOUR)
    at = np.array([start, -1.0])
    by_pool: dict[str, float] = {}
    for server in world.fleet.servers:
        for process in server.processes:
            both = sum(lost(world, server, process, at, swapped=swap) for swap in (False, True))
            key = s.pool if (server.pool, process.kind) == (s.pool, s.process) else "rest"
            by_pool[key] = by_pool.get(key, 0.0) + float(np.diff(both)[0])
    if name != "leak_one_rank":
        # Driven by traffic, the last hours may have more or less of it than the mean.
        assert by_pool[s.pool] / -start * HOUR == pytest.approx(s.rate, rel=0.25)
    else:
        assert by_pool[s.pool] > 0.5 * GIB
    assert by_pool["rest"] == 0.0


def test_what_is_wrong_is_seen_where_its_truth_says() -> None:
    """The figures of the documents and reports, each on its signal at the end of history."""
    healthy = table("none")
    gpus = {"node": "node-4"}
    spin = table("spin_wait")
    assert now(spin["gpu_power"], **gpus) < 200 < 350 < now(healthy["gpu_power"], **gpus)
    assert now(spin["gpu_utilization"], **gpus) > 0.87
    assert now(spin["gpu_memory_activity"], **gpus) < 0.2
    assert now(table("mixed_batch")["tpot_mean"]) == pytest.approx(0.040, rel=0.15)
    assert now(table("forward_cost")["itl_mean"]) == pytest.approx(0.094, rel=0.15)
    assert now(table("draft_too_deep")["acceptance_length"]) == pytest.approx(3.22, rel=0.03)
    assert now(table("cache_full")["prefix_hit_ratio"]) < 0.1
    assert now(table("acceptance_collapse")["acceptance_length"]) < 2.1
    assert now(table("draft_cache_broken")["acceptance_length"]) < 1.5
    waiting = table("prefill_queue")["requests_waiting"]
    rows = [i for i, la in enumerate(waiting.labels) if la["pool"] == "prefill"]
    assert waiting.values[rows, -1].sum() == pytest.approx(97, abs=20)
    late, rate = (table("late_reads")[name] for name in ("reads_after_expiry_rate", "request_rate"))
    pool = {"pool": "prefill"}
    assert now(late, **pool) * 4 / now(rate, **pool) == pytest.approx(8 / 42, rel=0.05)
    shared = {"pool": "prefill", "process": "worker"}
    twice = table("shared_twice")["host_shmem"]
    assert now(twice, **shared) / GIB == pytest.approx(6 + 24, rel=0.01)
    frozen = table("gauges_frozen")["gauges_frozen"]
    assert now(frozen, pool="decode", engine="5") == 1.0
    assert now(frozen, pool="prefill") == 0.0


SOON = [n for n, s in SCENARIOS.items() if s.breach is not None and 0 < s.breach <= 20 * HOUR]


@pytest.mark.parametrize("name", SOON)
def test_what_breaks_breaks_when_its_truth_says(name: str) -> None:
    """Container full, or mean above its service level: within 15 % of the time, or 45 minutes."""
    s = SCENARIOS[name]
    assert s.breach is not None
    until = 1.2 * s.breach + HOUR
    signals = ["container_working_set", "container_limit", "tpot_mean", "ttft_user_mean"]
    found = panels(name, seed=4, since=-13 * HOUR, until=until, step=300.0, signals=signals)
    if s.kind == "leak":
        rows = [i for i, la in enumerate(found[signals[0]].labels) if la["pool"] == s.pool]
        fill = found[signals[0]].values[rows] / found[signals[1]].values[rows]
        over = np.nanmax(fill, axis=0) >= 1.0
    else:
        shown = "tpot_mean" if s.limit == 0.020 else "ttft_user_mean"
        assert s.limit is not None
        over = found[shown].values[0] > s.limit
    at = hours(found["tpot_mean"]) * HOUR
    after = at > max(s.start, 0.0)  # a leak may have broken it before a restart
    assert over[after].any()
    first = at[after][np.argmax(over[after])]
    assert first == pytest.approx(s.breach, abs=max(0.15 * s.breach, 0.75 * HOUR))


@pytest.mark.parametrize(
    "name", ["traffic_doubles", "new_customer", "bursts", "sessions_5x", "scaled", "heavy_tail"]
)
def test_nothing_breaks_on_a_quiet_day(name: str) -> None:
    """Service levels hold, and containers have room."""
    found = panels(name, seed=3, span=30 * HOUR, step=300.0, signals=[
        "container_working_set", "container_limit", "tpot_mean", "ttft_user_mean"])  # fmt: skip
    assert np.nanmax(found["tpot_mean"].values) < 0.020
    assert np.nanquantile(found["ttft_user_mean"].values, 0.995) < 2.5
    fill = found["container_working_set"].values / found["container_limit"].values
    assert np.nanmax(fill) < 0.97


def test_agents_reuse_their_prompts() -> None:
    """Long prompts of which nine tenths were seen before, in bursts; the levels hold."""
    found = table("agents")
    assert 0.85 < now(found["prefix_hit_ratio"]) < 0.96
    prompt = now(found["input_tokens_rate"]) / now(found["request_rate"], pool="prefill")
    assert 30_000 < prompt < 80_000
    assert now(found["ttft_user_mean"]) < 2.5


def test_a_run_is_one_whatever_is_asked_of_it() -> None:
    """Another span, step or choice of signals has the same values at the same instants."""
    whole = table("leak")
    part = panels(
        "leak", seed=2, span=3 * HOUR, step=240.0, signals=["tpot_mean", "requests_running"]
    )
    for name, panel in part.items():
        same = np.isin(whole[name].times, panel.times)
        assert same.sum() == len(panel.times)
        np.testing.assert_allclose(whole[name].values[:, same], panel.values, rtol=1e-9)


def test_samples_are_missing_only_in_a_gap() -> None:
    """Two hours of nothing, and all else as if nothing had been."""
    gap, whole = table("gap")["host_anon_swap"], table("none")["host_anon_swap"]
    inside = (hours(gap) >= -4) & (hours(gap) < -2)
    assert np.isnan(gap.values[:, inside]).all()
    np.testing.assert_array_equal(gap.values[:, ~inside], whole.values[:, ~inside])
    for name in ("constant", "two_valued"):
        values = table(name)["host_anon_swap"].values
        kinds = {len(np.unique(row[np.isfinite(row)])) for row in values}
        assert kinds == ({1} if name == "constant" else {2})


def test_what_is_none_is_named() -> None:
    """A signal, scenario or step that can't be is one line."""
    with pytest.raises(ValueError, match="no panel of 'tpot'"):
        panels("none", signals=["tpot"])
    with pytest.raises(ValueError, match="did you mean leak"):
        panels("leek")
    with pytest.raises(ValueError, match="multiple of 20 s"):
        panels("none", step=50.0)
    with pytest.raises(ValueError, match="only tables can have"):
        scenario("gap", live=True)
