"""The one line on top: passed, failed, or can't say, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from catalog.units import human_duration
from detectors.drift.context import TICKET_BELOW
from detectors.finding import Finding
from reports import words
from reports.incidents import incidents
from reports.places import place_of
from reports.rows import Row

Verdict = Literal["pass", "fail", "unknown"]
BROKEN: Final = 0.01
"""Share of the time beyond an SLA from which a soak has failed it."""
SHORTEST: Final = 6 * 3600.0
"""A soak shorter than this can't pass: a slow leak would not have shown."""
UNSEEN_END: Final = 0.02
"""Share of the span without data at its end that is put down to the soak having been over."""
WORDS: Final[dict[Verdict, str]] = {"pass": "Passed", "fail": "Failed", "unknown": "Can't say"}


@dataclass(frozen=True)
class Summary:
    """The verdict and its reasons, the heaviest first."""

    verdict: Verdict
    reasons: tuple[str, ...]

    @property
    def word(self) -> str:
        """Return the verdict as it is printed."""
        return WORDS[self.verdict]


def judge_soak(
    rows: Sequence[Row], findings: Sequence[Finding], start: float, end: float, as_of: float
) -> Summary:
    """Return the verdict: a finding or a broken SLA fails, a blind spot can't pass.

    Args:
        rows: All signals by place.
        findings: What the detectors found.
        start: First instant of the span.
        end: Last instant of the span.
        as_of: When the data ends.
    """
    failed = [one.sentence for one in incidents(findings) if one.first.state == "firing"]
    failed += [_broken(row) for row in sorted(rows, key=lambda r: -r.beyond) if _breaks(row)]
    failed += [
        f"{row.title} drifts towards its limit: {row.breach} left"
        for row in rows
        if row.breach_seconds < TICKET_BELOW and row.harmful and not _named(row, findings)
    ]
    if failed:
        return Summary("fail", tuple(dict.fromkeys(failed)))
    blind = _blind(rows, findings, start, end, as_of)
    if blind:
        return Summary("unknown", tuple(blind))
    drifts = [row for row in rows if row.harmful]
    reasons = ["no leak, nothing falling, every service level held"]
    if drifts:
        names = ", ".join(dict.fromkeys(row.title for row in drifts))
        reasons.append(f"worth a look, though nothing is near a limit: {names}")
    return Summary("pass", tuple(reasons))


def _breaks(row: Row) -> bool:
    return row.beyond > BROKEN and row.group in ("Service level", "Tails")


def _broken(row: Row) -> str:
    side = "above" if row.signal.bad == "up" else "below"
    return f"{row.title} was {side} {row.limit} {words.share(row.beyond)} of the time"


def _named(row: Row, findings: Sequence[Finding]) -> bool:
    """Whether a firing finding tells the same story: its signal, or memory that it fills."""
    return any(
        f.state == "firing"
        and place_of(f.labels) == row.place
        and (f.signal == row.signal.name or (f.kind == "leak" and row.group == "Host memory"))
        for f in findings
    )


def _blind(
    rows: Sequence[Row], findings: Sequence[Finding], start: float, end: float, as_of: float
) -> list[str]:
    """Return what keeps a soak from passing although nothing is wrong."""
    span = as_of - start
    if not any(row.state != "unknown" for row in rows):
        return ["there is no data"]
    blind = []
    if span < SHORTEST:
        blind.append(
            f"{human_duration(span)} is too short: a soak needs {human_duration(SHORTEST)}"
        )
    if end - as_of > UNSEEN_END * (end - start):
        blind.append(f"nothing is known of the last {human_duration(end - as_of)} of the span")
    blind += [f.cause.rstrip(".") for f in findings if f.kind == "unknown" or f.state == "watch"]
    blind += [
        f"{row.title} is unknown: {row.why}"
        for row in rows
        if row.state == "unknown" and (row.limit or row.signal.name in ESSENTIAL)
    ]
    return list(dict.fromkeys(blind))


ESSENTIAL: Final = frozenset({"host_anon_swap", "tpot_mean", "ttft_user_mean"})
"""Without these nobody can say that the memory and the service levels held."""
