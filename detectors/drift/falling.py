"""Falling ratio: acceptance of drafts that goes below everything it did before.

The recent steps are tested against the lowest healthy level of what came before (see
`falling_score`), over spans of a quarter of an hour to a day; then line and step compete for its
shape. Null: binomial noise with overdispersion, dependence, healthy wander, missing traffic, many
looks. A decline that goes on is `drift` and fires. A step fires only if it is big (ten points) or
below the floor: a small one may be other traffic, which is not yet controlled for, and is a watch.
So is any fall whose reference is too short to have shown the healthy wander of hours, and any that
is no larger than that wander.
Hit ratios are left out here: on decode they say nothing, elsewhere they follow the traffic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from catalog.panel import FloatArray, Labels, Panel
from detectors.drift.buckets import FEWEST
from detectors.drift.compete import GROWING, compete
from detectors.drift.context import Z90, LimitsLike, where
from detectors.drift.falling_score import Score, score
from detectors.finding import Finding, State, Verdict, finding_id

NAME = "falling"
SIGNAL = "acceptance_ratio"
SPANS = (900.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 24 * 3600.0)  # seconds tested
REFERENCE = 3  # reference at least this many times the span
RUN_LENGTH = 1e6  # steps to a false alarm, for each series; all spans share it
HEALTHY_MEAN = 900.0  # seconds over which the lowest healthy level is a mean
SHORT_REFERENCE = 12 * 3600.0  # below this a fall may be the wander of hours
# A healthy mean length wanders between 2.92 and 3.12 over days (agentic serving on H200): from the
# upper end, where a short reference may have stayed, to the lower one it loses 9.4 % of the tokens.
WANDER = 0.095  # share of the usual level that a fall must exceed to fire
BIG = 0.10  # a fall that counts whatever its shape
STEP_MARGIN = 2.0  # log-likelihood by which a step must beat a line to be called one


@dataclass(frozen=True)
class _Fall:
    """The span that shows the fall best, and the line through it."""

    score: Score
    onset: float
    span: float
    reference: float
    level: float
    slope: float  # per second, negative when falling
    slope_se: float
    verdict: Verdict
    times: FloatArray
    values: FloatArray


def find_falling(panels: Mapping[str, Panel], limits: LimitsLike, as_of: float) -> list[Finding]:
    """Return the ratios that fell below all that they did before, at *as_of*."""
    if SIGNAL not in panels:
        return []
    panel = panels[SIGNAL].until(as_of)
    if len(panel.times) < 2:
        return []
    out = []
    for row, labels in enumerate(panel.labels):
        trials = None if panel.trials is None else panel.trials[row]
        ratio = panel.values[row] if trials is None else _ratio(panel.values[row], trials)
        fall = _fall(ratio, trials, panel.times, panel.step)
        if fall is not None:
            out.append(_finding(labels, fall, panel.times, limits))
    return out


def _ratio(successes: FloatArray, trials: FloatArray) -> FloatArray:
    """Return successes over trials; no trials are no data."""
    known = np.isfinite(successes) & (trials > 0)
    return np.where(known, successes / np.where(known, trials, 1.0), np.nan)


def _fall(
    ratio: FloatArray, trials: FloatArray | None, times: FloatArray, step: float
) -> _Fall | None:
    """Return the fall of one series, by the span that is surest of it; None where there is none."""
    seen = np.flatnonzero(np.isfinite(ratio))
    if len(seen) < FEWEST or len(times) - seen[-1] > 5:
        return None
    ratio, times = ratio[seen[0] :], times[seen[0] :]
    trials = None if trials is None else trials[seen[0] :]
    needed = math.log(RUN_LENGTH * len(SPANS))
    best: tuple[Score, float] | None = None
    for span in SPANS:
        split = len(ratio) - round(span / step)
        if split < REFERENCE * span / step or len(ratio) - split < 5:
            continue
        got = score(ratio, trials, split, round(HEALTHY_MEAN / step))
        if got and got.log_e >= needed and (best is None or got.log_e > best[0].log_e):
            best = got, span
    if best is None:
        return None
    return _described(best[0], best[1], ratio, trials, times)


def _described(
    got: Score, span: float, ratio: FloatArray, trials: FloatArray | None, times: FloatArray
) -> _Fall:
    """Return the fall with its level, slope and shape, since its onset and as long before.

    The onset is then in the middle of the window, where a hinge or a step is told best.
    """
    step = times[1] - times[0]
    points = min(len(ratio), max(FEWEST, 2 * (len(ratio) - got.onset)))
    size = min(64, points)
    width = points // size
    tail = slice(len(ratio) - size * width, len(ratio))
    weight = np.ones(size * width) if trials is None else trials[tail]
    weight = np.where(np.isfinite(ratio[tail]), weight, 0.0).reshape(size, width)
    total = weight.sum(axis=1)
    summed = (np.nan_to_num(ratio[tail]).reshape(size, width) * weight).sum(axis=1)
    middle = times[tail].reshape(size, width).mean(axis=1)
    known = total > 0
    values = np.interp(middle, middle[known], summed[known] / total[known])
    result = compete(-values[None, :])
    line = max(float(result.score[name][0]) for name in GROWING)
    steps = max(float(result.score[name][0]) for name in ("step", "step+step"))
    still = result.slope[0] > Z90 * result.slope_se[0]  # it goes on falling
    seconds = width * step
    recent = max(3, size // 8)
    return _Fall(
        score=got,
        onset=float(times[got.onset]) if got.onset < len(times) else float(times[-1]),
        span=span,
        reference=float(times[-1] - times[0] - span),
        level=float(np.average(values[-recent:], weights=np.maximum(total[-recent:], 1e-9))),
        slope=-float(result.slope[0]) / seconds,
        slope_se=float(result.slope_se[0]) / seconds,
        verdict="step" if steps - line > STEP_MARGIN or not still else "drift",
        times=middle,
        values=values,
    )


def _finding(labels: Labels, fall: _Fall, times: FloatArray, limits: LimitsLike) -> Finding:
    """Return the finding about one ratio."""
    floor = limits.limit(SIGNAL, labels)
    low, high = (fall.slope + sign * Z90 * fall.slope_se for sign in (-1, 1))
    left = _left(fall.level, floor, fall.slope) if fall.verdict == "drift" else None
    drop = fall.score.usual - fall.level
    below = floor is not None and fall.level <= floor
    beyond = drop > WANDER * fall.score.usual
    sure = fall.reference >= SHORT_REFERENCE and fall.verdict == "drift" and beyond
    state: State = "firing" if sure or drop >= BIG or below else "watch"
    moving = fall.verdict == "drift"
    return Finding(
        id=finding_id(NAME, SIGNAL, labels, 0.0),
        kind="falling",
        verdict=fall.verdict,
        detector=NAME,
        signal=SIGNAL,
        labels=dict(labels),
        as_of=float(times[-1]),
        since=fall.onset,
        effect=fall.slope * 3600 if moving else None,
        effect_low=low * 3600 if moving else None,
        effect_high=high * 3600 if moving else None,
        effect_unit="1/hour",
        limit=floor,
        time_to_breach=left,
        time_to_breach_low=_left(fall.level, floor, low) if moving else None,
        time_to_breach_high=_left(fall.level, floor, high) if moving else None,
        state=state,
        cause=_cause(labels, fall),
        evidence=_evidence(fall, drop),
        runbook="LeadlineFalling",
    )


def _left(level: float, floor: float | None, slope: float) -> float | None:
    """Return seconds until *level* meets *floor* at *slope*; None if never or not known."""
    if floor is None:
        return None
    if level <= floor:
        return 0.0
    return (floor - level) / slope if slope < 0 else None


def _evidence(fall: _Fall, drop: float) -> dict[str, object]:
    """Return what a person needs to check the finding."""
    return {
        "fit": {
            "t": [round(float(t), 1) for t in fall.times],
            "y": [round(float(y), 5) for y in fall.values],
        },
        "slope_per_hour": fall.slope * 3600,
        "level": fall.level,
        "usual": fall.score.usual,
        "lowest_healthy": fall.score.healthy,
        "drop": drop,
        "log_e": round(fall.score.log_e, 2),
        "seen_seconds": fall.span,
        "reference_seconds": fall.reference,
        "points": len(fall.values),
        "per": "hour",
    }


def _cause(labels: Labels, fall: _Fall) -> str:
    """Return one sentence for the page."""
    how = (
        f"and falls by {-fall.slope * 3600:.3f} an hour"
        if fall.verdict == "drift"
        else "after a step (a rollout, a draft model, or other traffic)"
    )
    return (
        f"The share of drafted tokens that {where(labels)} accepts is {fall.level:.2f}, below the "
        f"lowest healthy level of {fall.score.healthy:.2f}, {how}."
    )
