"""What an alert says: labels that are identity, annotations that hold the numbers.

Labels never hold a number or anything computed but the severity: the same incident has the same
labels on every replica and after every restart, and a higher severity is an alert of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlencode

from catalog.labels import ProcessKind
from catalog.signals import SIGNALS
from catalog.units import human, human_duration
from detectors.finding import Finding
from detectors.service.incident import Forecast, Incident
from detectors.service.links import Links

PROCESS_WORDS: Final[dict[ProcessKind, str]] = {
    "engine_core": "EngineCore",
    "api_server": "API server",
    "worker": "Worker",
    "dp_coordinator": "DP coordinator",
}

VERBS: Final = {
    "leak": ("leaks host memory", "leak host memory"),
    "falling": ("is falling", "are falling"),
    "forecast": ("grows towards its limit", "grow towards their limits"),
    "creep": ("grows at the same load", "grow at the same load"),
    "rollout": ("changed at the last rollout", "changed at the last rollout"),
    "straggler": ("is unlike its peers", "are unlike their peers"),
}
"""What one does, what several do, by kind; other kinds are their own words."""

FIRST: Final = {
    "leak": (
        "Compare its private memory with the tokens it served on the panel; plan a drain and "
        "restart of the named ranks before the instant above, one at a time."
    ),
    "falling": (
        "Compare acceptance by position and the traffic mix before and after the onset; undo the "
        "last rollout of model, draft or prompt template in this pool if they coincide."
    ),
    "creep": (
        "Restart one server and compare it with its peers: what a restart resets is inside it; "
        "then compare clocks, step time and host CPU with the time before the onset."
    ),
    "rollout": (
        "Compare the setup before and after; if the effect is real and not meant, undo the rollout "
        "on one server and look at it at the same load."
    ),
    "straggler": (
        "Compare clock, power, heat and host CPU of the named one with a peer's; drain it if "
        "requests suffer, and never restart it before you have looked."
    ),
    "forecast": (
        "Compare it with its load, the acceptance length and the step time since the onset; what "
        "grew with it is where to look, and the time left is the time to find out."
    ),
}
"""What to do first, by kind; the runbook goes on from there."""

OF_AN_INSTANT: Final = ("rollout", "straggler")
"""Kinds whose effect is a difference, not a speed: they have no time to a breach."""


def process_word(process: str) -> str:
    """Return a process kind in words; one that we don't know as it is."""
    return {str(kind): word for kind, word in PROCESS_WORDS.items()}.get(process, process)


def alert_name(kind: str) -> str:
    """Return the name of the alert for a kind: `spin_wait` gives LeadlineSpinWait."""
    return "Leadline" + "".join(word.capitalize() for word in kind.split("_"))


def labels(incident: Incident, severity: str) -> dict[str, str]:
    """Return the alert's labels: the group, its kind, and this severity."""
    return {
        "alertname": alert_name(incident.kind),
        **incident.labels,
        "kind": incident.kind,
        "severity": severity,
    }


def clock(at: float, beside: float | None = None) -> str:
    """Return an instant as people write it: 14:05 UTC, with the date unless it is *beside*'s."""
    when = datetime.fromtimestamp(at, UTC)
    same = beside is not None and datetime.fromtimestamp(beside, UTC).date() == when.date()
    return when.strftime("%H:%M UTC" if same else "%b %-d, %H:%M UTC")


def subject(findings: Sequence[Finding], *, full: bool = False) -> str:
    """Return who does it: `EngineCore DP0 to DP7` (*full*: each rank), or the signal's words."""
    by_process: dict[str, set[str]] = {}
    for finding in findings:
        process = finding.labels.get("process", "")
        by_process.setdefault(process, set()).add(finding.labels.get("rank", ""))
    named = [
        " ".join(x for x in (process_word(p), (listed if full else ranges)(ranks - {""})) if x)
        for p, ranks in sorted(by_process.items()) if p
    ]  # fmt: skip
    if named:
        return " and ".join(named)
    signal = findings[0].signal if findings else ""
    return lowered(SIGNALS[signal].title) if signal in SIGNALS else signal or "a series"


def lowered(title: str) -> str:
    """Return a title as it stands inside a sentence; acronyms stay."""
    return title if title[:2].isupper() else title[:1].lower() + title[1:]


def listed(names: set[str], most: int = 32) -> str:
    """Return names in order, the numbers in them counted as numbers, and how many are left out."""
    return listed_in_order(sorted(names, key=lambda name: (len(name), name)), most)


def ranges(names: set[str]) -> str:
    """Return names with runs drawn together: `DP0 to DP7, DP9`."""
    runs: list[list[str]] = []
    for name in sorted(names, key=lambda name: (len(name), name)):
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    parts = [[f"{run[0]} to {run[-1]}"] if len(run) > 2 else run for run in runs]
    return listed_in_order([part for run in parts for part in run])


def listed_in_order(names: Sequence[str], most: int = 8) -> str:
    """Return names as they come, and how many are left out."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _follows(before: str, name: str) -> bool:
    """Return whether two names differ by one in the number at their end."""
    one, other = (re.fullmatch(r"(.*?)(\d+)", text) for text in (before, name))
    return bool(one and other and one[1] == other[1] and int(other[2]) == int(one[2]) + 1)


def place(incident: Incident) -> str:
    """Return where: `pool decode of chat (glm-4.5)`."""
    pool = incident.labels.get("pool", "")
    deployment = incident.labels.get("deployment", "")
    model = incident.labels.get("model_name", "")
    where = f"pool {pool}" if pool else ""
    where += f" of {deployment}" if pool and deployment else deployment
    return (where + (f" ({model})" if model else "")).strip() or "this fleet"


def doing(kind: str, findings: Sequence[Finding], *, full: bool = False) -> str:
    """Return who does what: `EngineCore DP0, DP1 leak host memory`."""
    if kind == "straggler" and findings:
        return unlike(findings)
    word = kind.replace("_", " ")
    if kind == "falling" and findings and bad_up(findings[0]):
        return f"{subject(findings, full=full)} is rising"
    many = len({(f.labels.get("process"), f.labels.get("rank")) for f in findings}) > 1
    return f"{subject(findings, full=full)} {VERBS.get(kind, (word, word))[many]}"


def bad_up(finding: Finding) -> bool:
    """Return whether the signal of *finding* hurts when it rises: failures, as successes fall."""
    return finding.signal in SIGNALS and SIGNALS[finding.signal].bad == "up"


def unlike(findings: Sequence[Finding]) -> str:
    """Return who is unlike its peers in what: `GPU 3 of node-4 is unlike its peers (SM clock)`."""
    odd = {str(f.evidence["odd"]) for f in findings if f.evidence.get("odd")}
    either = [" or ".join(f.evidence["between"]) for f in findings if f.evidence.get("between")]
    who = listed(odd, 4) if odd else f"either {either[0]}" if either else "one"
    names = {f.signal for f in findings}
    what = listed({lowered(SIGNALS[n].title) if n in SIGNALS else n for n in names}, 4)
    one, several = VERBS["straggler"]
    return f"{who} {several if len(odd) > 1 else one} ({what})"


def amount(value: float, unit: str) -> str:
    """Return an effect for a person: `2.3 GiB/h`; of a ratio `-2.8 points/h`."""
    base, _, per = unit.partition("/")
    text = f"{100 * value:.2g} points" if base == "1" else human(value, base)
    return text + {"hour": "/h", "": ""}.get(per, f"/{per}")


def _like(value: float, like: float, unit: str) -> str:
    """Return a bare number in the unit that *like* is written in: `0.97`."""
    if not unit.startswith("bytes"):
        milli = unit.startswith("seconds") and abs(like) < 1
        scale = 1e3 if milli else 100.0 if unit.startswith(("1/", "ratio")) else 1.0
    else:
        scale = 1.0 / next((s for s in (2.0**40, 2.0**30, 2.0**20, 2.0**10) if abs(like) >= s), 1.0)
    bare = value * scale
    return f"{bare:.2f}" if abs(bare) < 10 else f"{bare:.1f}" if abs(bare) < 100 else f"{bare:.0f}"


def _each(findings: Sequence[Finding], like: float, unit: str) -> str:
    """Return what one of several does: `about 0.9`, or `0.02 to 1.7` where they are not alike."""
    effects = [f.effect or 0.0 for f in findings]
    if max(effects) > 2 * min(effects):
        return f"{_like(min(effects), like, unit)} to {_like(max(effects), like, unit)}"
    return f"about {_like(sum(effects) / len(effects), like, unit)}"


def rate(findings: Sequence[Finding]) -> str:
    """Return the speed of the change with its interval; of several, that of all in one place."""
    known = [f for f in findings if f.effect is not None]
    if not known:
        return ""
    unit, lead = known[0].effect_unit, known[0]
    if len(known) > 1 and unit.startswith("bytes/"):
        total = lead.evidence.get("place_slope_per_hour") or sum(f.effect or 0.0 for f in known)
        return f"{amount(total, unit)} together ({_each(known, total, unit)} each)"
    text = amount(lead.effect or 0.0, unit)
    if lead.effect_low is None or lead.effect_high is None:
        return text
    ends = (_like(end, lead.effect or 0.0, unit) for end in (lead.effect_low, lead.effect_high))
    return f"{text} ({' to '.join(ends)})"


def left(incident: Incident) -> tuple[str, str]:
    """Return the time left and its interval, as of the data: `7.4 h`, `6.1 h to 9.0 h`."""
    forecast = incident.forecast
    if forecast is None:
        return "", ""
    return human_duration(max(0.0, forecast.breach - forecast.as_of)), interval(
        forecast, forecast.as_of
    )


def interval(forecast: Forecast, at: float) -> str:
    """Return the interval of the time left at an instant: `6.1 h to 9.0 h`, `± 4 min`."""
    low = human_duration(max(0.0, forecast.low - at))
    if forecast.high is None:
        return f"{low} or more"
    high = human_duration(max(0.0, forecast.high - at))
    return f"{low} to {high}" if low != high else f"± {human_duration(forecast.width / 2)}"


def bound(kind: str) -> str:
    """Return the word for what is met: a floor for what falls, else a limit."""
    return "floor" if kind == "falling" else "limit"


def limit_text(finding: Finding) -> str:
    """Return the limit in words: `64.0 GiB (the memory limit of container x)`."""
    if finding.limit is None:
        return ""
    unit = SIGNALS[finding.signal].unit if finding.signal in SIGNALS else ""
    where = finding.evidence.get("place")
    return human(finding.limit, unit) + (f" ({where})" if where else "")


def summary(incident: Incident, findings: Sequence[Finding]) -> str:
    """Return the one line of a page."""
    about, _ = left(incident)
    head = f"{place(incident)}: {doing(incident.kind, findings)}"
    speed = rate(findings).partition(" (")[0]
    return head + (f", {speed}" if speed else "") + (f", about {about} left" if about else "")


def description(
    incident: Incident, findings: Sequence[Finding], watched: Sequence[Finding] = ()
) -> str:
    """Return the sentences of a page: who, how fast, the limit, the time left, as of when.

    Args:
        incident: It.
        findings: Those that fire.
        watched: Those of the incident that nobody can be sure of yet.
    """
    lead = findings[0] if findings else None
    about, ends = left(incident)
    servers = {f.labels["server"] for f in findings if f.labels.get("server")}
    parts = [f"In {place(incident)}, {doing(incident.kind, findings, full=True)}"]
    if speed := rate(findings):
        parts[0] += f" {'by' if incident.kind in OF_AN_INSTANT else 'at'} {speed}"
    if servers:
        parts[0] += f", on {listed(servers, 4)}"
    if watched:
        parts.append(f"{subject(watched, full=True)} may too: too early to tell")
    as_of = f"as of {clock(incident.as_of)}"
    forecast = incident.forecast
    if forecast is not None:
        when = clock(forecast.breach, forecast.as_of)
        parts.append(f"About {about} ({ends}) left, {as_of}; breach about {when}")
    elif incident.kind in OF_AN_INSTANT:
        parts.append(as_of[:1].upper() + as_of[1:])
    else:
        parts.append(f"No time to breach is known, {as_of}: no {bound(incident.kind)} is set")
    if lead is not None and (limit := limit_text(lead)):
        parts.append(f"{bound(incident.kind).capitalize()} {limit}")
    parts.append(f"Onset about {clock(incident.since)}")
    if incident.state == "ended":
        parts.append(f"Ended since: {incident.why}")
    return ". ".join(parts) + "."


def notes(
    incident: Incident,
    findings: Sequence[Finding],
    links: Links,
    watched: Sequence[Finding] = (),
) -> dict[str, str]:
    """Return the alert's annotations: sentences, links, and the parts for other templates."""
    lead = findings[0] if findings else None
    made = {
        "summary": summary(incident, findings),
        "description": description(incident, findings, watched),
        "action": FIRST.get(incident.kind, "Follow the runbook."),
        "runbook_url": links.runbook(alert_name(incident.kind)),
        "panel_url": links.finding(incident.lead),
        "dashboard": links.dashboard(incident) or links.finding(incident.lead),
    }
    about, ends = left(incident)
    parts = {
        "cause": lead.cause if lead else "",
        "process": listed({f.labels.get("process", "") for f in findings} - {""}),
        "ranks": listed({f.labels.get("rank", "") for f in findings} - {""}),
        "servers": listed({f.labels.get("server", "") for f in findings} - {""}),
        "rate": rate(findings),
        "time_left": f"{about} ({ends})" if about else "",
    }
    return made | {name: text for name, text in parts.items() if text}


def expression_link(prometheus: str, finding: Finding) -> str:
    """Return the address of the finding's expression at Prometheus, at the same time."""
    signal = SIGNALS.get(finding.signal)
    query = {
        "g0.expr": signal.expr if signal else finding.signal,
        "g0.tab": "0",
        "g0.range_input": "2d",
        "g0.end_input": datetime.fromtimestamp(finding.as_of, UTC).strftime("%Y-%m-%d %H:%M:%S"),
    }
    return f"{prometheus.rstrip('/')}/graph?{urlencode(query, quote_via=quote)}"
