"""Alerts on the KV transfer between the pools (NIXL): failures, expired leases, late reads."""

from __future__ import annotations

from typing import Final

from alerts.rule import Alert, where
from catalog import promql
from catalog.config import Config
from catalog.labels import LEVELS
from catalog.signals import METRICS, SIGNALS

GROUP: Final = "leadline-transfer"
FAILING_SHARE: Final = 0.05

_SERVER: Final = LEVELS["server"]
_PLACE: Final = where(*_SERVER)


def _events(metric: str, window: str = "15m") -> str:
    return promql.events(
        METRICS[f"vllm:{metric}"], METRICS["vllm:num_requests_running"], _SERVER, window
    )


def _failing_share() -> str:
    """Return the share of transfers that fail, by server; a server without successes has 1."""
    failed = SIGNALS["transfer_failures_rate"].record
    done = promql.rate(METRICS["vllm:nixl_xfer_time_seconds"], _SERVER, part="_count")
    return f"{failed} / ({failed} + ({done} or 0 * {failed})) > {FAILING_SHARE:g}"


def _late_by_log() -> str:
    """Return the reads after expiry that a log tells: before 0.32 nothing else does."""
    late = METRICS["leadline_log_reads_after_expiry_total"]
    return promql.events(late, METRICS["leadline_log_read_bytes_total"], _SERVER, "15m")


def alerts(_: Config) -> tuple[Alert, ...]:
    """Return the alerts of this module."""
    summary = "KV transfers between prefill and decode fail."
    return (
        Alert(
            "LeadlineTransferFailures", "page", _failing_share(), summary,
            "{{ $value | humanizePercentage }} of KV transfers failed over the last 5 minutes "
            f"(limit {FAILING_SHARE:.0%}{_PLACE}). Answers may be errors, slow, or wrong with "
            "status 200.",
            wait="5m", keep="10m", group=GROUP,
        ),
        Alert(
            "LeadlineTransferFailures", "ticket", _events("nixl_num_failed_transfers_total"),
            summary,
            '{{ $value | printf "%.0f" }} KV transfers failed in the last 15 minutes (limit 0'
            f"{_PLACE}).",
            wait="0m", keep="15m", group=GROUP,
        ),
        Alert(
            "LeadlineNotificationFailures", "ticket",
            _events("nixl_num_failed_notifications_total"),
            "Decode can't tell prefill that it has read KV blocks.",
            '{{ $value | printf "%.0f" }} NIXL notifications failed in the last 15 minutes '
            f"(limit 0{_PLACE}). Prefill keeps those blocks until their lease ends.",
            wait="0m", keep="15m", group=GROUP,
        ),
        Alert(
            "LeadlineLeasesExpired", "ticket", _events("nixl_num_kv_expired_reqs_total"),
            "KV computed by prefill was given up before decode read it.",
            '{{ $value | printf "%.0f" }} KV leases expired unread in the last 15 minutes '
            f"(limit 0{_PLACE}).",
            wait="0m", keep="15m", group=GROUP,
        ),
        Alert(
            # Wrong answers can't be taken back: one is enough, at once.
            "LeadlineReadsAfterExpiry", "page",
            f"{_events('nixl_num_notifications_after_expiry_total')} or {_late_by_log()}",
            "Decode read KV blocks that prefill had already freed: answers may be wrong.",
            '{{ $value | printf "%.0f" }} requests read KV after its lease expired in the last '
            f"15 minutes (limit 0{_PLACE}). Their answers may be wrong with status 200.",
            wait="0m", keep="30m", group=GROUP,
        ),
    )  # fmt: skip
