"""Leak: private memory that grows and does not stop.

Null: noise, autocorrelation, wander, steps, restarts, warm-up to a plateau, daily season, collector
sawtooth, gaps. Each is a shape or a noise in `compete`, or a rule here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from catalog.panel import Labels, Panel
from catalog.units import human, human_duration
from detectors.drift.context import Z90, LimitsLike, where
from detectors.drift.leak_limit import Breach, Slope, breach
from detectors.drift.leak_twins import per_load, unlike_peers
from detectors.drift.leak_windows import Growth, grow, since
from detectors.finding import Finding, State, Verdict, finding_id

NAME = "leak"
# Margins in log-likelihood (nats). Chosen on seeded noise and on the even-numbered development
# hosts only; `benchmarks/detect.py` reports the odd ones.
AGAINST_STANDING = 6.5  # growth against noise and steps: below this there is nothing to say
AGAINST_WARM_UP = 3.0  # growth against a filling that ends: below this it is a watch
NEAR_BREACH = 1.0  # the same once growth was seen for as long as what is left
VETO = 2.0  # a longer window that prefers a filling by this much overrules a shorter one
STEADY = 3.0  # slope over its standard error
MOST_OF_LIFE = 0.5  # a window over this share of the life needs no comparison with what was before
EARLIER = 0.6  # a shorter one must outgrow what the same time brought before, by this much
EXTRAPOLATE = 8.0  # growth is not believed for more than this many times what was seen of it
SEEN_ENOUGH = 18 * 3600.0  # unless it was seen for as long as this,
FURTHEST = 60.0  # and even then for no more than this many times
MINOR = 0.1  # of the steepest growth in a place: less has its own time, not that of the place
SEEN_SHARE = 1 / 3  # growth seen, as a share of the time left, before a page


def find_leaks(panels: Mapping[str, Panel], limits: LimitsLike, as_of: float) -> list[Finding]:
    """Return the leaks, and the growth that may yet be one, in private memory at *as_of*."""
    signal = "host_anon_swap" if "host_anon_swap" in panels else "host_rss"
    if signal not in panels:
        return []
    known = {name: panel.until(as_of) for name, panel in panels.items()}
    private = known[signal]
    if len(private.times) < 2:
        return []

    def left_alone(growth: Growth) -> float:
        alone = Slope(private.labels[growth.row], growth.slope, growth.slope_se)
        return _left(growth, breach(alone.labels, known, private, [alone], limits))

    judged = {row: _judge(private, row, found, left_alone) for row, found in grow(private).items()}
    growing = {row: best for row, best in judged.items() if best is not None}
    slopes = {
        row: Slope(private.labels[row], g.slope, g.slope_se, g.noise)
        for row, (g, _) in growing.items()
    }
    leaking = {row for row, (_, verdict) in growing.items() if verdict == "leak"}
    out = []
    for row, (growth, verdict) in sorted(growing.items()):
        # What warms up will stop: the place is used up by leaks, and by the process in question.
        together = [slopes[other] for other in sorted(leaking | {row})]
        time_left = breach(private.labels[row], known, private, together, limits)
        left = _left(growth, time_left)
        if time_left is not None and growth.slope < MINOR * time_left.steepest:
            left = left_alone(growth)
        out.append(_finding(private, row, growth, verdict, time_left, left))
    return out


def _left(growth: Growth, time_left: Breach | None) -> float:
    """Return the time left; without a limit, the time in which the memory would double."""
    return time_left.seconds if time_left else float(growth.values[-1]) / growth.slope


def _judge(
    panel: Panel, row: int, found: Sequence[Growth], left: Callable[[Growth], float]
) -> tuple[Growth, Verdict] | None:
    """Return the window that shows growth best and what it is; None where nothing grows."""
    real = [
        g
        for g in found
        if g.against_standing >= AGAINST_STANDING and g.slope > STEADY * g.slope_se > 0
    ]
    if not real:
        return None
    clear = [
        g
        for g in real
        if g.against_warm_up >= _margin(g, left(g)) and _novel(g) and not _vetoed(g, found)
    ]
    if clear:
        # The window that knows the rate best: the longest that its line still fits.
        surest = min(clear, key=lambda g: g.slope_se / g.slope)
        return replace(surest, onset=since(surest, found)), "leak"
    best = max(real, key=lambda g: g.against_standing)
    apart = best.against_warm_up >= 0 and _novel(best) and not _vetoed(best, found)
    if apart and unlike_peers(panel, row, best):
        return best, "leak"
    return best, "warm_up"


def _margin(growth: Growth, left: float) -> float:
    """Return the margin over a warm-up that is asked for, less as the breach comes nearer.

    Growth seen for as long as what is left, and still going on, is no longer bent towards a
    plateau below the limit unless its time constant is longer than all that was seen.
    """
    share = (growth.end - growth.onset) / max(left, 1.0)
    nearness = min(max((share - SEEN_SHARE) / (1 - SEEN_SHARE), 0.0), 1.0)
    return AGAINST_WARM_UP + nearness * (NEAR_BREACH - AGAINST_WARM_UP)


def _novel(growth: Growth) -> bool:
    """Whether growth is new or fills most of a life: neither a season nor the tail of a log."""
    return growth.share > MOST_OF_LIFE or growth.earlier < EARLIER


def _vetoed(growth: Growth, found: Sequence[Growth]) -> bool:
    """Whether a longer window shows that the growth of a shorter one is the end of a filling."""
    return any(
        other.start < growth.start and other.against_warm_up < -VETO and other.against_standing > 0
        for other in found
    )


def _finding(
    panel: Panel,
    row: int,
    growth: Growth,
    verdict: Verdict,
    time_left: Breach | None,
    left: float,
) -> Finding:
    """Return the finding about one series.

    It fires only once enough of the growth was seen for what is foretold (*left* seconds): what
    grows little beside a neighbour that leaks must not be taken for a leak because the place that
    both share ends soon. Without a limit, the time in which the memory would double stands for it.
    """
    labels = dict(panel.labels[row])
    seen = growth.end - growth.onset
    early = seen < max(min(left / EXTRAPOLATE, SEEN_ENOUGH), left / FURTHEST)
    state: State = "firing" if verdict == "leak" and not early else "watch"
    low, high = (growth.slope + sign * Z90 * growth.slope_se for sign in (-1, 1))
    return Finding(
        id=finding_id(NAME, panel.signal, labels, _start(panel, row)),
        kind="leak",
        verdict=verdict,
        detector=NAME,
        signal=panel.signal,
        labels=labels,
        as_of=growth.end,
        since=growth.onset,
        effect=growth.slope * 3600,
        effect_low=low * 3600,
        effect_high=high * 3600,
        effect_unit="bytes/hour",
        limit=time_left.limit if time_left else None,
        time_to_breach=time_left.seconds if time_left else None,
        time_to_breach_low=time_left.low if time_left else None,
        time_to_breach_high=time_left.high if time_left else None,
        state=state,
        cause=_cause(panel.signal, labels, growth, verdict, time_left),
        evidence=_evidence(panel, row, growth, time_left),
        runbook="LeadlineLeak",
    )


def _start(panel: Panel, row: int) -> float:
    """Return the start of the incarnation: from its start time where known, else 0.

    A history that slides has no fixed beginning, so without start times the id does not use one.
    """
    if panel.starts is None:
        return 0.0
    known = panel.starts[row][np.isfinite(panel.starts[row])]
    return float(known[-1]) if len(known) else 0.0


def _evidence(
    panel: Panel, row: int, growth: Growth, time_left: Breach | None
) -> dict[str, object]:
    """Return what a person needs to check the finding: the fit, and what it was told from."""
    per, per_load_unit = per_load(panel, row, growth)
    line = growth.slope * (growth.times - growth.onset).clip(min=0.0)
    line = line - line.mean() + growth.values.mean()
    return {
        "fit": {
            "t": [round(float(t), 1) for t in growth.times],
            "y": [float(f"{y:.6g}") for y in growth.values],
            "line": [float(f"{y:.6g}") for y in line],
        },
        "slope_per_hour": growth.slope * 3600,
        "seen_seconds": growth.end - growth.onset,
        "window_seconds": growth.end - growth.start,
        "points": len(growth.values),
        "per": per,
        "slope_per_load": per_load_unit,
        "unlike_peers": unlike_peers(panel, row, growth),
        "shape": growth.winner,
        "against_standing": round(growth.against_standing, 2),
        "against_warm_up": round(growth.against_warm_up, 2),
        "place": time_left.place if time_left else None,
        "headroom": time_left.headroom if time_left else None,
        "place_slope_per_hour": time_left.slope * 3600 if time_left else None,
        "processes": time_left.processes if time_left else None,
        "resident_only": panel.signal == "host_rss",
    }


def _cause(
    signal: str, labels: Labels, growth: Growth, verdict: Verdict, time_left: Breach | None
) -> str:
    """Return one sentence for the page."""
    what = "private memory" if signal == "host_anon_swap" else "resident memory (swap not seen)"
    rate = human(growth.slope * 3600, "bytes_per_hour").replace("hour", "h")
    seen = human_duration(growth.end - growth.onset)
    if verdict != "leak":
        return (
            f"The {what} of {where(labels)} has grown by {rate} for {seen}; "
            "it is too early to tell a leak from a warm-up."
        )
    if time_left is None:
        return (
            f"The {what} of {where(labels)} has grown steadily by {rate} for {seen}; "
            "no limit is known."
        )
    return (
        f"The {what} of {where(labels)} has grown steadily by {rate} for {seen}; "
        f"{time_left.place} is met in {human_duration(time_left.seconds)}."
    )
