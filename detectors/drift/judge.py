"""The one front door: panels and limits in, findings out; no clock, no network, no chance.

Severity follows the time left: page under 12 hours, ticket under 30 days, else report. A leak with
no known limit is a ticket: it ends at some limit, nobody can say when, so it must be read by
somebody (whose first act is to name the limit) and must wake nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from catalog.panel import Panel
from detectors.drift import (
    creep,
    falling,
    falling_mix,
    falling_rules,
    latencies,
    rollout,
    rollout_cold,
    straggler,
)
from detectors.drift.context import (
    PAGE_BELOW,
    TICKET_BELOW,
    Detector,
    Limits,
    LimitsLike,
    believable,
)
from detectors.drift.coverage import silent, unknown_findings
from detectors.drift.forecast import SIGNALS as FORECAST
from detectors.drift.forecast import find_forecasts
from detectors.drift.leak import SEEN_SHARE, find_leaks
from detectors.finding import Finding, Severity

__all__ = ["DETECTORS", "NEEDED", "SIGNALS", "Limits", "LimitsLike", "graded", "judge", "read"]

# Adding a detector touches its own file, its test and one line here.
DETECTORS: dict[str, Detector] = {
    "leak": find_leaks,
    "falling": falling.find_falling,
    "forecast": find_forecasts,
    "creep": creep.find_creep,
    "rollout": rollout.find_rollouts,
    "straggler": straggler.find_stragglers,
}
# The signals that each detector judges: the first that is there, or each one that has a limit.
SIGNALS: dict[str, tuple[str, ...]] = {
    "leak": ("host_anon_swap", "host_rss"),
    "falling": falling.SIGNALS,
    "forecast": FORECAST,
    "creep": latencies.LATENCIES,
    "rollout": rollout.SIGNALS,
    "straggler": straggler.SIGNALS,
}
TOWARDS_LIMIT = ("forecast",)  # detectors that judge each series with a limit, of all their signals
EACH = ("falling", "creep", "rollout", "straggler")  # detectors that judge all their signals
# What tells the time to a memory limit.
MEMORY: tuple[str, ...] = (
    "container_working_set",
    "container_limit",
    "host_memory_total",
    "host_memory_used",
)
BESIDE: tuple[str, ...] = (
    *latencies.LOADS, *rollout_cold.SIGNALS, "gpu_utilization", *falling_mix.SIGNALS,
)  # fmt: skip
"""Loads and what tells of a start."""
NEEDED: tuple[str, ...] = tuple(
    dict.fromkeys((*(name for names in SIGNALS.values() for name in names), *MEMORY, *BESIDE))
)
"""Signals that `judge` reads: whoever calls it queries exactly these."""


def judge(
    panels: Mapping[str, Panel],
    limits: LimitsLike,
    *,
    as_of: float | None = None,
    detectors: Mapping[str, Detector] = MappingProxyType(DETECTORS),
) -> list[Finding]:
    """Run every detector on the panels of its signals.

    Args:
        panels: Panels by signal name; `container_working_set`, `container_limit`,
            `host_memory_total` and `host_memory_used` serve the time to a memory limit.
        limits: Limits, SLAs and floors.
        as_of: Unix seconds; nothing later is looked at. Default: the newest grid time.
        detectors: By name: others, that find the same with what they remember.

    Returns:
        Findings: firing, watch, and one of kind `unknown` for each pool of which no series of a
        judged signal can be judged. Most urgent first.
    """
    if as_of is None:
        as_of = max((float(p.times[-1]) for p in panels.values() if len(p.times)), default=0.0)
    panels = {name: believable(panel) for name, panel in panels.items()}
    found = []
    for name, detector in detectors.items():
        found += [graded(finding) for finding in detector(panels, limits, as_of)]
        for panel in read(name, panels, limits):
            each = name in EACH
            asked = silent(panel.until(as_of), as_of) if each else panel
            unknown = unknown_findings(asked, as_of, name)
            found += _news(unknown, found) if each or name in TOWARDS_LIMIT else unknown
    return sorted(_once(found), key=_urgency)


def read(detector: str, panels: Mapping[str, Panel], limits: LimitsLike) -> list[Panel]:
    """Return what *detector* judges of *panels*.

    That is the first of its signals that is there; for a forecast all series that have a limit;
    all of its signals for those that judge each.
    """
    there = [panels[name] for name in SIGNALS[detector] if name in panels]
    if detector == "creep":  # without any load nothing is known to be at the same one
        loads = any(name in panels for name in latencies.LOADS)
        return [panel for panel in there if loads or panel.load is not None]
    if detector == "falling":
        whole = "acceptance_ratio" in panels  # says what length and positions would say again
        return [
            falling.judged(panel, falling_rules.RULES[panel.signal])
            for panel in there
            if not (whole and panel.signal in ("acceptance_length", "acceptance_by_position"))
        ]
    if detector in EACH:
        return there
    if detector not in TOWARDS_LIMIT:
        return there[:1]
    bounded = [
        panel.rows(
            [i for i, one in enumerate(panel.labels) if limits.limit(panel.signal, one) is not None]
        )
        for panel in there
    ]
    return [panel for panel in bounded if panel.labels]


def _news(unknown: list[Finding], found: list[Finding]) -> list[Finding]:
    """Return what is unknown where nothing says so yet: one line for a pool without traffic."""
    places = [finding.labels.items() for finding in found if finding.kind == "unknown"]
    return [one for one in unknown if not any(one.labels.items() <= place for place in places)]


def _once(found: list[Finding]) -> list[Finding]:
    """Return *found* with each story told once.

    A creep is a note where the forecast of the same series fires: both say that the same latency
    grows, and one of them is enough to wake somebody. Ranks that differ since one of them leaks
    are told by the leak, which also says since when and how fast.
    """
    told = {
        (finding.signal, frozenset(finding.labels.items()))
        for finding in found
        if finding.kind == "forecast" and finding.state == "firing"
    }
    leaks = [(f.signal, f.labels.items()) for f in found if f.kind == "leak"]
    out = []
    for finding in found:
        of, place = finding.signal, finding.labels.items()
        if finding.kind == "straggler" and any(of == s and place <= p for s, p in leaks):
            continue
        note = finding.kind == "creep" and (of, frozenset(place)) in told
        out.append(replace(finding, severity="report") if note else finding)
    return out


def graded(finding: Finding) -> Finding:
    """Return *finding* with its severity, by the time left."""
    return replace(finding, severity=_severity(finding))


def _severity(finding: Finding) -> Severity:
    """Return the severity by the time left; a page waits until enough of the growth was seen."""
    left = finding.time_to_breach
    if left is None:
        ticket = finding.evidence.get("severity_without_breach") == "ticket"
        return "ticket" if finding.kind == "leak" or ticket else "report"
    if left >= TICKET_BELOW:
        return "report"
    seen = float(finding.evidence.get("seen_seconds", 0.0))
    unlike_peers = bool(finding.evidence.get("unlike_peers", False))
    if left < PAGE_BELOW and (seen >= SEEN_SHARE * left or unlike_peers):
        return "page"
    return "ticket"


def _urgency(finding: Finding) -> tuple[int, float, str]:
    """Sort firing before watch before unknown, then by the time left."""
    rank = {"firing": 0, "watch": 1, "ended": 2}[finding.state] + 2 * (finding.kind == "unknown")
    left = finding.time_to_breach
    return rank, float("inf") if left is None else left, finding.id
