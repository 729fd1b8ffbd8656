"""One window of one series, fitted: what grew, how steadily, and what the series did before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from catalog.panel import FloatArray
from detectors.drift.buckets import Pyramid, envelope, fill
from detectors.drift.compete import (
    GROWING,
    STANDING,
    WARMING,
    WORTH_MORE,
    Competition,
    compete,
    season_score,
)

DAY = 86_400.0
SHORTEST_SEASON = 5400.0  # seconds; a shorter part of a day is a line, whatever it belongs to
STRAIGHT = 0.03  # of the growth seen: what a rate that follows the day's traffic may bend
# Margins in log-likelihood (nats), see `leak`.
AGAINST_STANDING = 6.5  # growth against noise and steps: below this there is nothing to say,
AFTER_STILL = 1.5  # or below this where the series stood still before
LATE = 0.4  # of the growth seen, at the end of it, must go on as before
LAGS = 6  # parts of the time since the onset, in which changes before it are looked for
STEADY = 3.0  # slope over its standard error
STILL = 0.5  # a series that wandered by less than this share of its growth stood still before
WORTH_STILL = 2.0  # margin that makes other shapes worth their cost (see `compete`) if it did


@dataclass(frozen=True)
class Growth:
    """How one window of one series looks.

    Attributes:
        row: Position of the series in the panel.
        start: Unix seconds at which the window begins.
        end: Unix seconds at which it ends.
        times: Middles of its buckets.
        values: Low envelope.
        slope: Units per second.
        slope_se: Its standard error.
        onset: Unix seconds at which growth began, as estimated.
        noise: Standard deviation of the level about its line, since the onset.
        against_standing: Margin in log-likelihood of growth over flat and steps.
        against_warm_up: Margin of growth over fillings that end.
        winner: The best shape of all.
        share: The window as a share of the life of this incarnation, as far as it is known.
        earlier: Largest growth over as long a time before the window, as a share of its own.
        wander: Largest change, up or down, over as long a time before the onset, as a share of what
            it grew by since.
        history: How many times as long a time came before.
        over: Whether this was an incarnation before the running one.
        remembered: Seconds that earlier incarnations were seen to grow alike.
        level: Where its line stands now, if that was told by more than the window.
        ago: The same window as it was an eighth of it ago; None where it could not be judged.
        repeated: Whether the life is long enough for such a window.
        stands: Whether, once told as a leak, it still is one: what there is speaks for it, though
            not as clearly as it takes to be told.
    """

    row: int
    start: float
    end: float
    times: FloatArray
    values: FloatArray
    slope: float
    slope_se: float
    onset: float
    noise: float
    against_standing: float
    against_warm_up: float
    winner: str
    share: float
    earlier: float
    wander: float
    history: float
    over: bool = False
    remembered: float = 0.0
    level: float | None = None
    ago: Growth | None = None
    repeated: bool = False
    stands: bool = False

    @cached_property
    def late(self) -> float:
        """Slope of the last two fifths of the growth seen, as a share of the whole slope."""
        begun = int(np.searchsorted(self.times, self.onset))
        seen = self.values[begun:]
        if len(seen) < 8:
            return 1.0
        recent = seen[-max(4, int(LATE * len(seen))) :]
        t = np.arange(len(recent)) - (len(recent) - 1) / 2
        return float(t @ recent / (t @ t) / (self.times[1] - self.times[0]) / self.slope)

    @property
    def still(self) -> bool:
        """Whether the series stood still, beside what it grew by, for as long before it grew."""
        return self.wander < STILL and self.history >= 1

    @property
    def promising(self) -> bool:
        """Whether there is growth that may go on, by this window alone."""
        steep = self.slope > STEADY * self.slope_se > 0
        clear = self.against_standing >= (AFTER_STILL if self.still else AGAINST_STANDING)
        return steep and clear


@dataclass(frozen=True)
class Life:
    """One incarnation of one series: the points from *begin* to *end*; *over* once replaced."""

    row: int
    begin: int
    end: int
    over: bool = False


def fit(
    pyramid: Pyramid, width: int, size: int, lives: list[Life], first: float, step: float
) -> list[Growth | None]:
    """Return the last *size* buckets of several lives as fitted; None with too many missing.

    Args:
        pyramid: Buckets of all series.
        width: Points a bucket.
        size: Buckets of the window.
        lives: What to fit.
        first: Unix seconds of the first point of all.
        step: Seconds a point.
    """
    values, usable = fill(
        np.stack([pyramid.last(life.row, width, life.end, size) for life in lives])
    )
    good = np.flatnonzero(usable)
    out: list[Growth | None] = [None] * len(lives)
    if not len(good):
        return out
    seconds = width * step
    day = DAY / seconds if size * seconds >= 2 * DAY else None
    values = values[good]
    some = [lives[i] for i in good]
    lasts = [life.end - pyramid.behind(width, life.end) for life in some]

    def wander(place: int, result: Competition) -> tuple[float, float]:
        onset = lasts[place] - round((1 - float(result.onset[place])) * size * width)
        rise = float(result.slope[place]) * (1 - float(result.onset[place])) * size
        return _wander(pyramid, some[place], onset, lasts[place], rise)

    def worth(result: Competition) -> FloatArray:
        """Where a series stood still before it rose, less of a margin is worth a closer look."""
        margin = result.score["hinge"] - result.score["flat"]
        out = np.full(len(margin), WORTH_MORE)
        near = (margin >= WORTH_STILL) & (margin < WORTH_MORE)
        for place in np.flatnonzero(near & (result.slope > STEADY * result.slope_se)).tolist():
            moved, times = wander(place, result)
            if moved < STILL and times >= 1:
                out[place] = WORTH_STILL
        return out

    result = compete(values, day, worth)
    partly = SHORTEST_SEASON <= size * seconds < 2 * DAY
    alone = season_score(values, DAY / seconds) if partly else None
    for place, life in enumerate(some):
        end = first + (lasts[place] - 1) * step
        share, earlier = _before(pyramid, life, lasts[place], width * size)
        moved, times = wander(place, result)
        growth = _growth(
            life.row, place, values[place], result, end, seconds,
            share=share, earlier=earlier, wander=moved, history=times, over=life.over,
        )  # fmt: skip
        # Later what the day before brought tells a season, see `earlier`.
        if alone is not None and (life.end - life.begin) * step < 2 * DAY:
            margin = result.best(GROWING)[place] - alone[place]
            growth = replace(growth, against_warm_up=min(growth.against_warm_up, float(margin)))
        out[good[place]] = growth
    return out


def _noise(values: FloatArray) -> float:
    """Return the standard deviation of *values* about their straight line."""
    t = np.arange(len(values)) - (len(values) - 1) / 2
    level = values - values.mean()
    if len(values) < 3:
        return 0.0
    return float(np.std(level - t * (t @ level) / (t @ t), ddof=2))


def _before(pyramid: Pyramid, life: Life, last: int, points: int) -> tuple[float, float]:
    """Return the share of the life that the window covers, and what it grew before as its share.

    The first eighth of what came before is left out: every process grows when it starts. So is a
    single jump that makes up most of a growth: a deploy is no precedent for a slope.
    """
    lived = last - life.begin
    share = points / lived
    wide = pyramid.coarse_width
    block = max(1, round(points / 8 / wide))
    begun = life.begin + (lived - points) // 8
    before = pyramid.coarse(life.row, begun, last - points)
    count = len(before) // block
    own = _levels(pyramid.coarse(life.row, last - 8 * block * wide, last), block)
    ends = np.isfinite(own[:2]), np.isfinite(own[-2:])
    growth = 0.0
    if ends[0].any() and ends[1].any():
        growth = float(np.nanmax(own[-2:]) - np.nanmin(own[:2]))
    if count < 2 or growth <= 0:
        return share, 0.0
    change = np.nan_to_num(np.diff(_levels(before, block)))
    largest = 0.0
    for lag in range(1, min(8, count)):
        parts = np.lib.stride_tricks.sliding_window_view(change, lag)
        total, jump = parts.sum(axis=1), parts.max(axis=1)
        largest = max(largest, float(_smooth(total, jump).max()))
    return share, largest / growth


def _wander(
    pyramid: Pyramid, life: Life, onset: int, last: int, rise: float
) -> tuple[float, float]:
    """Return how far a series moved before point *onset*, as a share of its *rise* since then.

    That is the largest change, up or down, over as long a time or less, single jumps left out; and
    how many times as long a time came before.
    """
    block = max(1, round((last - onset) / LAGS / pyramid.coarse_width))
    levels = _levels(pyramid.coarse(life.row, life.begin, onset), block)
    if len(levels) < 2 or rise <= 0:
        return 1.0, 0.0
    change = np.nan_to_num(np.diff(levels))
    largest = 0.0
    for lag in range(1, min(LAGS, len(change)) + 1):
        parts = np.lib.stride_tricks.sliding_window_view(change, lag)
        total = parts.sum(axis=1)
        up, down = _smooth(total, parts.max(axis=1)), _smooth(-total, -parts.min(axis=1))
        largest = max(largest, float(up.max()), float(down.max()))
    return largest / rise, len(levels) / LAGS


def _smooth(total: FloatArray, jump: FloatArray) -> FloatArray:
    return np.where(jump > total / 2, total - jump, total)


def _levels(values: FloatArray, block: int) -> FloatArray:
    """Return the low envelope of the last whole blocks of one series."""
    levels: FloatArray = envelope(values[None, :], block, len(values) // block)[0]
    return levels


def _growth(
    row: int,
    place: int,
    values: FloatArray,
    result: Competition,
    end: float,
    seconds: float,
    **before: Any,
) -> Growth:
    """Return what the competition said about one series."""
    size = len(values)
    start = end - size * seconds
    score = {name: float(value[place]) for name, value in result.score.items()}
    growing = max(score[name] for name in GROWING)
    return Growth(
        row=row,
        start=start,
        end=end,
        times=start + (np.arange(size, dtype=np.float64) + 0.5) * seconds,
        values=values,
        slope=float(result.slope[place]) / seconds,
        slope_se=float(result.slope_se[place]) / seconds,
        onset=start + float(result.onset[place]) * size * seconds,
        noise=_noise(values[int(result.onset[place] * size) :]),
        against_standing=growing - max(score[name] for name in STANDING),
        against_warm_up=growing - max(score[name] for name in WARMING),
        winner=max(score, key=lambda name: score[name]),
        **before,
    )


def since(growth: Growth, found: Sequence[Growth]) -> float:
    """Return the instant from which the series has followed the line of *growth*.

    The window that knows the rate best is often younger than the growth, and the onset that a
    longer window estimates hangs on its few hinges; so the line is followed backwards through the
    longest window until the series leaves it: before its onset a leak stood above its own line.
    """
    longest = min(found, key=lambda g: g.start)
    inside = growth.times >= growth.onset
    if longest is growth or inside.sum() < 3:
        return growth.onset
    middle = growth.values[inside].mean() - growth.slope * growth.times[inside].mean()
    rest = growth.values[inside] - middle - growth.slope * growth.times[inside]
    wide = longest.times[1] - longest.times[0]
    room = 3 * float(rest.std()) + growth.slope * (wide + STRAIGHT * (growth.end - growth.onset))
    apart = np.abs(longest.values - middle - growth.slope * longest.times) > room
    left = np.flatnonzero(apart & (longest.times < growth.onset))
    follows = longest.start if not len(left) else float(longest.times[left[-1]] + wide / 2)
    return min(growth.onset, follows)
