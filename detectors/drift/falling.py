"""Falling ratio: acceptance, prefix hits, success that go below everything they did before.

Null: binomial counts with any overdispersion, dependence, a healthy wander of hours, a daily
season, missing traffic, many looks and series (`falling_score`, `falling_spans`; the dial is
`falling_spans.ONE_FALSE_IN`). Smallest effect worth a page: below the lowest healthy hour, and
below what a wander of 9.4 % (a healthy mean length of 2.92 to 3.12) explains while the reference
is too short to have shown it.

Verdicts: `drift` goes on falling; `step` fell and stays, `fault` if by much; both are told for as
long as a day from before them is remembered, or until a rollout after them sets a new level.
`new_traffic` fell while the mix of requests left all that it had been (`falling_mix`), or while
tiers behind a cache restore what it lost. A decline that goes on fires; a small
step is watched unless the mix is known to be the same; new traffic is watched.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from catalog.panel import FloatArray, Labels, Panel
from detectors.drift.buckets import FEWEST
from detectors.drift.context import Z90, LimitsLike, where
from detectors.drift.falling_left import Left, left
from detectors.drift.falling_mix import LATE, Mix, mix_of
from detectors.drift.falling_rules import RULES, Rule, Tally, place
from detectors.drift.falling_shape import shape_of
from detectors.drift.falling_spans import (
    QUICK,
    SHORT_REFERENCE,
    Found,
    fell,
    screen,
    share_of,
    threshold,
)
from detectors.drift.rollout_events import rollouts
from detectors.finding import Finding, State, Verdict, finding_id

NAME = "falling"
SIGNALS = tuple(RULES)
SURE = 3.0  # standard errors: the steepest of many hinges is taken
HEALTHY = 18 * 3600.0  # of the past at least that tells the time left, in
POINTS = 96
GONE = 0.5  # of the usual level: other traffic does not explain that much
SETTLED = 600.0  # seconds by which a rollout must follow a fall to have set a new level

_Pool = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Fall:
    """What is found of one series, with the line through it, in shares of trials."""

    tally: Tally
    row: int
    found: Found
    as_of: float
    onset: float
    slope: float  # per second, negative when falling
    slope_se: float
    ended: bool
    times: FloatArray
    values: FloatArray
    level: float  # of late, as far as it fell by now
    mix: Mix
    broken: bool = False  # one position of it lost much

    @property
    def rule(self) -> Rule:
        return self.tally.rule

    @property
    def labels(self) -> Labels:
        return self.tally.panel.labels[self.row]

    @property
    def drop(self) -> float:
        return self.found.usual - self.level

    @property
    def new(self) -> bool:
        """Whether other traffic explains it, or nobody knows yet what it makes of the ratio."""
        if self.level <= GONE * self.found.usual:
            return False
        return bool(self.mix.new) or (bool(self.mix.young) and self.drop < self.rule.big)

    @property
    def verdict(self) -> Verdict:
        if self.new or self.mix.new == ("restored",):
            return "new_traffic"
        if not self.ended:
            return "drift"
        return "fault" if self.broken or self.drop >= self.rule.big else "step"


def find_falling(panels: Mapping[str, Panel], limits: LimitsLike, as_of: float) -> list[Finding]:
    """Return the ratios that fell below all that they did before, at *as_of*."""
    falls: dict[str, list[_Fall]] = {}
    for signal, rule in RULES.items():
        if signal not in panels:
            continue
        panel = judged(panels[signal], rule).until(as_of)
        if len(panel.times) >= FEWEST:
            falls[signal] = _falls(Tally(panel, rule), 0, len(panel.times), panels)
    ratios = {place(labels) for labels in _labels(panels, "acceptance_ratio")}
    parts = falls.get("acceptance_by_position", [])
    broken = {place(fall.labels) for fall in parts if fall.verdict == "fault"}
    whole = [
        replace(fall, broken=place(fall.labels) in broken)
        for fall in falls.get("acceptance_ratio", [])
    ]
    falls["acceptance_ratio"] = whole
    told = {place(fall.labels): _fires(fall, limits) for fall in whole}
    out = []
    for signal, found in falls.items():
        for fall in found:
            # One loss is told once: by the ratio where there is one, by a position else.
            if signal == "acceptance_length" and place(fall.labels) in ratios:
                continue
            of_whole = told.get(place(fall.labels)) if signal == "acceptance_by_position" else None
            if of_whole or (of_whole is False and not _fires(fall, limits)):
                continue
            out.append(_finding(fall, limits, panels))
    return out


def judged(panel: Panel, rule: Rule) -> Panel:
    """Return the series of *panel* that say something of their pool."""
    rows = [i for i, la in enumerate(panel.labels) if la.get("pool") not in rule.elsewhere]
    return panel if len(rows) == len(panel.labels) else panel.rows(rows)


def _labels(panels: Mapping[str, Panel], signal: str) -> Sequence[Labels]:
    return panels[signal].labels if signal in panels else ()


def _falls(tally: Tally, begin: int, end: int, panels: Mapping[str, Panel]) -> list[_Fall]:
    """Return the falls of one signal in its points from *begin* to *end*."""
    raised = np.flatnonzero(screen(tally, begin, end))
    if not len(raised):
        return []
    needed = threshold(tally.panel.step, len(tally.panel.labels))
    changed = _changes(panels, float(tally.panel.times[begin]), float(tally.panel.times[end - 1]))
    out = []
    for row in raised.tolist():
        found = fell(tally, row, begin, end, needed)
        if found is not None:
            found = _since_rollout(tally, row, found, (begin, end), needed, changed)
        if found is not None:
            out.append(_described(tally, row, found, (begin, end), panels))
    return out


def _changes(panels: Mapping[str, Panel], since: float, as_of: float) -> dict[_Pool, list[float]]:
    """Return when rollouts that changed something were over, by pool."""
    known = {name: panels[name].until(as_of) for name in ("instance_start",) if name in panels}
    told = rollouts(known, since)
    return {
        tuple(sorted(key)): [one.end for one in some if one.changed] for key, some in told.items()
    }


def _since_rollout(
    tally: Tally, row: int, found: Found, ends: tuple[int, int], needed: float,
    changed: Mapping[_Pool, list[float]],
) -> Found | None:  # fmt: skip
    """Return what is left of *found* when a rollout after it has set a new level."""
    times = tally.panel.times
    mine = changed.get(place(tally.panel.labels[row]), [])
    later = [at for at in mine if at > times[found.onset] + SETTLED]
    if not later:
        return found
    begin = int(np.searchsorted(times, max(later)))
    return fell(tally, row, begin, ends[1], needed)


def _described(
    tally: Tally, row: int, found: Found, ends: tuple[int, int], panels: Mapping[str, Panel]
) -> _Fall:
    """Return the fall with its slope and shape, since its onset and three times as long before."""
    begin, end = ends
    step, times = tally.panel.step, tally.panel.times
    points = min(end - begin, max(FEWEST, 4 * (end - found.onset)))
    size = min(64, points)
    width = points // size
    edges = end - width * np.arange(size, -1, -1)
    tried = np.diff(tally.tried[row, edges])
    won = np.diff(tally.won[row, edges])
    middle = times[edges[:-1]] + (width - 1) / 2 * step
    known = tried > 0
    share = np.interp(middle, middle[known], won[known] / tried[known])
    offset = len(times[begin:end]) - len(found.season)
    season = found.season[np.maximum(edges[:-1] - begin - offset + width // 2, 0)]
    shape = shape_of(share - season)
    seconds = width * step
    as_of = float(times[end - 1])
    onset = float(times[edges[shape.onset]])
    recent = max(3, size // 8)
    level = float(np.average((share - season)[-recent:], weights=np.maximum(tried[-recent:], 1e-9)))
    if not shape.ended:  # where it has come to by now, not where it was on average
        level += shape.slope * (recent - 1) / 2
    hits = None
    if tally.rule.signal == "prefix_hit_ratio":
        hits = found.usual, share_of(tally, row, end - max(3, round(LATE / step)), end)

    def after(at: float) -> bool:
        """Return whether it was still healthy at an instant, or lost most later."""
        hour = (middle > at - 3600.0) & (middle <= at)
        then = float((share - season)[hour].mean()) if hour.any() else found.usual
        return then >= min(found.healthy, (found.usual + level) / 2)

    return _Fall(
        tally, row, found, as_of,
        onset=onset,
        slope=shape.slope / seconds,
        slope_se=shape.slope_se / seconds,
        ended=shape.ended,
        times=middle, values=share, level=level,
        mix=mix_of(panels, tally.panel.labels[row], onset, as_of, hits, after),
    )  # fmt: skip


def _fires(fall: _Fall, limits: LimitsLike) -> bool:
    """Return whether somebody should know of it now."""
    if fall.verdict == "new_traffic":
        return False
    if _breached(fall, limits) or fall.drop >= fall.rule.big:
        return True
    if fall.found.reference < SHORT_REFERENCE:
        return False
    if fall.drop >= fall.rule.least:
        if fall.verdict != "drift":  # small and over: unless the traffic is known to be the same
            long = fall.as_of - fall.onset >= LATE
            return fall.found.lasting and fall.mix.known and long
        if fall.found.lasting:
            return True
    return fall.verdict == "drift" and _plunges(fall)


def _plunges(fall: _Fall) -> bool:
    """Return whether it falls quicker than the wander of hours: all of that within one."""
    slowest = -(fall.slope + SURE * fall.slope_se) * 3600
    steep = slowest > fall.rule.wander_at(fall.labels) * fall.found.usual
    before = max(fall.found.usual, fall.found.base) if steep else fall.found.usual
    least = max(fall.rule.least, QUICK * fall.found.usual)
    return before - fall.level >= least and (fall.found.quick or steep)


def _floor(fall: _Fall, limits: LimitsLike) -> float | None:
    """Return the floor as a share of trials, or None."""
    limit = limits.limit(fall.rule.signal, fall.labels)
    return None if limit is None else (limit - _offset(fall)) / _scale(fall)


def _breached(fall: _Fall, limits: LimitsLike) -> bool:
    floor = _floor(fall, limits)
    return floor is not None and fall.level <= floor


def _scale(fall: _Fall) -> float:
    return float(fall.tally.scale[fall.row])


def _offset(fall: _Fall) -> float:
    return float(fall.tally.offset[fall.row])


def _finding(fall: _Fall, limits: LimitsLike, panels: Mapping[str, Panel]) -> Finding:
    """Return the finding about one ratio, in the unit of its signal."""
    moving = fall.verdict == "drift"
    scale, floor = _scale(fall), _floor(fall, limits)
    ends = sorted(scale * 3600 * (fall.slope + sign * Z90 * fall.slope_se) for sign in (-1, 1))
    until = _left(fall, floor) if moving else Left(None, None, None)
    signal = fall.rule.signal
    state: State = "firing" if _fires(fall, limits) else "watch"
    return Finding(
        id=finding_id(NAME, signal, fall.labels, 0.0),
        kind="falling",
        verdict=fall.verdict,
        detector=NAME,
        signal=signal,
        labels=dict(fall.labels),
        as_of=fall.as_of,
        since=fall.onset,
        effect=scale * fall.slope * 3600 if moving else None,
        effect_low=ends[0] if moving else None,
        effect_high=ends[1] if moving else None,
        effect_unit="tokens/hour" if signal == "acceptance_length" else "1/hour",
        limit=limits.limit(signal, fall.labels),
        time_to_breach=until.usual,
        time_to_breach_low=until.low,
        time_to_breach_high=until.high,
        state=state,
        cause=_cause(fall, positions := _positions(fall, panels)),
        evidence=_evidence(fall, positions),
        runbook="LeadlineFalling",
    )


def _left(fall: _Fall, floor: float | None) -> Left:
    """Return seconds until the share meets its floor."""
    if floor is None:
        return Left(None, None, None)
    if fall.level <= floor:
        return Left(0.0, 0.0, 0.0)
    found, tally = fall.found, fall.tally
    end = int(np.searchsorted(tally.panel.times, fall.as_of)) + 1
    points = min(
        len(found.season), round(max(4 * (fall.as_of - fall.onset), HEALTHY) / tally.panel.step)
    )
    width = max(1, points // POINTS)
    edges = end - width * np.arange(points // width, -1, -1)
    tried = np.diff(tally.tried[fall.row, edges])
    share = np.diff(tally.won[fall.row, edges])[tried > 0] / tried[tried > 0]
    season = found.season[edges[:-1] + width // 2 - end]
    middle = tally.panel.times[edges[:-1]] + (width - 1) / 2 * tally.panel.step
    wander = fall.rule.wander_at(fall.labels)
    return left(
        middle[tried > 0], share - season[tried > 0], found.usual, floor, found.reference, wander
    )


def _positions(fall: _Fall, panels: Mapping[str, Panel]) -> list[dict[str, object]]:
    """Return acceptance by position before the fall and of late, in the order of the draft."""
    panel = panels.get("acceptance_by_position")
    if panel is None or not fall.rule.signal.startswith("acceptance"):
        return []
    panel = panel.until(fall.as_of)
    out: list[dict[str, object]] = []
    for row, labels in enumerate(panel.labels):
        if place(labels) != place(fall.labels):
            continue
        values, trials = panel.values[row], np.isfinite(panel.values[row]).astype(np.float64)
        if panel.trials is not None:
            trials = np.where(np.isfinite(values), panel.trials[row], 0.0)
        won = np.nan_to_num(values) if panel.trials is not None else np.nan_to_num(values * trials)
        usual, level = (
            float(won[some].sum() / trials[some].sum()) if trials[some].sum() > 0 else math.nan
            for some in (panel.times < fall.onset, panel.times > fall.as_of - 1800)
        )
        name = labels.get("position", "")
        out.append({"position": name, "usual": round(usual, 4), "level": round(level, 4)})
    return sorted(out, key=lambda one: (len(str(one["position"])), str(one["position"])))


def _evidence(fall: _Fall, positions: list[dict[str, object]]) -> dict[str, object]:
    """Return what a person needs to check the finding, in the unit of the signal."""
    scale, offset = _scale(fall), _offset(fall)
    found = fall.found
    told: dict[str, object] = {
        "fit": {
            "t": [round(float(t), 1) for t in fall.times],
            "y": [round(float(offset + scale * y), 5) for y in fall.values],
        },
        "slope_per_hour": scale * fall.slope * 3600,
        "level": offset + scale * fall.level,
        "usual": offset + scale * found.usual,
        "lowest_healthy": offset + scale * found.healthy,
        "drop": abs(scale) * fall.drop,
        "log_e": round(found.evidence.log_e, 2),
        "log_e_needed": round(threshold(fall.tally.panel.step, len(fall.tally.panel.labels)), 2),
        "seen_seconds": found.span,
        "reference_seconds": found.reference,
        "quick": found.quick,
        "points": len(fall.values),
        "per": "hour",
        "mix": {name: dict(one) for name, one in fall.mix.told.items()},
        "new_mix": list(fall.mix.new or fall.mix.young),
    }
    if positions:
        told["positions"] = positions
        if fall.rule.signal == "acceptance_ratio":
            usual, level = (
                1 + sum(float(str(one[k])) for one in positions) for k in ("usual", "level")
            )
            told["length"] = {"usual": round(usual, 3), "level": round(level, 3)}
    return told


def _cause(fall: _Fall, positions: list[dict[str, object]]) -> str:
    """Return one sentence for the page."""
    scale, offset = _scale(fall), _offset(fall)
    words = fall.rule.words
    position = fall.labels.get("position")
    words += f" at position {position}" if position else ""
    level, healthy = (offset + scale * x for x in (fall.level, fall.found.healthy))
    if fall.rule.failures:
        level, healthy = fall.level, fall.found.healthy
    digits = 3 if fall.rule.failures else 2
    how = {
        "drift": f"and falls by {abs(scale * fall.slope) * 3600:.{digits + 1}f} an hour",
        "step": "after a step (a rollout, a draft model, or other traffic)",
        "fault": "after a fall to a new level, where it stays",
        "new_traffic": f"since other traffic came ({fall.mix.words})",
    }[fall.verdict if fall.verdict in ("drift", "step", "fault") else "new_traffic"]
    text = (
        f"In {where(fall.labels)}, {words} is {level:.{digits}f}, below the lowest healthy level "
        f"of {healthy:.{digits}f}, {how}"
    )
    most = _worst(positions) if fall.rule.signal == "acceptance_ratio" else ""
    return f"{text}{most}."


def _worst(positions: list[dict[str, object]]) -> str:
    """Return which position lost most of what it had."""
    losses = [
        (1 - float(str(one["level"])) / float(str(one["usual"])), str(one["position"]))
        for one in positions
        if float(str(one["usual"])) > 0
    ]
    known = [loss for loss in losses if math.isfinite(loss[0])]
    if not known:
        return ""
    loss, position = max(known)
    return f"; position {position} lost most, {100 * loss:.0f} % of its own"
