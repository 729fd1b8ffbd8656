"""The board: findings by time to breach, what is judged, and what a reader must know first.

Server-made HTML and SVG: it works without scripts, on a phone and on a wall. Labels come from
outside and are escaped by the templates.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from catalog.signals import SIGNALS
from catalog.units import human, human_duration
from detectors.drift.judge import MEMORY
from detectors.finding import Finding
from detectors.service import chart, message
from detectors.service import runbook as books
from detectors.service.incident import Forecast, Incident, forecast_of
from detectors.service.snapshot import SignalStatus
from detectors.service.track import Tracked
from detectors.service.view import View

RECENT = 7 * 86400.0
"""Seconds that ended incidents stay on the board."""
_INSTANT = 1e9
"""Seconds above which a value is no span but an instant."""


@dataclass(frozen=True)
class Left:
    """The time left, in words: the big number, its interval, the instant."""

    number: str
    unit: str
    interval: str
    breach: str

    @classmethod
    def of(cls, forecast: Forecast | None, now: float) -> Left:
        """Return what is left at *now*."""
        if forecast is None:
            return cls("", "", "", "")
        if forecast.breach <= now:
            return cls("now", "", "the limit is met", message.clock(forecast.breach, now))
        number, _, unit = human_duration(forecast.breach - now).partition(" ")
        ends = message.interval(forecast, now)
        return cls(number, unit, ends, message.clock(forecast.breach, now))


def index(view: View) -> str:
    """Return the board."""
    snapshot, now = view.snapshot(), view.clock()
    running = snapshot.running()
    firing = [i for i in running if i.state == "firing"]
    ended = [i for i in snapshot.incidents if i.state == "ended" and i.raised
             and now - (i.ended or 0.0) < RECENT]  # fmt: skip
    return _page(
        view, "index.html", ".",
        title=_title(firing, now),
        headline=_headline(firing, now),
        cards=[_card(view, i, now) for i in firing],
        soundings=_soundings(firing, now),
        watch=[_card(view, i, now) for i in running if i.state == "watch"],
        signals=[_signal(s, now) for s in snapshot.signals],
        watching=_watching(snapshot.signals, now),
        ended=sorted(ended, key=lambda i: -(i.ended or 0.0)),
        ready=snapshot.at > 0,
    )  # fmt: skip


def finding(view: View, key: str) -> str:
    """Return the page of a finding; empty if there is none."""
    snapshot, now = view.snapshot(), view.clock()
    one = snapshot.tracked.get(key)
    if one is None:
        return ""
    incident = snapshot.incident_of(key)
    about = {key, incident.id if incident else key}
    events = [e for e in snapshot.events if about & {e.incident, e.finding}]
    return _page(
        view, "finding.html", "..",
        title=_capital(message.subject([one.finding])),
        one=one,
        card=_finding_card(view, one, incident, now),
        members=[] if incident is None else [
            _member(f, now) for f in snapshot.members(incident) if f.id != key
        ],
        evidence=_evidence(one.finding),
        expression=_expression(one.finding),
        events=events[::-1][:40],
    )  # fmt: skip


def runbook(view: View, alert: str, text: str) -> str:
    """Return the page of a runbook; its commands ask the Prometheus that is asked here."""
    body = books.render(text.replace(books.PROMETHEUS, shlex.quote(view.links.prometheus)))
    return _page(view, "runbook.html", "..", title=alert, body=body)


def missing(view: View, what: str) -> str:
    """Return the page that says that something isn't there."""
    return _page(view, "missing.html", "..", title="Not here", what=what)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("detectors.service"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["clock"] = message.clock
    made.filters["span"] = human_duration
    return made


def _page(view: View, template: str, root: str, **values: Any) -> str:
    """Return a page with what every page shows: warnings, when it was judged, the way home."""
    snapshot = view.snapshot()
    shared = {
        "root": root,
        "warnings": view.warnings(),
        "judged_at": snapshot.at,
        "now": view.clock(),
        "every": view.config.service.every,
        "refresh": max(5, min(60, round(view.config.service.every))),
        "links": view.links,
        "away": snapshot.away,
        "unread": snapshot.unread,
        "broken": snapshot.broken,
        "alertmanagers": len(view.alertmanagers.urls),
        "alertmanagers_away": len(view.alertmanagers.errors),
    }
    return _environment().get_template(template).render(**shared, **values)


def _title(firing: Sequence[Incident], now: float) -> str:
    if not firing:
        return "nothing drifts"
    left = Left.of(firing[0].forecast, now)
    return f"{left.number} {left.unit} left".strip() if left.number else f"{len(firing)} findings"


def _headline(firing: Sequence[Incident], now: float) -> str:
    if not firing:
        return ""
    count = "1 finding" if len(firing) == 1 else f"{len(firing)} findings"
    left = Left.of(firing[0].forecast, now)
    if not left.number:
        return f"{count}; no time to breach is known"
    if left.number == "now":
        return f"{count}; a limit is met"
    which = "the breach" if len(firing) == 1 else "the first breach"
    return f"{count}, about {left.number} {left.unit} to {which}"


def _card(view: View, incident: Incident, now: float) -> dict[str, Any]:
    """Return what a row of the board shows of an incident."""
    snapshot = view.snapshot()
    findings = snapshot.members(incident)
    firing = [f for f in findings if f.state == "firing"] or findings
    lead = firing[0] if firing else None
    return {
        "incident": incident,
        "left": Left.of(incident.forecast, now),
        "subject": _capital(message.subject(firing)),
        "doing": _capital(message.doing(incident.kind, firing)),
        "bound": message.bound(incident.kind),
        "place": message.place(incident),
        "servers": message.listed(
            {f.labels["server"] for f in firing if f.labels.get("server")}, 4
        ),
        "rate": message.rate(firing),
        "limit": message.limit_text(lead) if lead else "",
        "cause": lead.cause if lead else "",
        "action": message.FIRST.get(incident.kind, "Follow the runbook."),
        "alert": message.alert_name(incident.kind),
        "chart": _chart(view, lead, incident.forecast) if lead else "",
        "count": len(firing),
        "grafana": view.links.dashboard(incident),
    }


def _finding_card(
    view: View, one: Tracked, incident: Incident | None, now: float
) -> dict[str, Any]:
    """Return what the page of a finding shows at its top."""
    finding = one.finding
    leads = incident is not None and incident.lead == finding.id
    forecast = incident.forecast if incident and leads else forecast_of(finding)
    return {
        "left": Left.of(forecast, now),
        "doing": _capital(message.doing(finding.kind, [finding])),
        "bound": message.bound(finding.kind),
        "labels": [(k, v) for k, v in finding.labels.items() if v],
        "rate": message.rate([finding]),
        "limit": message.limit_text(finding),
        "action": message.FIRST.get(finding.kind, "Follow the runbook."),
        "alert": message.alert_name(finding.kind),
        "chart": _chart(view, finding, forecast, 960, 340),
        "grafana": view.links.dashboard(incident) if incident else "",
        "prometheus": message.expression_link(view.links.prometheus, finding),
    }


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _member(finding: Finding, now: float) -> dict[str, Any]:
    return {
        "finding": finding,
        "subject": _capital(message.subject([finding])),
        "rate": message.rate([finding]),
        "left": Left.of(forecast_of(finding), now),
    }


def _chart(
    view: View, finding: Finding, forecast: Forecast | None, width: float = 560, height: float = 270
) -> Markup:
    series = view.series(finding)
    if series is None:
        return Markup('<p class="none">Its series is not in memory (any more).</p>')
    title = SIGNALS[finding.signal].title if finding.signal in SIGNALS else finding.signal
    label = f"{title} of {message.subject([finding])}: {message.rate([finding])}"
    return chart.draw(series, finding, forecast, width=width, height=height, label=label)


def _soundings(firing: Sequence[Incident], now: float) -> Markup:
    marks = [
        (
            f"i-{i.id}", i.severity, i.forecast.breach - now, i.forecast.low - now,
            None if i.forecast.high is None else i.forecast.high - now,
        )
        for i in firing if i.forecast is not None
    ]  # fmt: skip
    return chart.soundings(marks) if marks else Markup("")


def _signal(status: SignalStatus, now: float) -> dict[str, Any]:
    """Return a row of the table of what is judged."""
    signal = SIGNALS[status.name]
    if not status.detected and not status.error:
        state = "read" if status.series else "absent"
    elif not status.judged or status.error:
        state = "unknown"
    else:
        state = "partly" if status.unknown else "judged"
    since = status.since
    return {
        "status": status,
        "title": signal.title,
        "value": _amount(status.value, signal.unit),
        "limit": _amount(status.limit, signal.unit),
        "state": state,
        "role": ""
        if status.detected
        else "rules watch it; no drift detector"
        if status.limit is not None
        else "tells how far a limit is"
        if status.name in MEMORY
        else "tells the load, or a start",
        "history": "" if since is None else human_duration(now - since),
        "since": "" if since is None else message.clock(since),
    }


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    return message.clock(value) if unit == "seconds" and value > _INSTANT else human(value, unit)


def _watching(signals: Sequence[SignalStatus], now: float) -> Mapping[str, Any]:
    """Return what an empty board says: how much is judged, since when, and how much is not."""
    detected = [s for s in signals if s.detected]
    judged = [s for s in detected if s.judged]
    since = min((s.since for s in judged if s.since is not None), default=None)
    return {
        "series": sum(s.judged for s in judged),
        "signals": [message.lowered(SIGNALS[s.name].title) for s in judged],
        "since": "" if since is None else message.clock(since),
        "span": "" if since is None else human_duration(now - since),
        "unknown": sum(s.unknown for s in detected),
        "blind": [message.lowered(SIGNALS[s.name].title) for s in detected if not s.judged],
    }


def _evidence(finding: Finding) -> list[tuple[str, str]]:
    """Return the detector's reasons as rows of words."""
    rows: list[tuple[str, str]] = []
    for name, value in finding.evidence.items():
        if isinstance(value, Mapping) or value is None:
            continue
        if "slope" in name and isinstance(value, int | float):
            text = message.amount(float(value), finding.effect_unit)
        elif name == "headroom" and isinstance(value, int | float):
            text = human(float(value), SIGNALS[finding.signal].unit)
        elif name.endswith("_seconds") and isinstance(value, int | float):
            text = human_duration(float(value))
        elif isinstance(value, list | tuple):
            text = message.listed({str(item) for item in value}, 12)
        elif isinstance(value, float):
            text = f"{value:,.6g}"
        else:
            text = str(value)
        rows.append((re.sub("_(seconds|per_hour)$", "", name).replace("_", " "), text))
    return rows


def _expression(finding: Finding) -> str:
    return SIGNALS[finding.signal].expr if finding.signal in SIGNALS else ""
