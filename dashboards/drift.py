"""Drift board: findings over time, and how well the detector sees."""

from __future__ import annotations

from typing import Final

from dashboards.make import own
from dashboards.panel import Board, Panel, Query, Row
from dashboards.variables import condition

_WHO: Final = "{{kind}} {{signal}} {{deployment}} {{pool}} {{process}} {{rank}}"


def _findings() -> Row:
    place = condition("pool")
    return Row(
        "Findings",
        (
            Panel(
                "Time to breach", "Time left of each finding, as predicted at each instant: a "
                "steady fall is a prediction that holds, a jump is a changed mind.",
                "dtdurations",
                (Query(own("finding_time_to_breach_seconds", place), _WHO),), width=12, low=0.0,
            ),
            Panel(
                "Effect", "Size of each finding, an hour, in the unit of its signal.", "short",
                (Query(own("finding_effect", place), _WHO),), width=12,
            ),
            Panel(
                "Findings by state and severity", "How many are watched and how many fire.",
                "short",
                (Query(f"count by (state, severity) ({own('finding_state', place)})",
                       "{{state}} {{severity}}"),), width=24, low=0.0,
            ),
        ),
    )  # fmt: skip


def _sight() -> Row:
    failures = own("detector_query_failures_total")
    sends = own("alertmanager_send_failures_total")
    return Row(
        "What the detector sees",
        (
            Panel(
                "Series by state", "Judged and unknown series by signal; unknown is not healthy.",
                "short",
                (Query(f"sum by (signal, state) ({own('detector_series')})",
                       "{{signal}} {{state}}"),), low=0.0,
            ),
            Panel(
                "Judged since", "How far back the data reaches that judging rests on.", "s",
                (Query(f"time() - {own('detector_judged_since_timestamp_seconds')}",
                       "{{signal}}"),), low=0.0,
            ),
            Panel(
                "Time of a cycle", "Above the time between cycles the detector lags behind.", "s",
                (Query(own("detector_cycle_seconds"), "{{instance}}"),), low=0.0,
            ),
            Panel(
                "Age of the last cycle", "Above 5 minutes the detector is dead.", "s",
                (Query(f"time() - {own('detector_last_cycle_timestamp_seconds')}",
                       "{{instance}}"),), low=0.0, width=8,
            ),
            Panel(
                "Failed queries", "Queries of the detector that failed, by signal.", "cps",
                (Query(f"sum by (signal) (rate({failures}[5m]))", "{{signal}}"),), low=0.0,
            ),
            Panel(
                "Failed posts to Alertmanager", "Alerts wait in the service while these rise.",
                "cps", (Query(f"rate({sends}[5m])", "{{instance}}"),), low=0.0,
            ),
        ),
    )  # fmt: skip


BOARD: Final = Board(
    "leadline-drift",
    "Leadline / Drift",
    "Findings over time, and whether the detector sees, keeps up and delivers.",
    (_findings(), _sight()),
)
