"""What is exposed: one frozen record per metric, with its names in other versions and its traps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from catalog.labels import LEVELS, Level
from catalog.units import Unit

MetricType = Literal["counter", "gauge", "histogram", "summary"]

Merge = Literal["", "sum", "max", "newest", "livesum"]
"""How a server of several processes makes one series of theirs; empty: by the metric's type."""


@dataclass(frozen=True)
class Gate:
    """What a server must be set up with to have a metric; nothing: every server has it.

    Attributes:
        flag: Flag of the command line or variable, or what else must be true.
        connectors: KV connectors that bring it; a MultiConnector brings those inside it.
        roles: Values of `kv_role` that have it; empty: all.
    """

    flag: str = ""
    connectors: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return it in words; empty for no gate."""
        by = " or ".join(self.connectors)
        role = f"kv_role {' or '.join(self.roles)}" if self.roles else ""
        return ", ".join(part for part in (by, role, self.flag) if part)


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
        until: Last vLLM version read that has it; empty where the newest still does.
        gate: What a server must be set up with to have it.
        pools: Pools where it means something; empty: all.
        lazy: Absent until first used, so absence is neither zero nor a fault.
        former: Names it had in older versions, newest first, same meaning and unit.
        varying: Labels that only some of its names carry.
        traps: What it does not mean, one sentence each.
        open_labels: Whether it has more labels, which change from version to version.
        merge: How processes of one server merge; see `Merge`.
        by_pid: Versions whose processes stay apart, told by a label `pid`.
        rust: Whether vLLM's Rust front end has it too (0.33).
        bounds: Lowest and highest finite bucket bound of a server that sets none of its own: for
            the reader, never for an expression.
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
    until: str = ""
    gate: Gate = Gate()
    open_labels: bool = False
    merge: Merge = ""
    by_pid: tuple[str, ...] = ()
    rust: bool = False
    bounds: tuple[float, float] | None = None

    @property
    def exposed(self) -> tuple[str, ...]:
        """Return the sample names that a scrape yields."""
        if self.type == "histogram":
            return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")
        if self.type == "summary":
            return (f"{self.name}_sum", f"{self.name}_count")
        return (self.name,)


def ours(
    level: Level, name: str, unit: Unit, text: str, kind: MetricType = "gauge", traps: str = ""
) -> Metric:
    """Return our metric `leadline_<name>` with the labels of *level*."""
    return Metric(
        f"leadline_{name}", kind, unit, text, LEVELS[level], traps=(traps,) if traps else ()
    )
