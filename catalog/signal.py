"""What an operator thinks in: a signal is a PromQL expression with its meaning beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from catalog.labels import LEVELS, Level
from catalog.metric import Metric
from catalog.units import Unit

Direction = Literal["up", "down"]


@dataclass(frozen=True)
class Counts:
    """Raw counters behind a ratio: detectors count successes among trials, never rates.

    Attributes:
        successes: Counter of successes.
        trials: Counter of trials.
        where: Label condition on both.
        won: Label condition on the successes besides.
        over: Labels of both that are added up before they are paired.
        within: Labels that only the successes have: each of them among the same trials.
    """

    successes: Metric
    trials: Metric
    where: str = ""
    won: str = ""
    over: tuple[str, ...] = ()
    within: tuple[str, ...] = ()


@dataclass(frozen=True)
class Signal:
    """One signal.

    Attributes:
        name: Name in every interface; see design.
        title: Words for a panel or a report.
        unit: Base unit of the value.
        level: What it is kept by, see `labels.LEVELS`.
        expr: PromQL that detectors query and the recording rule evaluates.
        operation: Last part of the recorded name, window included (`mean5m`, `max`).
        bad: Direction that hurts; None where neither does by itself.
        metrics: What the expression reads.
        extra: Labels kept beside the level's.
        load: Signal it depends on; empty for none.
        counts: Raw counters, for ratios.
        note: What a reader must know to read it right.
    """

    name: str
    title: str
    unit: Unit
    level: Level
    expr: str
    operation: str
    bad: Direction | None
    metrics: tuple[Metric, ...]
    extra: tuple[str, ...] = ()
    load: str = ""
    counts: Counts | None = None
    note: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels that a series of this signal keeps."""
        return (*LEVELS[self.level], *self.extra)

    @property
    def record(self) -> str:
        """Return the name of the recorded series: `<level>:leadline_<signal>:<operation>`."""
        return f"{self.level}:leadline_{self.name}:{self.operation}"
