"""What the API answers, as types: the OpenAPI document is made of these."""

from __future__ import annotations

import math
from typing import Any

from pydantic import BaseModel, Field

from detectors.finding import Finding, Kind, Severity, State, Verdict
from detectors.service.chart import Series
from detectors.service.incident import Incident
from detectors.service.snapshot import SignalStatus
from detectors.service.track import Tracked


class FindingOut(BaseModel):
    """One slow change of one signal; instants in unix seconds, durations in seconds."""

    id: str = Field(description="Hash of detector, signal, identity and start.")
    kind: Kind
    verdict: Verdict
    detector: str
    signal: str
    labels: dict[str, str]
    as_of: float = Field(description="Newest data it rests on.")
    since: float | None = Field(description="Estimated onset.")
    effect: float | None = Field(description="Size of the change, in effect_unit.")
    effect_low: float | None
    effect_high: float | None
    effect_unit: str
    limit: float | None = Field(description="Limit, floor or SLA, in the signal's unit.")
    time_to_breach: float | None = Field(description="Seconds from as_of.")
    time_to_breach_low: float | None
    time_to_breach_high: float | None
    severity: Severity
    state: State
    cause: str
    evidence: dict[str, Any]
    runbook: str

    @classmethod
    def of(cls, finding: Finding) -> FindingOut:
        """Return the finding for the wire."""
        return cls(**finding.to_dict())


class LifeOut(FindingOut):
    """A finding with its life."""

    first_seen: float
    changed: float = Field(description="Last change of state.")
    ended_because: str = ""
    incident: str = Field("", description="Id of the incident it belongs to.")

    @classmethod
    def tracked(cls, one: Tracked, incident: str) -> LifeOut:
        """Return a tracked finding for the wire."""
        return cls(
            **one.finding.to_dict(), first_seen=one.first, changed=one.changed,
            ended_because=one.why, incident=incident,
        )  # fmt: skip


class SeriesOut(BaseModel):
    """The series of a finding, and its fit; null where there was no sample."""

    id: str
    signal: str
    unit: str
    times: list[float]
    values: list[float | None]
    fit_times: list[float]
    fit_values: list[float | None]
    limit: float | None

    @classmethod
    def of(cls, finding: Finding, unit: str, series: Series, most: int) -> SeriesOut:
        """Return at most *most* of the newest points."""
        fit = finding.evidence.get("fit") or {}
        return cls(
            id=finding.id,
            signal=finding.signal,
            unit=unit,
            times=series.times[-most:].tolist(),
            values=_plain(series.values[-most:].tolist()),
            fit_times=list(fit.get("t") or []),
            fit_values=_plain(list(fit.get("line") or fit.get("y") or [])),
            limit=finding.limit,
        )


class IncidentOut(BaseModel):
    """Findings of one kind in one pool, as a person is told about them."""

    id: str
    kind: str
    labels: dict[str, str]
    state: State
    severity: Severity
    opened: float
    fired: float | None
    since: float = Field(description="Onset, held since it fired.")
    as_of: float
    ended: float | None
    ended_because: str
    breach: float | None = Field(description="Published instant of breach, held.")
    breach_low: float | None
    breach_high: float | None
    findings: list[str] = Field(description="Ids of its findings that are not over.")
    lead: str = Field(description="Id of the finding that breaches first.")
    alerts: list[str] = Field(description="Severities it has fired with; each is an alert.")
    delivered: bool = Field(description="Whether an Alertmanager took its alert.")

    @classmethod
    def of(cls, incident: Incident) -> IncidentOut:
        """Return the incident for the wire."""
        forecast = incident.forecast
        return cls(
            **{
                name: getattr(incident, name)
                for name in ("id", "kind", "state", "severity", "opened", "fired", "since",
                             "as_of", "ended", "lead", "delivered")
            },
            labels=dict(incident.labels),
            ended_because=incident.why,
            breach=forecast.breach if forecast else None,
            breach_low=forecast.low if forecast else None,
            breach_high=forecast.high if forecast else None,
            findings=list(incident.findings),
            alerts=list(incident.raised),
        )  # fmt: skip


class SignalOut(BaseModel):
    """What is known of one signal."""

    name: str
    title: str
    unit: str
    detected: bool = Field(description="Whether a detector judges it.")
    series: int
    judged: int
    unknown: int
    since: float | None = Field(description="First sample that judging rests on.")
    as_of: float | None
    value: float | None = Field(description="Newest value of the worst series.")
    limit: float | None
    why: dict[str, int] = Field(description="Why series are not judged, and how many.")
    error: str = Field(description="What the last query failed with.")

    @classmethod
    def of(cls, status: SignalStatus, title: str, unit: str) -> SignalOut:
        """Return the status for the wire."""
        names = cls.model_fields.keys() - {"title", "unit"}
        values = {name: getattr(status, name) for name in names}
        return cls(title=title, unit=unit, **{**values, "why": dict(status.why)})


class PeerOut(BaseModel):
    """Another program that this one needs."""

    url: str
    ok: bool
    error: str = ""


class StatusOut(BaseModel):
    """Whether the service itself is well."""

    version: str
    started: float
    last_cycle: float | None
    cycle_seconds: float | None
    every: float
    prometheus: PeerOut
    alertmanagers: list[PeerOut]
    judging: str = Field(description="Why judging fails; empty while it succeeds.")
    ledger: str = Field(description="Why the ledger isn't written; empty while it is.")
    warnings: list[str]


class ProblemOut(BaseModel):
    """An error, in one line."""

    detail: str


def _plain(values: list[float]) -> list[float | None]:
    return [value if value is not None and math.isfinite(value) else None for value in values]
