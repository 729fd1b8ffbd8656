"""Signals of our own requests, and of what vLLM only logs."""

from __future__ import annotations

from typing import Final

from catalog import promql
from catalog.forms import W, rate
from catalog.labels import LEVELS
from catalog.metrics import ours
from catalog.signal import Signal

_BY: Final = LEVELS["deployment"]


def _probe(name: str, title: str) -> Signal:
    metric = ours(f"{name}_seconds")
    return Signal(
        name, title, "seconds", "deployment", promql.mean(metric, _BY),
        f"mean{W}", "up", (metric,), load="request_rate",
        note="Probes that failed are no latency: see probe_error_ratio.",
    )  # fmt: skip


def _itl(name: str, title: str, q: float) -> Signal:
    metric = ours("probe_itl_seconds")
    return Signal(
        name, title, "seconds", "deployment", promql.quantile(q, metric, _BY), f"quantile{W}",
        "up", (metric,), note=" ".join(metric.traps),
    )  # fmt: skip


def _share(name: str, title: str, counter: str, where: str, note: str) -> Signal:
    metric = ours(counter)
    expr = promql.ratio(promql.rate(metric, _BY, where), promql.rate(metric, _BY))
    return Signal(
        name, title, "ratio", "deployment", expr, f"ratio_rate{W}", "up", (metric,), note=note
    )


_REQUESTS: Final = ours("probe_requests_total")
_TOKENS: Final = ours("probe_tokens_total")

PROBE: Final[tuple[Signal, ...]] = (
    _probe("probe_ttft", "Mean time to first token of our own requests"),
    _probe("probe_tpot", "Mean time per output token of our own requests"),
    _itl("probe_itl_p50", "Time between pieces of text of our own requests, median", 0.5),
    _itl("probe_itl_p99", "Time between pieces of text of our own requests, p99", 0.99),
    _share("probe_error_ratio", "Share of our own requests that failed", "probe_requests_total",
           'result="failed"', "Of all probes: at one a minute a single failure is a fifth."),
    _share("probe_wrong_ratio", "Share of wrong answers to our own questions",
           "probe_answers_total", 'result="wrong"',
           "Choices are four: garbage held to a choice is right once in four."),
    rate("probe_request_rate", "Our own requests", _REQUESTS, level="deployment",
         note="What to take off request_rate for the users' alone; each pool finishes every one."),
    rate("probe_tokens_rate", "Tokens of our own requests", _TOKENS, level="deployment",
         unit="tokens_per_second", extra=("kind",),
         note="What to take off the pools' token rates for the users' alone."),
)  # fmt: skip

LOGS: Final[tuple[Signal, ...]] = (
    rate("log_errors_rate", "Errors logged", ours("log_messages_total"), level="server",
         where='level=~"error|critical"', bad="up",
         note="Not every one is a fault: read the log beside it."),
    rate("log_jit_rate", "Kernels compiled while serving", ours("log_jit_compilations_total"),
         level="server", bad="up"),
    rate("log_nixl_failures_rate", "NIXL failures logged, by the other side",
         ours("log_nixl_failures_total"), level="server", extra=("kind", "peer"), bad="up"),
)  # fmt: skip
