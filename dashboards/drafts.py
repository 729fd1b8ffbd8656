"""Speculative decoding: what is drafted, what is accepted, and what a token then costs."""

from __future__ import annotations

from typing import Final

from dashboards.make import signals
from dashboards.panel import Board, Row

_ACCEPTANCE: Final = Row(
    "Acceptance",
    (
        signals(("acceptance_ratio",), width=12, high=1.0),
        signals(("acceptance_length",), width=12, low=1.0),
        signals(("acceptance_by_position",), width=12, high=1.0),
        signals(("drafts_rate",), width=12),
    ),
)

_COST: Final = Row(
    "What it buys",
    (
        signals(("tpot_mean", "itl_mean"), title="Time per token and per step", width=12),
        signals(("output_tokens_rate",), width=12),
        signals(("tokens_per_step",), width=12),
        signals(("requests_running",), pool="decode", title="Decode: requests running", width=12),
    ),
)

BOARD: Final = Board(
    "leadline-drafts",
    "Leadline / Speculative decoding",
    "Acceptance falls without any error: position by position, and what it does to speed.",
    (_ACCEPTANCE, _COST),
)
