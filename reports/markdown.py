"""The report as Markdown for a ticket: verdict, rules, findings, and what moved; no pictures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from catalog.plain import plain
from catalog.units import human_duration
from reports import overview, words
from reports.cards import Card, card
from reports.entry import Row
from reports.gather import Soak
from reports.incidents import incidents
from reports.places import Place
from reports.verdict import Rule, Summary

MOST_REASONS: Final = 8
MOST_CARDS: Final = 12
MOST_MEMBERS: Final = 16
MOST_ROWS: Final = 150
"""Lines of signals: a ticket holds some 32,000 characters in the trackers that hold least."""
_MARKS = re.compile(r"([\\`*_\[\]|~#])")


def render(soak: Soak, summary: Summary, source: str, made: float) -> str:
    """Return the report as Markdown."""
    told = incidents(soak.findings)
    cards = [card(one, soak.judged, soak.config) for one in told[:MOST_CARDS]]
    parts = [
        *_head(soak, summary),
        *_rules(summary.rules),
        *_findings(cards, len(told) - len(cards)),
        *_pools(soak),
        *_signals(soak),
        *_foot(soak, source, made),
    ]
    return "\n".join(parts) + "\n"


def text(raw: str) -> str:
    """Return *raw* as plain text in a table: no markup, no line break, nobody mentioned."""
    line = plain(" ".join(raw.split()))
    safe = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKS.sub(r"\\\1", safe).replace("@", "&#64;")


def _head(soak: Soak, summary: Summary) -> Iterator[str]:
    shape = f" · {soak.fleet.shape}" if soak.fleet.shape else ""
    yield f"# Soak report: {summary.word} · {text(overview.names(soak))}{shape}\n"
    yield (
        f"{words.instant(soak.start)} to {words.instant(soak.end)} ({human_duration(soak.span)}), "
        f"compared with the {words.span_name(soak.span)} before it.\n"
    )
    yield f"**{summary.word}: {text(summary.reasons[0])}.**\n"
    yield from _list(summary.reasons[1:MOST_REASONS], len(summary.reasons) - MOST_REASONS)


def _list(items: Sequence[str], more: int) -> Iterator[str]:
    for item in items:
        yield f"- {text(item)}."
    if more > 0:
        yield f"- and {more} more, below."
    if items:
        yield ""


def _table(heads: str, rows: Iterable[Sequence[str]]) -> Iterator[str]:
    names = heads.split("|")
    yield "| " + " | ".join(names) + " |"
    yield "|" + " --- |" * len(names)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def _rules(rules: Sequence[Rule]) -> Iterator[str]:
    yield "## Rules\n"
    yield from _table("Rule|Outcome|Because", ((r.text, f"**{r.word}**", _why(r)) for r in rules))


def _why(rule: Rule) -> str:
    more = len(rule.reasons) - 1
    return text(rule.reasons[0]) + (f"; and {more} more" if more else "") if rule.reasons else "–"


def _findings(cards: Sequence[Card], more: int) -> Iterator[str]:
    yield "## Findings\n"
    if not cards:
        yield "None: no detector found anything in what it could judge.\n"
    for one in cards:
        yield f"### {text(one.title)} ({one.severity})\n"
        yield f"{text(one.cause)}\n"
        yield from (f"- {name}: {text(value)}" for name, value in one.facts)
        if one.runbook:
            yield f"- Runbook: {text(one.runbook)}"
        for member, rate, _, since in one.members[:MOST_MEMBERS]:
            yield f"- {text(member)}: {text(rate)} since {since}"
        if len(one.members) > MOST_MEMBERS:
            yield f"- and {len(one.members) - MOST_MEMBERS} more series"
        yield ""
    if more > 0:
        yield f"And {more} more, less urgent.\n"


def _pools(soak: Soak) -> Iterator[str]:
    yield "## Pools\n"
    rows = (
        (text(p.place.title), str(p.servers or "–"), str(p.stable), str(p.drifting),
         str(p.unknown), str(p.findings), text(p.first) or "–")
        for p in overview.pools(soak)
    )  # fmt: skip
    yield from _table("Pool|Servers|Stable|Drifting|Unknown|Findings|First limit reached in", rows)


def _signals(soak: Soak) -> Iterator[str]:
    name = words.span_name(soak.span)
    yield f"## This {name} and the {name} before\n"
    chosen = [(place, [r for r in rows if _shown(r)]) for place, rows in overview.sections(soak)]
    kept = {
        id(r) for r in sorted((r for _, rows in chosen for r in rows), key=_urgency)[:MOST_ROWS]
    }
    for place, rows in chosen:
        if here := [row for row in rows if id(row) in kept]:
            yield from _place(place, here, name)
    rest = len(soak.rows) - len(kept)
    if rest:
        yield (
            f"{rest} more lines are in the HTML and JSON forms: steady against the {name} before, "
            "or not compared and without a limit.\n"
        )


def _shown(row: Row) -> bool:
    """Whether a line belongs in a ticket: it has a limit, drifts, must be known, or moved."""
    return bool(
        row.limit
        or row.state == "drifting"
        or row.group == "Service level"
        or row.signal.name == "host_anon_swap"
        or row.beside.notable(row.signal.unit)
    )


def _urgency(row: Row) -> tuple[bool, bool, bool]:
    return row.state != "drifting", not row.limit, row.group != "Service level"


def _place(place: Place, rows: Sequence[Row], name: str) -> Iterator[str]:
    yield f"### {text(place.title)}\n"
    yield from _table(
        f"Signal|State|Now|This {name}|{name.capitalize()} before|Change|Limit", map(_line, rows)
    )


def _line(row: Row) -> tuple[str, ...]:
    unit, beside = row.signal.unit, row.beside
    title = row.signal.title + (f" · {row.detail}" if row.detail else "")
    state = f"**{row.state}**" if row.state == "drifting" else row.state
    if row.state == "unknown":
        state += f": {text(row.why)}"
    elif row.state == "drifting":
        state += f": {text(row.change)}"
    limit = [row.limit] if row.limit else []
    limit += [f"beyond it {words.share(row.beyond)} of the time"] if row.beyond else []
    limit += [f"reached in {row.breach}"] if row.breach else []
    change = words.change(beside.change, beside.relative, unit)
    now, before = (_value(one.value, one.why, unit) for one in (beside.now, beside.before))
    said = text("; ".join(limit)) or "–"
    return text(title), state, text(row.level), now, before, text(change), said


def _value(value: float, why: str, unit: str) -> str:
    return f"unknown: {text(why)}" if why else text(words.value(value, unit))


def _foot(soak: Soak, source: str, made: float) -> Iterator[str]:
    yield (
        "Values are over the whole span: of counted ratios the ratio of sums, else the median of "
        "all samples; unknown where less than half of a span was seen. Unknown is never health. "
        f"Read from {text(source)} every {human_duration(soak.step)}; written "
        f"{words.instant(made)} by Leadline {overview.release()}. Times are UTC."
    )
