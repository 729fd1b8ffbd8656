"""One pool: every latency, its load, and its cache."""

from __future__ import annotations

from typing import Final

from catalog import promql
from catalog.signals import SIGNALS
from dashboards.make import buckets, heatmap, signals
from dashboards.panel import Board, Panel, Query, Row
from dashboards.variables import condition

_LATENCY: Final = Row(
    "Latency",
    (
        signals(("ttft_mean", "ttft_p50", "ttft_p90", "ttft_p99"), title="Time to first token"),
        signals(("tpot_mean", "tpot_p50", "tpot_p99"), title="Time per output token"),
        signals(("itl_mean", "itl_p99"), title="Time between steps that returned tokens"),
        signals(("queue_mean", "prefill_time_mean", "decode_time_mean", "e2e_mean"),
                title="Where a request's time goes"),
        heatmap("time_to_first_token_seconds", "Distribution of time to first token"),
        heatmap("inter_token_latency_seconds", "Distribution of time between steps"),
    ),
)  # fmt: skip

_LOAD: Final = Row(
    "Load",
    (
        signals(("finished_rate_by_reason",)),
        signals(("input_tokens_rate", "computed_tokens_rate", "output_tokens_rate"),
                title="Tokens"),
        signals(("tokens_per_step",)),
        signals(("requests_running",)),
        signals(("requests_waiting_by_reason",)),
        signals(("preemption_rate",)),
    ),
)  # fmt: skip

_PROBE: Final = Row(
    "Requests of our own, and words that vLLM only logs",
    (
        signals(("probe_ttft",)),
        signals(("probe_tpot", "probe_itl_p50", "probe_itl_p99"),
                title="Time per token of our own requests"),
        signals(("probe_error_ratio", "probe_wrong_ratio"),
                title="Our own requests that failed or were answered wrongly", high=1.0),
        signals(("probe_request_rate",)),
        signals(("probe_tokens_rate",)),
        signals(("log_nixl_failures_rate",)),
        signals(("log_errors_rate", "log_jit_rate"), title="Errors and compilations logged"),
    ),
)  # fmt: skip

_CACHE: Final = Row(
    "Cache",
    (
        signals(("kv_usage",), width=12, high=1.0),
        signals(("prefix_hit_ratio",), width=12, high=1.0),
    ),
)

_DOUBT: Final = Row(
    "What can't be believed",
    (
        signals(("gauges_frozen",)),
        signals(("engines_missing",)),
        signals(("counter_resets",)),
        buckets("above", "Share of observations above the highest bucket bound", "percentunit",
                "Above 0.01 a p99 is not known, above 0.5 no median: they read as that bound."),
        buckets("bounds_apart", "Bucket bounds that only some servers have", "short",
                "Above 0 quantiles of the pool mix unlike buckets and lie: servers were started "
                "with different --custom-histogram-buckets, or versions. Means are right."),
    ),
)  # fmt: skip


def _age() -> Panel:
    start = promql.selector(SIGNALS["instance_start"].record, condition("server"))
    return Panel(
        "Age of incarnations",
        "Time since each server started, with what it runs: a new line is a rollout, and latencies "
        "before and after it are compared at the same load.",
        "s", (Query(f"time() - {start}", "{{server}} {{vllm_version}} {{image}}"),), low=0.0,
    )  # fmt: skip


_SERVERS: Final = Row(
    "Servers beside each other",
    (
        signals(("ttft_mean_by_server",)),
        signals(("tpot_mean_by_server",)),
        signals(("itl_mean_by_server",)),
        signals(("request_rate_by_server",)),
        _age(),
    ),
)

BOARD: Final = Board(
    "leadline-pool",
    "Leadline / One pool",
    "Latency, load and cache of the chosen pool; of all pools side by side when none is chosen.",
    (_LATENCY, _LOAD, _CACHE, _SERVERS, _PROBE, _DOUBT),
)
