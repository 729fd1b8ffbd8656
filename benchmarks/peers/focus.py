"""FOCuS of changepoint-online: a change of a Gaussian mean of unknown size and unknown start."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.peers.peer import Answer, Peer, View, since_last

TRAINED = 24  # hours from which the spread is taken


def _run(view: View, grid: Sequence[float]) -> Answer:
    from changepoint_online import Focus, Gaussian  # noqa: PLC0415 - an extra

    fires = []
    for threshold in grid:
        changed = np.zeros(view.hourly.shape, dtype=bool)
        for row, series in enumerate(view.hourly):
            spread = max(float(np.std(series[:TRAINED])), 1e-3)
            detector = Focus(Gaussian(), side="right")
            for hour, value in enumerate(series):
                detector.update(float(value) / spread)
                if detector.statistic() >= threshold:
                    changed[row, hour] = True
                    detector = Focus(Gaussian(), side="right")
        fires.append(since_last(changed, view))
    return Answer(np.array(fires))


PEER = Peer(
    "FOCuS",
    "changepoint-online: Focus(Gaussian()), restarted after a change",
    "hourly medians over the spread of the first day, upwards, threshold 25",
    "threshold",
    (10.0, 25.0, 50.0, 100.0, 200.0, 400.0, 800.0, 1600.0),
    25.0,
    _run,
    package="changepoint_online",
    most=18,
    one_pass=False,
)
