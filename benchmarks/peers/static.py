"""The alert that most have: used above 90 % of the limit for 15 minutes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.peers.peer import Answer, Peer, View, at_looks
from benchmarks.peers.rolling import held


def _run(view: View, grid: Sequence[float]) -> Answer:
    used = view.values / view.limit
    pending = view.points(900)
    return Answer(np.array([at_looks(held(used > share, pending), view) for share in grid]))


EXPRESSION = "min_over_time((memory_bytes / {limit} > bool {share})[15m:1m])"
PEER = Peer(
    "static threshold",
    "awesome-prometheus-alerts, HostOutOfMemory and ContainerHighMemoryUsage",
    "used > 90 % of the limit, for 15m",
    "the share",
    (0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95),
    0.9,
    _run,
)
