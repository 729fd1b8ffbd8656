"""When a latency that creeps meets its limit: days like those before it, dearer by the hour.

Growth feeds itself: what takes longer runs longer, so that more of it runs at once. It may go on
in a straight line or compound. Each of the last days, with the growth that was in it taken out,
stands for those to come, with slopes from all of the slope's error and a little for days that were
never seen: the first crossing is told by the middle of all these cases, its interval by nine in
ten of them. It is wide where nobody knows whether the busy hour of this day or of the next one
meets the limit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from catalog.panel import FloatArray
from detectors.drift.buckets import BUCKETS
from detectors.drift.creep_load import DAY, LONGEST, Bins

MOST_ELASTIC = 0.6  # beyond it growth would feed itself without end within the forecast
LEAST_SWING = 0.1  # of the concurrency, in logarithm, to tell what it costs
SLOPES = ndtri((np.arange(9) + 0.5) / 9)  # of the error of the slope that stand for all
LEAST_ERROR = 0.2  # of the slope: what the loads explain of growth is known no better
DAYS_VARY = 0.06 * np.array([-1.0, 0.0, 1.0])  # what a day may be dearer than any before
QUANTILES = (0.5, 0.05, 0.95)


class Left(NamedTuple):
    """Seconds until the limit is met: the median and 90 % of it; None for never or met already."""

    usual: float | None
    low: float | None
    high: float | None


def feedback(bins: Bins, told: FloatArray) -> float:
    """Return how much faster a latency grows in life than at the same load.

    By Little's law: growth over one less the elasticity of the latency in its concurrency, at the
    busier half.

    Args:
        bins: The series.
        told: What its loads explain of the logarithm.
    """
    if not bins.names or bins.names[0] != "requests_running":
        return 1.0
    x = bins.loads[0]
    known = np.isfinite(x) & np.isfinite(told)
    busy = known & (x >= np.median(x[known])) if known.any() else known
    if busy.sum() < BUCKETS or np.ptp(x[busy]) < LEAST_SWING:
        return 1.0
    centred = x[busy] - x[busy].mean()
    elasticity = float(centred @ told[busy] / (centred @ centred))
    return 1 / (1 - min(max(elasticity, 0.0), MOST_ELASTIC))


def left(
    bins: Bins, slope: float, error: float, onset: float, faster: float, limit: float | None
) -> Left:
    """Return when a latency meets its limit.

    Args:
        bins: The series.
        slope: Share a second by which it grows at the same load.
        error: Standard error of it.
        onset: Unix seconds at which growth began.
        faster: How much faster it grows in life (`feedback`).
        limit: Seconds; None where there is none.
    """
    never = Left(None, None, None)
    newest = bins.raw[-3:]
    if (
        limit is None
        or slope <= 0
        or np.nan_to_num(newest).sum() >= limit * np.isfinite(newest).sum() > 0
    ):
        return never
    end = bins.times[-1] + bins.step / 2
    day = round(DAY / bins.step)
    days = min(max(len(bins.raw) // day, 1), round(LONGEST / DAY))
    last = slice(-min(days * day, len(bins.raw)), None)
    raw = np.where(bins.raw[last] > 0, bins.raw[last], np.nan)
    ago = end - bins.times[last]
    error = max(error, LEAST_ERROR * slope)
    rates = faster * np.maximum(slope + SLOPES * error, 0.1 * slope)[:, None, None]
    grown_since = np.minimum(ago, end - onset)  # seconds of growth that a bin of then lacks now
    beyond = (limit / raw)[None, None, :] / (1 + DAYS_VARY)[None, :, None]
    age = end - onset
    # In a straight line since the onset, and compounded: nobody knows how it goes on.
    straight = ((1 + rates * (age - grown_since)) * beyond - 1) / rates - age
    compound = np.log(beyond) / rates - grown_since
    wait = np.concatenate([straight, compound])
    first = DAY - (ago - 1e-6) % DAY  # the same hour, from now on
    at = first + DAY * np.maximum(np.ceil((wait - first) / DAY), 0.0)
    at = np.where(np.isfinite(at), at, np.inf)
    width = min(day, at.shape[2])
    cases = at.reshape(*at.shape[:2], -1, width).min(axis=3)
    cases = cases[np.isfinite(cases)]
    if not len(cases):
        return never
    usual, low, high = np.quantile(cases, QUANTILES, method="nearest")
    return Left(float(usual), float(low), float(high))
