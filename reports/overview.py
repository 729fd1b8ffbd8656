"""What is said before the details: places in order, pools in one line each, names, version."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from catalog.signals import SIGNALS
from detectors.finding import Finding
from reports import places, words
from reports.entry import Row
from reports.gather import Soak, Source
from reports.places import Place
from store.prometheus import PromStore


def sections(soak: Soak) -> list[tuple[Place, list[Row]]]:
    """Return the rows by place, in the report's order."""
    order = {signal.name: at for at, (_, signal) in enumerate(places.shown())}
    by_place: dict[Place, list[Row]] = {}
    for one in sorted(soak.rows, key=lambda r: order[r.signal.name]):
        by_place.setdefault(one.place, []).append(one)
    return sorted(by_place.items(), key=lambda item: item[0].rank)


@dataclass(frozen=True)
class Pool:
    """One line of the table on top; `left` are seconds to the first limit, of signal `nearest`."""

    place: Place
    servers: int
    stable: int
    drifting: int
    unknown: int
    findings: int
    left: float = math.inf
    nearest: str = ""

    @property
    def first(self) -> str:
        """Return what will be reached first there, and when."""
        if not self.nearest:
            return ""
        return f"{words.left(self.left)}: {SIGNALS[self.nearest].title.lower()}"


def pools(soak: Soak) -> list[Pool]:
    """Return one line for each place, in the report's order."""
    return [_pool(place, soak, rows) for place, rows in sections(soak)]


def _pool(place: Place, soak: Soak, rows: Sequence[Row]) -> Pool:
    states = [one.state for one in rows]
    mine = [f for f in soak.findings if places.place_of(f.labels) == place and f.kind != "unknown"]
    return Pool(
        place,
        len(soak.fleet.servers.get(place, ())),
        states.count("stable"),
        states.count("drifting"),
        states.count("unknown"),
        sum(f.state == "firing" for f in mine),
        *_first_breach(mine, rows),
    )


def _first_breach(findings: Sequence[Finding], rows: Sequence[Row]) -> tuple[float, str]:
    """Return in how many seconds a limit is met first there, and the signal; infinite for none."""
    left = [(f.time_to_breach, f.signal) for f in findings if f.time_to_breach is not None]
    left += [(one.breach_seconds, one.signal.name) for one in rows if one.breach]
    return min(left, default=(math.inf, ""))


def names(soak: Soak) -> str:
    """Return the deployments, for a heading."""
    named = dict.fromkeys(place.deployment for place in soak.fleet.servers if place.deployment)
    return ", ".join(sorted(named)) or "all deployments"


def said_source(source: Source) -> str:
    """Return where the data came from; credentials are never in it."""
    return source.url if isinstance(source, PromStore) else "a table of signals"


def release() -> str:
    """Return the version of Leadline that writes."""
    try:
        return version("leadline")
    except PackageNotFoundError:
        return "from source"
