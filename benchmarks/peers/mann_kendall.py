"""Mann-Kendall with Sen's slope, and a gate on the time to exhaustion.

The statistic is pymannkendall's `original_test`, with Sen's slope and Gilbert's interval of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.peers.peer import DAY, HOUR, Answer, Peer, View, over
from catalog.panel import FloatArray

WINDOW = 72
GATE = 7 * DAY
Z90 = 1.645
LEVELS = (2.0, 2.58, 3.29, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0)


def _run(view: View, grid: Sequence[float]) -> Answer:
    z = np.full((len(view.values), len(view.looks)), np.nan)
    told = np.full((3, *z.shape), np.nan)
    for i, end in enumerate(view.hours):
        recent = view.hourly[:, max(0, end - WINDOW) : end]
        z[:, i], slopes = trend(recent)
        left = 1 - np.median(recent[:, -3:], axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            seconds = HOUR * np.maximum(left, 0) / np.maximum(slopes, 0)
        told[:, :, i] = seconds
        z[~(seconds[0] <= GATE), i] = np.nan
    fires = over(z, grid)
    told[:, ~fires[list(grid).index(PEER.default)]] = np.nan
    return Answer(fires, told)


def trend(recent: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the statistic (s,), and Sen's slope with its 90 % interval, steepest second: (3, s).

    Args:
        recent: (s, n), evenly spaced.
    """
    n = recent.shape[1]
    late, early = np.tril_indices(n, -1)
    rise = recent[:, late] - recent[:, early]
    s = np.sign(rise).sum(axis=1)
    variance = n * (n - 1) * (2 * n + 5) / 18 - _ties(recent)
    z = (s - np.sign(s)) / np.sqrt(np.maximum(variance, 1e-9))
    pairs = rise.shape[1]
    spread = Z90 * np.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    ranks = [pairs // 2, min(pairs - 1, round((pairs + spread) / 2)),
             max(0, round((pairs - spread) / 2))]  # fmt: skip
    ordered = np.partition(rise / (late - early), ranks, axis=1)
    return z, ordered[:, ranks].T


def _ties(recent: FloatArray) -> FloatArray:
    """Return what equal values take from the variance."""
    out = np.zeros(len(recent))
    for row, values in enumerate(recent):
        _, counts = np.unique(values, return_counts=True)
        out[row] = (counts * (counts - 1) * (2 * counts + 5)).sum() / 18
    return out


PEER = Peer(
    "Mann-Kendall + Sen",
    "pymannkendall's original_test with sens_slope; gate on the time to exhaustion as in studies "
    "of software ageing",
    "72 hourly medians, p < .001, and the limit within 7 days by Sen's slope",
    "z of the test",
    LEVELS,
    3.29,
    _run,
)
