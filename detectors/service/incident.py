"""Incidents: what is one page to a person, however many series it shows on.

One incident per cluster, namespace, deployment, pool, model and kind: eight leaking EngineCores are
one page that lists the ranks. Its severity rises at once and falls late; its predicted instant of
breach is held until a new estimate contradicts it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from detectors.finding import Finding, Severity, State
from detectors.service.track import KEPT, Tracked

GROUP: Final = ("cluster", "namespace", "deployment", "pool", "model_name")
SEVERITIES: Final[tuple[Severity, ...]] = ("report", "ticket", "page")
"""From the least to the worst."""
MOST_OF_WIDTH: Final = 0.49
"""Share of the shown interval by which a published instant may move at once."""
FALLS_AFTER: Final = 30
"""Judgements in a row with a lower severity until the incident's falls."""

Key = tuple[str, ...]


@dataclass(frozen=True)
class Forecast:
    """When the limit is met, as published.

    Attributes:
        breach: Unix seconds.
        low: Soonest end of the interval.
        high: Latest end; None if it may never come.
        as_of: Unix seconds of the newest data that agrees with it.
    """

    breach: float
    low: float
    high: float | None
    as_of: float

    @property
    def width(self) -> float:
        """Seconds from the soonest to the latest end."""
        return float("inf") if self.high is None else self.high - self.low


@dataclass(frozen=True)
class Incident:
    """Findings of one kind in one pool, as a person is told about them.

    Attributes:
        id: Hash of the group and the instant it opened.
        labels: The group's labels, empty ones left out.
        kind: Kind of its findings.
        state: watch, firing or ended.
        severity: The worst of its findings', held while it falls.
        raised: Severities it has fired with; each is an alert of its own.
        opened: Unix seconds when it was first seen.
        fired: Unix seconds when it first fired, or None.
        since: Unix seconds of the onset, as estimated when it fired; held from then on.
        as_of: Unix seconds of the newest data.
        ended: Unix seconds, or None.
        why: Why it ended.
        forecast: Published instant of breach, or None.
        lead: Id of the finding that breaches first.
        findings: Ids of its findings that are not over.
        lower: Judgements in a row with a lower severity.
        delivered: Whether an Alertmanager took its alert.
    """

    id: str
    labels: Mapping[str, str]
    kind: str
    state: State
    severity: Severity
    raised: tuple[Severity, ...]
    opened: float
    fired: float | None
    since: float
    as_of: float
    ended: float | None = None
    why: str = ""
    forecast: Forecast | None = None
    lead: str = ""
    findings: tuple[str, ...] = ()
    lower: int = 0
    delivered: bool = False

    @property
    def key(self) -> Key:
        """Return what is grouped by."""
        return (*(self.labels.get(name, "") for name in GROUP), self.kind)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values for the ledger."""
        return asdict(replace(self, labels=dict(self.labels)))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Incident:
        """Return what `to_dict` wrote."""
        forecast = data["forecast"]
        values = {
            **data,
            "raised": tuple(data["raised"]),
            "findings": tuple(data["findings"]),
            "forecast": Forecast(**forecast) if forecast else None,
        }
        return cls(**values)


def key_of(finding: Finding) -> Key:
    """Return what *finding* is grouped by."""
    return (*(finding.labels.get(name, "") for name in GROUP), finding.kind)


def advance(
    incidents: Iterable[Incident], tracked: Iterable[Tracked], now: float
) -> list[Incident]:
    """Return the incidents after one more judgement; those long ended are left out."""
    members: dict[Key, list[Tracked]] = {}
    for one in tracked:
        if one.finding.kind != "unknown":
            members.setdefault(key_of(one.finding), []).append(one)
    kept = [i for i in incidents if i.ended is None or now - i.ended < KEPT]
    after: list[Incident] = [i for i in kept if i.ended is not None]
    running = {i.key: i for i in kept if i.ended is None}
    for key in running.keys() | members.keys():
        group = members.get(key, [])
        live = [one for one in group if one.finding.state != "ended"]
        before = running.get(key)
        if live:
            after.append(_going_on(before or _opened(key, live, now), live, now))
        elif before is not None:
            over = max(group, key=lambda one: one.changed, default=None)
            why = over.why if over else "no longer found"
            after.append(replace(before, state="ended", ended=now, why=why, findings=()))
    return after


def _opened(key: Key, live: Sequence[Tracked], now: float) -> Incident:
    labels = {name: value for name, value in zip(GROUP, key, strict=False) if value}
    text = json.dumps([*key, int(now)])
    first = live[0].finding
    return Incident(
        id=hashlib.sha256(text.encode()).hexdigest()[:16], labels=labels, kind=first.kind,
        state="watch", severity="report", raised=(), opened=now, fired=None,
        since=_onset(live), as_of=first.as_of,
    )  # fmt: skip


def _onset(live: Sequence[Tracked]) -> float:
    return min(
        one.finding.as_of if one.finding.since is None else one.finding.since for one in live
    )


def _going_on(before: Incident, live: Sequence[Tracked], now: float) -> Incident:
    """Return the incident with what its live findings say now."""
    firing = [one for one in live if one.finding.state == "firing"]
    shown = firing or list(live)
    lead = min(shown, key=_urgency).finding
    severity, lower = _severity(before, [one.finding.severity for one in shown])
    fired = before.fired if before.fired is not None or not firing else now
    return replace(
        before,
        state="firing" if firing else "watch",
        severity=severity,
        lower=lower,
        raised=_raised(before, severity) if firing else before.raised,
        fired=fired,
        since=before.since if before.fired is not None else _onset(shown),
        as_of=max(one.finding.as_of for one in shown),
        forecast=held(before.forecast, forecast_of(lead)),
        lead=lead.id,
        findings=tuple(sorted(one.finding.id for one in live)),
    )


def _urgency(one: Tracked) -> tuple[int, float, float, str]:
    """Sort the worst first: by severity, time of breach, size."""
    finding = one.finding
    forecast = forecast_of(finding)
    return (
        -SEVERITIES.index(finding.severity),
        float("inf") if forecast is None else forecast.breach,
        -abs(finding.effect or 0.0),
        finding.id,
    )


def _severity(before: Incident, given: Sequence[Severity]) -> tuple[Severity, int]:
    worst = max(given, key=SEVERITIES.index)
    if before.state != "firing" or SEVERITIES.index(worst) >= SEVERITIES.index(before.severity):
        return worst, 0
    lower = before.lower + 1
    return (worst, 0) if lower >= FALLS_AFTER else (before.severity, lower)


def _raised(before: Incident, severity: Severity) -> tuple[Severity, ...]:
    """Return the severities that have an alert: none above the present one."""
    rank = SEVERITIES.index(severity)
    return tuple(
        s for s in SEVERITIES[: rank + 1] if s == severity or s in before.raised
    )  # fmt: skip


def forecast_of(finding: Finding) -> Forecast | None:
    """Return the instant of breach that a finding predicts, or None."""
    left = finding.time_to_breach
    if left is None:
        return None
    low = left if finding.time_to_breach_low is None else finding.time_to_breach_low
    high = finding.time_to_breach_high
    at = finding.as_of
    return Forecast(at + left, at + low, None if high is None else at + high, at)


def held(published: Forecast | None, new: Forecast | None) -> Forecast | None:
    """Return what to publish: the old instant, unless the new estimate contradicts it.

    The old instant stays while the new one is within half the published interval. Otherwise it
    moves towards the new one, by less than half of the interval that is then shown: one that holds
    both the old instant and the new interval. A changed leak is so followed within a few cycles,
    and while it is, the interval says how unsure the instant is.
    """
    if published is None or new is None:
        return new
    gap = new.breach - published.breach
    low = min(new.low, published.breach)
    high = None if new.high is None else max(new.high, published.breach)
    shown = replace(new, breach=published.breach, low=low, high=high)
    if abs(gap) <= published.width / 2:
        return shown
    step = min(abs(gap), MOST_OF_WIDTH * shown.width)
    return replace(shown, breach=published.breach + math.copysign(step, gap))
