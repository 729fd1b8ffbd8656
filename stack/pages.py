"""What Alertmanager says is active now, asked by its own API."""

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stack.errors import NotReadyError

MAX_ANSWER_BYTES = 16 * 2**20
HEARTBEAT = "none"  # the severity of alerts that say only that something lives


@dataclass(frozen=True)
class Alert:
    """One active alert."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def severity(self) -> str:
        """page, ticket or report."""
        return self.labels.get("severity", "")

    def text(self) -> str:
        """The alert as a person reads it, several lines."""
        head = f"[{self.severity}] {self.labels.get('alertname')}"
        labels = {k: v for k, v in self.labels.items() if k not in ("alertname", "severity")}
        identity = " ".join(f"{name}={value}" for name, value in sorted(labels.items()))
        keys = ("description", "action", "runbook_url", "panel_url")
        notes = [f"  {key}: {self.annotations[key]}" for key in keys if key in self.annotations]
        return "\n".join(
            [f"{head}: {self.annotations.get('summary', '')}", f"  {identity}", *notes]
        )


def active(alertmanager: str) -> list[Alert]:
    """The active alerts, heartbeats left out.

    Raises:
        NotReadyError: Alertmanager did not answer; one line.
    """
    url = f"{alertmanager}/api/v2/alerts?active=true&silenced=false&inhibited=false"
    found = [Alert(entry["labels"], entry["annotations"]) for entry in get_json(url)]
    return [alert for alert in found if alert.severity != HEARTBEAT]


def query(prometheus: str, expression: str) -> float | None:
    """The first value of a PromQL expression now, None if it has none."""
    url = f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    samples = get_json(url)["data"]["result"]
    return float(samples[0]["value"][1]) if samples else None


def get_json(url: str, *, timeout: float = 30.0) -> Any:
    """The JSON at a URL of our own stack, without proxies."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout) as reply:
            return json.loads(reply.read(MAX_ANSWER_BYTES))
    except (urllib.error.URLError, OSError, http.client.HTTPException, ValueError) as error:
        raise NotReadyError(f"no answer from {url}: {error}") from error
