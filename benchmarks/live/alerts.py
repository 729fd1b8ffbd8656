"""What Alertmanager holds, and what of it is the page that the leak must bring.

An incident is one alert, whose labels are identity only; its text names the processes and the
numbers. So an alert is told by its pool and kind, and by the processes that its text names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import httpx

RATE = re.compile(r"\d[\d.,]*\s*[KMGT]?i?B(?:/| (?:a|an|per) )(?:h|min|s)", re.IGNORECASE)
SPAN = re.compile(r"\d[\d.,]*\s*(?:s|min|m|h|d|seconds?|minutes?|hours?|days?)\b")
# As labels spell them and as sentences do.
PROCESSES = {
    "api_server": ("api_server", "API server"),
    "engine_core": ("engine_core", "EngineCore"),
    "worker": ("worker", "Worker"),
    "dp_coordinator": ("dp_coordinator", "DP coordinator"),
}
TOLD = ("summary", "description", "cause")


@dataclass(frozen=True)
class Alert:
    """One alert as Alertmanager tells it."""

    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at: str

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """Its fingerprint, as Alertmanager takes it: all labels."""
        return tuple(sorted(self.labels.items()))

    @property
    def text(self) -> str:
        """What a reader is told of what happened: no links, no advice."""
        return " ".join(self.annotations.get(key, "") for key in TOLD)

    def processes(self) -> set[str]:
        """The kinds of process that it names."""
        return {name for name, words in PROCESSES.items() if any(w in self.text for w in words)}

    def is_the_leak(self) -> bool:
        """Whether it tells of a leak in decode's EngineCore and accuses nobody else."""
        return (
            self.labels.get("pool") == "decode"
            and self.labels.get("kind") == "leak"
            and self.processes() == {"engine_core"}
        )

    def is_the_page(self) -> bool:
        """Whether it is that leak's page, with its rate and the time to the limit."""
        paging = self.labels.get("severity") == "page" and self.is_the_leak()
        return paging and bool(RATE.search(self.text)) and bool(SPAN.search(self.text))

    def __str__(self) -> str:
        labels = ", ".join(f"{k}={v}" for k, v in sorted(self.labels.items()))
        notes = "\n".join(f"    {k}: {v}" for k, v in sorted(self.annotations.items()))
        return f"{labels} (since {self.starts_at})\n{notes}"


def read_alerts(url: str) -> list[Alert]:
    """All alerts that Alertmanager holds, inhibited ones too."""
    answer = httpx.get(f"{url}/api/v2/alerts", timeout=10.0)
    answer.raise_for_status()
    return [_alert(item) for item in answer.json()]


def _alert(item: dict[str, Any]) -> Alert:
    return Alert(dict(item["labels"]), dict(item.get("annotations", {})), str(item["startsAt"]))
