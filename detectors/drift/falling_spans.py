"""The test of one ratio: a screen over all series, then tests over spans of 15 minutes to six days.

Each span is tested against all that lies before it. Below what level a share is ill is the highest
that either of two says:
- the lowest healthy hour of the reference, with a margin by how far its lowest hours lie apart;
- for spans up to an hour, the hour before it less the largest loss against an hour that the
  reference has seen, and for a quarter of an hour also the quarter before it less the largest loss
  from one quarter to the next: falls that are quicker than the healthy wander are found before
  they leave its band.
A reference that is not there to be moved by a step keeps it reported for as long as a day from
before it is remembered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from catalog.panel import FloatArray
from detectors.drift.buckets import FEWEST
from detectors.drift.falling_rules import LEAST, QUARTER, Tally
from detectors.drift.falling_score import DAY, Evidence, bet, clusters, season_of

HOUR = 3600.0
SPANS = (QUARTER, HOUR, 4 * HOUR, 12 * HOUR, DAY, 2 * DAY, 4 * DAY, 6 * DAY)
ONE_FALSE_IN = 365 * DAY
"""The dial: seconds between two false alarms of all series of a panel together, at least.

Mean times to a false alarm add up whatever binds the series together, so each one's threshold grows
with their number."""
REFERENCE = 3  # times the span, or a day, whichever is less
SHORT_REFERENCE = 12 * HOUR  # below this a fall may be the wander of hours
KNOWN_AFTER = (5 * DAY, 10 * DAY)  # reference from which its own wander counts, and it alone
STEPS = 240  # of one test at most
QUICK = 0.05  # share of the usual level that a quick fall must have cost to fire
BEYOND_HOURS, BEYOND_QUARTERS = 1.3, 1.6  # times the largest loss of the reference
STALE = 5  # points

IntArray = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Found:
    """One span of one series that fell.

    Attributes:
        evidence: What the test says.
        span: Seconds tested.
        reference: Seconds before it.
        healthy: The m0 below which it is.
        usual: Mean of the reference.
        base: Mean of the quarter of an hour before the span.
        level: Mean of late.
        onset: Point at which it began.
        lasting: Whether it is below what a reference of any length can have for healthy.
        quick: Whether it fell faster than ever before.
        season: (n,) daily season, subtracted.
    """

    evidence: Evidence
    span: float
    reference: float
    healthy: float
    usual: float
    base: float
    level: float
    onset: int
    lasting: bool
    quick: bool
    season: FloatArray


def threshold(step: float, series: int) -> float:
    """Return the logarithm that an e-detector must reach: the dial, over series and spans."""
    return math.log(ONE_FALSE_IN / step * max(series, 1) * len(SPANS))


def screen(tally: Tally, begin: int, end: int) -> npt.NDArray[np.bool_]:
    """Return which series may have fallen: those of late below all healthy hours of some span.

    What is not raised here is hardly found either: no bound of a test lies much higher. Quarters
    and hours lie on one grid and are made once, so that a look costs what is new.
    """
    step = tally.panel.step
    rows = len(tally.panel.labels)
    if not rows or (end - begin) < FEWEST:
        return np.zeros(rows, dtype=bool)
    if (end - begin) * step < 1.5 * SHORT_REFERENCE:
        return np.ones(rows, dtype=bool)
    grid = tally.quarters
    first = max(0, -(-(begin - grid.first) // grid.width))
    last = (end - grid.first) // grid.width
    now = np.minimum(_late(tally, end, 600 / step), grid.share[:, last - 1])
    slack = 0.5 * tally.rule.tolerance
    hours = grid.hours[:, first // 4 + 1 : last // 4]
    # A span of days needs to be low for long, so that any night below one day's hours is none.
    lately = {QUARTER: now, HOUR: now}
    lately[4 * HOUR] = lately[12 * HOUR] = lately[DAY] = _late(tally, end, HOUR / step)
    long = _late(tally, end, 6 * HOUR / step)
    raised = np.zeros(rows, dtype=bool)
    for span in SPANS[1:]:
        before = (last - round(span / step / grid.width)) // 4 - (first // 4 + 1)
        if before < 1 or before * HOUR < _least_reference(span) - 2 * HOUR:
            break
        level = np.maximum(long, lately[DAY]) if span > DAY else lately[span]
        raised |= level < hours[:, :before].min(axis=1) - slack
    day = round(DAY / step / grid.width)
    back = np.arange(day, last - first - 4, day)
    if len(back):  # a fall under a season: below what this hour was on any day before
        at = last - 1 - back
        same = np.minimum(grid.share[:, at - 2], grid.share[:, at + 2])
        raised |= now < np.minimum(same, grid.share[:, at]).min(axis=1) - 4 * slack
    lost = grid.lost[:, max(first, last - 96) : last]
    # A quick fall, against the largest of the last day; the test asks all of the reference.
    raised |= lost[:, -2:].max(axis=1) > 1.2 * lost[:, :-4].max(axis=1) + slack
    dips = grid.dips[:, max(first, last - 96) : last - 2].max(axis=1)
    raised |= (
        _late(tally, end - grid.width, grid.width) > _late(tally, end, 300 / step) + dips + slack
    )
    return np.asarray(raised & np.isfinite(now))


def _late(tally: Tally, end: int, points: float) -> FloatArray:
    """Return the share of the last *points* of each series; infinity where nothing was tried."""
    first = max(0, end - max(1, round(points)))
    won, tried = (sums[:, end] - sums[:, first] for sums in (tally.won, tally.tried))
    share = np.full(len(won), np.inf)
    np.divide(won, tried, out=share, where=tried > 0)
    return share


def _least_reference(span: float) -> float:
    return min(REFERENCE * span, max(DAY, span / 6))


def fell(tally: Tally, row: int, begin: int, end: int, needed: float) -> Found | None:
    """Return the fall of one series, by the span that is surest of it; None where there is none."""
    step = tally.panel.step
    counts = np.diff(tally.tried[row, begin : end + 1])
    seen = np.flatnonzero(counts)
    if len(seen) < FEWEST or len(counts) - seen[-1] > STALE:
        return None
    begin += int(seen[0])
    total = (end - begin) * step
    hours = _Blocks(tally, row, begin, end, HOUR)
    instants = tally.panel.times[begin:end]
    old = hours.middle < tally.panel.times[end - 1] - DAY
    season = season_of(hours.share[old], hours.tried[old], hours.middle[old], instants)
    best: Found | None = None
    for span in SPANS:
        reference = total - span
        if reference < _least_reference(span) - step or span / step < 5:
            break
        got = _one(tally, row, (begin, end), span, reference, season, needed)
        if got is None or got.evidence.log_e < needed:
            continue
        if best is None or _rank(got) > _rank(best):
            best = got
    return best


def _rank(found: Found) -> tuple[bool, float]:
    return found.lasting, found.evidence.log_e


class _Blocks:
    """Shares of whole blocks of one series that have enough trials, the newest ending at *end*."""

    def __init__(self, tally: Tally, row: int, begin: int, end: int, width: float) -> None:
        points = max(1, round(width / tally.panel.step))
        count = (end - begin) // points
        edges = end - points * np.arange(count, -1, -1)
        self.tried = np.diff(tally.tried[row, edges])
        won = np.diff(tally.won[row, edges])
        enough = (self.tried >= LEAST * self.tried.mean()) & (self.tried > 0) if count else []
        self.share = np.full(count, np.nan)
        np.divide(won, self.tried, out=self.share, where=enough)
        self.first = edges[:-1]
        self.middle = tally.panel.times[np.minimum(edges[:-1] + points // 2, end - 1)]


def _one(
    tally: Tally,
    row: int,
    ends: tuple[int, int],
    span: float,
    reference: float,
    season: FloatArray,
    needed: float,
) -> Found | None:
    """Return what the test of one span says, or None where the reference is too thin."""
    begin, end = ends
    step = tally.panel.step
    split = end - round(span / step)
    width = HOUR if reference >= 12 * HOUR else max(5 * step, min(span / 4, QUARTER))
    blocks = _Blocks(tally, row, begin, split, width)
    level = blocks.share - season[blocks.first - begin + round(width / step) // 2]
    level = level[np.isfinite(level)]
    if len(level) < 4:
        return None
    rule = tally.rule
    if span > HOUR and _now(tally, row, end, span, season) >= level.min() - rule.tolerance:
        return None
    level.sort()
    low, tenth, top = (level[round(q * (len(level) - 1))] for q in (0.0, 0.1, 0.9))
    healthy = float(low - rule.tolerance - 0.5 * (tenth - low))
    quick = _quick_bound(tally, row, begin, split, span, season) if span <= HOUR else None
    bound = healthy if quick is None else max(healthy, quick)
    now = _now(tally, row, end, QUARTER / 2 if bound > healthy else span, season)
    if not now < bound:
        return None
    points = max(1, round(span / step / STEPS))
    tested = (end - split) // points
    held = min((split - begin) // points, 2 * STEPS)
    edges = end - points * np.arange(tested + held, -1, -1)
    tried = np.diff(tally.tried[row, edges])
    share = np.full(len(tried), np.nan)
    np.divide(np.diff(tally.won[row, edges]), tried, out=share, where=tried > 0)
    share -= season[edges[:-1] - begin + points // 2]
    worth = clusters(share, tried, held, tally.counted)
    evidence = bet(share[held:], worth[held:], bound, rule.tolerance, needed)
    usual = float(np.mean(level))
    before = max(begin, split - max(3, round(QUARTER / step)))
    base = share_of(tally, row, before, split) - float(
        season[before - begin : split - begin].mean()
    )
    onset = int(edges[held] + points * evidence.onset)
    ill = _ill(
        float(top) - rule.tolerance / 2, healthy, reference, rule.wander_at(tally.panel.labels[row])
    )
    return Found(
        evidence, span, reference, bound, usual, base, now, min(onset, end - 1),
        lasting=now < ill and reference >= SHORT_REFERENCE,
        quick=bound > healthy, season=season,
    )  # fmt: skip


def _now(tally: Tally, row: int, end: int, span: float, season: FloatArray) -> float:
    """Return the level of late: of a quarter of an hour up to an hour; half a quarter if quick."""
    width = max(QUARTER, min(HOUR, span / 6)) if span >= QUARTER else span
    points = max(3, round(width / tally.panel.step))
    return share_of(tally, row, end - points, end) - float(season[-points:].mean())


def _ill(top: float, healthy: float, reference: float, wander: float) -> float:
    """Return the level below which no wander of hours explains a fall any more.

    A short reference may have stayed at the upper end of it.
    """
    shown = (reference - KNOWN_AFTER[0]) / (KNOWN_AFTER[1] - KNOWN_AFTER[0])
    shown = min(max(shown, 0.0), 1.0)
    return min(healthy, shown * healthy + (1 - shown) * top * (1 - wander))


def _quick_bound(
    tally: Tally, row: int, begin: int, split: int, span: float, season: FloatArray
) -> float | None:
    """Return the level below which the last span fell faster than the reference ever did."""
    quarters = _Blocks(tally, row, begin, split, QUARTER)
    share = quarters.share
    if (split - begin) * tally.panel.step < SHORT_REFERENCE or not np.isfinite(share[-4:]).all():
        return None
    share = share - season[quarters.first - begin]
    hour = np.convolve(share, np.full(4, 0.25), mode="valid")  # of four quarters that end there
    lag = max(1, round(span / QUARTER))
    bounds = [
        float(before[-1]) - beyond * max(float(lost.max()), 0.0)
        for before, lost, beyond in (
            (hour, _known(hour[:-lag] - share[3 + lag :]), BEYOND_HOURS),
            (share, _known(share[:-1] - share[1:]), BEYOND_QUARTERS),
        )[: 2 if span <= QUARTER else 1]
        if len(lost) >= 32
    ]
    return max(bounds) - tally.rule.tolerance if bounds else None


def _known(values: FloatArray) -> FloatArray:
    return values[np.isfinite(values)]


def share_of(tally: Tally, row: int, first: int, last: int) -> float:
    """Return the share between two points; NaN where nothing was tried."""
    tried = tally.tried[row, last] - tally.tried[row, first]
    return float((tally.won[row, last] - tally.won[row, first]) / tried) if tried > 0 else math.nan
