"""Cold start: how long after its start a server was as fast as it then remained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from catalog.panel import Panel
from detectors.drift.creep_load import logarithm
from detectors.drift.rollout_events import Rollout

SIGNALS: tuple[str, ...] = (
    "ttft_mean_by_server",
    "tpot_mean_by_server",
    "itl_mean_by_server",
)
"""Latencies by server; the slowest to reach its plateau counts."""
PLATEAU = (3600.0, 3 * 3600.0)  # seconds after a start between which it is taken to be warm
NEAR = 0.15  # of the plateau, in logarithm
STAYS = 3  # points in a row that must be near it
FEWEST = 10  # points of a plateau


@dataclass(frozen=True)
class ColdStart:
    """Minutes from the start of a process to the plateau of its latency.

    Attributes:
        minutes: Of the server in the middle.
        slowest: Of the slowest.
    """

    minutes: float
    slowest: float


def cold_start(panels: Mapping[str, Panel], rollout: Rollout) -> ColdStart | None:
    """Return the cold start of the servers of *rollout*; None where it can't be told."""
    found: list[float] = []
    for start in rollout.starts:
        each = [
            minutes
            for name in SIGNALS
            if name in panels
            for row, labels in enumerate(panels[name].labels)
            if labels.get("server") == start.server
            and (minutes := _minutes(panels[name], row, start.at)) is not None
        ]
        found += [max(each)] if each else []
    return ColdStart(float(np.median(found)), max(found)) if found else None


def _minutes(panel: Panel, row: int, at: float) -> float | None:
    """Return the minutes until one latency of one server stays near its plateau."""
    begin, warm, end = (int(np.searchsorted(panel.times, at + after)) for after in (0.0, *PLATEAU))
    y = logarithm(panel.values[row, begin:end])
    plateau = y[warm - begin :]
    plateau = plateau[np.isfinite(plateau)]
    if len(plateau) < FEWEST:
        return None
    level = float(np.median(plateau))
    known = np.flatnonzero(np.isfinite(y))
    near = np.abs(y[known] - level) <= NEAR
    runs = np.convolve(near, np.ones(STAYS), "valid") == STAYS
    if not runs.any():
        return None
    return (float(panel.times[begin + known[int(runs.argmax())]]) - at) / 60.0
