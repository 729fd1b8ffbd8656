"""ADWIN and Page-Hinkley of river, fed with hourly medians."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers.peer import Answer, Peer, View, since_last

Make = Callable[[float], Any]


def _adwin(delta: float) -> Any:
    from river.drift import ADWIN  # noqa: PLC0415 - an extra

    return ADWIN(delta=delta)


def _page_hinkley(threshold: float) -> Any:
    from river.drift import PageHinkley  # noqa: PLC0415 - an extra

    return PageHinkley(threshold=threshold)


def _run(view: View, grid: Sequence[float], make: Make, scale: float) -> Answer:
    fires = []
    for setting in grid:
        changed = np.zeros(view.hourly.shape, dtype=bool)
        for row, series in enumerate(view.hourly):
            detector = make(setting)
            for hour, value in enumerate(series):
                detector.update(scale * value)
                changed[row, hour] = detector.drift_detected
        fires.append(since_last(changed, view))
    return Answer(np.array(fires))


ADWIN = Peer(
    "ADWIN",
    "river.drift.ADWIN at its defaults",
    "hourly medians as a share of the limit, delta .002",
    "delta",
    (0.2, 0.02, 0.002, 1e-4, 1e-6, 1e-9, 1e-15, 1e-30),
    0.002,
    partial(_run, make=_adwin, scale=1.0),
    package="river",
    most=18,
    one_pass=False,
)
PAGE_HINKLEY = Peer(
    "Page-Hinkley",
    "river.drift.PageHinkley at its defaults",
    "hourly medians in per cent of the limit, threshold 50, delta .005",
    "threshold",
    (25.0, 50.0, 100.0, 200.0, 400.0, 800.0, 1600.0),
    50.0,
    partial(_run, make=_page_hinkley, scale=100.0),
    package="river",
    most=18,
    one_pass=False,
)
