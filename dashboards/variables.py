"""The variables that every dashboard has, and the label conditions made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from catalog.labels import LEVELS, Level
from catalog.signals import SIGNALS

DATASOURCE: Final = "datasource"


@dataclass(frozen=True)
class Variable:
    """A variable that lists the values of one identity label, of the same name."""

    name: str
    label: str
    before: tuple[str, ...] = ()

    @property
    def query(self) -> str:
        """Return the query that lists its values under those chosen before it."""
        record = SIGNALS["request_rate"].record
        chosen = ",".join(f'{name}=~"${name}"' for name in self.before)
        return f"label_values({record}{{{chosen}}}, {self.name})"


VARIABLES: Final = (
    Variable("cluster", "Cluster"),
    Variable("deployment", "Deployment", ("cluster",)),
    Variable("pool", "Pool", ("cluster", "deployment")),
    Variable("model_name", "Model", ("cluster", "deployment")),
)
"""Named like the labels, so that a link can hand over an alert's labels as they are."""


def condition(level: Level, pool: str = "") -> str:
    """Return the condition on series of *level*: the variables, or a pool that is fixed."""
    chosen = [
        f'{v.name}=~"${v.name}"'
        for v in VARIABLES
        if v.name in LEVELS[level] and not (pool and v.name == "pool")
    ]
    return ",".join([*chosen, *([f'pool="{pool}"'] if pool else [])])
