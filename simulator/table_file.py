"""Writes a run's signals as a long table, which `leadline detect --input` and others read."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from catalog.panel import Panel
from simulator.noise import keys, uniform
from simulator.scenario import scenario

NUMBERS: Final = ("time", "signal", "value", "load", "trials")
TWICE: Final = 0.05
"""Share of samples that come twice, or late, where the scenario has that."""


def write(path: Path, name: str, panels: Mapping[str, Panel], *, seed: int = 1) -> int:
    """Write *panels* of the scenario called *name*; return the number of rows.

    Args:
        path: File: `.csv`, `.csv.gz` or `.parquet`.
        name: The scenario: some are about samples that come twice or out of order.
        panels: By signal.
        seed: Seed of which samples those are.

    Raises:
        ValueError: The file's ending is none of these.
    """
    labels = sorted({key for panel in panels.values() for la in panel.labels for key in la})
    head = (*NUMBERS, *labels)
    rows = _defective(_rows(panels, labels), scenario(name).defect, seed)
    if path.suffix == ".parquet":
        return _parquet(path, head, list(rows))
    if not path.name.endswith((".csv", ".csv.gz")):
        raise ValueError(f"{path.name}: a table ends in .csv, .csv.gz or .parquet")
    count = 0
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        for row in rows:
            writer.writerow(row)
            count += 1
    return count


Row = tuple[float | str, ...]


def _rows(panels: Mapping[str, Panel], labels: list[str]) -> Iterator[Row]:
    """Yield one row for each sample there is, series after series."""
    for panel in panels.values():
        nothing = np.full(panel.values.shape, np.nan)
        load = nothing if panel.load is None else panel.load
        trials = nothing if panel.trials is None else panel.trials
        for i, named in enumerate(panel.labels):
            rest = tuple(named.get(label, "") for label in labels)
            numbers = (panel.times, panel.values[i], load[i], trials[i])
            for at, value, loaded, tried in zip(*(n.tolist() for n in numbers), strict=True):
                if not math.isnan(value):
                    yield (at, panel.signal, value, _known(loaded), _known(tried), *rest)


def _known(value: float) -> float | str:
    """Return *value*, nothing for none."""
    return "" if math.isnan(value) else value


def _defective(rows: Iterator[Row], defect: str | None, seed: int) -> Iterator[Row]:
    """Yield rows, some of them twice or behind their followers."""
    if defect not in ("duplicates", "out_of_order"):
        yield from rows
        return
    key = keys(seed, f"rows/{defect}")
    late: list[Row] = []
    for number, row in enumerate(rows):
        chosen = uniform(key, np.array([number]))[0, 0] < TWICE
        if defect == "duplicates" or not chosen:
            yield row
        if chosen:
            late.append(row)
        if len(late) > 2 or (late and defect == "duplicates"):
            yield from late
            late.clear()
    yield from late


def _parquet(path: Path, head: tuple[str, ...], rows: list[Row]) -> int:
    table = pd.DataFrame(rows, columns=list(head))
    for name in ("load", "trials"):
        table[name] = pd.to_numeric(table[name], errors="coerce")
    table.to_parquet(path, index=False)
    return len(table)
