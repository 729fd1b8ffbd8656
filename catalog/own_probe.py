"""Our metrics of our own requests."""

from __future__ import annotations

from typing import Final

from catalog.metric import Metric, ours

PROBE: Final[tuple[Metric, ...]] = (
    ours("deployment", "probe_ttft_seconds", "seconds",
         "Time to first token of our own requests, sent as a user sends them.", "histogram"),
    ours("deployment", "probe_tpot_seconds", "seconds",
         "Mean time per output token of our own requests.", "histogram"),
)  # fmt: skip
