"""Wait for the page, and note everything else that was said meanwhile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.live.alerts import Alert

LOOK_SECONDS = 5.0


@dataclass
class Said:
    """Everything that Leadline said, by when it was first seen."""

    page: Alert | None = None
    paged_at: float | None = None
    fired_at: float | None = None
    fired: dict[str, Any] | None = None
    false: dict[tuple[tuple[str, str], ...], Alert] = field(default_factory=dict)
    accused: set[tuple[str, str]] = field(default_factory=set)

    def hear(self, alerts: list[Alert], findings: list[dict[str, Any]], now: float) -> None:
        """Take in what Alertmanager and the service hold now."""
        for alert in alerts:
            if alert.is_the_page() and self.page is None:
                self.page, self.paged_at = alert, now
            elif alert.labels.get("severity") != "none" and not alert.is_the_leak():
                self.false.setdefault(alert.key, alert)
        for finding in findings:
            self._note(finding, now)

    def _note(self, finding: dict[str, Any], now: float) -> None:
        if finding["state"] != "firing":
            return
        labels = finding["labels"]
        where = (labels.get("pool", ""), labels.get("process", finding["signal"]))
        if where != ("decode", "engine_core"):
            self.accused.add(where)
        elif self.fired_at is None:
            self.fired_at, self.fired = now, finding


def read_findings(url: str) -> list[dict[str, Any]]:
    """The findings that the service holds."""
    answer = httpx.get(f"{url}/api/v1/findings", timeout=10.0)
    answer.raise_for_status()
    told = answer.json()
    return list(told["findings"] if isinstance(told, dict) else told)


def listen(
    look: Callable[[], tuple[list[Alert], list[dict[str, Any]]]],
    check: Callable[[], None],
    *,
    deadline: float,
    hold: float,
) -> Said:
    """Look every few seconds until the page has been there for ``hold`` seconds.

    Args:
        look: Returns the alerts and the findings held now.
        check: Raises when one of the programs has ended.
        deadline: Seconds after which listening ends without a page.
        hold: Seconds to go on after the page, for false alarms that come late.
    """
    said = Said()
    end = time.time() + deadline
    while time.time() < end:
        check()
        with contextlib.suppress(httpx.HTTPError):  # what is held will be held at the next look
            said.hear(*look(), time.time())
        if said.paged_at is not None and time.time() >= said.paged_at + hold:
            break
        time.sleep(LOOK_SECONDS)
    return said
