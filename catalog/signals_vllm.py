"""Signals of vLLM's own pages: latency, work, queues, caches and speculative decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from catalog import guards, promql
from catalog.forms import NOT_DECODE, NOT_PREFILL, W, gauge, latency, quantile, rate, ratio
from catalog.labels import LEVELS
from catalog.metrics import vllm
from catalog.peers_cache import HIT_TOKENS, LOOKUP_TOKENS
from catalog.signal import Counts, Signal
from catalog.signals_beside import cache_hits, or_cache


def _acceptance_length() -> Signal:
    by = LEVELS["pool"]
    drafts = vllm("spec_decode_num_drafts_total")
    accepted = vllm("spec_decode_num_accepted_tokens_total")
    expr = "1 + " + promql.ratio(promql.rate(accepted, by), promql.rate(drafts, by))
    return Signal(
        "acceptance_length", "Mean acceptance length", "tokens", "pool", expr,
        f"ratio_rate{W}", "down", (accepted, drafts),
        note="One token a step is the model's own; at 1.0 every draft is refused.",
    )  # fmt: skip


def _acceptance_by_position() -> Signal:
    drafts = vllm("spec_decode_num_drafts_total")
    accepted = vllm("spec_decode_num_accepted_tokens_per_pos_total")
    pool = LEVELS["pool"]
    expr = promql.ratio(
        promql.rate(accepted, LEVELS["position"]),
        promql.rate(drafts, pool),
        join=f"on ({', '.join(pool)}) group_left ()",
    )
    return Signal(
        "acceptance_by_position", "Acceptance by position in the draft", "ratio", "position",
        expr, f"ratio_rate{W}", "down", (accepted, drafts),
        counts=Counts(accepted, drafts, within=("position",)),
        note="Of all drafts, those whose token at this position was accepted.",
    )  # fmt: skip


def _kv_fetch_time(by: Sequence[str]) -> str:
    """Return the mean wait for KV by Little's law: requests that wait, by those that come through.

    vLLM has no such time, and NIXL's is of transfers of ranks, not of requests.
    """
    waiting = f"avg_over_time({promql.selector(_FETCH.name, _UNFETCHED)}[{W}])"
    inside = f"sum by ({', '.join(by)}) ({guards.believed(waiting)})"
    return promql.ratio(inside, promql.rate(_TTFT, by, "", "_count", only=_FETCH.name))


def _kv_fetch_time_mean() -> Signal:
    return Signal(
        "kv_fetch_time_mean", "Mean wait for KV from the other pool", "seconds", "pool",
        _kv_fetch_time(LEVELS["pool"]), f"mean{W}", "up", (_FETCH, _TTFT), load="request_rate",
        note="Requests that wait for KV over first tokens a second (Little's law): it lags while "
             "the wait grows. Unknown before 0.32.",
    )  # fmt: skip


def _queue_own_mean() -> Signal:
    """Return the queue time less the wait for KV, of engines that tell the latter."""
    by, queue = LEVELS["pool"], vllm("request_queue_time_seconds")
    # A pure producer fetches nothing: its queue is all its own.
    prefill = promql.mean(queue, by, 'pool="prefill"')
    told = promql.mean(queue, by, only=_FETCH.name)
    expr = f"clamp_min(({told}) - ({_kv_fetch_time(by)}), 0) or {prefill}"
    return Signal(
        "queue_own_mean", "Mean queue time without the wait for KV", "seconds", "pool", expr,
        f"mean{W}", "up", (queue, _FETCH, _TTFT), load="request_rate",
        note="Grows where engines are too few or too full, not where the network is slow. On "
             "decode unknown before 0.32.",
    )  # fmt: skip


_TTFT: Final = vllm("time_to_first_token_seconds")
_UNFETCHED: Final = 'stage=~"waiting_to_start|in_progress"'
# Hits so far, or counters that offloading brings from the start on.
_CACHED: Final = (
    f"({vllm('external_prefix_cache_hits_total').name} > 0 or "
    + " or ".join(vllm(name).name for name in (
        "kv_offload_total_bytes_total", "simple_kv_offload_load_blocks_total",
        "mooncake_store_operation_total")) + ")"
)  # fmt: skip
_WAITING: Final = vllm("num_requests_waiting_by_reason")
_FETCH: Final = vllm("num_requests_kv_fetch_by_stage")
_FINISHED: Final = vllm("request_success_total")
_LOCAL: Final = 'source="local_compute"'


def _external_hits() -> Signal:
    """Return the hit ratio behind the connector: vLLM's own, else LMCache's."""
    own = ratio(
        "external_hit_ratio", "Hit ratio at the KV connector",
        vllm("external_prefix_cache_hits_total"), vllm("external_prefix_cache_queries_total"),
        where=NOT_DECODE, only=_CACHED,
        note="Of servers with a cache behind their connector: prefill of a pair without one looks "
             "up tokens too and can find none. Where vLLM is silent, LMCache's own.",
    )  # fmt: skip
    return replace(
        own, expr=or_cache(own.expr, cache_hits()),
        metrics=(*own.metrics, HIT_TOKENS, LOOKUP_TOKENS),
    )  # fmt: skip


SERVING: Final[tuple[Signal, ...]] = (
    latency("ttft_mean", "Mean time to first token of this stage",
            "time_to_first_token_seconds", load="request_rate"),
    quantile("ttft_p50", "Time to first token, median", 0.5, "time_to_first_token_seconds"),
    quantile("ttft_p90", "Time to first token, p90", 0.9, "time_to_first_token_seconds"),
    quantile("ttft_p99", "Time to first token, p99", 0.99, "time_to_first_token_seconds"),
    latency("tpot_mean", "Mean time per output token",
            "request_time_per_output_token_seconds", where=NOT_PREFILL, zeros=True,
            load="requests_running"),
    quantile("tpot_p50", "Time per output token, median", 0.5,
             "request_time_per_output_token_seconds", where=NOT_PREFILL, zeros=True),
    quantile("tpot_p99", "Time per output token, p99", 0.99,
             "request_time_per_output_token_seconds", where=NOT_PREFILL, zeros=True),
    latency("itl_mean", "Mean time between steps that returned tokens",
            "inter_token_latency_seconds", where=NOT_PREFILL, load="requests_running"),
    quantile("itl_p99", "Time between steps that returned tokens, p99", 0.99,
             "inter_token_latency_seconds", where=NOT_PREFILL),
    latency("e2e_mean", "Mean end-to-end time of this stage", "e2e_request_latency_seconds",
            load="request_rate"),
    latency("queue_mean", "Mean queue time (on decode: with the wait for KV)",
            "request_queue_time_seconds", load="request_rate"),
    _queue_own_mean(),
    _kv_fetch_time_mean(),
    # A request that was never scheduled adds the server's uptime here, and takes as much from the
    # queue time: only the queue's sum shows it by falling.
    latency("prefill_time_mean", "Mean prefill time", "request_prefill_time_seconds",
            load="request_rate", guard="request_queue_time_seconds"),
    latency("decode_time_mean", "Mean decode time", "request_decode_time_seconds",
            where=NOT_PREFILL, zeros=True, load="requests_running"),
    rate("request_rate", "Finished requests", _FINISHED,
         note="By pool: prefill and decode both finish every request, never add them up."),
    rate("finished_rate_by_reason", "Finished requests by reason", _FINISHED,
         extra=("finished_reason",)),
    Signal("error_ratio", "Share of finished requests that failed or were aborted", "ratio",
           "pool",
           promql.ratio(
               promql.rate(_FINISHED, LEVELS["pool"], 'finished_reason=~"error|abort"'),
               promql.rate(_FINISHED, LEVELS["pool"])),
           f"ratio_rate{W}", "up", (_FINISHED,),
           counts=Counts(_FINISHED, _FINISHED, won='finished_reason=~"error|abort"',
                         over=("finished_reason",)),
           note="Requests that clients abort often never reach this counter."),
    rate("input_tokens_rate", "Prompt tokens admitted", vllm("prompt_tokens_total"),
         unit="tokens_per_second", where=NOT_DECODE),
    rate("output_tokens_rate", "Output tokens", vllm("generation_tokens_total"),
         unit="tokens_per_second", where=NOT_PREFILL),
    rate("computed_tokens_rate", "Prompt tokens computed",
         vllm("prompt_tokens_by_source_total"), unit="tokens_per_second", where=_LOCAL,
         note="The prompt work that was really done; it adds up over pools."),
    latency("tokens_per_step", "Mean tokens of an engine step", "iteration_tokens_total"),
    gauge("requests_running", "Requests running", vllm("num_requests_running"), "engine",
          agg="max", engine=True),
    gauge("requests_waiting", "Requests waiting", vllm("num_requests_waiting"), "engine",
          agg="max", bad="up", engine=True),
    gauge("requests_waiting_capacity", "Requests waiting for capacity", _WAITING, "engine",
          agg="max", where='reason="capacity"', bad="up", engine=True),
    gauge("requests_waiting_by_reason", "Requests waiting by reason", _WAITING, "engine",
          agg="max", extra=("reason",), bad="up", engine=True),
    gauge("kv_fetch_waiting", "Requests waiting for KV from the other pool", _FETCH, "engine",
          where=_UNFETCHED, bad="up", engine=True),
    gauge("kv_fetch_by_stage", "Requests fetching KV, by stage", _FETCH, "engine", agg="max",
          extra=("stage",), bad="up", engine=True),
    gauge("kv_usage", "KV cache usage", vllm("kv_cache_usage_perc"), "engine", agg="max",
          engine=True),
    ratio("prefix_hit_ratio", "Prefix cache hit ratio", vllm("prefix_cache_hits_total"),
          vllm("prefix_cache_queries_total"), where=NOT_DECODE,
          note="On decode KV arrives from prefill: its hit ratio says nothing."),
    _external_hits(),
    rate("preemption_rate", "Preemptions", vllm("num_preemptions_total"), level="engine",
         bad="up"),
    ratio("acceptance_ratio", "Share of drafted tokens accepted",
          vllm("spec_decode_num_accepted_tokens_total"),
          vllm("spec_decode_num_draft_tokens_total"),
          note="Falls without any error: each token then costs more steps."),
    _acceptance_length(),
    _acceptance_by_position(),
    rate("drafts_rate", "Drafts", vllm("spec_decode_num_drafts_total")),
)  # fmt: skip
