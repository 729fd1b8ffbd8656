"""`predict_linear` as the mixins write it for a filesystem, with memory in its place.

No mixin has such a rule for memory; what is available is the limit less what is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from benchmarks.peers.peer import DAY, HOUR, Answer, Peer, View, at_looks
from benchmarks.peers.rolling import held, predicted

EXPRESSION = (
    "min_over_time(((({limit} - memory_bytes) / {limit} < bool {share}) * "
    "(predict_linear(memory_bytes[6h], {ahead:.0f}) > bool {limit}))[1h:1m])"
)
"""With `for: 1h` written out; `and` by a product."""


def _run(view: View, grid: Sequence[float], ahead: float) -> Answer:
    free = 1 - view.values / view.limit
    full = predicted(view.values, view.points(6 * HOUR), ahead / view.step) > view.limit
    pending = view.points(HOUR)
    return Answer(
        np.array([at_looks(held((free < share) & full, pending), view) for share in grid])
    )


GATES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 1.0)
NODE = Peer(
    "predict_linear 6h -> 24h",
    "node-mixin, NodeFilesystemSpaceFillingUp (fsSpaceFillingUpWarningThreshold: 40)",
    "less than 40 % free and predict_linear([6h], 24h) below zero, for 1h",
    "the share that is free",
    GATES,
    0.4,
    partial(_run, ahead=DAY),
)
KUBE = Peer(
    "predict_linear 6h -> 4d",
    "kubernetes-mixin, KubePersistentVolumeFillingUp (warning)",
    "less than 15 % free and predict_linear([6h], 4d) below zero, for 1h",
    "the share that is free",
    GATES,
    0.15,
    partial(_run, ahead=4 * DAY),
)
