"""Makes panels of signals: title, meaning, unit and legend come from the catalogue."""

from __future__ import annotations

from typing import Final, Literal

from catalog import promql
from catalog.labels import LEVELS
from catalog.signals import METRICS, NOT_PREFILL, SIGNALS, target_record
from dashboards.panel import GRAFANA_UNITS, LEVEL_LEGEND, Panel, Query
from dashboards.variables import condition


def signals(
    names: tuple[str, ...],
    *,
    pool: str = "",
    title: str = "",
    width: int = 8,
    sla: bool = False,
    low: float | None = 0.0,
    high: float | None = None,
) -> Panel:
    """Return a panel of signals of one unit; *pool* fixes the pool, *sla* draws the levels."""
    first = SIGNALS[names[0]]
    queries = [_query(name, pool, alone=len(names) == 1) for name in names]
    if sla:
        where = condition(first.level, pool)
        queries.append(
            Query(
                promql.selector(target_record(first), where), f"{LEVEL_LEGEND} {{{{deployment}}}}"
            )
        )
    return Panel(
        title or first.title, " ".join(dict.fromkeys(map(_meaning, names))),
        GRAFANA_UNITS[first.unit], tuple(queries), width=width, low=low, high=high,
    )  # fmt: skip


def _meaning(name: str) -> str:
    """Return what a signal is and how it misleads."""
    signal = SIGNALS[name]
    note = signal.note or " ".join(metric.help for metric in signal.metrics)
    return f"{signal.title}, by {signal.level}. {note}"


def _query(name: str, pool: str, *, alone: bool) -> Query:
    signal = SIGNALS[name]
    hidden = {"cluster", "namespace", "model_name", "uuid"}
    if "server" in signal.labels:
        hidden.add("node")  # a server's name holds it
    shown = [label for label in signal.labels if label not in hidden]
    if pool:
        shown.remove("pool")
    legend = " ".join(f"{{{{{label}}}}}" for label in shown)
    what = "" if alone else f"{name} "
    return Query(promql.selector(signal.record, condition(signal.level, pool)), what + legend)


def own(name: str, where: str = "") -> str:
    """Return the selector of a metric of ours, named without its prefix."""
    return promql.selector(METRICS[f"leadline_{name}"].name, where)


def heatmap(metric: str, title: str, pool: str = "", width: int = 8) -> Panel:
    """Return the distribution of a histogram of vLLM: means are recorded, buckets are not."""
    histogram = METRICS[f"vllm:{metric}"]
    expr = promql.rate(histogram, ("le",), condition("pool", pool), "_bucket")
    said = " ".join((histogram.help, *histogram.traps))
    return Panel(
        title, f"Observations by bucket, a second. {said}", GRAFANA_UNITS[histogram.unit],
        (Query(expr, "{{le}}", exemplar=True),), "heatmap", width,
    )  # fmt: skip


_BUCKETS: Final = {
    "ttft": ("time_to_first_token_seconds", ""),
    "tpot": ("request_time_per_output_token_seconds", NOT_PREFILL),
    "transfer_time": ("nixl_xfer_time_seconds", ""),
}


def buckets(helper: Literal["above", "bounds_apart"], title: str, unit: str, said: str) -> Panel:
    """Return a panel of what a helper of `promql` says of the buckets that quantiles are read from.

    It reads as many series as a quantile, so it is asked for by who looks and not recorded.
    """
    by = LEVELS["pool"]
    make = {"above": promql.above, "bounds_apart": promql.bounds_apart}[helper]
    queries = []
    for name, (metric, where) in _BUCKETS.items():
        place = ",".join(part for part in (condition("pool"), where) if part)
        expr = make(METRICS[f"vllm:{metric}"], by, place)
        queries.append(Query(expr, f"{name} {{{{deployment}}}} {{{{pool}}}}"))
    return Panel(title, said, unit, tuple(queries), low=0.0)
