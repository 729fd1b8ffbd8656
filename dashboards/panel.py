"""What a dashboard is, before it is Grafana's: boards of rows of panels of queries."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final, Literal

from catalog.units import Unit

Kind = Literal["timeseries", "stat", "table", "heatmap"]

GRAFANA_UNITS: Final[dict[Unit, str]] = {
    "seconds": "s",
    "bytes": "bytes",
    "ratio": "percentunit",
    "tokens": "short",
    "requests": "short",
    "watts": "watt",
    "hertz": "hertz",
    "celsius": "celsius",
    "count": "short",
    "per_second": "cps",
    "bytes_per_second": "binBps",
    "tokens_per_second": "suffix: tok/s",
}

LEVEL_LEGEND: Final = "service level"
"""Legends that begin so are limits: drawn as a dashed red line."""


@dataclass(frozen=True)
class Query:
    """One query of a panel.

    Attributes:
        expr: PromQL; variables of the dashboard as `$name`.
        legend: Legend with `{{label}}`.
        exemplar: Ask for exemplars too.
    """

    expr: str
    legend: str = ""
    exemplar: bool = False


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        title: Short, sentence case.
        description: What it shows and how it misleads.
        unit: Grafana's unit.
        queries: At least one.
        kind: How it is drawn.
        width: Of 24 columns.
        height: In rows of the grid.
        low: Lowest value of the axis, a float.
        high: Highest value of the axis, a float.
        decimals: Decimals of values.
        steps: Thresholds: a colour from each value on; the first value is None.
        columns: Table only: labels shown, in order, before the values.
        values: Table only: column names of the queries' values, with their units.
    """

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    width: int = 8
    height: int = 8
    low: float | None = None
    high: float | None = None
    decimals: int | None = None
    steps: tuple[tuple[float | None, str], ...] = ((None, "green"),)
    columns: tuple[str, ...] = ()
    values: tuple[tuple[str, str], ...] = ()

    @property
    def id(self) -> int:
        """Return a number that stays when other panels come and go: links name it."""
        return zlib.crc32(self.title.encode()) % 1_000_000 + 1


@dataclass(frozen=True)
class Row:
    """Panels under one heading, laid out from left to right."""

    title: str
    panels: tuple[Panel, ...]

    @property
    def id(self) -> int:
        """Return a number that no panel has."""
        return zlib.crc32(self.title.encode()) % 1_000_000 + 1_000_001


@dataclass(frozen=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Return all panels in reading order."""
        return tuple(panel for row in self.rows for panel in row.panels)
