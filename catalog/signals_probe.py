"""Signals of our own requests."""

from __future__ import annotations

from typing import Final

from catalog import promql
from catalog.forms import W
from catalog.labels import LEVELS
from catalog.metrics import ours
from catalog.signal import Signal


def _probe(name: str, title: str) -> Signal:
    metric = ours(f"{name}_seconds")
    return Signal(
        name, title, "seconds", "deployment", promql.mean(metric, LEVELS["deployment"]),
        f"mean{W}", "up", (metric,), load="request_rate",
    )  # fmt: skip


PROBE: Final[tuple[Signal, ...]] = (
    _probe("probe_ttft", "Mean time to first token of our own requests"),
    _probe("probe_tpot", "Mean time per output token of our own requests"),
)  # fmt: skip
