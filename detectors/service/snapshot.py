"""What the service knows after a cycle: immutable, so that readers need no lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from catalog.panel import Labels, Panel
from catalog.signals import SIGNALS
from detectors.drift.coverage import coverage
from detectors.finding import Finding
from detectors.service.incident import Incident
from detectors.service.ledger import Event
from detectors.service.lives import LEAK
from detectors.service.memory import Memory, latest, since
from detectors.service.track import Tracked

_REASONS: Final = {
    "short": "too little data since its last start",
    "stale": "its series stopped; it is not known to be healthy",
    "empty": "no data",
    "idle": "nothing was tried for over an hour: there is no share to judge",
    "untried": "nothing was tried in all this time: there is no share to judge",
}


@dataclass(frozen=True)
class SignalStatus:
    """What is known of one signal.

    Attributes:
        name: Name in the catalogue.
        series: Series there are.
        judged: Series that a detector has an opinion on.
        unknown: Series that none has, with the reason in `why`.
        detected: Whether a detector judges this signal (else it is read as a limit or a level).
        since: First sample that judging rests on, or None.
        as_of: Newest sample, or None.
        value: Newest value of the worst series, or None.
        limit: Limit or SLA that applies fleet-wide, or None.
        why: Reasons for what is unknown, and how many series each is about.
        error: What the last query failed with; empty if it succeeded.
    """

    name: str
    series: int = 0
    judged: int = 0
    unknown: int = 0
    detected: bool = False
    since: float | None = None
    as_of: float | None = None
    value: float | None = None
    limit: float | None = None
    why: Mapping[str, int] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Snapshot:
    """The state after one cycle.

    Attributes:
        at: Unix seconds when the cycle ended; 0 before the first.
        seconds: How long it took.
        tracked: Findings with their lives, by id.
        incidents: Incidents, running and ended.
        unknown: Findings of kind unknown of this cycle.
        signals: What is known of each signal.
        panels: The series, by signal.
        past: More of those that leak, where `panels` holds their newest points only.
        events: History, oldest first.
        away: Why Prometheus can't be reached; empty while it can.
        broken: Why judging fails; empty while it succeeds. `at` stays at the last good cycle.
        ledger_error: Why the ledger isn't written; empty while it is.
        failures: Failed queries by signal since the start.
    """

    at: float = 0.0
    seconds: float = 0.0
    tracked: Mapping[str, Tracked] = field(default_factory=dict)
    incidents: Sequence[Incident] = ()
    unknown: Sequence[Finding] = ()
    signals: Sequence[SignalStatus] = ()
    panels: Mapping[str, Panel] = field(default_factory=dict)
    past: Panel | None = None
    events: Sequence[Event] = ()
    away: str = ""
    broken: str = ""
    ledger_error: str = ""
    failures: Mapping[str, int] = field(default_factory=dict)

    @property
    def unread(self) -> str:
        """Why Prometheus, or a signal in it, can't be read; empty while all can."""
        return self.away or next((s.error for s in self.signals if s.error), "")

    def running(self) -> list[Incident]:
        """Return the incidents that are not over, the soonest breach first."""
        return sorted((i for i in self.incidents if i.state != "ended"), key=_urgency)

    def members(self, incident: Incident) -> list[Finding]:
        """Return the findings of *incident* that are not over, its lead first."""
        found = [self.tracked[key].finding for key in incident.findings if key in self.tracked]
        return sorted(found, key=lambda finding: finding.id != incident.lead)

    def incident_of(self, finding: str) -> Incident | None:
        """Return the incident that *finding* belongs to now."""
        return next((i for i in self.incidents if finding in i.findings), None)


def _urgency(incident: Incident) -> tuple[bool, float, str]:
    forecast = incident.forecast
    breach = float("inf") if forecast is None else forecast.breach
    return incident.state != "firing", breach, incident.id


def statuses(
    names: Iterable[str],
    detected: Iterable[str],
    memory: Memory,
    refused: Sequence[Finding],
    limits: Mapping[str, float | None],
) -> list[SignalStatus]:
    """Return what is known of each of *names*; *refused* are the findings of `refuse`."""
    judges = set(detected)
    return [
        _status(name, name in judges, memory, [f for f in refused if f.signal == name],
                limits.get(name))
        for name in names
    ]  # fmt: skip


def _status(
    name: str, detected: bool, memory: Memory, refused: Sequence[Finding], limit: float | None
) -> SignalStatus:
    panel = memory.panels.get(name)
    error = memory.errors.get(name, "")
    if panel is None or not panel.labels or not len(panel.times):
        why = {} if error else {"no series: nothing exports it, or nothing has used it yet": 0}
        return SignalStatus(name, detected=detected, limit=limit, why=why, error=error)
    judged, why = _judged(panel, refused) if detected else (0, {})
    if name == LEAK and detected:
        why |= memory.lives.unjudged
        judged = max(0, judged - sum(memory.lives.unjudged.values()))
    return SignalStatus(
        name=name,
        series=len(panel.labels),
        judged=judged,
        unknown=len(panel.labels) - judged if detected else 0,
        detected=detected,
        since=since(panel),
        as_of=_newest(panel),
        value=latest(panel, SIGNALS[name].bad),
        limit=limit,
        why=why,
        error=error,
    )


def _judged(panel: Panel, refused: Sequence[Finding]) -> tuple[int, dict[str, int]]:
    """Return how many series are judged, and why the others are not."""
    reasons = coverage(panel, float(panel.times[-1])).reasons
    why = Counter(_REASONS.get(reason, reason) for reason in reasons if reason)
    judged = sum(not reason for reason in reasons)
    if not refused:
        return judged, dict(why)
    for labels, reason in zip(panel.labels, reasons, strict=True):
        if no := next((f.cause for f in refused if _about(f, labels)), ""):
            why[no] += 1
            if reason:
                why[_REASONS.get(reason, reason)] -= 1
            judged -= not reason
    return judged, {reason: count for reason, count in why.items() if count}


def _about(finding: Finding, labels: Labels) -> bool:
    return all(labels.get(key) == value for key, value in finding.labels.items())


def _newest(panel: Panel) -> float | None:
    seen = np.isfinite(panel.values).any(axis=0)
    return float(panel.times[np.flatnonzero(seen)[-1]]) if seen.any() else None
