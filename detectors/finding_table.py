"""Findings as a text table for the terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence

from catalog.plain import plain
from catalog.units import human, human_duration
from detectors.finding import Finding

HEADER = ("", "finding", "signal", "where", "change", "time left", "since")


def render(findings: Sequence[Finding]) -> str:
    """Return an aligned table of *findings*, and a line for each that could not be judged.

    Labels come from outside: none may split a row, or tell a terminal what to do.
    """
    told = [finding for finding in findings if finding.kind != "unknown"]
    silent = [finding for finding in findings if finding.kind == "unknown"]
    lines = (
        _table([HEADER, *(tuple(map(plain, _row(finding))) for finding in told)])
        if told
        else ["No findings."]
    )
    lines += [plain(f"not judged: {_place(f)}: {f.cause}") for f in silent]
    return "\n".join(lines)


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return *rows* with every column as wide as its widest cell."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _row(finding: Finding) -> tuple[str, ...]:
    """Return the cells of one finding."""
    mark = finding.severity if finding.state == "firing" else finding.state
    verdict = finding.verdict.replace("_", " ")
    name = finding.kind if verdict == finding.kind else f"{finding.kind} ({verdict})"
    change, where = _change(finding), _place(finding)
    return (mark, name, finding.signal, where, change, _left(finding), _since(finding))


def _place(finding: Finding) -> str:
    """Return deployment, pool, server, process and rank, and who is unlike the others."""
    labels = finding.labels
    named = [labels[k] for k in ("deployment", "pool", "server") if labels.get(k)]
    process = " ".join(labels[k] for k in ("process", "rank") if labels.get(k))
    known = "/".join(named) + (f" {process}" if process else "")
    between = finding.evidence.get("between")
    if odd := finding.evidence.get("odd") or (" or ".join(map(str, between)) if between else ""):
        known = f"{known}: {odd}" if known else str(odd)
    others = " ".join(f"{k}={v}" for k, v in sorted(labels.items()) if v)
    return known.strip() or others or finding.signal


def _change(finding: Finding) -> str:
    """Return the effect with its interval, for a person."""
    if finding.effect is None:
        return "-"
    unit = finding.effect_unit.removesuffix("/hour")
    if unit == "bytes":
        text = [human(v, "bytes") for v in _span(finding)]
    elif unit == "seconds":
        text = [f"{1e3 * v:+.3g} ms" for v in _span(finding)]
    elif unit == "ratio":
        text = [f"{100 * v:+.3g} %" for v in _span(finding)]
    else:
        text = [f"{v:+.3g}" for v in _span(finding)]
    suffix = "/h" if finding.effect_unit.endswith("/hour") else ""
    said = [f"{word}{suffix}" for word in text]
    return said[0] + (f" [{said[1]}, {said[2]}]" if len(said) == 3 else "")


def _span(finding: Finding) -> list[float]:
    values = (finding.effect, finding.effect_low, finding.effect_high)
    known = [value for value in values if value is not None]
    return known if len(known) == 3 else known[:1]


def _left(finding: Finding) -> str:
    """Return the time to the breach with its interval; why not, if it is not known."""
    if finding.time_to_breach is None:
        return "no limit known" if finding.limit is None else "-"
    low, high = finding.time_to_breach_low, finding.time_to_breach_high
    soonest = "?" if low is None else human_duration(low)
    latest = "never" if high is None else human_duration(high)
    return f"{human_duration(finding.time_to_breach)} [{soonest}, {latest}]"


def _since(finding: Finding) -> str:
    """Return the onset as an instant in UTC."""
    if finding.since is None:
        return "-"
    return time.strftime("%Y-%m-%d %H:%MZ", time.gmtime(finding.since))
