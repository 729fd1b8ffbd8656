"""Every scenario by its name: the registry that tests, demo and benchmark choose from."""

from __future__ import annotations

from difflib import get_close_matches
from itertools import groupby
from typing import Final

from simulator.change import GIB, HOUR
from simulator.incidents import INCIDENTS
from simulator.public import PUBLIC
from simulator.quiet import QUIET, SAMPLES
from simulator.shown import SHOWN
from simulator.truth import GROUPS, Scenario

__all__ = ["GIB", "HOUR", "LIVE", "SCENARIOS", "Scenario", "listing", "scenario"]

SCENARIOS: Final[dict[str, Scenario]] = {
    s.name: s for s in (*SHOWN, *INCIDENTS, *PUBLIC, *QUIET, *SAMPLES)
}
LIVE: Final = tuple(name for name, s in SCENARIOS.items() if s.live)
"""Those that a page can play."""


def scenario(name: str, *, live: bool = False) -> Scenario:
    """Return the scenario called *name*.

    Args:
        name: Its name.
        live: Whether it must be one that a page can play.

    Raises:
        ValueError: There is none; one line that names the nearest.
    """
    known = LIVE if live else tuple(SCENARIOS)
    if name in known:
        return SCENARIOS[name]
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
    if name in SCENARIOS:
        hint = "it is about samples, which only tables can have"
    raise ValueError(f"unknown scenario {name!r}: {hint}")


def listing() -> str:
    """Return the scenarios that a page can play, group by group."""
    played = [SCENARIOS[name] for name in LIVE]
    parts = ["scenarios:"]
    for group, members in groupby(played, key=lambda s: s.group):
        parts += [f"  {group}: {GROUPS[group]}"]
        parts += [f"    {s.name:24} {s.title}" for s in members]
    return "\n".join(parts)
