"""One line of the report, as it is read by people, programs and the verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from markupsafe import Markup

from catalog.signal import Signal
from reports.beside import Beside, Level
from reports.places import Place
from reports.trends import State

NO_CHART: Final = Markup()


@dataclass(frozen=True)
class Numbers:
    """What a line says, for a program: base units, NaN where unknown.

    Attributes:
        now: Newest level.
        slope: Units per second.
        slope_low: Lower end of its 90 % interval.
        slope_high: Upper end of its 90 % interval.
        limit: SLA or limit, None without one.
        judged_from: Unix seconds.
    """

    now: float = math.nan
    slope: float = math.nan
    slope_low: float = math.nan
    slope_high: float = math.nan
    limit: float | None = None
    judged_from: float = math.nan


@dataclass(frozen=True)
class Row:
    """What one signal does in one place, spelt for a reader.

    Attributes:
        group: Heading it comes under.
        signal: From the catalogue.
        place: Pool, deployment or hosts.
        state: stable, drifting or unknown.
        why: One phrase for the state.
        detail: What the place splits into: a process, a position.
        level: Newest level.
        change: Its speed, if it drifts.
        interval: 90 % of the speed.
        limit: SLA or limit.
        breach: Time until the limit is met.
        breach_seconds: The same in seconds, infinite for never.
        beyond: Share of the time beyond the limit.
        harmful: It drifts to the bad side.
        series: How many series it sums up.
        judged_from: Since when they are judged, where that isn't from the start.
        chart: The whole span, drawn.
        kept: Whether the limit was kept; None where nobody can say.
        optional: Nobody need miss it where it is unknown.
        beside: Its value over the span and over the span before.
        numbers: The same for programs.
    """

    group: str
    signal: Signal
    place: Place
    state: State
    why: str
    detail: str = ""
    level: str = "–"
    change: str = "–"
    interval: str = ""
    limit: str = ""
    breach: str = ""
    breach_seconds: float = math.inf
    beyond: float = 0.0
    harmful: bool = False
    series: int = 0
    judged_from: str = ""
    chart: Markup = NO_CHART
    kept: bool | None = None
    optional: bool = False
    beside: Beside = field(default_factory=Beside)
    numbers: Numbers = field(default_factory=Numbers)

    @property
    def title(self) -> str:
        """Return what it is about, for a sentence: signal, part and place."""
        part = f", {self.detail}" if self.detail else ""
        return f"{self.signal.title} ({self.place.title}{part})"


def missing(
    group: str,
    signal: Signal,
    place: Place,
    why: str,
    *,
    detail: str = "",
    before: Level | None = None,
    optional: bool = False,
) -> Row:
    """Return the line of a signal that has no series in a place in this span."""
    beside = Beside(before=before or Level())
    return Row(
        group, signal, place, "unknown", why, detail=detail, optional=optional, beside=beside
    )
