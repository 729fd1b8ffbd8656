"""STL by statsmodels: the trend of a week without its daily season, told ahead by its slope."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.peers.peer import Answer, Peer, View, over

WEEK = 168
PERIOD = 24
AHEAD = (6.0, 12.0, 24.0, 48.0, 96.0, 168.0, 336.0)


def _run(view: View, grid: Sequence[float]) -> Answer:
    from statsmodels.tsa.seasonal import STL  # noqa: PLC0415 - an extra

    left = np.full((len(view.values), len(view.looks)), np.nan)
    hours = np.arange(PERIOD) - (PERIOD - 1) / 2
    for row, series in enumerate(view.hourly):
        for i, end in enumerate(view.hours):
            recent = series[max(0, end - WEEK) : end]
            if len(recent) <= 2 * PERIOD:
                continue
            trend = STL(recent, period=PERIOD).fit().trend[-PERIOD:]
            slope = float(trend @ hours / (hours @ hours))
            if slope > 0:
                left[row, i] = max(0.0, 1 - float(trend[-1])) / slope
    return Answer(over(-left, [-ahead for ahead in grid]))


PEER = Peer(
    "STL + slope",
    "statsmodels.tsa.seasonal.STL at its defaults",
    "hourly medians of a week, period 24; the limit within 4 days by the slope of the last day's "
    "trend",
    "how far ahead, in hours",
    AHEAD,
    96.0,
    _run,
    package="statsmodels",
    most=8,
)
