"""Figures from what fired: recall, delay, lead, false alarms, verdicts, intervals, with bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from benchmarks.detect_arena import WEEK, Heard
from benchmarks.detect_score import COOL_DOWN
from benchmarks.peers.peer import BoolArray
from catalog.panel import FloatArray

RESAMPLED = 400
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Alarms:
    """False-alarm episodes over series-weeks."""

    episodes: int
    weeks: float

    @property
    def rate(self) -> float:
        """Episodes a series-week."""
        return self.episodes / self.weeks if self.weeks else float("nan")

    @property
    def bounds(self) -> tuple[float, float]:
        """Exact Poisson interval of 95 %."""
        tail = (1 - CONFIDENCE) / 2
        low = stats.chi2.ppf(tail, 2 * self.episodes) / 2 if self.episodes else 0.0
        high = stats.chi2.ppf(1 - tail, 2 * (self.episodes + 1)) / 2
        return float(low / self.weeks), float(high / self.weeks)


def together(alarms: Sequence[Alarms]) -> Alarms:
    """Return the sum of several kinds."""
    return Alarms(sum(a.episodes for a in alarms), sum(a.weeks for a in alarms))


def alarms(heard: Heard, setting: int = 0) -> Alarms:
    """Return the episodes of a case without a leak: one a day and series at most."""
    fires = heard.fires[setting]
    last = np.full(len(fires), -np.inf)
    episodes = 0
    for i, look in enumerate(heard.looks):
        new = fires[:, i] & ((look - last) * heard.step >= COOL_DOWN)
        episodes += int(new.sum())
        last[new] = look
    span = (heard.looks[-1] - heard.looks[0]) * heard.step
    return Alarms(episodes, len(fires) * span / WEEK)


@dataclass(frozen=True)
class Leads:
    """Of each leak, in hours: until it fired and what was left then, NaN where it was missed."""

    delay: FloatArray
    lead: FloatArray
    share: FloatArray

    @property
    def caught(self) -> int:
        """How many fired before the breach."""
        return int(np.isfinite(self.lead).sum())

    @property
    def recall(self) -> tuple[float, float, float]:
        """Share that fired before the breach, with its exact interval of 95 %."""
        if not len(self.lead):
            return float("nan"), 0.0, 1.0
        low, high = stats.binomtest(self.caught, len(self.lead)).proportion_ci(CONFIDENCE)
        return self.caught / len(self.lead), float(low), float(high)

    @property
    def mean_share(self) -> float:
        """Mean of the share of the way that was left; a missed one has none left."""
        return float(np.nan_to_num(self.share).mean()) if len(self.share) else float("nan")


def leads(heard: Heard, setting: int = 0) -> Leads:
    """Return delay and lead of every leak of a case: first firing after onset, before breach."""
    made = heard.made
    rows = np.flatnonzero(np.isfinite(made.onset))
    onset, stop = made.onset[rows], np.minimum(made.breach, made.fixed)[rows]
    fires = heard.fires[setting][rows]
    inside = (heard.looks > onset[:, None]) & (heard.looks < stop[:, None])
    found = fires & inside
    first = np.where(found.any(axis=1), heard.looks[found.argmax(axis=1)], np.nan)
    hours = heard.step / 3600
    return Leads((first - onset) * hours, (stop - first) * hours, (stop - first) / (stop - onset))


def joined(several: Sequence[Leads]) -> Leads:
    """Return the leaks of several kinds as one."""
    nothing = Leads(*(np.zeros(0) for _ in range(3)))
    every = [nothing, *several]
    return Leads(
        np.concatenate([one.delay for one in every]),
        np.concatenate([one.lead for one in every]),
        np.concatenate([one.share for one in every]),
    )


def median_bounds(values: FloatArray, seed: int) -> tuple[float, float, float]:
    """Return the median with a bootstrap interval of 95 %."""
    if not len(values):
        return float("nan"), float("nan"), float("nan")
    rng = np.random.default_rng(seed)
    drawn = np.median(values[rng.integers(0, len(values), (RESAMPLED, len(values)))], axis=1)
    low, high = np.quantile(drawn, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    return float(np.median(values)), float(low), float(high)


@dataclass(frozen=True)
class Sure:
    """Intervals of the time to the limit that were given while a leak was on its way."""

    count: int
    cover: float
    width: float
    error: float


def intervals(several: Sequence[Heard], setting: int = 0) -> Sure | None:
    """Return how often the 90 % intervals held the truth; None of who gives none."""
    inside, width, error = [], [], []
    for heard in several:
        if heard.interval is None:
            return None
        left = (heard.made.breach[:, None] - (heard.looks - 1)) * heard.step
        told, low, high = heard.interval
        leaks = (heard.looks > heard.made.onset[:, None]) & (left > 0) & np.isfinite(left)
        said: BoolArray = heard.fires[setting] & leaks & np.isfinite(told) & np.isfinite(low)
        inside.append(((low <= left) & (left <= high))[said])
        with np.errstate(invalid="ignore", divide="ignore"):
            width.append(((high - low) / np.maximum(told, heard.step))[said])
            error.append((np.abs(told - left) / left)[said])
    held = np.concatenate(inside) if inside else np.zeros(0)
    if not len(held):
        return Sure(0, float("nan"), float("nan"), float("nan"))
    return Sure(len(held), float(held.mean()), float(np.median(np.concatenate(width))),
                float(np.median(np.concatenate(error))))  # fmt: skip


@dataclass(frozen=True)
class Told:
    """Shares of series whose verdict was right, was not given, or was wrong."""

    right: float
    unknown: float
    wrong: float


MATURE = 0.75  # of the way from onset to breach, where a leak's verdict is read


def verdicts(heard: Heard) -> Told | None:
    """Return how well a case was told apart; None of who gives no verdicts.

    A leak is read three quarters of the way; it must fire as a leak. What is none must never fire,
    and is right without a word; warm-up must be called that at some moment, else it is unknown.
    """
    if heard.verdicts is None:
        return None
    right = unknown = count = 0
    for row, said in enumerate(heard.verdicts):
        fired = heard.fires[0][row]
        onset = heard.made.onset[row]
        if heard.case.leak:
            if not np.isfinite(onset):
                continue
            stop = min(heard.made.breach[row], heard.made.fixed[row], heard.looks[-1])
            at = int(np.searchsorted(heard.looks, onset + MATURE * (stop - onset)))
            at = min(at, len(said) - 1)
            right += bool(fired[at]) and said[at] == heard.case.verdict
            unknown += not fired[at]
        else:
            after = [word for look, word in zip(heard.looks, said, strict=True)
                     if not np.isfinite(onset) or look > onset]  # fmt: skip
            quiet = not fired.any()
            named = heard.case.verdict == "none" or heard.case.verdict in after
            right += quiet and named
            unknown += quiet and not named
        count += 1
    if not count:
        return None
    return Told(right / count, unknown / count, 1 - (right + unknown) / count)
