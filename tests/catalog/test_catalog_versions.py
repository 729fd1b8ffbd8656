"""Every signal on a real Prometheus, for fleets of vLLM 0.11, 0.18, 0.26 and 0.33.

One fleet per version, told apart by `cluster`: the same work, worked out by hand, under the names
that this version has. What each has is in `fixtures/vllm/versions.json`, read from the releases.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog.signals import SIGNALS

if TYPE_CHECKING:
    from conftest import Server, StartPrometheus

FACTS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "vllm" / "versions.json").read_text()
)
VERSIONS = ("0.11", "0.18", "0.26", "0.33")
T0 = 1_700_000_040
MINUTES = 7
AT = T0 + 60 * (MINUTES - 1)

# Growth a minute of one server, or a gauge's value. A histogram: (sum, count, upper bound).
Growth = float | tuple[float, float, float]
Work = Mapping[str, Growth | Mapping[str, float]]
BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5)

PREFILL: Work = {
    "vllm:time_to_first_token_seconds": (18, 60, 0.5),
    "vllm:e2e_request_latency_seconds": (24, 60, 0.5),
    "vllm:request_queue_time_seconds": (6, 60, 0.1),
    "vllm:request_prefill_time_seconds": (12, 60, 0.25),
    # Each request ends with one token: no time per output token, no time of decoding.
    "vllm:request_time_per_output_token_seconds": (0, 60, 0.01),
    "vllm:request_decode_time_seconds": (0, 60, 0.01),
    "vllm:inter_token_latency_seconds": (0, 0, 0.01),
    "vllm:iteration_tokens_total": (6000, 60, 0.5),
    "vllm:prompt_tokens_total": 6000,
    "vllm:prompt_tokens_by_source_total": {
        "source=local_compute": 4500, "source=local_cache_hit": 1500,
        "source=external_kv_transfer": 0,
    },
    "vllm:generation_tokens_total": 60,
    "vllm:request_success_total": {
        "finished_reason=stop": 0, "finished_reason=length": 60, "finished_reason=abort": 0,
    },
    "vllm:num_preemptions_total": 0,
    "vllm:num_requests_running": 1,
    "vllm:num_requests_waiting": 0,
    "vllm:num_requests_waiting_by_reason": {"reason=capacity": 0, "reason=deferred": 0},
    "vllm:kv_cache_usage_perc": 0.25,
    "vllm:prefix_cache_queries_total": 6000,
    "vllm:prefix_cache_hits_total": 1500,
    "vllm:external_prefix_cache_queries_total": 4500,
    "vllm:external_prefix_cache_hits_total": 450,
    "vllm:nixl_xfer_time_seconds": (0, 0, 0.01),
    "vllm:nixl_post_time_seconds": (0, 0, 0.01),
    "vllm:nixl_bytes_transferred": (0, 0, 0.01),
    "vllm:nixl_num_descriptors": (0, 0, 0.01),
    "vllm:nixl_num_failed_transfers_total": 0,
    "vllm:nixl_num_failed_notifications_total": 0,
    "vllm:nixl_num_kv_expired_reqs_total": 6,
    "vllm:nixl_num_notifications_after_expiry_total": 0,
    "vllm:kv_offload_load_bytes_total": 6e8,
    "vllm:kv_offload_total_bytes_total": {
        "transfer_type=CPU_to_GPU": 6e8, "transfer_type=GPU_to_CPU": 9e9,
    },
}  # fmt: skip
DECODE: Work = {
    "vllm:time_to_first_token_seconds": (1.5, 30, 0.05),
    "vllm:e2e_request_latency_seconds": (60, 30, 0.5),
    # 6 s of it wait for KV: three requests that wait, one that comes through every two seconds.
    "vllm:request_queue_time_seconds": (240, 30, 0.5),
    "vllm:request_prefill_time_seconds": (1.5, 30, 0.05),
    "vllm:request_time_per_output_token_seconds": (0.6, 30, 0.025),
    "vllm:request_decode_time_seconds": (58.5, 30, 0.5),
    "vllm:inter_token_latency_seconds": (9, 600, 0.025),
    "vllm:time_per_output_token_seconds": (9, 600, 0.025),
    "vllm:iteration_tokens_total": (1500, 300, 0.5),
    "vllm:prompt_tokens_total": 3000,
    "vllm:prompt_tokens_by_source_total": {
        "source=local_compute": 0, "source=local_cache_hit": 0,
        "source=external_kv_transfer": 3000,
    },
    "vllm:generation_tokens_total": 1500,
    "vllm:request_success_total": {
        "finished_reason=stop": 27, "finished_reason=length": 0, "finished_reason=abort": 3,
    },
    "vllm:num_preemptions_total": 6,
    "vllm:num_requests_running": 8,
    "vllm:num_requests_waiting": 3,
    "vllm:num_requests_waiting_by_reason": {"reason=capacity": 1, "reason=deferred": 2},
    "vllm:num_requests_kv_fetch_by_stage": {
        "stage=waiting_to_start": 1, "stage=in_progress": 2, "stage=completed_waiting": 4,
    },
    "vllm:kv_cache_usage_perc": 0.75,
    "vllm:gpu_cache_usage_perc": 0.75,
    "vllm:prefix_cache_queries_total": 3000,
    "vllm:prefix_cache_hits_total": 0,
    "vllm:external_prefix_cache_queries_total": 3000,
    "vllm:external_prefix_cache_hits_total": 3000,
    "vllm:spec_decode_num_drafts_total": 500,
    "vllm:spec_decode_num_draft_tokens_total": 1500,
    "vllm:spec_decode_num_accepted_tokens_total": 750,
    "vllm:spec_decode_num_accepted_tokens_per_pos_total": {
        "position=0": 400, "position=1": 250, "position=2": 100,
    },
    "vllm:nixl_xfer_time_seconds": (0.6, 30, 0.025),
    "vllm:nixl_post_time_seconds": (0.3, 30, 0.01),
    "vllm:nixl_bytes_transferred": (3e8, 30, 0.5),
    "vllm:nixl_num_descriptors": (60, 30, 0.5),
    "vllm:nixl_num_failed_transfers_total": 3,
    "vllm:nixl_num_failed_notifications_total": 0,
    "vllm:nixl_num_kv_expired_reqs_total": 0,
    "vllm:nixl_num_notifications_after_expiry_total": 6,
}  # fmt: skip
OWN = {
    "leadline_process_resident_bytes": 3e9, "leadline_process_anonymous_bytes": 2e9,
    "leadline_process_swap_bytes": 1e9, "leadline_process_shared_bytes": 5e8,
    "leadline_process_threads": 40, "leadline_process_open_fds": 35,
    "leadline_process_start_time_seconds": 1.6e9, "leadline_container_working_set_bytes": 4e9,
    "leadline_container_limit_bytes": 8e9, "leadline_host_memory_used_bytes": 6e10,
    "leadline_host_memory_total_bytes": 1e11,
}  # fmt: skip
GPU = {
    "utilization_ratio": 0.5, "memory_activity_ratio": 0.25, "memory_used_bytes": 2**36,
    "power_watts": 600, "power_limit_watts": 700, "sm_clock_hertz": 1.98e9,
    "temperature_celsius": 60, "sm_active_ratio": 0.8, "sm_occupancy_ratio": 0.4,
    "tensor_active_ratio": 0.3, "dram_active_ratio": 0.6,
}  # fmt: skip
DCGM = {
    "DEV_GPU_UTIL": 50, "DEV_MEM_COPY_UTIL": 25, "DEV_FB_USED": 65536, "DEV_POWER_USAGE": 600,
    "DEV_ENFORCED_POWER_LIMIT": 700, "DEV_SM_CLOCK": 1980, "DEV_GPU_TEMP": 60,
    "PROF_SM_ACTIVE": 0.8, "PROF_SM_OCCUPANCY": 0.4, "PROF_PIPE_TENSOR_ACTIVE": 0.3,
    "PROF_DRAM_ACTIVE": 0.6,
}  # fmt: skip

# By pool, and by what else the signal keeps. Where a version lacks it, see MISSING.
EXPECTED: dict[str, dict[str, float]] = {
    "ttft_mean": {"prefill": 0.3, "decode": 0.05},
    # All within one bucket: linear between its bounds.
    "ttft_p50": {"prefill": 0.375, "decode": 0.0375},
    "ttft_p90": {"prefill": 0.475, "decode": 0.0475},
    "ttft_p99": {"prefill": 0.4975, "decode": 0.04975},
    "ttft_mean_by_server": {"prefill": 0.3, "decode": 0.05},
    "tpot_mean": {"decode": 0.02},
    "tpot_mean_by_server": {"decode": 0.02},
    "tpot_p50": {"decode": 0.0175},
    "tpot_p99": {"decode": 0.02485},
    "itl_mean": {"decode": 0.015},
    "itl_mean_by_server": {"decode": 0.015},
    "itl_p99": {"decode": 0.02485},
    "e2e_mean": {"prefill": 0.4, "decode": 2.0},
    # One decode server holds a negative time: the other's alone count.
    "queue_mean": {"prefill": 0.1, "decode": 8},
    "queue_own_mean": {"prefill": 0.1, "decode": 2},
    "kv_fetch_time_mean": {"decode": 6},
    "prefill_time_mean": {"prefill": 0.2, "decode": 0.05},
    "decode_time_mean": {"decode": 1.95},
    "request_rate": {"prefill": 1, "decode": 1},
    "request_rate_by_server": {"prefill": 1, "decode": 0.5},
    "finished_rate_by_reason": {
        "prefill/stop": 0, "prefill/length": 1, "prefill/abort": 0,
        "decode/stop": 0.9, "decode/length": 0, "decode/abort": 0.1,
    },
    "error_ratio": {"prefill": 0, "decode": 0.1},
    "input_tokens_rate": {"prefill": 100},
    "output_tokens_rate": {"decode": 50},
    "computed_tokens_rate": {"prefill": 75, "decode": 0},
    "tokens_per_step": {"prefill": 100, "decode": 5},
    "requests_running": {"prefill": 1, "decode": 8},
    "requests_waiting": {"prefill": 0, "decode": 3},
    "requests_waiting_capacity": {"prefill": 0, "decode": 1},
    "requests_waiting_by_reason": {
        "prefill/capacity": 0, "prefill/deferred": 0, "decode/capacity": 1, "decode/deferred": 2,
    },
    "kv_fetch_waiting": {"decode": 3},
    "kv_fetch_by_stage": {
        "decode/waiting_to_start": 1, "decode/in_progress": 2, "decode/completed_waiting": 4,
    },
    "gauges_frozen": {"prefill": 0, "decode": 0},
    "counter_resets": {"prefill": 0, "decode": 0},
    "engines_missing": {"prefill": 0, "decode": 0},
    "kv_usage": {"prefill": 0.25, "decode": 0.75},
    "prefix_hit_ratio": {"prefill": 0.25},
    "external_hit_ratio": {"prefill": 0.1},
    "preemption_rate": {"prefill": 0, "decode": 0.1},
    "acceptance_ratio": {"decode": 0.5},
    "acceptance_length": {"decode": 2.5},
    "acceptance_by_position": {"decode/0": 0.8, "decode/1": 0.5, "decode/2": 0.2},
    "drafts_rate": {"decode": 1000 / 60},
    "transfer_time_mean": {"decode": 0.02},
    "transfer_post_time_mean": {"decode": 0.01},
    "transfer_descriptors_mean": {"decode": 2},
    "transfer_bytes_rate": {"prefill": 0, "decode": 1e7},
    "transfer_failures_rate": {"prefill": 0, "decode": 0.05},
    "notification_failures_rate": {"prefill": 0, "decode": 0},
    "leases_expired_rate": {"prefill": 0.1, "decode": 0},
    "reads_after_expiry_rate": {"prefill": 0, "decode": 0.1},
    # The same bytes stand under two names in 0.26 and later.
    "restore_bytes_rate": {"prefill": 1e7},
    "host_rss": {"decode/engine_core/DP0": 3e9},
    "host_anon_swap": {"decode/engine_core/DP0": 3e9},
    "host_shmem": {"decode/engine_core/DP0": 5e8},
    "host_threads": {"decode/engine_core/DP0": 40},
    "host_fds": {"decode/engine_core/DP0": 35},
    "process_start_time": {"decode/engine_core/DP0": 1.6e9},
    "container_working_set": {"decode": 4e9},
    "container_limit": {"decode": 8e9},
    "host_memory_used": {"": 6e10},
    "host_memory_total": {"": 1e11},
    "gpu_utilization": {"": 0.5},
    "gpu_memory_activity": {"": 0.25},
    "gpu_memory_used": {"": 2**36},
    "gpu_power": {"": 600},
    "gpu_power_limit": {"": 700},
    "gpu_sm_clock": {"": 1.98e9},
    "gpu_temperature": {"": 60},
    "gpu_sm_active": {"": 0.8},
    "gpu_sm_occupancy": {"": 0.4},
    "gpu_tensor_active": {"": 0.3},
    "gpu_dram_active": {"": 0.6},
}  # fmt: skip
# Who measures the user's wait in each fleet. Stages: 0.4 s and 0.05 s.
TTFT_USER = {
    "0.11": {"router": 0.9}, "0.18": {"router": 0.8}, "0.26": {"router": 0.7},
    "0.33": {"probe": 0.6},
}  # fmt: skip
STAGES = {"stages": 0.45}
PROBED = {"probe_ttft": 0.6, "probe_tpot": 0.03}

LATER = {
    "kv_fetch_waiting", "kv_fetch_by_stage", "kv_fetch_time_mean", "reads_after_expiry_rate",
    "queue_own_mean/decode",
}  # fmt: skip
BY_REASON = {"requests_waiting_capacity", "requests_waiting_by_reason"}
MISSING: dict[str, set[str]] = {
    "0.11": {
        *LATER, *BY_REASON, "computed_tokens_rate", "external_hit_ratio", "restore_bytes_rate",
        "transfer_time_mean", "transfer_post_time_mean", "transfer_descriptors_mean",
        "transfer_bytes_rate", "transfer_failures_rate", "notification_failures_rate",
        "leases_expired_rate",
    },
    "0.18": {*LATER, *BY_REASON},
    "0.26": LATER,
    "0.33": set(),
}  # fmt: skip


def _has(name: str, version: str) -> bool:
    return version in FACTS[name]["versions"]


def _line(name: str, labels: Mapping[str, str], value: float, minute: int) -> str:
    inner = ",".join(f'{k}="{v}"' for k, v in labels.items())
    return f"{name}{{{inner}}} {value!r} {T0 + 60 * minute}"


def _grown(name: str, labels: Mapping[str, str], growth: Growth) -> Iterator[str]:
    """Yield the samples of a series that grows by the minute from the first one on."""
    for minute in range(MINUTES):
        if not isinstance(growth, tuple):
            yield _line(name, labels, growth * minute, minute)
            continue
        total, count, bound = growth
        yield _line(f"{name}_sum", labels, total * minute, minute)
        yield _line(f"{name}_count", labels, count * minute, minute)
        for le in (*BOUNDS, "+Inf"):
            held = count if le == "+Inf" or float(le) >= bound else 0
            yield _line(f"{name}_bucket", {**labels, "le": str(le)}, held * minute, minute)


def _page(version: str, labels: Mapping[str, str], work: Work) -> Iterator[str]:
    """Yield what a server of *version* says."""
    for name, growth in work.items():
        if not _has(name, version):
            continue
        children = growth if isinstance(growth, Mapping) else {"": growth}
        for child, value in children.items():
            more = dict([child.split("=")]) if child else {}
            assert {*more, "engine", "model_name"} == {*FACTS[name]["labels"]}
            if FACTS[name]["type"] == "gauge":
                assert not isinstance(value, tuple)
                for minute in range(MINUTES):
                    yield _line(name, {**labels, **more}, value, minute)
            else:
                yield from _grown(name, {**labels, **more}, value)


def _corrupt(rows: Iterator[str]) -> Iterator[str]:
    """Let a request end unscheduled at minute 4: its uptime off the queue time, on prefill's."""
    for row in rows:
        series, value, stamp = row.split(" ")
        late = int(stamp) >= T0 + 240
        shift = {"vllm:request_queue_time_seconds_sum": -5000.0,
                 "vllm:request_prefill_time_seconds_sum": 5000.0}  # fmt: skip
        off = shift.get(series.partition("{")[0], 0.0) if late else 0.0
        yield f"{series} {float(value) + off!r} {stamp}"


def _stand_still(row: str) -> str:
    """Return a sample whose counter is where it was a minute ago."""
    series, _, stamp = row.split(" ")
    facts = FACTS.get(series.partition("{")[0], {})
    return row if facts.get("type") == "gauge" else f"{series} 7 {stamp}"


def _servers(version: str) -> Iterator[str]:
    base = {"cluster": version, "namespace": "n", "deployment": "chat", "model_name": "m"}

    def at(pool: str, server: str, deployment: str = "chat") -> dict[str, str]:
        place = {"deployment": deployment, "pool": pool, "server": f"{server}:8000"}
        return {**base, **place, "engine": "0"}

    yield from _page(version, at("prefill", "p0"), PREFILL)
    yield from _page(version, at("decode", "d0"), DECODE)
    yield from _corrupt(_page(version, at("decode", "d1"), DECODE))
    # Nothing asked and nothing done: every counter stands still.
    for pool, work in (("prefill", PREFILL), ("decode", DECODE)):
        yield from map(_stand_still, _page(version, at(pool, f"{pool}9", "idle"), work))
    # Without router and probe, with the pools' stages alone.
    for pool, work in (("prefill", PREFILL), ("decode", DECODE)):
        times = {n: g for n, g in work.items() if "first_token" in n or "e2e" in n}
        yield from _page(version, at(pool, f"{pool}8", "stages"), times)
    if version == "0.11":  # several API servers: one series each, the true one is the highest
        for pid, usage in (("11", 0.1), ("12", 0.75)):
            labels = {**at("decode", "d2"), "pid": pid}
            yield from (_line("vllm:kv_cache_usage_perc", labels, usage, m) for m in range(MINUTES))


def _beside(version: str) -> Iterator[str]:
    """Yield what our exporter, the router, the probe and dcgm-exporter say beside vLLM."""
    base = {"cluster": version, "namespace": "n", "deployment": "chat", "model_name": "m"}
    place = {**base, "pool": "decode", "server": "d0:8000", "node": "d0"}
    more = {"process": {"process": "engine_core", "rank": "DP0"}, "container": {"cgroup": "c"}}
    for name, value in OWN.items():
        kind = name.split("_")[1]
        labels = {"cluster": version, "node": "d0"} if kind == "host" else {**place, **more[kind]}
        yield from (_line(name, labels, value, m) for m in range(MINUTES))
    yield from _router(version, base)
    if version == "0.33":
        yield from _grown("leadline_probe_ttft_seconds", base, (6, 10, 0.5))
        yield from _grown("leadline_probe_tpot_seconds", base, (0.3, 10, 0.05))
    yield from _gpus(version)


def _router(version: str, base: Mapping[str, str]) -> Iterator[str]:
    """Yield three generations of names; the newest is written beside the oldest."""
    old, interim, new = (
        f"{p}_request_ttft_seconds"
        for p in ("inference_objective", "llm_d_router_epp", "llm_d_epp")
    )
    labels = {**base, "pool": "router", "target_model_name": "m"}
    plugin = {**labels, "plugin_name": "p", "plugin_type": "t"}
    asked = {**labels, "fairness_id": "f", "priority": "0"}
    if version == "0.11":
        yield from _grown(old, labels, (54, 60, 0.5))
    elif version == "0.18":
        yield from _grown(interim, plugin, (48, 60, 0.5))
        yield from _grown(old, labels, (480, 600, 0.5))
    elif version == "0.26":
        yield from _grown(new, {**asked, "streaming": "true"}, (42, 60, 0.5))
        # Whole requests, no first tokens.
        yield from _grown(new, {**asked, "streaming": "false"}, (900, 10, 0.5))
        yield from _grown(old, labels, (942, 70, 0.5))


def _gpus(version: str) -> Iterator[str]:
    """Yield one GPU: by dcgm-exporter before and after its label changed, by ours, by both."""
    uuid = "GPU-0000"
    if version in {"0.26", "0.33"}:
        ours = {"cluster": version, "node": "d0", "gpu": "0", "uuid": uuid + version}
        for name, value in GPU.items():
            yield from (_line(f"leadline_gpu_{name}", ours, value, m) for m in range(MINUTES))
    if version != "0.26":
        # In Kubernetes the label of the scrape says the node, the exporter's own its pod.
        host = {"0.11": {"Hostname": "d0"}, "0.18": {"hostname": "dcgm-x", "node": "d0"}}
        host |= {"0.33": {"hostname": "d0.example"}}
        theirs = {"cluster": version, "gpu": "0", "UUID": uuid + version, **host[version]}
        for name, value in DCGM.items():
            yield from (_line(f"DCGM_FI_{name}", theirs, value, m) for m in range(MINUTES))


@pytest.fixture(scope="module")
def fleets(module_prometheus: StartPrometheus) -> Server:
    """A Prometheus that holds a fleet of every version."""
    rows = [row for v in VERSIONS for part in (_servers(v), _beside(v)) for row in part]
    return module_prometheus(openmetrics="\n".join([*rows, "# EOF\n"]))


def _read(fleets: Server, name: str, version: str, deployment: str) -> dict[str, list[float]]:
    """Return the values of a signal by pool and what else it keeps, servers together."""
    found: dict[str, list[float]] = {}
    for sample in fleets.query(SIGNALS[name].expr, at=AT):
        labels = sample["metric"]
        if labels["cluster"] != version or labels.get("deployment", deployment) != deployment:
            continue
        assert set(labels) <= set(SIGNALS[name].labels)
        keys = ("pool", "position", "process", "rank", *SIGNALS[name].extra)
        key = "/".join(labels[k] for k in keys if k in labels)
        found.setdefault(key, []).append(float(sample["value"][1]))
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", EXPECTED)
def test_a_signal_is_what_the_work_comes_to(fleets: Server, name: str, version: str) -> None:
    """The value worked out by hand where the version has it and the pool means it; else nothing."""
    missing = MISSING[version]
    wanted = {k: v for k, v in EXPECTED[name].items() if not {name, f"{name}/{k}"} & missing}
    found = _read(fleets, name, version, "chat")
    assert set(found) == set(wanted)
    for key, values in found.items():
        assert values == pytest.approx([wanted[key]] * len(values), rel=1e-9), key
    if name.startswith("gpu_"):  # one GPU, however many exporters see it
        assert [len(values) for values in found.values()] == [1]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_users_wait_is_told_by_who_is_nearest(fleets: Server, version: str) -> None:
    """The router by whatever name, else the probe, else the stages; never two of them."""
    for deployment, wanted in (("chat", TTFT_USER[version]), ("stages", STAGES)):
        found = _read(fleets, "ttft_user_mean", version, deployment)
        assert set(found) == set(wanted)
        assert [v for [v] in found.values()] == pytest.approx([*wanted.values()])
    for name, value in PROBED.items():
        probed = _read(fleets, name, version, "chat").get("", [])
        assert probed == (pytest.approx([value]) if version == "0.33" else [])


@pytest.mark.parametrize("name", [n for n in EXPECTED if SIGNALS[n].level == "gpu"])
def test_gpus_keep_our_labels_whoever_sees_them(fleets: Server, name: str) -> None:
    """Node, index and uuid, with no trace of NVIDIA's names."""
    found = {s["metric"]["cluster"]: s["metric"] for s in fleets.query(SIGNALS[name].expr, at=AT)}
    for version in VERSIONS:
        ours = {"cluster": version, "node": "d0", "gpu": "0", "uuid": f"GPU-0000{version}"}
        assert found[version] == ours


@pytest.mark.parametrize("name", SIGNALS)
def test_nothing_over_nothing_is_no_data(fleets: Server, name: str) -> None:
    """Where no request came, means, ratios and quantiles are absent, neither zero nor NaN."""
    kind = SIGNALS[name].operation
    if kind.startswith(("mean", "ratio", "quantile")):
        for version in VERSIONS:
            assert _read(fleets, name, version, "idle") == {}


def test_every_signal_of_vllm_is_tried() -> None:
    """None that reads its pages is left out above."""
    tried = {*EXPECTED, "ttft_user_mean", *PROBED}
    assert tried >= {name for name, signal in SIGNALS.items() if "vllm:" in signal.expr}
    assert tried <= set(SIGNALS)
