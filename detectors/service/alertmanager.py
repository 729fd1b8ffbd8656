"""Posts what fires to every Alertmanager, each cycle anew, so that nothing depends on one post.

`endsAt` lies three cycles ahead and lapses by itself; nobody sends an explicit resolve, so replicas
and restarts never contradict each other. A post that fails is made again by the next pulse; an
incident that ended before any Alertmanager took it is still delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

import httpx

from catalog.address import bare_url
from catalog.plain import plain
from detectors.service import message
from detectors.service.incident import Incident
from detectors.service.links import Links
from detectors.service.snapshot import Snapshot

log = logging.getLogger("leadline.service")

LAPSES_AFTER: Final = 3
"""Cycles until an alert that nobody repeats is over."""
LATE: Final = 86400.0
"""Seconds for which an incident that ended undelivered is still worth a notification."""

Alert = dict[str, Any]


def outgoing(incidents: Iterable[Incident], now: float) -> list[Incident]:
    """Return the incidents that Alertmanager has to hear of now."""
    return [
        i for i in incidents
        if i.state == "firing"
        or (i.state == "ended" and i.raised and not i.delivered and now - (i.ended or 0.0) < LATE)
    ]  # fmt: skip


def alerts(snapshot: Snapshot, links: Links, now: float, lifetime: float) -> list[Alert]:
    """Return the alerts of what fires in *snapshot*, as Alertmanager's API takes them."""
    return [
        _alert(snapshot, incident, severity, links, now + lifetime)
        for incident in outgoing(snapshot.incidents, now)
        for severity in incident.raised
    ]


def _alert(
    snapshot: Snapshot, incident: Incident, severity: str, links: Links, until: float
) -> Alert:
    members = snapshot.members(incident)
    findings = [f for f in members if f.state == "firing"]
    lead = snapshot.tracked.get(incident.lead)
    if not findings and lead is not None:
        findings = [lead.finding]
    watched = [f for f in members if f.state == "watch" and f not in findings]
    alert: Alert = {
        "labels": message.labels(incident, severity),
        "annotations": message.notes(incident, findings, links, watched),
        "startsAt": _instant(incident.since),
        "endsAt": _instant(until),
    }
    if findings:
        alert["generatorURL"] = message.expression_link(links.prometheus, findings[0])
    return alert


def _instant(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


class Alertmanagers:
    """All configured Alertmanagers.

    Attributes:
        errors: By address, what the last post failed with.
        failures: How many posts failed since the start.
    """

    def __init__(self, urls: Sequence[str], timeout: float) -> None:
        self.urls = tuple(urls)
        self.errors: dict[str, str] = {}
        self.failures = 0
        # Alertmanagers are named in the configuration; a proxy of the environment is not meant.
        self._client = httpx.Client(timeout=timeout, trust_env=False)
        self._pool = ThreadPoolExecutor(max(1, len(self.urls)), "alertmanager")

    def post(self, payload: Sequence[Alert]) -> bool:
        """Post to all at once; return whether one of them took it."""
        if not self.urls:
            return False
        # One that hangs until its timeout must not make the others' alerts lapse.
        return any(list(self._pool.map(lambda url: self._post(url, payload), self.urls)))

    def _post(self, url: str, payload: Sequence[Alert]) -> bool:
        try:
            reply = self._client.post(f"{url.rstrip('/')}/api/v2/alerts", json=list(payload))
            reply.raise_for_status()
        except httpx.HTTPError as error:
            self._failed(url, error)
            return False
        if self.errors.pop(url, None):
            log.info("alertmanager %s: takes alerts again", bare_url(url))
        return True

    def _failed(self, url: str, error: httpx.HTTPError) -> None:
        self.failures += 1
        reason = _reason(error)
        if url not in self.errors:
            log.warning("alertmanager %s: %s; trying again each cycle", bare_url(url), reason)
        self.errors[url] = reason

    def close(self) -> None:
        """Close the connections."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()


def _reason(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        body = " ".join(error.response.text[:200].split())
        return plain(f"answered {error.response.status_code} {body}".strip())
    return plain(str(error)) or type(error).__name__
