"""The way of an alert: detector service, Prometheus, Alertmanager, and who is told at its end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from catalog import yaml_text
from catalog.config import Config
from catalog.signals import METRICS
from catalog.units import human_duration
from reports.doctor.line import Asks, Line, query
from store.errors import StoreError

ALIVE: Final = "LeadlineDetectorAlive"
START: Final = "leadline serve, and a scrape job leadline-service"
TOLD: Final = ("page", "ticket")
"""Severities that somebody must be told of."""
_CYCLE: Final = METRICS["leadline_detector_last_cycle_timestamp_seconds"].name
_SERIES: Final = METRICS["leadline_detector_series"].name
_MATCHER: Final = re.compile(r'\s*([\w.-]+)\s*(=~|!~|!=|=)\s*"?([^"]*)"?\s*')


def service(prometheus: Asks, config: Config, now: float) -> Iterator[Line]:
    """Yield whether the detector judges, as Prometheus sees it."""
    cycles = [value for _, value in query(prometheus, _CYCLE)]
    if not cycles:
        said = "no detector service is scraped: slow drifts go unseen"
        yield Line("fail", "detector", said, START)
        return
    age = now - max(cycles)
    if age > max(300.0, 5 * config.service.every):
        said = f"its last cycle ended {human_duration(age)} ago"
        yield Line("fail", "detector", said, "runbooks/LeadlineDetectorDead.md")
        return
    states = {labels.get("state"): value for labels, value in
              query(prometheus, f"sum by (state) ({_SERIES})")}  # fmt: skip
    judged, unknown = states.get("judged", 0.0), states.get("unknown", 0.0)
    said = f"judged {human_duration(max(age, 0.0))} ago: {judged:.0f} series, {unknown:.0f} unknown"
    if judged:
        yield Line("ok", "detector", said)
    else:
        yield Line("fail", "detector", said, "runbooks/LeadlineDetectorBlind.md")


def sends(prometheus: Asks) -> Line:
    """Return whether Prometheus sends its alerts to any Alertmanager."""
    try:
        active = prometheus.get("/api/v1/alertmanagers")["data"]["activeAlertmanagers"]
    except (StoreError, LookupError, TypeError):
        return Line("unknown", "alerts", "this server doesn't tell where its alerts go")
    if not active:
        return Line("fail", "alerts", "Prometheus sends its alerts nowhere",
                    "add alerting: alertmanagers: to prometheus.yml")  # fmt: skip
    return Line("ok", "alerts", f"Prometheus sends to {len(active)} Alertmanager(s)")


def route(alertmanager: Asks, *, firing: bool) -> Iterator[Line]:
    """Yield whether an Alertmanager answers, gets alerts, and tells somebody.

    Args:
        alertmanager: One replica.
        firing: Whether the detector lives, so that its heartbeat must be here.
    """
    try:
        status = alertmanager.get("/api/v2/status")
        told = yaml_text.read(status["config"]["original"])
        tree, integrated = told["route"], _integrated(told.get("receivers") or [])
        version = status["versionInfo"]["version"]
    except StoreError as error:
        yield Line("fail", "alertmanager", str(error))
        return
    except (LookupError, TypeError, AttributeError, yaml_text.YamlError):
        said = f"{alertmanager.url}: answer is not Alertmanager's"
        yield Line("fail", "alertmanager", said, "is this its base address?")
        return
    yield Line("ok", "alertmanager", f"{alertmanager.url} answers, version {version}")
    for severity in TOLD:
        yield _told(severity, tree, integrated)
    if ALIVE not in str(told.get("inhibit_rules")):
        said = "Leadline's inhibit_rules are not there: one trouble pages twice"
        remedy = "take them from the alertmanager.yml that leadline rules writes"
        yield Line("warn", "route", said, remedy)
    if firing:
        yield _heartbeat(alertmanager)


def _heartbeat(alertmanager: Asks) -> Line:
    """Return whether the alert that fires while all is well has come all the way."""
    try:
        alerts = alertmanager.get("/api/v2/alerts", filter=f'alertname="{ALIVE}"')
    except StoreError as error:
        return Line("fail", "route", str(error))
    if alerts:
        return Line("ok", "route", f"the heartbeat {ALIVE} arrives at {alertmanager.url}")
    return Line("fail", "route", f"the heartbeat {ALIVE} does not arrive at {alertmanager.url}",
                "does Prometheus send to this one, and are its rules loaded?")  # fmt: skip


def _integrated(receivers: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the receivers that tell anybody."""
    return {
        str(one["name"])
        for one in receivers
        if any(name.endswith("_configs") and value for name, value in one.items())
    }


def _told(severity: str, tree: Mapping[str, Any], integrated: set[str]) -> Line:
    labels = {"alertname": "LeadlineLeak", "severity": severity, "kind": "leak"}
    names = receivers(tree, labels)
    reached = [name for name in names if name in integrated]
    if reached:
        return Line("ok", "route", f"a {severity} goes to receiver {', '.join(reached)}")
    said = f"a {severity} goes to receiver {', '.join(names)}, which tells nobody"
    remedy = "give it a webhook_configs, slack_configs or the like in alertmanager.yml"
    return Line("fail" if severity == "page" else "warn", "route", said, remedy)


def receivers(route: Mapping[str, Any], labels: Mapping[str, str]) -> list[str]:
    """Return the receivers that an alert with *labels* gets to, as Alertmanager routes it."""
    found: list[str] = []
    for child in route.get("routes") or []:
        if not _matches(child, labels):
            continue
        found += receivers({"receiver": route.get("receiver"), **child}, labels)
        if not child.get("continue"):
            break
    return found or [str(route.get("receiver"))]


def _matches(route: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    wanted = [*(route.get("matchers") or [])]
    wanted += [f'{name}="{value}"' for name, value in (route.get("match") or {}).items()]
    wanted += [f'{name}=~"{value}"' for name, value in (route.get("match_re") or {}).items()]
    return all(_holds(str(one), labels) for one in wanted)


def _holds(matcher: str, labels: Mapping[str, str]) -> bool:
    parsed = _MATCHER.fullmatch(matcher)
    if parsed is None:
        return False
    name, operator, value = parsed.groups()
    has = labels.get(name, "")
    try:
        same = has == value if operator in ("=", "!=") else bool(re.fullmatch(value, has))
    except re.error:
        return False
    return same if operator in ("=", "=~") else not same
