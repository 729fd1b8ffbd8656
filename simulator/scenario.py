"""What goes wrong in a run, with its truth: where, since when, how fast, and what breaks when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

GIB: Final = 2.0**30
HOUR: Final = 3600.0


@dataclass(frozen=True)
class Scenario:
    """One run and the truth about it; times are seconds from the end of history (now).

    Attributes:
        name: Name of the switch.
        kind: Kind of the finding that is right; empty where nothing is wrong.
        signal: Signal that shows it first.
        pool: Pool it comes from.
        process: Kind of process it sits in; empty where it is no process.
        start: When it begins.
        rate: Mean change an hour up to now over the whole pool, in the unit of the signal: bytes
            for a leak; for acceptance the share of drafted tokens.
        breach: When limit or SLA breaks if nobody acts; None for never.
        limit: What breaks then: bytes of the container, or seconds of mean TPOT.
        idle: From when until when not one request arrives; nothing is wrong with that.
    """

    name: str
    kind: str = ""
    signal: str = ""
    pool: str = ""
    process: str = ""
    start: float = 0.0
    rate: float = 0.0
    breach: float | None = None
    limit: float | None = None
    idle: tuple[float, float] | None = None


SCENARIOS: Final[dict[str, Scenario]] = {
    s.name: s
    for s in (
        # Block ids that are kept for ever at each allocation: growth follows traffic, not time.
        Scenario(
            "leak", "leak", "host_anon_swap", "decode", "engine_core",
            start=-7 * HOUR, rate=7.2 * GIB, breach=7.4 * HOUR, limit=800 * GIB,
        ),
        # Mean acceptance length 3.0 -> 2.4 within the five hours up to now; no error anywhere.
        Scenario(
            "acceptance", "falling", "acceptance_ratio", "decode", "",
            start=-5 * HOUR, rate=-0.042, breach=1.1 * HOUR, limit=0.020,
        ),
        Scenario("none"),
    )
}  # fmt: skip
DAYS: Final[dict[str, Scenario]] = {s.name: s for s in (Scenario("idle", idle=(0.0, 48 * HOUR)),)}
"""Common days on which nothing is wrong; others are a fleet's: `fleet.rolled`, `fleet.drained`."""


def scenario(name: str) -> Scenario:
    """Return the scenario called *name*.

    Raises:
        ValueError: There is none; one line that names those there are.
    """
    known = SCENARIOS | DAYS
    if name not in known:
        raise ValueError(f"unknown scenario {name!r}: known are {', '.join(known)}")
    return known[name]
