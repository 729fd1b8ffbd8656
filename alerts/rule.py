"""An alerting rule as a frozen record, and the one function that turns it into Prometheus' form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from catalog.config import Config

Severity = Literal["page", "ticket", "report", "none"]
"""`none` is no incident: a fact that other rules are inhibited by."""

DASHBOARD_UID: Final = "leadline-fleet"


@dataclass(frozen=True)
class Alert:
    """One alerting rule.

    Attributes:
        name: CamelCase, begins with `Leadline`; its runbook is `runbooks/<name>.md`.
        severity: Who is told, and when.
        expr: PromQL, made of recorded names and helpers of the catalogue.
        summary: One static sentence.
        description: Template with the numbers, their unit, the place and the limit.
        wait: How long it must hold (`for`).
        keep: How long it stays after the last time it held (`keep_firing_for`).
        group: Rules of one group are evaluated together.
        labels: Labels beside the severity.
    """

    name: str
    severity: Severity
    expr: str
    summary: str
    description: str
    wait: str = "5m"
    keep: str = ""
    group: str = "leadline-service"
    labels: tuple[tuple[str, str], ...] = ()

    def to_dict(self, config: Config) -> dict[str, Any]:
        """Return the rule as Prometheus reads it, with its links."""
        rule: dict[str, Any] = {"alert": self.name, "expr": self.expr, "for": self.wait}
        if self.keep:
            rule["keep_firing_for"] = self.keep
        annotations = {"summary": self.summary, "description": self.description}
        return {
            **rule,
            "labels": {"severity": self.severity, **dict(self.labels)},
            "annotations": {**annotations, **links(self.name, config)},
        }


def base_url(config: Config) -> str:
    """Return how people reach the service: configured, else the address it listens on."""
    return (config.service.external_url or f"http://{config.service.listen}").rstrip("/")


def links(name: str, config: Config) -> dict[str, str]:
    """Return the annotations that lead a reader on: runbook, and dashboard where Grafana is."""
    found = {"runbook_url": f"{base_url(config)}/runbooks/{name}"}
    if config.service.grafana_url:
        variables = "&".join(
            f"var-{label}={{{{ $labels.{label} | urlquery }}}}"
            for label in ("cluster", "deployment", "pool")
        )
        grafana = config.service.grafana_url.rstrip("/")
        found["dashboard_url"] = f"{grafana}/d/{DASHBOARD_UID}?{variables}"
    return found


def where(*labels: str) -> str:
    """Return a template that goes on with the place by *labels*, those left out that are empty."""
    return "".join(
        f"{{{{ with $labels.{label} }}}}, {label} {{{{ . }}}}{{{{ end }}}}" for label in labels
    )
