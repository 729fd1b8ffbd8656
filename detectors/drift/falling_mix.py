"""Whether other traffic came with a fall: length of prompts and answers, requests, restores.

A new customer is no decay. What counts is whether the mix left, for good, all that it had been
before, and whether the fall came after that: when a fall began is not known well, as the
wander of hours before it may have begun it. How many requests run is told but not counted, because
a fall of acceptance itself makes requests stay longer. The day's own swing is in what it had been.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from catalog.panel import FloatArray, Labels, Panel
from detectors.drift.context import without

HOUR = 3600.0
LATE = HOUR / 2
QUARTER = HOUR / 4  # of the mix that is compared
BEFORE = 12 * HOUR  # of mix that must be known before the fall
LEARNT = 48 * HOUR  # of a new mix before its own healthy levels are known
LATER = 3 * HOUR  # by which a fall that a change of the mix explains may seem to begin after it
LENGTH = 1.08  # times the longest (or shortest) hour before, for lengths
DEMAND = 1.30  # and for requests
RESTORED = 0.5  # share of a lost hit ratio that the tiers behind must make up for
SIGNALS = (
    "input_tokens_rate", "output_tokens_rate", "request_rate", "requests_running",
    "external_hit_ratio",
)  # fmt: skip
_NARROW = ("position", "server", "engine", "node", "process", "rank", "pool")


@dataclass(frozen=True)
class Mix:
    """What the traffic was before a fall and since.

    Attributes:
        told: By name: the value before, since, and the band of hours before.
        new: Names of what left its band, with the fall after it.
        young: Names of what left it within the last two days, well before the fall.
    """

    told: Mapping[str, Mapping[str, float]]
    new: tuple[str, ...]
    young: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        """Return whether lengths were looked at."""
        return "prompt_length" in self.told or "answer_length" in self.told

    @property
    def words(self) -> str:
        """Return what is new, for a sentence: "prompt length +35 %"."""
        parts = []
        for name in self.new or self.young:
            one = self.told[name]
            change = 100 * (one["since"] / one["before"] - 1) if one["before"] > 0 else 0.0
            parts.append(f"{name.replace('_', ' ')} {change:+.0f} %")
        return ", ".join(parts)


def mix_of(
    panels: Mapping[str, Panel],
    labels: Labels,
    since: float,
    as_of: float,
    hits: tuple[float, float] | None = None,
    fell_after: Callable[[float], bool] = lambda _: True,
) -> Mix:
    """Return the mix of the deployment of *labels* before and after *since*.

    Args:
        panels: Of all signals.
        labels: Of the series that fell.
        since: Unix seconds of the onset.
        as_of: Nothing later is looked at.
        hits: Of a hit ratio, what it was and what it is.
        fell_after: Whether it fell after an instant, and not before.
    """
    told: dict[str, Mapping[str, float]] = {}
    new, young = [], []
    rate = _of(panels, "request_rate", labels, as_of)
    for name, signal, margin in (
        ("prompt_length", "input_tokens_rate", LENGTH),
        ("answer_length", "output_tokens_rate", LENGTH),
        ("requests", "request_rate", DEMAND),
        ("running", "requests_running", 0.0),
    ):
        found = _of(panels, signal, labels, as_of)
        if found is None or (rate is None and name.endswith("length")):
            continue
        times, values = found
        if name.endswith("length") and rate is not None:
            values = _over(times, values, *rate)
        one = _compared(times, values, since, as_of)
        if one is None:
            continue
        told[name] = one
        left = _left(times, values, as_of, margin, both=name.endswith("length")) if margin else None
        if left is None:
            continue
        at, before, after = left
        if since > at + LATER:
            young.append(name)
        elif fell_after(at):
            new.append(name)
        else:
            continue
        told[name] = one | {"changed_at": at, "before": before, "since": after}
    if hits is not None and _restored(panels, labels, since, as_of, hits, told):
        new.append("restored")
    return Mix(told, tuple(new), tuple(young))


def _of(
    panels: Mapping[str, Panel], signal: str, labels: Labels, as_of: float
) -> tuple[FloatArray, FloatArray] | None:
    """Return times and values of the deployment: summed in a pool, the largest pool's."""
    panel = panels.get(signal)
    if panel is None or not len(panel.times):
        return None
    panel = panel.until(as_of)
    wanted = without(labels, *_NARROW)
    pools: dict[str, list[int]] = {}
    for row, one in enumerate(panel.labels):
        if without(one, *_NARROW) == wanted:
            pools.setdefault(one.get("pool", ""), []).append(row)
    if not pools or len(panel.times) < 2:
        return None
    values = panel.values
    if panel.trials is not None:
        tried = np.where(panel.trials > 0, panel.trials, np.nan)
        values = panel.values / tried
    sums = [np.nansum(values[rows], axis=0) for rows in pools.values()]
    seen = [np.isfinite(values[rows]).any(axis=0) for rows in pools.values()]
    whole = np.max([np.where(ok, one, -np.inf) for one, ok in zip(sums, seen, strict=True)], axis=0)
    return panel.times, np.where(np.isfinite(whole), whole, np.nan)


def _over(times: FloatArray, values: FloatArray, at: FloatArray, rate: FloatArray) -> FloatArray:
    """Return *values* over the *rate*; NaN where hardly anything came."""
    if len(at) != len(times) or not np.allclose(at, times):
        rate = np.interp(times, at, rate)
    few = 0.02 * float(np.nanmax(rate)) if np.isfinite(rate).any() else 0.0
    out: FloatArray = np.divide(values, rate, out=np.full(len(values), np.nan), where=rate > few)
    return out


def _compared(
    times: FloatArray, values: FloatArray, since: float, as_of: float
) -> dict[str, float] | None:
    """Return the value before and since, and the band of its hours before."""
    edges = np.arange(since - HOUR / 2, times[0], -HOUR)[::-1]
    if len(edges) * HOUR < BEFORE:
        return None
    hours = _means(values, np.searchsorted(times, edges))
    hours = hours[np.isfinite(hours)]
    late = values[(times > as_of - LATE) & (times > since)]
    after = values[times > since]
    if len(hours) * HOUR < BEFORE / 2 or not np.isfinite(late).any():
        return None
    return {
        "before": float(np.median(hours)),
        "since": float(np.nanmean(after)),
        "of_late": float(np.nanmean(late)),
        "lowest_before": float(hours.min()),
        "highest_before": float(hours.max()),
    }


def _means(values: FloatArray, edges: npt.NDArray[np.intp]) -> FloatArray:
    """Return the means between neighbours of *edges* (points); NaN where nothing is known."""
    known = np.isfinite(values)
    total, count = (
        np.diff(np.concatenate([[0.0], np.cumsum(one)])[edges])
        for one in (np.where(known, values, 0.0), known)
    )
    out: FloatArray = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    return out


def _left(
    times: FloatArray, values: FloatArray, as_of: float, margin: float, *, both: bool
) -> tuple[float, float, float] | None:
    """Return when it left all that it had been, for good, with its level before and since.

    That is at the step which explains most of its quarters of an hour, while a new mix is new.
    """
    count = int((as_of - times[0]) / QUARTER)
    edges = np.searchsorted(times, as_of - QUARTER * np.arange(count, -1, -1), side="right")
    quarters = _means(values, edges)
    began = as_of - QUARTER * np.arange(count, 0, -1)
    began, quarters = began[np.isfinite(quarters)], quarters[np.isfinite(quarters)]
    size, least = len(quarters), round(BEFORE / QUARTER)
    if size <= least:
        return None
    total = np.cumsum(quarters)
    k = np.arange(max(least, size - round(LEARNT / QUARTER)), size)
    before, after = total[k - 1] / k, (total[-1] - total[k - 1]) / (size - k)
    best = int(k[((after - before) ** 2 * k * (size - k)).argmax()])
    level, late = float(quarters[best:].mean()), float(quarters[-1])
    high, low = float(quarters[:best].max()), float(quarters[:best].min())
    over = level > margin * high and late > high
    under = both and level < low / margin and late < low
    usual = float(np.median(quarters[:best]))
    return (float(began[best]), usual, level) if over or under else None


def _restored(
    panels: Mapping[str, Panel],
    labels: Labels,
    since: float,
    as_of: float,
    hits: tuple[float, float],
    told: dict[str, Mapping[str, float]],
) -> bool:
    """Return whether the tiers behind a cache, asked for what it misses, give most of it back."""
    found = _of(panels, "external_hit_ratio", labels, as_of)
    one = None if found is None else _compared(*found, since, as_of)
    if one is None:
        return False
    told["restored"] = one
    usual, level = hits
    made_up = one["of_late"] * (1 - level) - one["before"] * (1 - usual)
    return made_up >= RESTORED * (usual - level)
