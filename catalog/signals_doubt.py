"""Signals that say when others can't be believed: frozen, started again, missing."""

from __future__ import annotations

from typing import Final

from catalog import guards, promql
from catalog.forms import W
from catalog.labels import LEVELS
from catalog.metrics import METRICS, ours, vllm
from catalog.signal import Signal

_TOKENS: Final = vllm("generation_tokens_total")
_RUNNING: Final = vllm("num_requests_running")
_WAITING: Final = vllm("num_requests_waiting")
_USAGE: Final = vllm("kv_cache_usage_perc")


def _gauges_frozen() -> Signal:
    by = ", ".join(LEVELS["engine"])
    gauges = guards.frozen(_RUNNING.name, _WAITING.name, _USAGE.name)
    return Signal(
        "gauges_frozen", "Engines that stand still with gauges above zero", "count", "engine",
        f"max by ({by}) (0 * ({gauges}) + 1) or 0 * max by ({by}) ({_RUNNING.name})", "max", "up",
        (_RUNNING, _WAITING, _USAGE, _TOKENS),
        note="1: for 5 minutes no token and no change: the gauges are of the past (a mass abort "
             "leaves them so), or the engine is stuck. Until it moves they are unknown.",
    )  # fmt: skip


def _engines_missing() -> Signal:
    by, engine = ", ".join(LEVELS["server"]), ", ".join(LEVELS["engine"])
    had = f"count by ({by}) (max by ({engine}) (max_over_time({_RUNNING.name}[1h])))"
    has = f"count by ({by}) (max by ({engine}) ({_RUNNING.name}))"
    return Signal(
        "engines_missing", "Data-parallel ranks that no longer speak", "count", "server",
        f"{had} - {has}", "max", "up", (_RUNNING,),
        note="Ranks that this server's page had within the hour less those it has; after a server "
             "was made smaller on purpose it stays up for an hour.",
    )  # fmt: skip


def _counter_resets() -> Signal:
    server = ", ".join(LEVELS["server"])
    own, page = ours("process_start_time_seconds"), METRICS["process_start_time_seconds"]
    began = promql.selector(own.name, 'process="api_server"')

    def by_server(expr: str) -> str:
        return f"max by ({server}) ({expr})"

    reset = f"{by_server(f'resets({_TOKENS.name}[{W}])')} > 0"
    changed = (
        f"({by_server(f'changes({began}[{W}])')} or {by_server(f'changes({page.name}[{W}])')})"
    )
    on = f"on ({server})"
    kinds = {
        "restart": f"{reset} and {on} {changed} > 0",
        "no_restart": f"{reset} and {on} {changed} == 0",
        "unknown": f"{reset} unless {on} {changed}",
        "kept": f"{changed} > 0 unless {on} {reset} and {on} {by_server(_TOKENS.name)} > 0",
    }
    expr = " or ".join(
        f'label_replace({kind}, "kind", "{name}", "", "")' for name, kind in kinds.items()
    )
    return Signal(
        "counter_resets", "Counters that began again, or outlived a restart", "count", "server",
        f"{expr} or {on} 0 * {by_server(_TOKENS.name)}", "max", None, (_TOKENS, own, page),
        extra=("kind",),
        note="0: none. By kind, restart: both; no_restart: counters alone (elastic expert "
             "parallelism makes them anew); kept: a restart alone (a folder of "
             "PROMETHEUS_MULTIPROC_DIR that stays); unknown: nobody tells when the server began. "
             "Rates are right through all of them.",
    )  # fmt: skip


DOUBT: Final[tuple[Signal, ...]] = (
    _gauges_frozen(),
    _counter_resets(),
    _engines_missing(),
)
