"""The forms that most signals take: means, quantiles, rates, gauges and ratios of metrics."""

from __future__ import annotations

from typing import Final

from catalog import guards, promql
from catalog.labels import LEVELS, Level
from catalog.metric import Metric
from catalog.metrics import vllm
from catalog.signal import Counts, Direction, Signal
from catalog.units import Unit

NOT_PREFILL: Final = 'pool!="prefill"'
NOT_DECODE: Final = 'pool!="decode"'

W: Final = guards.WINDOW


def latency(
    name: str,
    title: str,
    metric: str,
    *,
    where: str = "",
    load: str = "",
    note: str = "",
    guard: str = "",
    zeros: bool = False,
) -> Signal:
    """Return the mean of a latency histogram by pool; for *zeros* see `promql.mean`."""
    m = vllm(metric)
    other = vllm(guard) if guard else None
    expr = promql.mean(m, LEVELS["pool"], where, other, zeros=zeros)
    return Signal(
        name, title, m.unit, "pool", expr, f"mean{W}", "up", (m,), load=load,
        note=note or " ".join(m.traps),
    )  # fmt: skip


def quantile(
    name: str, title: str, q: float, metric: str, *, where: str = "", zeros: bool = False
) -> Signal:
    """Return a quantile of a latency histogram by pool; for *zeros* see `promql.mean`."""
    m = vllm(metric)
    return Signal(
        name, title, m.unit, "pool", promql.quantile(q, m, LEVELS["pool"], where, zeros=zeros),
        f"quantile{W}", "up", (m,),
        note="Equal to the highest bucket bound it may lie above it, below the lowest it is a "
             "guess, and where servers' bounds differ it lies: the board of one pool tells. Means "
             "are for drifts.",
    )  # fmt: skip


def rate(
    name: str,
    title: str,
    metric: Metric,
    *,
    unit: Unit = "per_second",
    level: Level = "pool",
    where: str = "",
    part: str = "",
    bad: Direction | None = None,
    extra: tuple[str, ...] = (),
    note: str = "",
) -> Signal:
    """Return the rate of a counter."""
    expr = promql.rate(metric, (*LEVELS[level], *extra), where, part)
    return Signal(
        name, title, unit, level, expr, f"rate{W}", bad, (metric,), extra=extra,
        note=note or " ".join(metric.traps),
    )  # fmt: skip


def gauge(
    name: str,
    title: str,
    metric: Metric,
    level: Level,
    *,
    agg: promql.Aggregation = "sum",
    where: str = "",
    engine: bool = False,
    bad: Direction | None = None,
    extra: tuple[str, ...] = (),
    note: str = "",
) -> Signal:
    """Return a gauge: as it stands, or believed only while its *engine* moves."""
    expr = promql.gauge(metric, (*LEVELS[level], *extra), agg, where, engine=engine)
    return Signal(
        name, title, metric.unit, level, expr, agg, bad, (metric,), extra=extra,
        note=note or " ".join(metric.traps),
    )  # fmt: skip


def ratio(
    name: str,
    title: str,
    successes: Metric,
    trials: Metric,
    *,
    where: str = "",
    bad: Direction = "down",
    only: str = "",
    note: str = "",
) -> Signal:
    """Return the ratio of two counters by pool, with the counters beside it."""
    by = LEVELS["pool"]
    over, under = (promql.rate(m, by, where, only=only) for m in (successes, trials))
    expr = promql.ratio(over, under)
    return Signal(
        name, title, "ratio", "pool", expr, f"ratio_rate{W}", bad, (successes, trials),
        counts=Counts(successes, trials, where), note=note or " ".join(successes.traps),
    )  # fmt: skip
