"""The local linear trend model by statsmodels: a Kalman filter whose slope has a standard error."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from benchmarks.peers.peer import DAY, HOUR, Answer, Peer, View, over
from catalog.panel import FloatArray

WEEK = 168
REFIT = 24
GATE = 7 * DAY
Z90 = 1.645


def _run(view: View, grid: Sequence[float]) -> Answer:
    z = np.full((len(view.values), len(view.looks)), np.nan)
    told = np.full((3, *z.shape), np.nan)
    for row, series in enumerate(view.hourly):
        level, slope, error = (s[view.hours - 1] for s in states(series, int(view.hours[0])))
        for i, rise in enumerate((slope, slope + Z90 * error, slope - Z90 * error)):
            with np.errstate(divide="ignore", invalid="ignore"):
                told[i, row] = HOUR * np.maximum(1 - level, 0) / np.maximum(rise, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            z[row] = np.where(told[0, row] <= GATE, slope / error, np.nan)
    fires = over(z, grid)
    told[:, ~fires[list(grid).index(PEER.default)]] = np.nan
    return Answer(fires, told)


def states(series: FloatArray, first: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return level, slope and its standard error, with variances fitted each day on a week."""
    from statsmodels.tsa.statespace.structural import UnobservedComponents  # noqa: PLC0415

    out = np.full((3, len(series)), np.nan)
    scale = float(np.std(np.diff(series[:first]))) or 1e-6  # of order one for the optimiser
    start = None
    for end in range(first, len(series) + 1, REFIT):
        since = max(0, end - WEEK)
        until = min(end + REFIT - 1, len(series))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = UnobservedComponents(series[since:end] / scale, "local linear trend")
            fitted = model.fit(start, disp=False, maxiter=30)
            start = fitted.params
            known = fitted.append(series[end:until] / scale) if until > end else fitted
        state = known.filtered_state[:, end - 1 - since :] * scale
        spread = np.sqrt(known.filtered_state_cov[1, 1, end - 1 - since :]) * scale
        out[:, end - 1 : until] = np.vstack([state[:2], spread])
    return out[0], out[1], np.maximum(out[2], 1e-12)


PEER = Peer(
    "local linear trend",
    "statsmodels UnobservedComponents, 'local linear trend'",
    "hourly medians of a week, refitted daily; slope over its standard error above 3, and the "
    "limit within 7 days",
    "slope over its standard error",
    (1.0, 1.645, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0),
    3.0,
    _run,
    package="statsmodels",
    most=3,
)
