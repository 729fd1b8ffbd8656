"""Signals of the programs beside vLLM: the router before it, the cache behind it, NIXL itself.

All are absent where the program is: none of them is needed to judge the servers.
"""

from __future__ import annotations

from typing import Final

from catalog import promql
from catalog.forms import NOT_DECODE, W, gauge, rate
from catalog.labels import LEVELS
from catalog.metric import Metric
from catalog.metrics import METRICS
from catalog.peers_cache import (
    DEREGISTERED,
    HIT_TOKENS,
    L1_EVICTED,
    L1_FAILURES,
    L1_USAGE,
    LOOKUP_TOKENS,
    NIXL_ERRORS,
    PHASE_BYTES,
    REGISTERED,
)
from catalog.peers_router import (
    DECISIONS,
    ERRORS,
    FLOW_QUEUE,
    FLOW_SATURATION,
    FLOW_SIZE,
    PREFIX_RATIO,
    REQUESTS,
)
from catalog.signal import Counts, Signal

_DEPLOYMENT: Final = LEVELS["deployment"]
_GROUP: Final = ", ".join(LEVELS["pool"][:-1])
# Both phases move the same bytes; staging is the way between host and GPU itself.
_TO_GPU: Final = 'direction="h2d", phase="staging"'


def _vllm_router(name: str) -> Metric:
    return METRICS[f"vllm_router_{name}_total"]


_PD: Final = _vllm_router("pd_requests")
_LEGS: Final = (_vllm_router("pd_prefill_errors"), _vllm_router("pd_decode_errors"))
_ANSWERED: Final = _vllm_router("requests")
_GIVEN_UP: Final = _vllm_router("retries_exhausted")


def _plus(first: str, second: str) -> str:
    """Return a sum of two counters' rates of which either may not be born yet."""
    return f"(({first}) or 0 * ({second})) + (({second}) or 0 * ({first}))"


def _share(failed: str, sent: str) -> str:
    """Return the share of failures; their counter is born with the first."""
    return promql.ratio(f"({failed}) or 0 * ({sent})", sent)


def _router_request_rate() -> Signal:
    epp, pd, answered, given_up = (
        promql.rate(m, _DEPLOYMENT) for m in (REQUESTS, _PD, _ANSWERED, _GIVEN_UP)
    )
    return Signal(
        "router_request_rate", "Requests at the router", "per_second", "deployment",
        f"{epp} or {pd} or ({_plus(answered, given_up)})", f"rate{W}", None,
        (REQUESTS, _PD, _ANSWERED, _GIVEN_UP),
        note="llm-d's router, else vllm-router: its P/D requests, else its answered and its failed "
             "ones.",
    )  # fmt: skip


def _router_error_ratio() -> Signal:
    epp = _share(promql.rate(ERRORS, _DEPLOYMENT), promql.rate(REQUESTS, _DEPLOYMENT))
    legs = _plus(*(promql.rate(metric, _DEPLOYMENT) for metric in _LEGS))
    pd = _share(legs, promql.rate(_PD, _DEPLOYMENT))
    answered, given_up = (promql.rate(m, _DEPLOYMENT) for m in (_ANSWERED, _GIVEN_UP))
    plain = _share(given_up, _plus(answered, given_up))
    return Signal(
        "router_error_ratio", "Share of requests that failed at the router", "ratio", "deployment",
        f"{epp} or {pd} or {plain}", f"ratio_rate{W}", "up",
        (ERRORS, REQUESTS, *_LEGS, _PD, _GIVEN_UP, _ANSWERED),
        note="With what never reached a server: rejected, no server ready, broken on the way.",
    )  # fmt: skip


def _router_queue_mean() -> Signal:
    expr = promql.mean(FLOW_QUEUE, _DEPLOYMENT, 'outcome="Dispatched"')
    return Signal(
        "router_queue_mean", "Mean wait in the router's flow control", "seconds", "deployment",
        expr, f"mean{W}", "up", (FLOW_QUEUE,), load="router_request_rate",
        note="Of requests that were sent on. " + " ".join(FLOW_QUEUE.traps),
    )  # fmt: skip


def _pd_share() -> Signal:
    split = promql.rate(DECISIONS, _DEPLOYMENT, 'decision_type=~".*prefill-decode"')
    whole = promql.rate(DECISIONS, _DEPLOYMENT)
    return Signal(
        "pd_share", "Share of requests that the router sends over prefill", "ratio", "deployment",
        promql.ratio(f"({split}) or 0 * ({whole})", whole), f"ratio_rate{W}", None, (DECISIONS,),
        note="The rest is prefilled by decode itself: short prompts, or a prefix that is there.",
    )  # fmt: skip


def _router_prefix_ratio() -> Signal:
    expr = promql.mean(PREFIX_RATIO, _DEPLOYMENT)
    return Signal(
        "router_prefix_ratio", "Mean share of a prompt that the router expects to be cached",
        "ratio", "deployment", expr, f"mean{W}", "down", (PREFIX_RATIO,),
        note=" ".join(PREFIX_RATIO.traps),
    )  # fmt: skip


ROUTER: Final[tuple[Signal, ...]] = (
    _router_request_rate(),
    _router_error_ratio(),
    _router_queue_mean(),
    gauge("router_queue_size", "Requests in the router's flow control", FLOW_SIZE, "deployment",
          bad="up"),
    gauge("router_saturation", "Load of a pool against the router's set point", FLOW_SATURATION,
          "deployment", agg="max", extra=("stage",), bad="up"),
    _pd_share(),
    _router_prefix_ratio(),
)  # fmt: skip


def cache_hits() -> str:
    """Return LMCache's hit ratio by pool, of the server of its own or from vLLM's page."""
    by = LEVELS["pool"]
    return promql.ratio(
        promql.rate(HIT_TOKENS, by, NOT_DECODE), promql.rate(LOOKUP_TOKENS, by, NOT_DECODE)
    )


def or_cache(expr: str, cache: str) -> str:
    """Return *expr*, else what LMCache says, pool by pool: it may call the model otherwise."""
    return f"({expr}) or on ({_GROUP}) ({cache})"


def cache_restores() -> str:
    """Return the bytes that LMCache brings back to GPUs, by pool."""
    return promql.rate(PHASE_BYTES, LEVELS["pool"], _TO_GPU)


def _cache_hit_ratio() -> Signal:
    return Signal(
        "cache_hit_ratio", "Hit ratio of LMCache", "ratio", "pool", cache_hits(), f"ratio_rate{W}",
        "down", (HIT_TOKENS, LOOKUP_TOKENS), counts=Counts(HIT_TOKENS, LOOKUP_TOKENS, NOT_DECODE),
        note=" ".join(HIT_TOKENS.traps[:1]),
    )  # fmt: skip


def _nixl_registered() -> Signal:
    by = LEVELS["server"]
    made, gone = (f"sum by ({', '.join(by)}) ({m.name})" for m in (REGISTERED, DEREGISTERED))
    return Signal(
        "nixl_registered", "Memory registered with NIXL", "bytes", "server",
        f"({made}) - (({gone}) or 0 * ({made}))", "sum", "up", (REGISTERED, DEREGISTERED),
        note="What was registered less what was deregistered: growth at a steady load is a leak. "
             + REGISTERED.traps[-1],
    )  # fmt: skip


CACHE: Final[tuple[Signal, ...]] = (
    _cache_hit_ratio(),
    gauge("cache_usage", "Share of LMCache's host memory in use", L1_USAGE, "server", agg="max"),
    rate("cache_evictions_rate", "Chunks that LMCache drops from host memory", L1_EVICTED,
         level="server", bad="up"),
    rate("cache_failures_rate", "Times LMCache finds no room in host memory", L1_FAILURES,
         level="server", bad="up"),
    _nixl_registered(),
    rate("nixl_errors_rate", "Failed operations of NIXL, by status", NIXL_ERRORS, level="server",
         extra=("status",), bad="up"),
)  # fmt: skip
