"""Blunt rules for memory and acceptance, inhibited while the detector lives.

They keep a fleet from running into a wall unseen when the detector is gone, and no more: late by
design, without evidence, deaf to traffic.
"""

from __future__ import annotations

from typing import Final

from alerts.rule import Alert, where
from catalog.config import Config
from catalog.labels import LEVELS
from catalog.signals import SIGNALS

GROUP: Final = "leadline-fallback"
HOURS_LEFT: Final = 12
FILL: Final = 0.7
FALL: Final = 0.2

_CONTAINER: Final = LEVELS["container"]
_SERVER_NODE: Final = (*LEVELS["server"], "node")


def _memory_limit() -> str:
    """Return the limit of each container: its own, else the memory of its host."""
    used, limit = SIGNALS["container_working_set"].record, SIGNALS["container_limit"].record
    host = SIGNALS["host_memory_total"].record
    return f"({limit} or 0 * {used} + on (cluster, node) group_left () {host})"


def _slope() -> str:
    """Return the growth of private memory by server in bytes per second, over six hours.

    Only of processes that have been there for six hours without a restart: warming up is no leak.
    """
    private, start = SIGNALS["host_anon_swap"].record, SIGNALS["process_start_time"].record
    settled = f"({private} offset 6h) unless changes({start}[6h]) > 0"
    long, short = (f"deriv({private}[{window}])" for window in ("6h", "2h"))
    return f"sum by ({', '.join(_SERVER_NODE)}) ({long} and {short} > 0 and ({settled}))"


def _memory() -> str:
    used, limit = SIGNALS["container_working_set"].record, _memory_limit()
    left = f"({limit} - {used}) / on ({', '.join(_SERVER_NODE)}) group_left () ({_slope()} > 0)"
    return f"round({left}, 60) < {HOURS_LEFT * 3600} and {used} / {limit} > {FILL:g}"


def _acceptance() -> str:
    ratio = SIGNALS["acceptance_ratio"].record
    now, before = f"avg_over_time({ratio}[1h])", f"avg_over_time({ratio}[1h] offset 1d)"
    return f"1 - {now} / {before} > {FALL:g}"


def alerts(_: Config) -> tuple[Alert, ...]:
    """Return the alerts of this module."""
    return (
        Alert(
            "LeadlineFallbackMemory", "page", _memory(),
            "Memory of a server runs towards its limit, and the detector is not there to judge.",
            "At the pace of the last 6 hours {{ $value | humanizeDuration }} are left until the "
            f"memory limit (alarm below {HOURS_LEFT} h{where(*_CONTAINER)}).",
            wait="1h", keep="15m", group=GROUP,
        ),
        Alert(
            "LeadlineFallbackAcceptance", "ticket", _acceptance(),
            "Fewer drafted tokens are accepted than yesterday, and the detector is not there to "
            "judge.",
            "Acceptance over the last hour is {{ $value | humanizePercentage }} below the same "
            f"hour yesterday (limit {FALL:.0%}{where(*LEVELS['pool'])}).",
            wait="1h", keep="15m", group=GROUP,
        ),
    )  # fmt: skip
