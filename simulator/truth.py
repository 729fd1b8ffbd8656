"""A run with its truth: what goes wrong where, since when, how fast, and what breaks when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from simulator.change import HOUR, Change, Loss
from simulator.fleet import Fleet

Group = Literal["demo", "incident", "report", "quiet", "samples"]
GROUPS: Final[Mapping[Group, str]] = {
    "demo": "what the demo shows",
    "incident": "incidents that operators told of",
    "report": "leaks, decays and faults of public reports, at their rates",
    "quiet": "days on which nothing is wrong, and which look as if",
    "samples": "what scraping does to samples; nothing is wrong with the cluster",
}

Defect = Literal[
    "gap", "clock_step", "duplicates", "out_of_order", "reset", "constant", "two_valued", "spike",
    "ar99",
]  # fmt: skip


def _as_it_is(fleet: Fleet) -> Fleet:
    return fleet


@dataclass(frozen=True)
class Scenario:
    """One run and the truth about it; instants are seconds from the end of history (now).

    A run goes on after now as long as it is asked for: `breach` usually lies there.

    Attributes:
        name: Name of the switch.
        title: What is wrong, to follow "a cluster".
        group: Where it is listed.
        kind: Kind of the finding that is right; "none" where nothing is to be raised.
        verdict: Verdict of it; where nothing is to be raised, the one that a watch may have.
        signal: Signal that shows it first.
        pool: Pool it comes from; empty where it is no pool's.
        process: Kind of process it sits in; empty where it is no process.
        start: When it begins.
        rate: Mean change an hour up to now over the whole pool, in the unit of the signal: bytes
            for a leak; for acceptance the share of drafted tokens; for latency seconds.
        breach: When limit or SLA breaks if nobody acts; None for never, or where it has none.
        limit: What breaks then: bytes of the container or host, or seconds of the signal's mean.
        negative: Whether nothing may be raised.
        source: Where its figures are from: S1-S3 (docs/scenarios.md), or a public issue.
        note: How the figures were taken over.
        changes: What differs from a healthy run.
        losses: Memory that is lost.
        container: Limit of the containers by pool, where it is another than usual; bytes.
        profile: Healthy acceptance by position, where it is another than usual.
        churn: Times that each restored token is loaded.
        idle: From when until when not one request arrives.
        traffic: Kind of traffic.
        weekday: Days from Monday, 00:00, to now.
        defect: What scraping does to the samples: in tables only.
        fleet: What makes its servers out of the usual ones.
    """

    name: str
    title: str = ""
    group: Group = "incident"
    kind: str = "none"
    verdict: str = ""
    signal: str = ""
    pool: str = ""
    process: str = ""
    start: float = 0.0
    rate: float = 0.0
    breach: float | None = None
    limit: float | None = None
    negative: bool = False
    source: str = ""
    note: str = ""
    changes: tuple[Change, ...] = ()
    losses: tuple[Loss, ...] = ()
    container: Mapping[str, float] = field(default_factory=dict)
    profile: tuple[float, ...] = ()
    churn: float = 1.0
    idle: tuple[float, float] | None = None
    traffic: str = "daily"
    weekday: float = 2.6
    defect: Defect | None = None
    fleet: Callable[[Fleet], Fleet] = _as_it_is

    @property
    def live(self) -> bool:
        """Return whether a page can play it: one can't miss its own scrapes."""
        return self.defect is None

    @property
    def alert(self) -> dict[str, str] | None:
        """Return labels of the alert that it must lead to; None where nothing is to be raised."""
        if self.negative:
            return None
        labels = {"alertname": f"Leadline{self.kind.title().replace('_', '')}"}
        if self.pool:
            labels["pool"] = self.pool
        if self.kind == "leak" and self.breach is not None and 0.0 < self.breach < 12 * HOUR:
            labels["severity"] = "page"
        return labels


def leak(
    name: str,
    title: str,
    loss: Loss,
    *,
    breach: float | None = None,
    limit: float | None = None,
    group: Group = "report",
    **more: object,
) -> Scenario:
    """Return the scenario of one loss."""
    return Scenario(
        name, title, group, "leak", "leak", "host_anon_swap", loss.pool, loss.process,
        start=loss.start, rate=loss.rate, breach=breach, limit=limit, losses=(loss,),
        **more,  # type: ignore[arg-type]
    )  # fmt: skip
