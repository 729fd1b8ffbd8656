"""Alertmanager's configuration: who is told, what is one incident, and what keeps quiet."""

from __future__ import annotations

from typing import Any, Final

from alerts.watcher import ALIVE

INCIDENT: Final = ("alertname", "cluster", "namespace", "deployment", "pool")
"""One incident is one alert name at one pool: eight leaking engines are one notification."""


def build(webhook: str = "") -> dict[str, Any]:
    """Return the configuration.

    Args:
        webhook: URL that every receiver posts to; without one they are named but send nothing, to
            be filled in with the site's own pager, tickets and mail.
    """
    return {
        "route": _route(),
        "inhibit_rules": _inhibitions(),
        "receivers": [_receiver(name, webhook) for name in ("page", "ticket", "report")]
        + [{"name": "null"}],
    }


def _receiver(name: str, webhook: str) -> dict[str, Any]:
    if not webhook:
        return {"name": name}
    return {"name": name, "webhook_configs": [{"url": webhook, "send_resolved": True}]}


def _route() -> dict[str, Any]:
    def to(receiver: str, matcher: str, **timing: str) -> dict[str, Any]:
        return {"receiver": receiver, "matchers": [matcher], **timing}

    return {
        # What carries no severity is somebody's mistake: a ticket, rather than lost.
        "receiver": "ticket",
        "group_by": list(INCIDENT),
        "group_wait": "30s",
        "group_interval": "5m",
        "repeat_interval": "24h",
        "routes": [
            to("null", 'severity="none"'),
            # The service holds a page until it is sure; waiting longer for company costs lead time.
            to("page", 'severity="page"', group_wait="10s", repeat_interval="4h"),
            to("ticket", 'severity="ticket"', group_wait="1m", repeat_interval="24h"),
            # Alertmanager forgets what it sent after 120 h.
            to("report", 'severity="report"', group_wait="5m", repeat_interval="96h"),
        ],
    }


def _inhibitions() -> list[dict[str, Any]]:
    def rule(source: list[str], target: list[str], equal: tuple[str, ...]) -> dict[str, Any]:
        return {"source_matchers": source, "target_matchers": target, "equal": list(equal)}

    def name(alert: str) -> str:
        return f'alertname="{alert}"'

    place = ("cluster", "server")
    return [
        rule(['severity="page"'], ['severity=~"ticket|report"'], INCIDENT),
        rule(['severity="ticket"'], ['severity="report"'], INCIDENT),
        # Nothing is equal: one detector serves all that its Prometheus sees.
        rule([name(ALIVE)], ['alertname=~"LeadlineFallback.+"'], ()),
        rule(
            [name("LeadlineTargetDown")],
            ['alertname=~"Leadline.+"', 'alertname!="LeadlineTargetDown"', 'server!=""'],
            place,
        ),
        # From 0.33 on a failed notification counts as a failed transfer too.
        rule([name("LeadlineTransferFailures")], [name("LeadlineNotificationFailures")], place),
        rule([name("LeadlineDetectorDead")],
             ['alertname=~"LeadlineDetector(Blind|QueriesFailing)"'], ()),
    ]  # fmt: skip
