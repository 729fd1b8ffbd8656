"""Leak: private memory that grows and does not stop.

Null: noise, autocorrelation, wander, steps, restarts, warm-up to a plateau, daily season, collector
sawtooth, gaps. Each is a shape or a noise in `compete`, or a rule here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from catalog.panel import Labels, Panel
from catalog.units import human, human_duration
from detectors.drift.buckets import BUCKETS
from detectors.drift.context import Z90, LimitsLike, where
from detectors.drift.leak_evidence import Asked, Evidence, weigh
from detectors.drift.leak_growth import AGAINST_STANDING, Growth, since
from detectors.drift.leak_limit import Breach, Slope, breach, by_tree
from detectors.drift.leak_rate import level_now, rate
from detectors.drift.leak_twins import per_load, unlike_peers
from detectors.drift.leak_windows import grow
from detectors.finding import Finding, State, Verdict, finding_id

NAME = "leak"
# Margins in log-likelihood (nats). Chosen on seeded noise and on the even-numbered development
# hosts only; `benchmarks/detect.py` reports the earlier ones.
AGAINST_WARM_UP = 3.0  # growth against a filling that ends: below this it is a watch
NEAR_BREACH = 1.0  # the same once growth was seen for as long as what is left
REMEMBERED = -1.0  # the same where earlier incarnations grew alike to their ends
ENOUGH, AGO = 0.8, 0.0  # evidence (`leak_evidence`) that makes growth a leak: now, and a while ago:
AGAIN, AT_LEAST = 8.0, 1800.0  # this part of its age, and seconds, before;
LOST = 4.0  # and how much of it may be lost since;
STANDS = 0.0  # and what a leak once told stands on
FROM_START = 0.8  # growth for more of a life than this has no standing before it
SURE = 0.4  # and the error of its slope, as a share of it
CLEAR = 4.0  # points (`_points`) on the average of two looks that make growth a leak
LEAST = 1.0  # points of a window to be among those that tell the rate
CALM = -1.0  # points of a look that shows nothing
ENDED = 0.4  # growth that of late goes on at less than this share of its slope has ended
HALF_SEEN = 0.5  # share of what is left that speaks neither for nor against
NEARNESS = 1.3  # points for each e-fold of that share,
FAR, NEAR = -3.0, 1.5  # between these
MOST_MARGIN = 8.0  # points for the margin over fillings, at most
PART_OF_LIFE = 0.25  # in a window of less of the life than this
BRIEF, YOUNGEST = 4 * 3600.0, -2.0  # growth of less than four hours loses points, at most two
ALIKE = 2.0  # slopes that differ by less than this factor
VETO = 2.0  # a longer window that prefers a filling by this much overrules a shorter one
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
    if len(known[signal].times) < 2:
        return []
    return leaks_of(grow(known[signal]), known, signal, limits)


def leaks_of(
    growths: Mapping[int, Sequence[Growth]],
    known: Mapping[str, Panel],
    signal: str,
    limits: LimitsLike,
) -> list[Finding]:
    """Return what the *growths* of the series of *signal* are.

    Args:
        growths: Row -> its windows, shortest first (`leak_windows.grow`).
        known: All panels, as known at the moment of judgement.
        signal: Private memory.
        limits: Limits by flag or configuration.
    """
    private = known[signal]
    trees = by_tree(private)

    def left_alone(growth: Growth) -> float:
        alone = _slope(private, growth)
        return _left(growth, breach(alone.labels, known, private, [alone], limits, trees))

    growing = _judge(private, growths, left_alone)
    slopes = {row: _slope(private, growth) for row, (growth, _) in growing.items()}
    leaking = {row for row, (_, verdict) in growing.items() if verdict == "leak"}
    out = []
    for row, (growth, verdict) in sorted(growing.items()):
        # What warms up will stop: the place is used up by leaks, and by the process in question.
        together = [slopes[other] for other in sorted(leaking | {row})]
        time_left = breach(private.labels[row], known, private, together, limits, trees)
        left = _left(growth, time_left)
        if time_left is not None and growth.slope < MINOR * time_left.steepest:
            left = left_alone(growth)
        out.append(_finding(private, row, growth, verdict, time_left, left))
    return out


def _slope(panel: Panel, growth: Growth) -> Slope:
    """Return the growth of one series for the sum over its place."""
    level = level_now(panel, growth) if growth.level is None else growth.level
    late = panel.values[growth.row, -BUCKETS:]
    newest = late[np.isfinite(late)][-3:]
    above = float(np.median(newest)) - level if len(newest) else 0.0
    return Slope(panel.labels[growth.row], growth.slope, growth.slope_se, growth.noise, above)


def _rated(panel: Panel, growth: Growth) -> Growth:
    """Return a leak with the rate that all that was seen of it tells."""
    told = rate(panel, growth)
    return replace(
        growth, slope=told.slope, slope_se=told.error, level=told.level, noise=told.noise
    )


def _left(growth: Growth, time_left: Breach | None) -> float:
    """Return the time left; without a limit, the time in which the memory would double."""
    return time_left.seconds if time_left else float(growth.values[-1]) / growth.slope


def _judge(
    panel: Panel, growths: Mapping[int, Sequence[Growth]], left: Callable[[Growth], float]
) -> dict[int, tuple[Growth, Verdict]]:
    """Return for each series that grows the window that shows it best, and what it is."""
    promising = {}
    for row, every in growths.items():
        past = [g for g in every if g.over and g.promising and g.against_warm_up >= 0]
        found = [g for g in every if not g.over]
        real = [replace(g, remembered=_remembered(g, past)) for g in found if g.promising]
        if real:
            promising[row] = found, real
    whole = {
        row: [g for g in real if (g.still or _novel(g)) and not _vetoed(g, found)]
        for row, (found, real) in promising.items()
    }
    leaks, standing = _leaks(panel, {row: some for row, some in whole.items() if some}, left)
    out: dict[int, tuple[Growth, Verdict]] = {}
    for row, (found, real) in promising.items():
        if row in leaks:
            leak = leaks[row]
            if leak.onset <= leak.start:
                leak = replace(leak, onset=min(leak.onset, since(leak, found)))
            out[row] = leak, "leak"
            continue
        best = max(real, key=lambda g: g.against_standing)
        apart = best.against_warm_up >= 0 and _novel(best) and not _vetoed(best, found)
        if apart and unlike_peers(panel, row, best):
            out[row] = _rated(panel, best), "leak"
        else:
            out[row] = standing.get(row, best), "warm_up"
    return out


def _leaks(
    panel: Panel, whole: Mapping[int, Sequence[Growth]], left: Callable[[Growth], float]
) -> tuple[dict[int, Growth], dict[int, Growth]]:
    """Return the growth that goes on and what would stand if it was told before, with their rates.

    Told by windows where they are clear, as they are of quiet memory. Of memory that wanders all of
    the life at once must say so as well, if it is long enough to say anything, and alone it is
    enough if it said so an eighth of the growth ago too.
    """
    surest = {
        row: min(windows, key=lambda g: g.slope_se / g.slope) for row, windows in whole.items()
    }
    asked = [_asked(panel, whole[row], growth, left(growth)) for row, growth in surest.items()]
    now = dict(zip(surest, weigh(panel, asked), strict=True))
    earlier = [
        replace(one, end=one.end - round(max(told.age / AGAIN, AT_LEAST) / panel.step))
        for one, told in zip(asked, now.values(), strict=True)
        if told is not None and told.odds >= ENOUGH
    ]
    ago = {one.row: told for one, told in zip(earlier, weigh(panel, earlier), strict=True) if told}
    out, standing = {}, {}
    for row, windows in whole.items():
        clear, told = _clear(windows, left), now[row]
        if told is not None and told.odds >= STANDS:
            standing[row] = replace(_with(panel, surest[row], told), stands=True)
        if told is not None:
            quiet = any(
                g.remembered > 0 or (g.share > PART_OF_LIFE and g.against_warm_up > MOST_MARGIN)
                for g in clear
            )
            if max(told.odds, told.beside) < ENOUGH and not quiet:
                continue  # no window of what wanders is clearer than all of it
            if not _goes_on(windows, surest[row], told, ago.get(row)):
                told = None
        if clear:
            # The window that knows the rate best: the longest that its line still fits.
            growth = _rated(panel, min(clear, key=lambda g: g.slope_se / g.slope))
            out[row] = growth if told is None else _both(growth, told)
        elif told is not None:
            out[row] = _with(panel, surest[row], told)
    return out, standing


def _asked(panel: Panel, windows: Sequence[Growth], growth: Growth, left: float) -> Asked:
    """Return the life in which *growth* is, to be weighed; it is at its limit in *left* seconds."""
    life = max((g.end - g.start) / g.share for g in windows)
    begin = max(0, round((growth.end - life - float(panel.times[0])) / panel.step))
    return Asked(growth.row, begin, panel.values.shape[1], begin > 0, left * growth.slope)


def _goes_on(
    windows: Sequence[Growth], growth: Growth, now: Evidence, ago: Evidence | None
) -> bool:
    """Return whether the whole life says so, a while ago too, and no window says otherwise."""
    # What bends loses evidence with every look, what goes on gains it.
    seen = ago is not None and AGO <= ago.odds <= now.odds + LOST
    if growth.remembered > 0:
        seen = now.odds >= REMEMBERED
    bent = any(g.share > MOST_OF_LIFE and g.against_warm_up < -VETO for g in windows)
    life = max((g.end - g.start) / g.share for g in windows)
    # What has grown ever since it began is most often still filling.
    margin = AGAINST_WARM_UP if now.age > FROM_START * life else 0.0
    straight = max(g.against_warm_up for g in windows) >= margin
    sure = now.error < SURE * now.slope
    return seen and sure and straight and not bent and growth.late >= ENDED


def _both(growth: Growth, told: Evidence) -> Growth:
    """Return *growth* with the rate of window and life, each by how well it knows it."""
    one, two = 1 / growth.slope_se**2, 1 / told.error**2
    slope = (one * growth.slope + two * told.slope) / (one + two)
    variance = (2 + one * (growth.slope - slope) ** 2 + two * (told.slope - slope) ** 2) / (
        one + two
    )
    return replace(growth, slope=slope, slope_se=math.sqrt(variance))


def _clear(growths: Sequence[Growth], left: Callable[[Growth], float]) -> list[Growth]:
    """Return the windows that show growth which goes on; none unless they did so a while ago too.

    One look at wandering memory can show anything; what goes on is seen at the next look as well.
    A life too short for a second look must be clearer, and one whose predecessors grew alike need
    not be.
    """
    young = [
        g
        for g in growths
        if not g.repeated
        and g.against_standing >= AGAINST_STANDING
        and g.against_warm_up >= _margin(g, left(g))
    ]
    points = [(g, _points(g, left(g))) for g in growths]
    now = max((p for _, p in points), default=CALM)
    before = [g.ago for g in growths if g.ago is not None and g.ago.promising]
    ago = max((_points(g, left(g)) for g in before), default=CALM)
    if now + ago < 2 * CLEAR:
        points = [(g, p) for g, p in points if g.remembered > 0]
    return [*young, *(g for g, p in points if p >= LEAST)]


def _points(growth: Growth, left: float) -> float:
    """Return how much speaks for growth that goes on, in nats or what is as good.

    The margin over fillings; that much of what is left was seen already; that it goes on of late;
    that it did not begin a moment ago in a process that is old: what fills then is soon full.
    """
    if not growth.promising or growth.late < ENDED:
        return CALM
    share = (growth.end - growth.onset + growth.remembered) / max(left, 1.0)
    nearness = NEARNESS * min(max(math.log(max(share, 1e-9) / HALF_SEEN), FAR), NEAR)
    steadiness = min(growth.late, 1.2) - 0.8
    young = 0.0
    if growth.share < PART_OF_LIFE:
        young = max(math.log((growth.end - growth.onset) / BRIEF), YOUNGEST)
    return min(growth.against_warm_up, MOST_MARGIN) + nearness + steadiness + min(young, 0.0)


def _with(panel: Panel, growth: Growth, told: Evidence) -> Growth:
    """Return *growth* with what the whole life says of it."""
    growth = replace(
        growth,
        slope=told.slope,
        slope_se=told.error,
        onset=growth.end - told.age,
        against_warm_up=told.odds,
    )
    return replace(growth, level=level_now(panel, growth))


def _remembered(growth: Growth, past: Sequence[Growth]) -> float:
    """Return for how long earlier incarnations grew as this one does, to their ends.

    What warms up after each restart has bent by the end of a life; a leak has not.
    """
    return sum(
        other.end - other.onset
        for other in past
        if growth.slope / ALIKE < other.slope < growth.slope * ALIKE
    )


def _margin(growth: Growth, left: float) -> float:
    """Return the margin over a warm-up that is asked for, less as the breach comes nearer.

    Growth seen for as long as what is left, and still going on, is no longer bent towards a
    plateau below the limit unless its time constant is longer than all that was seen.
    """
    if growth.remembered > 0:
        return REMEMBERED
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
    seen = growth.end - growth.onset + growth.remembered
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
        evidence=_evidence(panel, row, labels, growth, time_left),
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
    panel: Panel, row: int, labels: Labels, growth: Growth, time_left: Breach | None
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
        "seen_seconds": growth.end - growth.onset + growth.remembered,
        "seen_before_restart": growth.remembered,
        "window_seconds": growth.end - growth.start,
        "points": len(growth.values),
        "per": per,
        "slope_per_load": per_load_unit,
        "unlike_peers": unlike_peers(panel, row, growth),
        "stands": growth.stands and _cause(panel.signal, labels, growth, "leak", time_left),
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
