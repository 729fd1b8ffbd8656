"""The few helpers that build every PromQL expression of the product.

Older names, label merging and the guards against what vLLM's metrics don't mean live here, and not
in the exporter: a fleet whose Prometheus scrapes vLLM directly gets the same answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from catalog.metric import Metric

WINDOW: Final = "5m"
"""Window of rates: five scrapes a minute apart still leave two samples after one is missed."""

Aggregation = Literal["sum", "max", "min"]


def selector(name: str, where: str = "") -> str:
    """Return `name{where}`, or the bare name without a condition."""
    return f"{name}{{{where}}}" if where else name


def _any_name(metric: Metric, template: str) -> str:
    """Return *template* for the metric's name, else for its older ones (`or`, series by series).

    Programs write old names beside new ones for years: where the labels differ, the old series
    must give way all the same, or both would be added up.
    """
    parts = [template.replace("NAME", name) for name in (metric.name, *metric.former)]
    either = f" or ignoring ({', '.join(metric.varying)}) " if metric.varying else " or "
    return parts[0] if len(parts) == 1 else "(" + either.join(parts) + ")"


def _by(labels: Sequence[str]) -> str:
    return f"by ({', '.join(labels)})"


def gauge(metric: Metric, by: Sequence[str], agg: Aggregation = "sum", where: str = "") -> str:
    """Return a gauge kept by *by*; `pid` series of a multiprocess server merge in the aggregate."""
    return f"{agg} {_by(by)} ({_any_name(metric, selector('NAME', where))})"


def gpu_gauge(ours: Metric, dcgm: Metric, by: Sequence[str], scale: str = "") -> str:
    """Return a gauge of our GPU collector; of dcgm-exporter where it alone sees a GPU.

    Args:
        ours: With labels as in `by`.
        dcgm: With NVIDIA's labels and unit; `Hostname` became `hostname` in 2026.
        by: Labels kept, `uuid` among them.
        scale: What turns NVIDIA's unit into the base unit, such as `/ 100`.
    """
    # A node label of the scrape itself is nearer to ours than what a container thinks it is called.
    raw = f'label_join({dcgm.name}, "node", ";", "node", "hostname", "Hostname")'
    named = f'label_replace({raw}, "node", "$1", "node", ";*([^;]*).*")'
    theirs = f'label_replace({named}, "uuid", "$1", "UUID", "(.+)")'
    scaled = f"{theirs} {scale}" if scale else theirs
    return f"max {_by(by)} ({ours.name}) or on (uuid) max {_by(by)} ({scaled})"


def rate(metric: Metric, by: Sequence[str], where: str = "", part: str = "") -> str:
    """Return the per-second rate of a counter (or of a histogram's *part*: `_sum`, `_count`)."""
    body = f"rate({selector('NAME' + part, where)}[{WINDOW}])"
    return f"sum {_by(by)} ({_any_name(metric, body)})"


def _guarded(metric: Metric, by: Sequence[str], where: str, part: str, guard: str) -> str:
    """Return the rate of *part*, without series whose guard's sum fell while its count did not.

    A negative observation makes `_sum` drop, which `rate()` takes for a restart; see the traps of
    `request_queue_time_seconds`.
    """

    def over(function: str, name: str) -> str:
        return f"{function}({selector(name, where)}[{WINDOW}])"

    fell = f"{over('resets', guard + '_sum')} > {over('resets', guard + '_count')}"
    body = f"({over('rate', 'NAME' + part)} unless ({fell}))"
    return f"sum {_by(by)} ({_any_name(metric, body)})"


def ratio(numerator: str, denominator: str, join: str = "") -> str:
    """Return a ratio of sums; no data (rather than NaN) where the denominator is zero."""
    return f"({numerator}) / {join + ' ' if join else ''}(({denominator}) > 0)"


def mean(metric: Metric, by: Sequence[str], where: str = "", guard: Metric | None = None) -> str:
    """Return the mean of a histogram's observations in the window.

    Args:
        metric: The histogram.
        by: Labels kept.
        where: Label condition.
        guard: Histogram whose sum falls when an observation is corrupt; default: *metric* itself.
    """
    name = guard.name if guard else "NAME"
    total, count = (_guarded(metric, by, where, part, name) for part in ("_sum", "_count"))
    return ratio(total, count)


def events(metric: Metric, witness: Metric, by: Sequence[str], window: str) -> str:
    """Return how often a counter moved in *window*; no data where it did not.

    `increase()` can't see the first increment of a counter that is born with it, so a series that
    is above zero now and was absent one *window* ago counts in full, provided that the *witness*
    of the same server was there: else it is the scrape that is new, not the event.
    """
    seen = f"sum {_by(by)} (increase({metric.name}[{window}])) > 0"
    born = (
        f"{metric.name} > 0 unless {metric.name} offset {window} "
        f"and on ({', '.join(by)}) {witness.name} offset {window}"
    )
    return f"{seen} or sum {_by(by)} ({born})"


def target(slo: Metric, signal: str, series: str) -> str:
    """Return the service level of *signal* for every one of *series*, the nearest scope first."""
    scopes = (
        ("deployment, model_name", 'deployment!="", model_name!=""'),
        ("deployment", 'deployment!="", model_name=""'),
        ("", 'deployment="", model_name=""'),
    )
    return " or ".join(
        f"0 * {series} + on ({on}) group_left () "
        + selector(slo.name, f'signal="{signal}", {where}')
        for on, where in scopes
    )


def quantile(q: float, metric: Metric, by: Sequence[str], where: str = "") -> str:
    """Return a quantile of a histogram, buckets summed over servers first.

    The answer equals the highest finite bucket bound where the quantile lies above it.
    """
    buckets = rate(metric, (*by, "le"), where, "_bucket")
    # Without observations histogram_quantile is NaN: a comparison drops it.
    return f"histogram_quantile({q:g}, {buckets}) >= 0"
