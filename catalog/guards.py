"""Conditions that keep a metric of vLLM from being read for what it is not.

Each is PromQL and part of the signals' expressions: what is scraped from vLLM directly is guarded
like what our exporter passes on. Why each is there, and its test: docs/traps.md.
"""

from __future__ import annotations

from typing import Final

from catalog.labels import LEVELS
from catalog.metric import Metric

WINDOW: Final = "5m"
"""Window of rates: five scrapes a minute apart still leave two samples after one is missed."""

_ENGINE: Final = ", ".join(LEVELS["engine"])
_TOKENS: Final = "vllm:generation_tokens_total"
_GAUGES: Final = ("vllm:kv_cache_usage_perc", "vllm:num_requests_waiting")

# Filtered one by one: `or` takes the first of equal labels, whatever its value.
_CHANGES: Final = " or ".join(f"changes({gauge}[{WINDOW}]) > 0" for gauge in _GAUGES)
STILL: Final = (
    f"sum by ({_ENGINE}) (rate({_TOKENS}[{WINDOW}])) == 0 unless on ({_ENGINE}) ({_CHANGES})"
)
"""Engines that brought no token in the window and whose gauges did not move either.

A step that ends sets the gauges, and only such a step: after a mass abort, or stuck, an engine
shows its last values for ever. A prefill that works on one long prompt brings no token for minutes,
but its KV cache fills.
"""


def believed(gauge: str) -> str:
    """Return *gauge* without values above zero of engines that stand still: they are of the past.

    Zero stays: an engine at rest has nothing running and nothing waiting.
    """
    return f"{gauge} unless on ({_ENGINE}) ({STILL}) or {gauge} == 0"


def frozen(*gauges: str) -> str:
    """Return what `believed` leaves out: values above zero of engines that stand still."""
    above = " or ".join(f"{gauge} > 0" for gauge in gauges)
    return f"({above}) and on ({_ENGINE}) ({STILL})"


def on_engine(expr: str) -> str:
    """Return a condition, behind an expression: engines that have *expr* too."""
    return f" and on ({_ENGINE}) {expr}"


def one_process(metric: Metric, name: str) -> str:
    """Return *name* with the `pid` series of a server merged as their kind demands.

    Which process wrote last can't be told any more, so the highest stands for the newest: those
    that serve no engine say zero.
    """
    apart = {"newest": "max", "max": "max", "livesum": "sum", "sum": "sum"}
    return f"{apart[metric.merge]} without (pid) ({name})" if metric.merge else name


def corrupt(sums: str, counts: str) -> str:
    """Return the series whose sum fell while its count did not.

    A negative observation makes `_sum` drop, which `rate()` takes for a restart; see the traps of
    `request_queue_time_seconds`.
    """
    return f"resets({sums}[{WINDOW}]) > resets({counts}[{WINDOW}])"


def presence(metric: Metric, info: Metric) -> str:
    """Return one series a server, whose label `state` says what a metric's absence means.

    present; lazy (the setup has it and it waits for its first use); missing (the setup has it and
    it should be there); disabled (the setup has none); unknown (the setup doesn't tell). A server
    whose setup nobody knows has no series.

    Args:
        metric: What may be absent.
        info: One series a server, with its `kv_connectors` and `kv_role`.
    """
    by = ", ".join(LEVELS["server"])
    gate = metric.gate
    within = f'kv_connectors=~"(.+[+])?({"|".join(gate.connectors)})([+].+)?"'
    wanted = [within] if gate.connectors else []
    wanted += [f'kv_role=~"{"|".join(gate.roles)}"'] if gate.roles else []
    opened = "unknown" if gate.flag else "lazy" if metric.lazy else "missing"
    # A server that has a connector and does not tell which ones it comes to.
    steps = [
        ("present", " or ".join((metric.exposed[-1], *metric.former))),
        (opened, f"{info.name}{{{', '.join(wanted)}}}" if wanted else info.name),
        ("unknown", f'{info.name}{{kv_connectors=~".*other.*"}} or '
                    f'{info.name}{{kv_connector!="", kv_connectors=""}}'),
        ("disabled", info.name),
    ]  # fmt: skip
    return f" or on ({by}) ".join(
        f'label_replace(max by ({by}) ({expr}), "state", "{state}", "", "")'
        for state, expr in steps
    )
