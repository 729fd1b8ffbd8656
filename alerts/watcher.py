"""Alerts on the detector service itself: alive, dead, blind, or unable to deliver."""

from __future__ import annotations

from typing import Final

from alerts.rule import Alert
from catalog.config import Config
from catalog.signals import METRICS
from catalog.units import human_duration

GROUP: Final = "leadline-detector"
ALIVE: Final = "LeadlineDetectorAlive"

_CYCLE: Final = METRICS["leadline_detector_last_cycle_timestamp_seconds"].name
_SERIES: Final = METRICS["leadline_detector_series"].name
_QUERIES: Final = METRICS["leadline_detector_query_failures_total"].name
_SENDS: Final = METRICS["leadline_alertmanager_send_failures_total"].name

_SEND_FAILS: Final = f"sum (increase({_SENDS}[15m])) > 0"
_JUDGED: Final = f'(sum ({_SERIES}{{state="judged"}}) or vector(0))'


def stale_after(config: Config) -> float:
    """Return the age in seconds at which the last cycle is too old: five cycles, at least 5 min."""
    return max(300.0, 5 * config.service.every)


def alerts(config: Config) -> tuple[Alert, ...]:
    """Return the alerts of this module."""
    limit = stale_after(config)
    return (
        Alert(
            # A detector that judges nothing, or whose alerts don't arrive, replaces nothing.
            ALIVE, "none",
            f"time() - max ({_CYCLE}) < {limit:g} and on () {_JUDGED} > 0 "
            f"unless on () {_SEND_FAILS}",
            "The detector judges and delivers, so fallback rules are inhibited.",
            "The last cycle ended {{ $value | humanizeDuration }} ago (limit "
            f"{human_duration(limit)}). This is no incident.",
            wait="0m", group=GROUP,
        ),
        Alert(
            "LeadlineDetectorDead", "ticket",
            # The newest of all replicas, remembered for a day: one that never was is no fault.
            f"time() - max (last_over_time({_CYCLE}[1d])) > {limit:g}",
            "The detector has stopped: slow drifts go unseen.",
            "The last complete cycle ended {{ $value | humanizeDuration }} ago (limit "
            f"{human_duration(limit)}). Fallback rules for memory and acceptance are active.",
            wait="2m", group=GROUP,
        ),
        Alert(
            "LeadlineDetectorBlind", "ticket",
            f'sum ({_SERIES}{{state="unknown"}}) > 0 and on () {_JUDGED} == 0',
            "The detector runs but can judge no series at all.",
            'All {{ $value | printf "%.0f" }} series are unknown for 6 hours (limit: at least '
            "one judged).",
            wait="6h", group=GROUP,
        ),
        Alert(
            "LeadlineDetectorQueriesFailing", "ticket", f"sum (increase({_QUERIES}[15m])) > 0",
            "The detector's queries fail.",
            '{{ $value | printf "%.0f" }} queries failed in the last 15 minutes (limit 0).',
            wait="10m", group=GROUP,
        ),
        Alert(
            "LeadlineAlertDeliveryFailing", "page", _SEND_FAILS,
            "The detector can't deliver alerts to Alertmanager: its silence means nothing.",
            '{{ $value | printf "%.0f" }} posts failed in the last 15 minutes (limit 0). Alerts '
            "wait in the service until one arrives.",
            wait="10m", keep="5m", group=GROUP,
        ),
    )  # fmt: skip
