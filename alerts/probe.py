"""Alerts on our own requests: they fail, or their answers are wrong though the status is 200."""

from __future__ import annotations

from typing import Final

from alerts.rule import Alert, where
from catalog import promql
from catalog.config import Config
from catalog.labels import LEVELS
from catalog.own_probe import RECENT_ANSWERS
from catalog.signals import METRICS, SIGNALS

GROUP: Final = "leadline-probe"
FAILING: Final = 0.5
SOME_FAIL: Final = 0.1
WRONG: Final = 3
_WRONG_ONLY: Final = 'result="wrong"'

_LABELS: Final = LEVELS["deployment"]
_PLACE: Final = where(*_LABELS)


def alerts(_: Config) -> tuple[Alert, ...]:
    """Return the alerts of this module."""
    failing = SIGNALS["probe_error_ratio"].record
    recent = METRICS["leadline_probe_answers_recent"]
    summary = "Our own requests through the gateway fail."
    return (
        Alert(
            "LeadlineProbeFailing", "page", f"{failing} >= {FAILING:g}", summary,
            "{{ $value | humanizePercentage }} of our own requests failed over the last 5 minutes "
            f"(limit {FAILING:.0%}{_PLACE}). Users' requests take the same way.",
            wait="5m", keep="5m", group=GROUP,
        ),
        Alert(
            "LeadlineProbeFailing", "ticket", f"avg_over_time({failing}[30m]) > {SOME_FAIL:g}",
            summary,
            "{{ $value | humanizePercentage }} of our own requests failed over the last 30 minutes "
            f"(limit {SOME_FAIL:.0%}{_PLACE}).",
            wait="5m", keep="10m", group=GROUP,
        ),
        Alert(
            # A gauge of the last answers, so that it doesn't depend on how often questions are
            # asked. Wrong answers can't be taken back: no waiting.
            "LeadlineAnswersWrong", "page",
            f"{promql.gauge(recent, _LABELS, 'max', _WRONG_ONLY)} "
            f">= {WRONG}",
            "Questions with known answers are answered wrongly, with status 200.",
            f'{{{{ $value | printf "%.0f" }}}} of the last {RECENT_ANSWERS} answers were wrong '
            f"(limit {WRONG - 1}{_PLACE}). Users may get garbage without an error.",
            wait="0m", keep="10m", group=GROUP,
        ),
    )  # fmt: skip
