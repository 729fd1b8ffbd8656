"""Passed, failed, or can't say: stated rules, each with its outcome and its reasons."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from catalog.units import human_duration
from detectors.drift.context import TICKET_BELOW
from detectors.drift.judge import SIGNALS as JUDGED
from detectors.drift.judge import TOWARDS_LIMIT
from detectors.finding import Finding
from reports import words
from reports.entry import Row
from reports.incidents import Incident, incidents
from reports.places import place_of
from reports.rows import BROKEN

Verdict = Literal["pass", "fail", "unknown"]
SHORTEST: Final = 6 * 3600.0
"""A soak shorter than this can't pass: a slow leak would not have shown."""
UNSEEN_END: Final = 0.02
"""Share of the span without data at its end that is put down to the soak having been over."""
WORDS: Final[dict[Verdict, str]] = {"pass": "Passed", "fail": "Failed", "unknown": "Can't say"}
ESSENTIAL: Final = frozenset({"host_anon_swap", "tpot_mean", "ttft_user_mean"})
"""Without these nobody can say that the memory and the service levels held."""
COSTS: Final = frozenset({"creep", "rollout", "straggler"})
"""Kinds that say what something costs, not that anything ends."""
MOST_WORSE: Final = 6
SERVED: Final = ("Service level", "Tails")
RULES: Final[dict[str, str]] = {
    "findings": "No leak, no falling ratio: no finding fires",
    "drift": f"No drift reaches its SLA or limit within {human_duration(TICKET_BELOW)}",
    "service_level": f"Every SLA was held at least {1 - BROKEN:.0%} of the time".replace("%", " %"),
    "known": "Nothing required is unknown: each pool's private memory, TTFT as the user sees it, "
    "TPOT and all that has an SLA or a limit, over a span of at least "
    f"{human_duration(SHORTEST)} whose end was seen",
}
"""The rules by name, as the report states them."""


@dataclass(frozen=True)
class Rule:
    """A stated rule, its outcome, and what fails it or keeps it from being told."""

    name: str
    text: str
    outcome: Verdict
    reasons: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """Return the outcome as it is printed."""
        return WORDS[self.outcome]


@dataclass(frozen=True)
class Summary:
    """The verdict, its reasons, the heaviest first, and the rules that it follows from."""

    verdict: Verdict
    reasons: tuple[str, ...]
    rules: tuple[Rule, ...] = ()

    @property
    def word(self) -> str:
        """Return the verdict as it is printed."""
        return WORDS[self.verdict]


def judge_soak(
    rows: Sequence[Row], findings: Sequence[Finding], start: float, end: float, as_of: float
) -> Summary:
    """Return the verdict: one rule failed fails, one that can't be told can't pass.

    Args:
        rows: All signals by place.
        findings: What the detectors found.
        start: First instant of the span.
        end: Last instant of the span.
        as_of: When the data ends.
    """
    told = incidents(findings)
    unseen = _unseen(rows, start, end, as_of)
    rules = (
        _findings(rows, findings, told, unseen),
        _drift(rows, told, unseen),
        _service_level(rows, unseen),
        _known(rows, findings, unseen),
    )
    outcomes = {rule.outcome for rule in rules}
    for outcome in ("fail", "unknown"):
        if outcome in outcomes:
            ranked = [r for rule in rules if rule.outcome == outcome for r in rule.reasons]
            return Summary(outcome, _once(ranked), rules)
    drifts = [row for row in rows if row.harmful]
    reasons = ["no leak, nothing falling, every service level held"]
    if drifts:
        names = ", ".join(dict.fromkeys(row.title for row in drifts))
        reasons.append(f"worth a look, though nothing is near a limit: {names}")
    if worse := [_moved(row) for row in rows if _worse(row)]:
        more = f" and {len(worse) - MOST_WORSE} more" if len(worse) > MOST_WORSE else ""
        reasons.append(f"worse than in the span before: {', '.join(worse[:MOST_WORSE])}{more}")
    return Summary("pass", tuple(reasons), rules)


def _worse(row: Row) -> bool:
    """Whether it moved for the worse against the span before, enough to be worth a word."""
    change, bad = row.beside.change, row.signal.bad
    return bad is not None and row.beside.notable(row.signal.unit) and (change > 0) == (bad == "up")


def _moved(row: Row) -> str:
    change = words.change(row.beside.change, row.beside.relative, row.signal.unit)
    return f"{row.title} {change}"


def _rule(name: str, failed: Iterable[str], blind: Iterable[str]) -> Rule:
    bad, dark = _once(failed), _once(blind)
    outcome: Verdict = "fail" if bad else "unknown" if dark else "pass"
    return Rule(name, RULES[name], outcome, bad or dark)


def _once(reasons: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(reasons))


def _findings(
    rows: Sequence[Row], findings: Sequence[Finding], told: Sequence[Incident], unseen: list[str]
) -> Rule:
    failed = [one.sentence for one in told if one.first.state == "firing"]
    # What is judged against its limit alone is the matter of the rule on drifts.
    quiet = {*TOWARDS_LIMIT, *COSTS}
    watched = {n for who, names in JUDGED.items() if who not in quiet for n in names}
    blind = [_cause(f) for f in findings if f.kind == "unknown" or _pending(f)]
    blind += [_is_unknown(r) for r in rows if _required(r) and r.signal.name in watched]
    return _rule("findings", failed, unseen + blind)


def _pending(finding: Finding) -> bool:
    """Whether it may yet be what fails a soak: what only costs more is a note until it fires."""
    return finding.state == "watch" and finding.kind not in COSTS


def _drift(rows: Sequence[Row], told: Sequence[Incident], unseen: list[str]) -> Rule:
    near = [one for one in told if _left(one) < TICKET_BELOW]
    failed = [one.sentence for one in near if one.first.state == "firing"]
    failed += [
        f"{row.title} drifts towards its limit: {row.breach} left"
        for row in rows
        if row.breach_seconds < TICKET_BELOW and row.harmful and not _named(row, told)
    ]
    blind = [_cause(f) for one in near for f in one.findings if f.state == "watch"]
    # What goes on towards nobody knows what may be there tomorrow.
    blind += [one.sentence for one in told if one.first.state == "firing" and _endless(one)]
    blind += [_is_unknown(row) for row in rows if _required(row)]
    return _rule("drift", failed, unseen + blind)


def _service_level(rows: Sequence[Row], unseen: list[str]) -> Rule:
    served = [row for row in rows if row.group in SERVED]
    failed = [_broken(r) for r in sorted(served, key=lambda r: -r.beyond) if r.kept is False]
    blind = [
        f"{row.title} is unknown: {row.why if row.state == 'unknown' else _hidden(row)}"
        for row in served
        if row.kept is None and (row.limit or row.signal.name in ESSENTIAL) and not row.optional
    ]
    return _rule("service_level", failed, unseen + blind)


def _known(rows: Sequence[Row], findings: Sequence[Finding], unseen: list[str]) -> Rule:
    blind = [_cause(f) for f in findings if f.kind == "unknown"]
    blind += [_is_unknown(row) for row in rows if _required(row)]
    return _rule("known", (), unseen + blind)


def _left(incident: Incident) -> float:
    left = incident.first.time_to_breach
    return math.inf if left is None else left


def _endless(incident: Incident) -> bool:
    """Whether it goes on and no limit of it is known."""
    first = incident.first
    return first.effect is not None and first.limit is None and first.time_to_breach is None


def _hidden(row: Row) -> str:
    return row.beside.now.why or "its highest bucket lies below the SLA"


def _required(row: Row) -> bool:
    """Whether a line is unknown that must not be."""
    needed = bool(row.limit) or row.signal.name in ESSENTIAL
    return row.state == "unknown" and needed and not row.optional


def _is_unknown(row: Row) -> str:
    return f"{row.title} is unknown: {row.why}"


def _cause(finding: Finding) -> str:
    return finding.cause.rstrip(".")


def _broken(row: Row) -> str:
    side = "above" if row.signal.bad == "up" else "below"
    return f"{row.title} was {side} {row.limit} {words.share(row.beyond)} of the time"


def _named(row: Row, told: Sequence[Incident]) -> bool:
    """Whether a firing finding tells the same story: its signal, or memory that it fills."""
    return any(
        f.state == "firing"
        and place_of(f.labels) == row.place
        and (f.signal == row.signal.name or (f.kind == "leak" and row.group == "Host memory"))
        for one in told
        for f in one.findings
    )


def _unseen(rows: Sequence[Row], start: float, end: float, as_of: float) -> list[str]:
    """Return what keeps any rule from being told: no data, too short a span, no end."""
    if not any(row.state != "unknown" for row in rows):
        return ["there is no data"]
    span = as_of - start
    unseen = []
    if span < SHORTEST:
        unseen.append(
            f"{human_duration(span)} is too short: a soak needs {human_duration(SHORTEST)}"
        )
    if end - as_of > UNSEEN_END * (end - start):
        unseen.append(f"nothing is known of the last {human_duration(end - as_of)} of the span")
    return unseen
