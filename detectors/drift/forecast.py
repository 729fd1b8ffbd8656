"""Forecast: a latency or usage that grows steadily towards its SLA or limit.

The level in buckets, told from its load (what load explains is taken out, growth that came with it
included), competes as in `compete`: growth that goes on against noise, wander, steps and fillings,
with the daily season in the base from two days on. Beside that it must be higher than at the same
hour of every day before. Null: noise, autocorrelation, daily season, Monday after Sunday, busier
days, steps, warm-up, gaps. The crossing is told by the last day, repeated and lifted by the slope:
the SLA is met at the busy hour first.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from catalog.panel import FloatArray, Labels, Panel
from catalog.signals import SIGNALS as CATALOGUE
from catalog.units import human, human_duration
from detectors.drift.buckets import BUCKETS, fill
from detectors.drift.compete import GROWING, STANDING, WARMING, compete
from detectors.drift.context import TICKET_BELOW, Z90, LimitsLike, where
from detectors.drift.coverage import stopped
from detectors.drift.leak_growth import DAY
from detectors.finding import Finding, State, finding_id

NAME = "forecast"
SIGNALS: tuple[str, ...] = (
    "tpot_mean",
    "ttft_user_mean",
    "e2e_mean",
    "itl_mean",
    "queue_mean",
    "transfer_time_mean",
    "kv_usage",
)
WINDOWS = (7.0, 5.0, 4.0, 3.0, 2.0)  # days, season in the base
YOUNG = (1.5, 1.0)  # days, for a history too short to show a season
AGAINST_STANDING = 8.0  # nats: growth against noise, wander and steps
AGAINST_WARM_UP = 3.0  # growth against fillings that end
NEAR_BREACH = 1.0  # the same once growth was seen for as long as what is left (as for leaks)
STEADY = 3.0  # slope over its standard error
WORTH = 0.10  # growth, as a share of the level before it
LEAST_SEEN = 6 * 3600.0
SEASON_SEEN = 18 * 3600.0  # while no season can be told: its rise lasts half a day
UNLOADED_SEEN = 36 * 3600.0  # while no load is known: today may just be busier than yesterday
SEEN_SHARE = 1 / 3  # growth seen, as a share of the time left
HIGHER = 0.9  # share of the hours since the onset that must beat the same hour of all days before


@dataclass(frozen=True)
class _Window:
    """One window of one series: its buckets, and the same with what the load explains taken out."""

    times: FloatArray
    raw: FloatArray
    level: FloatArray
    seconds: float
    with_load: bool


@dataclass(frozen=True)
class _Rise:
    """Growth of one series that is clear."""

    window: _Window
    slope: float  # per second
    slope_se: float
    onset: float
    share: float  # growth as a share of the level before it
    against_standing: float
    against_warm_up: float

    @property
    def seen(self) -> float:
        """Seconds of growth seen."""
        return float(self.window.times[-1]) + self.window.seconds / 2 - self.onset


def find_forecasts(panels: Mapping[str, Panel], limits: LimitsLike, as_of: float) -> list[Finding]:
    """Return what grows steadily towards its limit, of all signals that have one, at *as_of*."""
    out = []
    for signal in SIGNALS:
        if signal not in panels:
            continue
        panel = panels[signal].until(as_of)
        for row, labels in enumerate(panel.labels):
            limit = limits.limit(signal, labels)
            if limit is None or len(panel.times) < 2:
                continue
            finding = _one(panel, row, limit, as_of)
            if finding is not None:
                out.append(finding)
    return out


def _one(panel: Panel, row: int, limit: float, as_of: float) -> Finding | None:
    """Return the finding about one series, from the longest window that shows its growth."""
    if stopped(panel, row, as_of):
        return None
    seen = np.flatnonzero(np.isfinite(panel.values[row]))
    span = (len(panel.times) - int(seen[0])) * panel.step / DAY
    for days in WINDOWS if span >= WINDOWS[-1] else YOUNG:
        window = _window(panel, row, days) if days <= span else None
        if window is None or not _higher(window, float(window.times[-1]) - LEAST_SEEN):
            continue  # the cheap screen: most series end here
        rise = _rise(window, seasonal=days >= WINDOWS[-1])
        found = None if rise is None or not _novel(rise) else _finding(panel, row, rise, limit)
        if found is not None:
            return found
    return None


def _window(panel: Panel, row: int, days: float) -> _Window | None:
    """Return the last *days* in 64 buckets; None where too much of it is missing."""
    width = round(days * DAY / panel.step) // BUCKETS
    if width < 1:
        return None
    values = _buckets(panel.values[row], width)
    filled = _filled(values)
    if filled is None:
        return None
    seconds = width * panel.step
    end = float(panel.times[-1]) + panel.step / 2
    times = end - seconds * (np.arange(BUCKETS, dtype=np.float64)[::-1] + 0.5)
    load = None if panel.load is None else _buckets(panel.load[row], width)
    cleared = None if load is None else _without_load(values, load)
    level = filled if cleared is None else cleared
    return _Window(times, values, level, seconds, cleared is not None)


def _buckets(values: FloatArray, width: int) -> FloatArray:
    """Return the medians of the last 64 buckets; NaN where empty."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an empty bucket is NaN, as it should
        medians: FloatArray = np.nanmedian(
            values[len(values) - BUCKETS * width :].reshape(BUCKETS, width), axis=1
        )
    return medians


def _without_load(values: FloatArray, load: FloatArray) -> FloatArray | None:
    """Return *values* without what a parabola of the load explains; None where load is not known.

    Time is left out of the fit on purpose: growth that came together with load is put down to it.
    """
    known = np.isfinite(values)
    both = known & np.isfinite(load)
    if both.sum() < 0.8 * known.sum():
        return None
    spread = float(np.std(load[both]))
    if spread <= 1e-9 * float(np.abs(load[both]).max()):
        return _filled(values)
    x = (load - load[both].mean()) / spread
    design = np.stack([np.ones_like(x), x, x**2], axis=1)
    weights, *_ = np.linalg.lstsq(design[both], values[both], rcond=None)
    explained = design[:, 1:] @ weights[1:]
    cleared = np.where(both, values - (explained - explained[both].mean()), np.nan)
    return _filled(cleared)


def _filled(values: FloatArray) -> FloatArray | None:
    """Return *values* carried over holes, also at the start; None with too many."""
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        return None
    begun = values.copy()
    begun[0] = values[known[0]]
    filled, usable = fill(begun[None, :])
    return filled[0] if usable[0] else None


def _rise(window: _Window, *, seasonal: bool) -> _Rise | None:
    """Return the growth of one window where it is clear and worth a word, else None."""
    level = window.level
    if np.ptp(level) <= 1e-9 * np.abs(level).max():
        return None
    result = compete(level[None, :], DAY / window.seconds if seasonal else None)
    score = {name: float(value[0]) for name, value in result.score.items()}
    growing = max(score[name] for name in GROWING)
    standing = growing - max(score[name] for name in STANDING)
    warming = growing - max(score[name] for name in WARMING)
    slope, error = float(result.slope[0]), float(result.slope_se[0])
    if standing < AGAINST_STANDING or warming < NEAR_BREACH or slope <= STEADY * error:
        return None
    onset = float(result.onset[0]) * BUCKETS
    grown = slope * (BUCKETS - onset)
    before = float(np.median(level)) - slope * (BUCKETS - onset) ** 2 / 2 / BUCKETS
    return _Rise(
        window,
        slope / window.seconds,
        error / window.seconds,
        float(window.times[0]) + (onset - 0.5) * window.seconds,
        grown / max(before, 1e-12),
        standing,
        warming,
    )


def _novel(rise: _Rise) -> bool:
    """Whether growth is worth a word and not a season.

    Where no season can be told, it must have been seen for longer than the rise of one lasts.
    """
    window = rise.window
    if not rise.share >= WORTH or not _higher(window, rise.onset):
        return False
    return _days(window) >= WINDOWS[-1] or rise.seen >= SEASON_SEEN


def _higher(window: _Window, since: float) -> bool:
    """Whether the last day, from *since* on, is higher than the same hours of every day before.

    What load explains is taken out. In less than two days no hour comes back: only the median of
    all that was before can be compared.
    """
    level, times = window.level, window.times
    recent = np.flatnonzero(times > max(since, float(times[-1]) - DAY))
    if _days(window) < WINDOWS[-1]:
        return bool((level[recent] > np.median(level)).mean() >= HIGHER)
    day = round(DAY / window.seconds)
    beaten = [
        level[i] > max(level[j] for j in range(i - day, -1, -day)) for i in recent if i >= day
    ]
    return bool(beaten) and float(np.mean(beaten)) >= HIGHER


def _days(window: _Window) -> float:
    """Return the length of *window* in days, what its buckets leave over rounded away."""
    return round(BUCKETS * window.seconds / DAY, 1)


def _left(panel: Panel, row: int, slope: float, limit: float) -> float | None:
    """Return seconds until the last day, repeated and lifted by *slope*, meets *limit*."""
    if slope <= 0:
        return None
    width = max(1, round(DAY / panel.step) // BUCKETS)
    last = _buckets(panel.values[row], width)
    seconds = width * panel.step
    ago = seconds * (np.arange(BUCKETS)[::-1] + 0.5)
    known = np.isfinite(last)
    smooth = np.convolve(np.pad(last[known], 1, mode="edge"), np.ones(3) / 3, mode="valid")
    days = np.maximum(np.ceil((limit - smooth) / (slope * DAY)), 1.0)
    return float(np.min(days * DAY - ago[known]))


def _finding(panel: Panel, row: int, rise: _Rise, limit: float) -> Finding | None:
    """Return the finding about growth that meets its limit within 30 days; None of other growth."""
    labels, signal = dict(panel.labels[row]), panel.signal
    newest = _newest(rise.window.raw)
    low, high = (rise.slope + sign * Z90 * rise.slope_se for sign in (-1, 1))
    left, latest = (_left(panel, row, slope, limit) for slope in (rise.slope, low))
    if newest >= limit or left is None or latest is None or latest >= TICKET_BELOW:
        return None
    nearness = min(max((rise.seen / max(left, 1.0) - SEEN_SHARE) / (1 - SEEN_SHARE), 0.0), 1.0)
    if rise.against_warm_up < AGAINST_WARM_UP + nearness * (NEAR_BREACH - AGAINST_WARM_UP):
        return None
    least = max(LEAST_SEEN, SEEN_SHARE * left, 0.0 if rise.window.with_load else UNLOADED_SEEN)
    state: State = "firing" if rise.seen >= least else "watch"
    unit = CATALOGUE[signal].unit
    return Finding(
        id=finding_id(NAME, signal, labels, 0.0),
        kind="forecast",
        verdict="drift",
        detector=NAME,
        signal=signal,
        labels=labels,
        as_of=float(panel.times[-1]),
        since=rise.onset,
        effect=rise.slope * 3600,
        effect_low=low * 3600,
        effect_high=high * 3600,
        effect_unit=f"{unit}/hour",
        limit=limit,
        time_to_breach=left,
        time_to_breach_low=_left(panel, row, high, limit),
        time_to_breach_high=latest,
        state=state,
        cause=_cause(signal, labels, rise, newest, limit, left),
        evidence=_evidence(rise, newest),
        runbook="LeadlineForecast",
    )


def _newest(values: FloatArray) -> float:
    """Return the newest known value."""
    known = values[np.isfinite(values)]
    return float(known[-1]) if len(known) else math.nan


def _evidence(rise: _Rise, newest: float) -> dict[str, object]:
    """Return what a person needs to check the finding."""
    window = rise.window
    line = rise.slope * (window.times - rise.onset).clip(min=0.0)
    line = line - line.mean() + window.level.mean()
    known = np.isfinite(window.raw)
    return {
        "fit": {
            "t": [round(float(t), 1) for t in window.times[known]],
            "y": [float(f"{y:.6g}") for y in window.raw[known]],
            "line": [float(f"{y:.6g}") for y in line[known]],
        },
        "slope_per_hour": rise.slope * 3600,
        "level": newest,
        "grown_share": round(rise.share, 4),
        "seen_seconds": rise.seen,
        "window_seconds": window.seconds * BUCKETS,
        "points": int(known.sum()),
        "per": "hour",
        "load": "taken out" if window.with_load else "not known: it may be the traffic that grows",
        "against_standing": round(rise.against_standing, 2),
        "against_warm_up": round(rise.against_warm_up, 2),
    }


def _cause(
    signal: str, labels: Labels, rise: _Rise, newest: float, limit: float, left: float
) -> str:
    """Return one sentence for the page."""
    title, unit = CATALOGUE[signal].title, CATALOGUE[signal].unit
    how = " at the same load" if rise.window.with_load else ""
    return (
        f"{title} of {where(labels)} is {human(newest, unit)} and has grown steadily by "
        f"{rise.share:.0%} in {human_duration(rise.seen)}{how}; "
        f"its limit of {human(limit, unit)} is met in {human_duration(left)}."
    ).replace("%", " %")
