"""Prophet refitted daily: above the upper end of what it expected of this day."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import pandas as pd

from benchmarks.peers.peer import Answer, Peer, View, over, since_last
from catalog.panel import FloatArray

REFIT = 24
START = pd.Timestamp("2024-01-01")


def _run(view: View, grid: Sequence[float]) -> Answer:
    beyond = np.full(view.hourly.shape, np.nan)
    for row, series in enumerate(view.hourly):
        beyond[row] = expected(series, int(view.hours[0]))
    return Answer(np.array([since_last(fires, view) for fires in over(beyond, grid)]))


def expected(series: FloatArray, first: int) -> FloatArray:
    """Return how far each hour lies above what was expected, in widths of the upper band."""
    from prophet import Prophet  # noqa: PLC0415 - an extra

    logging.getLogger("cmdstanpy").disabled = True
    logging.getLogger("prophet.plot").disabled = True
    out = np.full(len(series), np.nan)
    stamps = START + pd.to_timedelta(np.arange(len(series)), unit="h")
    for end in range(first, len(series), REFIT):
        model = Prophet(interval_width=0.98, daily_seasonality=True, weekly_seasonality=False)
        model.fit(pd.DataFrame({"ds": stamps[:end], "y": series[:end]}), seed=1)
        until = min(end + REFIT, len(series))
        told = model.predict(pd.DataFrame({"ds": stamps[end:until]}))
        middle, high = told["yhat"].to_numpy(), told["yhat_upper"].to_numpy()
        out[end:until] = (series[end:until] - middle) / np.maximum(high - middle, 1e-9)
    return out


PEER = Peer(
    "Prophet",
    "prophet at its defaults, refitted daily, as vmanomaly and prometheus-anomaly-detector do",
    "hourly medians, above the 98 % band",
    "widths of the band",
    (1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0),
    1.0,
    _run,
    package="prophet",
    most=2,
)
