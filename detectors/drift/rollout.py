"""Change at a rollout: what the same load costs since servers were started anew.

Before and after lie apart by the starts and a while to warm up; both are told from their loads by
one fit (`creep_load`), over loads that both have seen. The effect is the difference of the two,
with an interval that knows the autocorrelation (batch means: Schmeiser, "Batch size effects", Oper.
Res. 30, 1982) and how far such differences lie apart where nothing was started (a placebo in time:
Abadie, Diamond and Hainmueller, JASA 105, 2010, section 3.4). Null: noise, wander, other traffic,
the hour of the day, starts that change no cost, of one server or of all in turn. Smallest effect:
3 % worse, and larger than nine in ten placebos; better is watched and wakes nobody. Never a page.
Silent where fewer than three hours before or one hour after are known at a common load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from catalog.panel import FloatArray, Labels, Panel
from catalog.signals import SIGNALS as CATALOGUE
from catalog.units import human_duration
from detectors.drift.context import Z90, LimitsLike, where
from detectors.drift.coverage import stopped
from detectors.drift.creep_load import DAY, Bins, BoolArray, explained, pool_key
from detectors.drift.latencies import LATENCIES, load_bins
from detectors.drift.rollout_cold import ColdStart, cold_start
from detectors.drift.rollout_events import Rollout, rollouts
from detectors.finding import Finding, State, finding_id

NAME = "rollout"
SIGNALS: tuple[str, ...] = ("instance_start",)
TOLD = 3 * DAY  # seconds for which a rollout is news
COLD = 1800.0  # seconds after the last start that are no plateau yet
BEFORE, AFTER = 3 * DAY, DAY / 2  # seconds looked at
AT_ONCE = 3 * 3600.0  # after it: what comes later is not the rollout's
LEAST_BEFORE, LEAST_AFTER = 3 * 3600.0, 3600.0
WORTH = 0.03  # smallest effect: all of its interval lies beyond
PLACEBO = 0.9  # of the placebos lie below what is worth a word
HALF = 0.5  # of the effect must be there at once
BATCHES = 6
COMMON = 0.5  # of what is known after lies at loads that were known before
TICKET = 0.10  # an effect that is more than a note


@dataclass(frozen=True)
class _Effect:
    """What a rollout changed of one latency, in logarithm."""

    size: float
    error: float
    placebo: float
    before: BoolArray
    after: BoolArray


def find_rollouts(panels: Mapping[str, Panel], limits: LimitsLike, as_of: float) -> list[Finding]:
    """Return what the newest rollout of each pool changed at the same load, at *as_of*."""
    known = {name: panel.until(as_of) for name, panel in panels.items() if len(panel.times)}
    recent = rollouts(known, as_of - TOLD)
    if not recent:
        return []
    out = []
    every = rollouts(known, -math.inf, recent)
    cold: dict[object, ColdStart | None] = {}
    for signal in LATENCIES:
        panel = known.get(signal)
        if panel is None or len(panel.times) < 2:
            continue
        for row, labels in enumerate(panel.labels):
            key = pool_key(labels)
            if key not in recent:
                continue
            newest = recent[key][-1]
            finding = _one(known, panel, row, newest, every[key], limits, as_of)
            if finding is None:
                continue
            if key not in cold:
                cold[key] = cold_start(known, newest)
            out.append(_with_cold(finding, cold[key]))
    return out


def _one(
    panels: Mapping[str, Panel],
    panel: Panel,
    row: int,
    newest: Rollout,
    every: Sequence[Rollout],
    limits: LimitsLike,
    as_of: float,
) -> Finding | None:
    """Return the finding about one latency."""
    if stopped(panel, row, as_of):
        return None
    earlier = [one for one in every if one.end < newest.begin]
    bins = load_bins(panel, row, panels)
    if bins is None:
        return None
    since = max(newest.begin - BEFORE, earlier[-1].end + COLD if earlier else -math.inf)
    effect = _effect(bins, newest, since)
    if effect is None:
        return None
    low, high = (math.expm1(effect.size + sign * Z90 * effect.error) for sign in (-1, 1))
    worse = math.expm1(effect.size)
    if low * high <= 0 or min(abs(low), abs(high)) < WORTH:
        return None
    if abs(effect.size) <= effect.placebo:
        return None
    state: State = "firing" if worse > 0 else "watch"
    labels, signal = dict(panel.labels[row]), panel.signal
    return Finding(
        id=finding_id(NAME, signal, labels, newest.begin),
        kind="rollout",
        verdict="step" if newest.changed else "restart",
        detector=NAME,
        signal=signal,
        labels=labels,
        as_of=float(panel.times[-1]),
        since=newest.begin,
        effect=worse,
        effect_low=low,
        effect_high=high,
        effect_unit="ratio",
        limit=limits.limit(signal, labels),
        state=state,
        cause=_cause(signal, labels, newest, worse, low, high, bins),
        evidence=_evidence(bins, effect, newest),
        runbook="LeadlineRollout",
    )


def _effect(bins: Bins, newest: Rollout, since: float) -> _Effect | None:
    """Return the difference at the same load; None where it can't be told."""
    known = np.isfinite(bins.log) & (np.isfinite(bins.loads).all(axis=0))
    before = known & (bins.times >= since) & (bins.times < newest.begin - bins.step / 2)
    after = known & (bins.times > newest.end + COLD) & (bins.times <= newest.end + COLD + AFTER)
    if not before.any() or not after.any():
        return None
    common = np.ones(len(bins.times), dtype=bool)
    for one in bins.loads:
        low, high = (float(q) for q in np.quantile(one[before], (0.02, 0.98)))
        common &= (one >= low - 0.1) & (one <= high + 0.1)
    if (after & common).sum() < COMMON * after.sum():
        return None
    after = after & common
    needed = (LEAST_BEFORE, before), (LEAST_AFTER, after)
    if any(part.sum() * bins.step < least for least, part in needed):
        return None
    step = (bins.times >= newest.begin).astype(np.float64)
    rest = bins.log - explained(bins, step[:, None])
    a, b = rest[before], rest[after]
    size = float(np.median(b) - np.median(a))
    soon = rest[after & (bins.times <= newest.end + COLD + AT_ONCE)]
    if (
        len(soon) * bins.step < LEAST_AFTER
        or not size * (np.median(soon) - np.median(a)) >= HALF * size**2
    ):
        return None
    placebos = _placebos(a, min(len(b), len(a) // 3))
    spread = float(np.sqrt(np.mean(placebos**2))) if len(placebos) else 0.0
    error = math.hypot(_error(a), _error(b))
    bound = float(np.quantile(np.abs(placebos), PLACEBO)) if len(placebos) else 0.0
    return _Effect(size, max(error, spread), bound, before, after)


def _error(values: FloatArray) -> float:
    """Return the standard error of a level by the means of a few batches in a row."""
    size = len(values) // BATCHES
    if size < 1:
        return float(np.std(values)) if len(values) > 1 else math.inf
    means = values[len(values) - BATCHES * size :].reshape(BATCHES, size).mean(axis=1)
    return float(np.std(means, ddof=1) / math.sqrt(BATCHES))


def _placebos(values: FloatArray, size: int) -> FloatArray:
    """Return the differences of the same kind at times at which nothing was started."""
    if size < 2:
        return np.zeros(0)
    total = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(2 * size, len(values) + 1, max(1, size // 2))
    newer = (total[ends] - total[ends - size]) / size
    older = total[ends - size] / (ends - size)
    return np.asarray(newer - older)


def _evidence(bins: Bins, effect: _Effect, newest: Rollout) -> dict[str, object]:
    """Return what a person needs to check the finding."""
    inside = np.isfinite(bins.raw) & (bins.times >= newest.begin - DAY)
    thin = max(1, int(inside.sum()) // 128)
    times, raw = bins.times[inside][::thin], bins.raw[inside][::thin]
    near = effect.before & (bins.times >= newest.begin - DAY)
    before = float(np.median(bins.raw[near if near.any() else effect.before]))
    after = before * math.exp(effect.size)
    line = np.where(times < newest.begin, before, after)
    return {
        "fit": {
            "t": [round(float(t), 1) for t in times],
            "y": [float(f"{y:.6g}") for y in raw],
            "line": [float(f"{y:.6g}") for y in line],
        },
        "begin": newest.begin,
        "end": newest.end,
        "servers": sorted({start.server for start in newest.starts}),
        "starts": len(newest.starts),
        "changed": {name: list(pair) for name, pair in newest.changed.items()},
        "loads": list(bins.names),
        "placebo": round(effect.placebo, 4),
        "before_seconds": float(effect.before.sum() * bins.step),
        "after_seconds": float(effect.after.sum() * bins.step),
        "seen_seconds": float(effect.after.sum() * bins.step),
        "points": len(times),
        "severity_without_breach": "ticket" if effect.size >= math.log1p(TICKET) else "report",
    }


def _cause(
    signal: str, labels: Labels, newest: Rollout, worse: float, low: float, high: float, bins: Bins
) -> str:
    """Return one sentence for the report: `TPOT +6 % [4, 8] since the new image`."""
    words = {"image": "the new image", "vllm_version": "the new version of vLLM",
             "arguments": "the new arguments"}  # fmt: skip
    named = [
        words[name] + (f" {new}" if name != "arguments" else "")
        for name, (_, new) in newest.changed.items()
    ]
    servers = {start.server for start in newest.starts}
    what = " and ".join(named) or f"the start of {len(servers)} server{'s'[: len(servers) != 1]}"
    loads = "the same load" if bins.names else "a load that nobody knows"
    return (
        f"{CATALOGUE[signal].title} of {where(labels)} is {worse:+.1%} "
        f"[{100 * low:.1f}, {100 * high:.1f}] since {what}, at {loads}."
    ).replace("%", " %")


def _with_cold(finding: Finding, cold: ColdStart | None) -> Finding:
    """Return *finding* with the minutes until servers answered, and until they were warm."""
    if cold is None or cold.slowest < 1.0:
        return finding
    more = {"cold_start_minutes": cold.minutes, "slowest_cold_start_minutes": cold.slowest}
    text = (
        f"{finding.cause} From start to plateau a server took "
        f"{human_duration(60 * cold.minutes)}, the slowest {human_duration(60 * cold.slowest)}."
    )
    return replace(finding, evidence={**finding.evidence, **more}, cause=text)
