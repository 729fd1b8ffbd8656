"""PELT-like segmentation by ruptures: a break upwards within the last hours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.peers.peer import Answer, Peer, View

WINDOW = 72
RECENT = 12  # hours in which a break must lie to be news


def _run(view: View, grid: Sequence[float]) -> Answer:
    from ruptures import KernelCPD  # noqa: PLC0415 - an extra

    fires = np.zeros((len(grid), len(view.values), len(view.looks)), dtype=bool)
    for row, series in enumerate(view.hourly):
        for i, end in enumerate(view.hours):
            recent = series[max(0, end - WINDOW) : end]
            noise = max(float(np.median(np.abs(np.diff(recent)))) / 0.954, 1e-4)
            found = KernelCPD(kernel="linear", min_size=3).fit(recent[:, None] / noise)
            for k, factor in enumerate(grid):
                parts = [0, *found.predict(pen=factor * np.log(len(recent)))]
                if len(parts) < 3 or len(recent) - parts[-2] > RECENT:
                    continue
                last, before = recent[parts[-2] :], recent[parts[-3] : parts[-2]]
                fires[k, row, i] = last.mean() > before.mean()
    return Answer(fires)


PEER = Peer(
    "ruptures",
    "ruptures.KernelCPD(kernel='linear'), the exact search of least squares; penalty by BIC",
    "72 hourly medians over the noise of their differences, penalty 2 log n; a break upwards in "
    "the last 12 hours",
    "penalty over log n",
    (2.0, 5.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0),
    2.0,
    _run,
    package="ruptures",
    most=12,
)
