"""Metrics of vLLM that the signals are made of, with their older names and their traps."""

from __future__ import annotations

from typing import Final

from catalog.metric import Metric
from catalog.units import Unit

_NOT_ON_PREFILL: Final = ("decode", "aggregate", "unknown")
_ENGINE: Final = ("engine", "model_name")


def _counter(
    name: str,
    unit: Unit,
    text: str,
    *,
    labels: tuple[str, ...] = (),
    since: str = "0.11",
    pools: tuple[str, ...] = (),
    lazy: bool = False,
    former: tuple[str, ...] = (),
    varying: tuple[str, ...] = (),
    traps: tuple[str, ...] = (),
) -> Metric:
    return Metric(
        name, "counter", unit, text, (*_ENGINE, *labels), since, pools, lazy, former, varying,
        traps,
    )  # fmt: skip


def _gauge(
    name: str,
    unit: Unit,
    text: str,
    *,
    labels: tuple[str, ...] = (),
    since: str = "0.11",
    pools: tuple[str, ...] = (),
    former: tuple[str, ...] = (),
    traps: tuple[str, ...] = (),
) -> Metric:
    frozen = "Set only when an engine step ends, so it freezes at its last value when idle."
    return Metric(
        name, "gauge", unit, text, (*_ENGINE, *labels), since, pools, former=former,
        traps=(frozen, *traps),
    )  # fmt: skip


def _histogram(
    name: str,
    unit: Unit,
    text: str,
    *,
    since: str = "0.11",
    pools: tuple[str, ...] = (),
    former: tuple[str, ...] = (),
    traps: tuple[str, ...] = (),
) -> Metric:
    return Metric(name, "histogram", unit, text, _ENGINE, since, pools, former=former, traps=traps)


_COARSE: Final = (
    "The lowest bucket ends at 0.3 s, so a quantile below it is an artefact: use the mean."
)
_NEGATIVE: Final = (
    "A request that ends before it is scheduled adds a negative time: the sum falls while the "
    "count does not."
)

VLLM: Final[tuple[Metric, ...]] = (
    _histogram(
        "vllm:time_to_first_token_seconds", "seconds",
        "Time from arrival at this server to the first token, its own queue included.",
        traps=("On prefill it is queue and prefill, on decode the wait for KV and the first step: "
               "neither is what the user sees, and their quantiles can't be added.",),
    ),
    _histogram(
        "vllm:request_time_per_output_token_seconds", "seconds",
        "Mean time per output token of a finished request.", pools=_NOT_ON_PREFILL,
        traps=("On prefill every request observes 0.0, which drags any average over both pools.",),
    ),
    _histogram(
        "vllm:inter_token_latency_seconds", "seconds",
        "Time between two steps that returned tokens of a request.", pools=_NOT_ON_PREFILL,
        former=("vllm:time_per_output_token_seconds",),
        traps=("One observation covers one to k+1 tokens with speculative decoding.",),
    ),
    _histogram(
        "vllm:e2e_request_latency_seconds", "seconds",
        "Time from arrival to the last token.", traps=(_COARSE,),
    ),
    _histogram(
        "vllm:request_queue_time_seconds", "seconds", "Time a request waited to be scheduled.",
        traps=(_COARSE, _NEGATIVE, "On decode the KV transfer hides in it."),
    ),
    _histogram(
        "vllm:request_prefill_time_seconds", "seconds",
        "Time from being scheduled to the first token.", traps=(_COARSE, _NEGATIVE),
    ),
    _histogram(
        "vllm:request_decode_time_seconds", "seconds",
        "Time from the first to the last token.", pools=_NOT_ON_PREFILL,
        traps=(_COARSE, "On prefill every request observes 0.0."),
    ),
    _histogram(
        "vllm:iteration_tokens_total", "tokens",
        "Tokens of one engine step; a histogram in spite of its name.",
        traps=("With several API servers it is observed once per front end.",),
    ),
    _counter(
        "vllm:prompt_tokens_total", "tokens", "Prompt tokens of admitted requests.",
        traps=("Prefill and decode both count every prompt: never add the pools up.",),
    ),
    _counter(
        "vllm:prompt_tokens_by_source_total", "tokens",
        "Prompt tokens by where their KV came from.", labels=("source",), since="0.18",
        traps=("external_kv_transfer counts at admission, even if the load fails later.",),
    ),
    _counter(
        "vllm:generation_tokens_total", "tokens", "Tokens generated.",
        traps=("Prefill generates one token for each request it hands over.",),
    ),
    _counter(
        "vllm:request_success_total", "requests", "Finished requests by reason.",
        labels=("finished_reason",),
        traps=("It counts errors too; requests that a client aborts never reach it.",),
    ),
    _counter("vllm:num_preemptions_total", "count", "Preemptions of running requests."),
    _gauge("vllm:num_requests_running", "requests", "Requests in the running batch."),
    _gauge(
        "vllm:num_requests_waiting", "requests", "Requests that wait, for capacity or deferred.",
        traps=("From 0.18 on it includes those that wait for KV from the other pool.",),
    ),
    _gauge(
        "vllm:num_requests_waiting_by_reason", "requests", "Requests that wait, by reason.",
        labels=("reason",), since="0.26",
    ),
    _gauge(
        "vllm:num_requests_kv_fetch_by_stage", "requests",
        "Requests that wait for KV from the other pool, by stage.", labels=("stage",),
        since="0.32", pools=("decode", "aggregate", "unknown"),
        traps=("Absent on a pure kv_producer.",),
    ),
    _gauge(
        "vllm:kv_cache_usage_perc", "ratio", "Share of KV blocks that requests hold, 0 to 1.",
        former=("vllm:gpu_cache_usage_perc",),
        traps=("Evictable prefix blocks count as free; on prefill blocks that wait to be pulled "
               "count as used with nothing running.",),
    ),
    _counter("vllm:prefix_cache_queries_total", "tokens", "Tokens looked up in the prefix cache.",
             former=("vllm:gpu_prefix_cache_queries_total",)),
    _counter("vllm:prefix_cache_hits_total", "tokens", "Tokens found in the prefix cache.",
             former=("vllm:gpu_prefix_cache_hits_total",)),
    _counter("vllm:external_prefix_cache_queries_total", "tokens",
             "Tokens looked up at the KV connector.", since="0.18"),
    _counter("vllm:external_prefix_cache_hits_total", "tokens",
             "Tokens found at the KV connector.", since="0.18",
             traps=("On decode it is 100 % by construction, on prefill of a pair 0 %.",)),
    _counter("vllm:spec_decode_num_drafts_total", "count", "Drafts made."),
    _counter("vllm:spec_decode_num_draft_tokens_total", "tokens", "Tokens drafted."),
    _counter("vllm:spec_decode_num_accepted_tokens_total", "tokens", "Drafted tokens accepted."),
    _counter("vllm:spec_decode_num_accepted_tokens_per_pos_total", "tokens",
             "Drafted tokens accepted, by position in the draft.", labels=("position",)),
    _histogram("vllm:nixl_xfer_time_seconds", "seconds", "Time of one NIXL transfer of one rank.",
               since="0.18", traps=("Above 5 s all is one bucket; tensor-parallel ranks are "
                                    "pooled, so the count is not requests.",)),
    _histogram("vllm:nixl_post_time_seconds", "seconds", "Time to post one NIXL transfer.",
               since="0.18"),
    _histogram("vllm:nixl_bytes_transferred", "bytes", "Bytes of one NIXL transfer.",
               since="0.18"),
    _histogram("vllm:nixl_num_descriptors", "count", "Descriptors of one NIXL transfer.",
               since="0.18"),
    _counter("vllm:nixl_num_failed_transfers_total", "count", "NIXL transfers that failed.",
             since="0.18", traps=("From 0.33 on it includes failed notifications: don't add "
                                  "them.",)),
    _counter("vllm:nixl_num_failed_notifications_total", "count",
             "NIXL notifications that failed.", since="0.18"),
    _counter("vllm:nixl_num_kv_expired_reqs_total", "requests",
             "Requests whose KV lease ran out before it was pulled; lives on prefill.",
             since="0.18"),
    _counter("vllm:nixl_num_notifications_after_expiry_total", "requests",
             "Reads of KV that had already been given up: wrong answers are possible.",
             since="0.32"),
    _counter("vllm:kv_offload_load_bytes_total", "bytes",
             "Bytes of KV restored to the GPU from slower tiers (OffloadingConnector).",
             since="0.26", lazy=True, former=("vllm:kv_offload_total_bytes_total",),
             varying=("transfer_type",),
             traps=("The older name, by transfer_type in both directions, is in 0.33 still and "
                    "counts the same bytes again: don't add them.",)),
)  # fmt: skip
