"""Counts from raw counters: disjoint differences that lose nothing and double nothing.

The rules, one series at a time:
- a step's count is the counter's growth since the last sample before it;
- a counter that fell has restarted: its whole new value counts (what was counted between the last
  sample and the restart is not in any sample and can't be known);
- a gap has no counts while it lasts; what grew meanwhile counts at the first sample after it, so
  that the sum stays right, unless the gap is longer than `MAX_GAP`: then the lump says nothing of
  any step, and a reader who started inside the gap could not know it;
- the first sample of all says what was counted before we looked: no count.
Because of the bound, reads of neighbouring spans (each with `MAX_GAP` of samples before it) give
exactly what one read of the whole span gives.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from catalog.panel import FloatArray

MAX_GAP: Final = 3600.0
"""Longest gap, in seconds, whose growth counts at its end."""


def differences(
    times: FloatArray, counters: FloatArray, restarted: npt.NDArray[np.bool_] | None = None
) -> FloatArray:
    """Return the count of each step, NaN where there is none.

    Args:
        times: Shape (n,), ascending.
        counters: Shape (s, n), NaN where there was no sample.
        restarted: Shape (s, n): samples known to come from a new incarnation.
    """
    known = np.isfinite(counters)
    here = np.where(known, np.arange(len(times)), -1)
    last = np.maximum.accumulate(here, axis=1)
    before = np.full_like(last, -1)
    before[:, 1:] = last[:, :-1]
    # take_along_axis needs a valid place; where there is none the result is masked below.
    place = np.maximum(before, 0)
    old = np.take_along_axis(counters, place, axis=1)
    fell = counters < old
    if restarted is not None:
        fell |= restarted
    count = np.where(fell, counters, counters - old)
    joined = known & (before >= 0) & (times[None, :] - times[place] <= longest_gap(times))
    return np.where(joined, count, np.nan)


def longest_gap(times: FloatArray) -> float:
    """Return the longest gap that is bridged on this grid: `MAX_GAP`, or a step if that is more."""
    return max(MAX_GAP, float(times[1] - times[0])) if len(times) > 1 else MAX_GAP
