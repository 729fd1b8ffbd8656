"""The programs beside vLLM: the router before it, the cache behind it, and NIXL itself."""

from __future__ import annotations

from typing import Final

from dashboards.make import signals
from dashboards.panel import Board, Row

_ROUTER: Final = Row(
    "Router",
    (
        signals(("router_request_rate",)),
        signals(("router_error_ratio",), high=1.0),
        signals(("router_queue_mean",)),
        signals(("router_queue_size",)),
        signals(("router_saturation",)),
        signals(("pd_share", "router_prefix_ratio"), title="P/D path and expected prefix",
                high=1.0),
    ),
)  # fmt: skip

_CACHE: Final = Row(
    "LMCache",
    (
        signals(("cache_hit_ratio",), high=1.0),
        signals(("cache_usage",), high=1.0),
        signals(
            ("cache_evictions_rate", "cache_failures_rate"), title="LMCache: what finds no room"
        ),
    ),
)  # fmt: skip

_NIXL: Final = Row(
    "NIXL",
    (
        signals(("nixl_registered",)),
        signals(("nixl_errors_rate",)),
    ),
)

BOARD: Final = Board(
    "leadline-beside",
    "Leadline / Router and caches",
    "What the router sees before the servers, and what caches and transfers say behind them.",
    (_ROUTER, _CACHE, _NIXL),
)
