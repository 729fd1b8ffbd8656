"""Which loads each latency has, and the bins of one latency with all of them that are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from catalog.panel import FloatArray, Panel
from catalog.signals import SIGNALS
from detectors.drift.creep_load import Bins, beside, binned, logarithm

LATENCIES: tuple[str, ...] = (
    "ttft_mean",
    "prefill_time_mean",
    "tpot_mean",
    "itl_mean",
    "transfer_time_mean",
)
"""Signals whose cost at the same load is learned."""
LOADS: tuple[str, ...] = (
    "requests_running",
    "request_rate",
    "input_tokens_rate",
    "computed_tokens_rate",
    "transfer_bytes_rate",
    "acceptance_length",
    "prefix_hit_ratio",
)
"""Further signals that say what a latency's load is."""
PER_REQUEST: Mapping[str, tuple[str, ...]] = {
    "ttft_mean": ("input_tokens_rate", "computed_tokens_rate"),
    "prefill_time_mean": ("input_tokens_rate", "computed_tokens_rate"),
    "tpot_mean": ("input_tokens_rate",),
    "itl_mean": ("input_tokens_rate",),
    "transfer_time_mean": ("transfer_bytes_rate",),
}
CACHED = ("ttft_mean", "prefill_time_mean")  # what the prefix cache holds costs them nothing
LEAST_MISSES = 0.01  # share of the tokens: below it a miss more or less is noise
CONCURRENT = ("tpot_mean", "itl_mean")  # their load is the requests that an engine runs


def load_bins(panel: Panel, row: int, panels: Mapping[str, Panel]) -> Bins | None:
    """Return one latency in bins with all loads of it that are known."""

    def add(name: str) -> FloatArray | None:
        return beside(panel, row, panels.get(name), add=True)

    loads: list[tuple[str, FloatArray]] = []
    running = None
    if panel.signal in CONCURRENT:  # by engine: a pool that is made wider has more room
        running = beside(panel, row, panels.get("requests_running"), add=False)
    main = running if running is not None else None if panel.load is None else panel.load[row]
    if main is not None:
        title = "requests_running" if running is not None else _load_name(panel.signal)
        loads.append((title, main))
    requests = add("request_rate")
    if requests is not None:
        positive = np.where(requests > 0, requests, np.nan)
        for name in PER_REQUEST.get(panel.signal, ()):
            work = add(name)
            if work is not None:
                loads.append((f"{name} per request", work / positive))
    misses = _misses(panel, row, panels) if panel.signal in CACHED else None
    if misses is not None:
        loads.append(("prefix misses", misses))
    offset = None
    if panel.signal == "tpot_mean":  # a step costs what it costs; fewer tokens of it are `falling`
        length = beside(panel, row, panels.get("acceptance_length"), add=False)
        offset = None if length is None else logarithm(length)
        if (
            offset is not None
            and np.isfinite(offset).sum() < 0.8 * np.isfinite(panel.values[row]).sum()
        ):
            offset = None
    return binned(panel, row, loads, offset)


def _misses(panel: Panel, row: int, panels: Mapping[str, Panel]) -> FloatArray | None:
    """Return the share of prompt tokens that the prefix cache did not hold."""
    hits = panels.get("prefix_hit_ratio")
    if hits is None:
        return None
    share = hits.values if hits.trials is None else hits.values / np.maximum(hits.trials, 1.0)
    missed = replace(hits, values=np.maximum(1 - share, LEAST_MISSES))
    return beside(panel, row, missed, add=False)


def _load_name(signal: str) -> str:
    known = SIGNALS.get(signal)
    return known.load if known is not None and known.load else "load"
