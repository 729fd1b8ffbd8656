"""The few helpers that build every PromQL expression of the product.

Older names, label merging and the guards against what vLLM's metrics don't mean live here, and not
in the exporter: a fleet whose Prometheus scrapes vLLM directly gets the same answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from catalog import guards
from catalog.guards import WINDOW
from catalog.metric import Metric

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


def gauge(
    metric: Metric,
    by: Sequence[str],
    agg: Aggregation = "sum",
    where: str = "",
    *,
    engine: bool = False,
) -> str:
    """Return a gauge kept by *by*; `pid` series of a multiprocess server are merged first.

    Args:
        metric: The gauge.
        by: Labels kept.
        agg: How the series that share them become one.
        where: Label condition.
        engine: Whether an engine's step sets it, so that it freezes: see `guards.believed`.
    """
    body = _any_name(metric, selector("NAME", where))
    if agg == "sum":
        body = guards.one_process(metric, body)
    return f"{agg} {_by(by)} ({guards.believed(body) if engine else body})"


def gpu_gauge(ours: Metric, dcgm: Metric, by: Sequence[str], scale: str = "") -> str:
    """Return a gauge of our GPU collector; of dcgm-exporter where it alone sees a GPU.

    Args:
        ours: With labels as in `by`.
        dcgm: With NVIDIA's labels and unit; `Hostname` became `hostname` in 2026.
        by: Labels kept, `uuid` among them.
        scale: What turns NVIDIA's unit into the base unit, such as `/ 100`.
    """
    theirs = as_ours(dcgm.name)
    scaled = f"{theirs} {scale}" if scale else theirs
    return f"max {_by(by)} ({ours.name}) or on (uuid) max {_by(by)} ({scaled})"


def as_ours(dcgm: str) -> str:
    """Return series of dcgm-exporter with our labels of a GPU beside NVIDIA's own."""
    # A node label of the scrape itself is nearer to ours than what a container thinks it is called.
    raw = f'label_join({dcgm}, "node", ";", "node", "hostname", "Hostname")'
    named = f'label_replace({raw}, "node", "$1", "node", ";*([^;]*).*")'
    return f'label_replace({named}, "uuid", "$1", "UUID", "(.+)")'


def rate(metric: Metric, by: Sequence[str], where: str = "", part: str = "", only: str = "") -> str:
    """Return the per-second rate of a counter (or of a histogram's *part*: `_sum`, `_count`).

    Args:
        metric: The counter.
        by: Labels kept.
        where: Label condition.
        part: Suffix of a histogram's series.
        only: Expression; engines that don't have it are left out.
    """
    body = f"rate({selector('NAME' + part, where)}[{WINDOW}])"
    more = guards.on_engine(only) if only else ""
    return f"sum {_by(by)} ({_any_name(metric, body + more)})"


def ratio(numerator: str, denominator: str, join: str = "") -> str:
    """Return a ratio of sums; no data (rather than NaN) where the denominator is zero."""
    return f"({numerator}) / {join + ' ' if join else ''}(({denominator}) > 0)"


def mean(
    metric: Metric,
    by: Sequence[str],
    where: str = "",
    guard: Metric | None = None,
    *,
    zeros: bool = False,
    only: str = "",
) -> str:
    """Return the mean of a histogram's observations in the window.

    A server whose sum fell while its count did not is left out, and one whose sum is NaN.

    Args:
        metric: The histogram.
        by: Labels kept.
        where: Label condition.
        guard: Histogram whose sum falls when an observation is corrupt; default: *metric* itself.
        zeros: Whether a server on which all observations are 0.0 does not measure it at all.
        only: Expression; engines that don't have it are left out.
    """
    name = guard.name if guard else "NAME"
    sums = selector("NAME_sum", where)
    total = f"rate({sums}[{WINDOW}]) {'>' if zeros else '>='} 0"
    bad = guards.corrupt(selector(f"{name}_sum", where), selector(f"{name}_count", where))
    more = guards.on_engine(only) if only else ""
    count = f"rate({selector('NAME_count', where)}[{WINDOW}]) and {total}"
    sides = (f"({side} unless ({bad}){more})" for side in (total, count))
    return ratio(*(f"sum {_by(by)} ({_any_name(metric, side)})" for side in sides))


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


def quantile(
    q: float, metric: Metric, by: Sequence[str], where: str = "", *, zeros: bool = False
) -> str:
    """Return a quantile of a histogram, buckets summed over servers first.

    The bounds are those of the pages, none is assumed. The answer equals the highest finite bound
    where the quantile lies above it: see `above`. Servers of one group whose bounds differ are
    mixed: see `bounds_apart`.

    Args:
        q: 0 to 1.
        metric: The histogram.
        by: Labels kept.
        where: Label condition.
        zeros: Whether a server on which all observations are 0.0 does not measure it at all.
    """
    body = f"rate({selector('NAME_bucket', where)}[{WINDOW}])"
    if zeros:
        body += f" and ignoring (le) rate({selector('NAME_sum', where)}[{WINDOW}]) > 0"
    buckets = f"sum {_by((*by, 'le'))} ({_any_name(metric, body)})"
    # Without observations histogram_quantile is NaN: a comparison drops it.
    return f"histogram_quantile({q:g}, {buckets}) >= 0"


def _le(where: str, condition: str) -> str:
    return ", ".join(part for part in (where, condition) if part)


def above(metric: Metric, by: Sequence[str], where: str = "") -> str:
    """Return the share of observations above the highest finite bound.

    Where it exceeds 1 - q, the quantile q is not known: it reads as that bound.
    """
    finite = rate(metric, (*by, "le"), _le(where, 'le!="+Inf"'), "_bucket")
    every = rate(metric, by, _le(where, 'le="+Inf"'), "_bucket")
    return "1 - " + ratio(f"max {_by(by)} ({finite})", every)


def bounds_apart(metric: Metric, by: Sequence[str], where: str = "") -> str:
    """Return how many bucket bounds only some servers of a group have.

    Servers may set buckets of their own. Added up bound by bound, one that lacks a bound counts
    there as if it had seen nothing, so quantiles of such a group lie.
    """
    buckets = _any_name(metric, selector("NAME_bucket", where))
    servers = _any_name(metric, selector("NAME_bucket", _le(where, 'le="+Inf"')))
    shared = f"bool on ({', '.join(by)}) group_left () count {_by(by)} ({servers})"
    return f"sum {_by(by)} (count {_by((*by, 'le'))} ({buckets}) != {shared})"
