"""Creep: the same load costs more, hour by hour.

What the loads explain is taken out of the logarithm of a latency (`creep_load`), start by start of
its servers; what is left competes as in `compete`: growth that goes on against noise, wander, steps
and fillings, with generalised least squares for the autocorrelation. It must also beat the same
hours of every day before. Null: whatever follows the load (doubling, growing all week, nights,
Mondays, backfills), noise with a memory of hours, heavy tails, a spike, steps, those of a rollout
among them, gaps, restarts. Smallest effect: 4 % at the same load, seen for four hours.
A load outside what was learned is `new_traffic`, and a rise whose load nobody knows is `unknown`:
both are watched and wake nobody.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from catalog.panel import FloatArray, Labels, Panel
from catalog.signals import SIGNALS as CATALOGUE
from catalog.units import human_duration
from detectors.drift.buckets import BUCKETS, fill
from detectors.drift.compete import GROWING, STANDING, WARMING, compete
from detectors.drift.context import Z90, LimitsLike, where
from detectors.drift.coverage import stopped
from detectors.drift.creep_left import feedback, left
from detectors.drift.creep_load import (
    DAY,
    Bins,
    BoolArray,
    explained,
    medians,
    pool_key,
)
from detectors.drift.creep_screen import raised
from detectors.drift.creep_trend import trend
from detectors.drift.latencies import LATENCIES, load_bins
from detectors.drift.rollout_events import Rollout, rollouts
from detectors.finding import Finding, State, Verdict, finding_id

NAME = "creep"
WIDTHS = (10, 6, 4, 3, 2, 1)  # bins of a bucket: windows of 6.7 days to 16 hours
SHORTEST_SEASON = 2 * DAY
AGAINST_STANDING = 8.0  # nats: growth against noise, wander and steps
AGAINST_WARM_UP = 2.0  # growth against fillings that end
STEADY = 3.0  # slope over its standard error
WORTH = 0.04  # growth at the same load that is worth a word
LEAST_SEEN = 4 * 3600.0
SEASON_SEEN = 18 * 3600.0  # while no season can be told: its rise lasts half a day
HIGHER = 0.75  # share of the later half of the growth that beats the same hours of all days before
NEWEST = 2 * 3600.0  # of growth that has gone on until now
COLD = 1800.0  # seconds after a start that say nothing of what is usual
BESIDE = 6 * 3600.0  # on either side of a start, to tell its step
FALLS = 0.03  # a step down at a start by as much begins a new life
MOST_NEW = 0.5  # of the newest bins: with more outside what was learned nothing can be said


@dataclass(frozen=True)
class _Rise:
    """Growth of one series, as a share of its level before it."""

    times: FloatArray  # of the window's buckets
    slope: float  # per second
    slope_se: float
    onset: float
    against_standing: float
    against_warm_up: float
    window: float  # seconds

    @property
    def seen(self) -> float:
        """Seconds of growth seen."""
        return float(self.times[-1]) + self.window / BUCKETS / 2 - self.onset

    @property
    def grown(self) -> float:
        """Growth so far, as a share."""
        return self.slope * self.seen

    @property
    def ends(self) -> tuple[float, float]:
        """Return the 90 % interval of the slope."""
        return self.slope - Z90 * self.slope_se, self.slope + Z90 * self.slope_se


def find_creep(panels: Mapping[str, Panel], limits: LimitsLike, as_of: float) -> list[Finding]:
    """Return the latencies that the same load makes ever longer, at *as_of*."""
    out = []
    starts: Mapping[tuple[tuple[str, str], ...], list[Rollout]] | None = None
    known: dict[str, Panel] = {}
    for signal in LATENCIES:
        if signal not in panels:
            continue
        panel = panels[signal].until(as_of)
        rows = raised(panel) if len(panel.times) >= 2 else []
        if rows and starts is None:
            known = {name: one.until(as_of) for name, one in panels.items()}
            starts = rollouts(known, -math.inf)
        for row in rows:
            anew = (starts or {}).get(pool_key(panel.labels[row]), [])
            finding = _one(panel, row, known, anew, limits, as_of)
            if finding is not None:
                out.append(finding)
    return out


def _one(
    panel: Panel,
    row: int,
    panels: Mapping[str, Panel],
    anew: Sequence[Rollout],
    limits: LimitsLike,
    as_of: float,
) -> Finding | None:
    """Return the finding about one series that the screen let through."""
    if stopped(panel, row, as_of):
        return None
    bins = load_bins(panel, row, panels)
    if bins is None or len(bins.times) < BUCKETS:
        return None
    rest = same_load(bins, anew)
    faster = feedback(bins, bins.log - rest)
    usual = np.median(rest[np.isfinite(rest)]) if np.isfinite(rest).any() else 0.0
    rest = np.expm1(rest - usual)  # what grows in a straight line bends in its logarithm
    if not bins.names:
        rise = _rise(bins, rest)
        return None if rise is None else _finding(panel, row, bins, rise, limits, 1.0, "unknown")
    newest = bins.times > bins.times[-1] - LEAST_SEEN
    told = newest & np.isfinite(bins.raw)
    if (told & ~bins.learned).sum() > MOST_NEW * told.sum():
        return _new_traffic(panel, row, bins, rest, told)
    rise = _rise(bins, np.where(bins.learned, rest, np.nan))
    return None if rise is None else _finding(panel, row, bins, rise, limits, faster)


def same_load(bins: Bins, anew: Sequence[Rollout]) -> FloatArray:
    """Return the logarithm without what its loads explain and without the steps at starts.

    A step up at a start is taken out: it is the rollout's matter. Of what lies before a step down
    nothing is left: the new incarnation has a life of its own.
    """
    inside = [one for one in anew if bins.times[0] < one.begin and one.end < bins.times[-1]]
    steps = [(bins.times >= one.begin).astype(np.float64) for one in inside]
    rest = bins.log - explained(bins, np.column_stack(steps) if steps else None)
    for one in inside:
        rest[(bins.times > one.begin - bins.step) & (bins.times < one.end + COLD)] = np.nan
    for one in inside:
        before = rest[(bins.times >= one.begin - BESIDE) & (bins.times < one.begin)]
        after = rest[(bins.times > one.end) & (bins.times <= one.end + BESIDE)]
        before, after = (part[np.isfinite(part)] for part in (before, after))
        if min(len(before), len(after)) < 3:
            continue
        step = float(np.median(after) - np.median(before))
        if step > 0:
            rest[bins.times > one.end] -= step
        elif step < -FALLS:
            rest[bins.times <= one.end] = np.nan
    return rest


def _rise(bins: Bins, rest: FloatArray) -> _Rise | None:
    """Return the growth that is clear and worth a word, by the window that shows it best."""
    best = _fresh(bins, rest)
    if best is not None:
        return best
    begun = int(np.isfinite(rest).argmax())
    for width in WIDTHS:
        if len(rest) - begun < BUCKETS * width:
            continue
        rise = _window(bins, rest, width)
        if rise is None or not _worth(bins, rest, rise):
            continue
        if best is None or rise.against_standing > best.against_standing:
            best = rise
    return best


def _fresh(bins: Bins, rest: FloatArray) -> _Rise | None:
    """Return the growth of the last hours that stands out from the series' own past."""
    found = trend(rest, bins.step)
    if found is None:
        return None
    end = bins.times[-1] + bins.step / 2
    seconds = found.bins * bins.step
    times = end - seconds / BUCKETS * (np.arange(BUCKETS)[::-1] + 0.5)
    rise = _Rise(
        times, found.slope, found.slope_se, end - found.onset * bins.step, found.against_step,
        found.against_filling, seconds,
    )  # fmt: skip
    rise = _of_level(bins, rest, rise)
    return rise if _worth(bins, rest, rise) else None


def _of_level(bins: Bins, rest: FloatArray, rise: _Rise) -> _Rise:
    """Return *rise* as a share of the level before it, where *rest* is one of the usual level."""
    newest = np.isfinite(rest) & (bins.times > bins.times[-1] - NEWEST)
    now = float(np.median(rest[newest])) if newest.any() else 0.0
    level = max(1 + now - rise.slope * rise.seen, 0.1)
    return replace(rise, slope=rise.slope / level, slope_se=rise.slope_se / level)


def _window(bins: Bins, rest: FloatArray, width: int) -> _Rise | None:
    """Return the growth of one window where it is clear, else None."""
    parts = rest[len(rest) - BUCKETS * width :].reshape(BUCKETS, width)
    known = np.isfinite(parts)
    count = known.sum(axis=1)
    total = np.where(known, parts, 0.0).sum(axis=1)
    values = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    first = np.flatnonzero(np.isfinite(values))
    if not len(first):
        return None
    values[0] = values[first[0]]
    level, usable = fill(values[None, :])
    if not usable[0] or np.ptp(level) <= 1e-9:
        return None
    seconds = width * bins.step
    day = DAY / seconds if BUCKETS * seconds >= SHORTEST_SEASON else None
    result = compete(level, day)
    score = {name: float(value[0]) for name, value in result.score.items()}
    growing = max(score[name] for name in GROWING)
    standing = growing - max(score[name] for name in STANDING)
    warming = growing - max(score[name] for name in WARMING)
    slope, error = float(result.slope[0]), float(result.slope_se[0])
    if standing < AGAINST_STANDING or warming < AGAINST_WARM_UP or slope <= STEADY * error:
        return None
    times = bins.times[-1] + bins.step / 2 - seconds * (np.arange(BUCKETS)[::-1] + 0.5)
    onset = float(times[0]) + (float(result.onset[0]) * BUCKETS - 0.5) * seconds
    rise = _Rise(
        times, slope / seconds, error / seconds, onset, standing, warming, BUCKETS * seconds
    )
    return _of_level(bins, rest, rise)


def _worth(bins: Bins, rest: FloatArray, rise: _Rise) -> bool:
    """Whether growth is large enough, has gone on until now, and is no hour of the day."""
    if rise.grown < WORTH or rise.seen < LEAST_SEEN:
        return False
    known = np.isfinite(rest)
    before = known & (bins.times < rise.onset) & (bins.times >= rise.times[0] - DAY)
    newest = known & (bins.times > bins.times[-1] - NEWEST)
    if not newest.any():
        return False
    now = float(np.median(rest[newest]))
    if before.any() and now - float(np.median(rest[before])) < 0.75 * WORTH:
        return False
    return _higher(bins, rest, rise)


def _higher(bins: Bins, rest: FloatArray, rise: _Rise) -> bool:
    """Whether the later half of the growth is above the same hours of every day before it."""
    day = round(DAY / bins.step)
    since = max(rise.onset + rise.seen / 2, float(bins.times[-1]) - DAY / 2)
    early = int(np.searchsorted(bins.times, rise.onset + rise.seen / 4))
    hourly = _hourly(rest)
    beaten = []
    for i in np.flatnonzero((bins.times > since) & np.isfinite(rest)):
        usual = hourly[np.arange(int(i) % day, early, day)]
        usual = usual[np.isfinite(usual)]
        if len(usual):
            beaten.append(hourly[i] > usual.max())
    return not beaten or float(np.mean(beaten)) >= HIGHER


def _hourly(rest: FloatArray) -> FloatArray:
    """Return the median of an hour about each bin."""
    around = np.lib.stride_tricks.sliding_window_view(np.pad(rest, 2, constant_values=np.nan), 5)
    return medians(np.ascontiguousarray(around), 5)[:, 0]


def _new_traffic(
    panel: Panel, row: int, bins: Bins, rest: FloatArray, told: BoolArray
) -> Finding | None:
    """Return what is said of a latency that is up at a load that was never seen before."""
    before = bins.learned & np.isfinite(rest) & (bins.times < bins.times[-1] - LEAST_SEEN)
    newest = np.isfinite(rest) & told
    if not before.any() or not newest.any():
        return None
    up = float(np.median(bins.log[newest]) - np.median(bins.log[before]))
    if up < math.log1p(WORTH):
        return None
    labels, signal = dict(panel.labels[row]), panel.signal
    outside = " and ".join(bins.names[i] for i in _outside(bins, told))
    cause = (
        f"{CATALOGUE[signal].title} of {where(labels)} is up by {math.expm1(up):.0%}, at a load "
        f"outside what was learned ({outside}): whether this load costs more than it should is "
        "not known yet."
    ).replace("%", " %")
    return Finding(
        id=finding_id(NAME, signal, labels, 0.0), kind="creep", verdict="new_traffic",
        detector=NAME, signal=signal, labels=labels, as_of=float(panel.times[-1]), state="watch",
        cause=cause, runbook="LeadlineCreep",
        evidence={"fit": {"t": [], "y": []}, "loads": list(bins.names), "up": up},
    )  # fmt: skip


def _outside(bins: Bins, newest: BoolArray) -> list[int]:
    """Return which loads are new; all where it is their sum of little."""
    out = []
    for i, one in enumerate(bins.loads):
        past = one[bins.learned & ~newest & np.isfinite(one)]
        now = one[newest & np.isfinite(one)]
        if len(past) and len(now) and (now.max() > past.max() or now.min() < past.min()):
            out.append(i)
    return out or list(range(len(bins.loads)))


def _finding(
    panel: Panel,
    row: int,
    bins: Bins,
    rise: _Rise,
    limits: LimitsLike,
    faster: float,
    verdict: Verdict = "drift",
) -> Finding:
    """Return the finding about growth at the same load."""
    labels, signal = dict(panel.labels[row]), panel.signal
    limit = limits.limit(signal, labels)
    speed, (low, high) = rise.slope, rise.ends
    usual = _usual(bins, rise)
    told = rise.window >= SHORTEST_SEASON or bins.times[-1] - bins.times[0] >= SHORTEST_SEASON
    sure = verdict == "drift" and (told or rise.seen >= SEASON_SEEN)
    state: State = "firing" if sure else "watch"
    until = left(bins, speed, rise.slope_se, rise.onset, faster, limit)
    return Finding(
        id=finding_id(NAME, signal, labels, 0.0),
        kind="creep",
        verdict=verdict,
        detector=NAME,
        signal=signal,
        labels=labels,
        as_of=float(panel.times[-1]),
        since=rise.onset,
        effect=speed * usual * 3600,
        effect_low=low * usual * 3600,
        effect_high=high * usual * 3600,
        effect_unit=f"{CATALOGUE[signal].unit}/hour",
        limit=limit,
        time_to_breach=until.usual,
        time_to_breach_low=until.low,
        time_to_breach_high=until.high,
        state=state,
        cause=_cause(signal, labels, bins, rise),
        evidence={**_evidence(bins, rise, usual), "feedback": round(faster, 3)},
        runbook="LeadlineCreep",
    )


def _usual(bins: Bins, rise: _Rise) -> float:
    """Return the usual latency of a day without the growth."""
    last = bins.times > bins.times[-1] - DAY
    growth = rise.slope * np.maximum(bins.times[last] - rise.onset, 0.0)
    base = bins.raw[last] / (1 + growth)
    return float(np.median(base[np.isfinite(base)]))


def _evidence(bins: Bins, rise: _Rise, usual: float) -> dict[str, object]:
    """Return what a person needs to check the finding."""
    inside = np.isfinite(bins.raw) & (bins.times >= rise.times[0])
    thin = max(1, int(inside.sum()) // 128)
    times, raw = bins.times[inside][::thin], bins.raw[inside][::thin]
    line = usual * (1 + rise.slope * np.maximum(times - rise.onset, 0.0))
    return {
        "fit": {
            "t": [round(float(t), 1) for t in times],
            "y": [float(f"{y:.6g}") for y in raw],
            "line": [float(f"{y:.6g}") for y in line],
        },
        "share_per_hour": rise.slope * 3600,
        "grown_share": round(rise.grown, 4),
        "level": float(f"{usual * (1 + rise.grown):.6g}"),
        "usual": float(f"{usual:.6g}"),
        "loads": list(bins.names),
        "seen_seconds": rise.seen,
        "window_seconds": rise.window,
        "points": len(times),
        "per": "hour",
        "against_standing": round(rise.against_standing, 2),
        "against_warm_up": round(rise.against_warm_up, 2),
    }


def _cause(signal: str, labels: Labels, bins: Bins, rise: _Rise) -> str:
    """Return one sentence for the page."""
    by = rise.slope * 3600
    loads = "the same load" if bins.names else "a load that nobody knows: it may be the traffic"
    return (
        f"{CATALOGUE[signal].title} of {where(labels)} has grown by {rise.grown:.0%} in "
        f"{human_duration(rise.seen)} at {loads}, {by:.1%} an hour, and goes on."
    ).replace("%", " %")
