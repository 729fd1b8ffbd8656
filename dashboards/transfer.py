"""KV transfer between the pools, and the caches on both sides of it."""

from __future__ import annotations

from typing import Final

from dashboards.make import heatmap, signals
from dashboards.panel import Board, Row

_TRANSFER: Final = Row(
    "Transfer (NIXL)",
    (
        signals(("kv_fetch_by_stage",), pool="decode", title="Decode: requests that fetch KV"),
        signals(("transfer_time_mean", "transfer_post_time_mean"), title="KV transfer time"),
        heatmap("nixl_xfer_time_seconds", "Distribution of KV transfer time"),
        signals(("transfer_bytes_rate",)),
        signals(("transfer_descriptors_mean",)),
        signals(("queue_mean", "kv_fetch_time_mean", "queue_own_mean"), pool="decode",
                title="Decode: queue time, and the wait for KV in it"),
    ),
)  # fmt: skip

_LOST: Final = Row(
    "What is lost",
    (
        signals(("transfer_failures_rate",)),
        signals(("notification_failures_rate",)),
        signals(("leases_expired_rate",)),
        signals(("reads_after_expiry_rate",)),
        signals(("error_ratio",), high=1.0),
        signals(("preemption_rate",)),
    ),
)

_CACHE: Final = Row(
    "Caches",
    (
        signals(("kv_usage",), pool="prefill", title="Prefill: KV cache usage", high=1.0),
        signals(("kv_usage",), pool="decode", title="Decode: KV cache usage", high=1.0),
        signals(("prefix_hit_ratio", "external_hit_ratio"), title="Hit ratios", high=1.0),
        signals(("restore_bytes_rate",)),
        signals(("kv_fetch_waiting",)),
        signals(("requests_waiting_capacity",)),
    ),
)

BOARD: Final = Board(
    "leadline-transfer",
    "Leadline / KV transfer and cache",
    "How KV gets from prefill to decode, what gets lost on the way, and how full both sides are.",
    (_TRANSFER, _LOST, _CACHE),
)
