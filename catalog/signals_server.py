"""Signals of single servers: latencies to compare them by, and when and how each was started."""

from __future__ import annotations

from typing import Final

from catalog import promql
from catalog.forms import NOT_PREFILL, W, rate
from catalog.labels import LEVELS
from catalog.metrics import ours, vllm
from catalog.signal import Signal

SETUP: Final = ("arguments", "image", "vllm_version")
"""Labels of `instance_start` that say what a rollout changed."""


def _latency(
    name: str, title: str, metric: str, load: str, where: str = "", *, zeros: bool = False
) -> Signal:
    """Return the mean of a latency histogram by server; for *zeros* see `promql.mean`."""
    m = vllm(metric)
    return Signal(
        f"{name}_by_server", f"{title}, by server", m.unit, "server",
        promql.mean(m, LEVELS["server"], where, zeros=zeros), f"mean{W}", "up", (m,), load=load,
        note="To compare servers of one pool at the same load.",
    )  # fmt: skip


def _start() -> Signal:
    server = ", ".join(LEVELS["server"])
    info, started = ours("instance_info"), ours("instance_start_time_seconds")
    expr = (
        f"max by ({server}, {', '.join(SETUP)}) ({info.name}) "
        f"* on ({server}) group_left () max by ({server}) ({started.name})"
    )
    return Signal(
        "instance_start", "Start of the running incarnation", "seconds", "server", expr, "max",
        None, (info, started), extra=SETUP,
        note="Unix time. A change is a restart; a series with other labels beside it is a restart "
             "with other arguments, another image or another version.",
    )  # fmt: skip


SERVER: Final[tuple[Signal, ...]] = (
    _latency("ttft_mean", "Mean time to first token of this stage",
             "time_to_first_token_seconds", "request_rate_by_server"),
    _latency("tpot_mean", "Mean time per output token", "request_time_per_output_token_seconds",
             "requests_running", NOT_PREFILL, zeros=True),
    _latency("itl_mean", "Mean time between steps that returned tokens",
             "inter_token_latency_seconds", "requests_running", NOT_PREFILL),
    rate("request_rate_by_server", "Finished requests, by server", vllm("request_success_total"),
         level="server", note="The load of a server among its peers."),
    _start(),
)  # fmt: skip
