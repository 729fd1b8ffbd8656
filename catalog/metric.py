"""What is exposed: one frozen record per metric, with its names in other versions and its traps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from catalog.labels import LEVELS, Level
from catalog.units import Unit

MetricType = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True)
class Metric:
    """One metric as it is exposed.

    Attributes:
        name: Exposed name; for a histogram without `_bucket`, `_sum`, `_count`.
        type: Type as on its TYPE line.
        unit: Base unit of a sample.
        help: One sentence.
        labels: Labels beside the identity.
        since: First vLLM version read that has it; empty for what is not vLLM's.
        pools: Pools where it means something; empty: all.
        lazy: Absent until first used, so absence is neither zero nor a fault.
        former: Names it had in older versions, newest first, same meaning and unit.
        varying: Labels that only some of its names carry.
        traps: What it does not mean, one sentence each.
    """

    name: str
    type: MetricType
    unit: Unit
    help: str
    labels: tuple[str, ...] = ()
    since: str = ""
    pools: tuple[str, ...] = ()
    lazy: bool = False
    former: tuple[str, ...] = ()
    varying: tuple[str, ...] = ()
    traps: tuple[str, ...] = ()

    @property
    def exposed(self) -> tuple[str, ...]:
        """Return the sample names that a scrape yields."""
        if self.type == "histogram":
            return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")
        return (self.name,)


def ours(
    level: Level, name: str, unit: Unit, text: str, kind: MetricType = "gauge", traps: str = ""
) -> Metric:
    """Return our metric `leadline_<name>` with the labels of *level*."""
    return Metric(
        f"leadline_{name}", kind, unit, text, LEVELS[level], traps=(traps,) if traps else ()
    )
