"""The history of a run as OpenMetrics text, for `promtool tsdb create-blocks-from openmetrics`.

Reading it back is most of the demo's start and costs by the sample, so only that is written which
is read: what signals are made of, in full length only for signals that are judged over days, and
buckets only where a signal is a quantile of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import compress, groupby
from pathlib import Path
from typing import Final, TextIO

import numpy as np
import numpy.typing as npt

from catalog.exposition import escape, series
from catalog.metric import Metric
from catalog.signals import SIGNALS
from simulator.flow import CELL, engines
from simulator.layout import Layout, line_labels
from simulator.noise import FloatArray
from simulator.own import rows
from simulator.page import whole
from simulator.scenario import HOUR
from simulator.template import Slot
from simulator.world import SIDES, Chunk, Side, World, at_edges

TARGET: Final[Mapping[str, str]] = {"job": "leadline", "instance": "simulator"}
"""Labels that the scrape adds. A live series with others would be a second one beside this."""

JUDGED: Final = (
    "host_anon_swap", "container_working_set", "container_limit", "host_memory_total",
    "host_memory_used", "process_start_time", "acceptance_ratio", "ttft_user_mean", "ttft_mean",
    "tpot_mean", "instance_start",
)  # fmt: skip
"""Signals that detectors follow over days; with their loads they are written in full length."""

RECENT: Final = 6 * HOUR
"""Everything else is only looked at: it is written for the last hours."""

STILL: Final = 240.0
"""A gauge that does not change is written this often: Prometheus looks back 5 min."""

Flags = npt.NDArray[np.bool_]

_MIN_SPAN: Final = 72 * HOUR


def write(
    path: Path,
    scenario: str,
    *,
    since: float,
    until: float,
    step: float = 60.0,
    seed: int = 0,
    target: Mapping[str, str] = TARGET,
) -> int:
    """Write the history of a run and return the number of samples.

    Args:
        path: File to write.
        scenario: Name of the scenario; its times refer to *until*.
        since: Unix seconds of the first sample.
        until: Unix seconds of the last sample, brought down to a whole minute. The page served
            with the same `until` goes on where this ends.
        step: Seconds between samples.
        seed: Seed of all noise.
        target: Labels that the scrape of the live page will add: `job` and `instance`.

    Raises:
        ValueError: The span or the step is none, or the scenario is unknown.
    """
    if not until > since:
        raise ValueError(f"history must begin before it ends ({since:.0f} to {until:.0f})")
    if not step >= CELL:
        raise ValueError(f"the step of history must be {CELL:g} s or more, not {step:g} s")
    epoch = until // 60 * 60
    world = World(scenario, seed, max(epoch - since, _MIN_SPAN))
    at = np.arange(0.0, min(epoch - since, -world.origin) + 1e-6, step)[::-1] * -1.0
    with path.open("w", encoding="utf-8") as file:
        writer = _Writer(file, epoch, at, target)
        for metric, columns in (*_Vllm(world, at).families(), *_ours(world, epoch, at)):
            writer.family(metric, columns)
        file.write("# EOF\n")
    return writer.samples


@dataclass(frozen=True)
class _Column:
    """One series: its sample name, its labels, and values at all instants (NaN for none)."""

    name: str
    labels: Mapping[str, str]
    values: FloatArray


class _Writer:
    """Writes families, their series one after another."""

    def __init__(
        self, file: TextIO, epoch: float, at: FloatArray, target: Mapping[str, str]
    ) -> None:
        self._file = file
        self._stamps = [f" {round(epoch + instant)}\n" for instant in at.tolist()]
        self._target = tuple(target.items())
        back = np.arange(len(at))[::-1]
        step = float(at[-1] - at[-2]) if len(at) > 1 else STILL
        # Two samples in each window of 5 min are enough for a rate.
        self._often = back % max(int(120.0 // step), 1) == 0
        self._still = back % max(int(STILL // step), 1) == 0
        self._recent = at >= -RECENT
        self._long, self._counted = _long(), _counted()
        self.samples = 0

    def family(self, metric: Metric, columns: Iterable[_Column]) -> None:
        """Write one family under its TYPE line."""
        counter = metric.type == "counter"
        family = metric.name.removesuffix("_total") if counter else metric.name
        self._file.write(f"# TYPE {family} {metric.type}\n")
        for column in columns:
            keep = np.isfinite(column.values)
            if metric.name not in self._long:
                keep &= self._recent
            if metric.type == "gauge":
                keep &= self._still | (np.diff(column.values, prepend=np.nan) != 0.0)
            elif metric.name not in self._counted:
                keep &= self._often
            self._series(column, keep)

    def _series(self, column: _Column, keep: Flags) -> None:
        pairs = (*self._target, *column.labels.items())
        text = series(column.name, tuple((k, escape(v)) for k, v in pairs if v))
        values = column.values[keep]
        # Whole numbers are shorter and read back faster.
        numbers = values.astype(np.int64) if (values == np.floor(values)).all() else values
        stamps = compress(self._stamps, keep.tolist())
        lines = [f"{text} {n!r}{stamp}" for n, stamp in zip(numbers.tolist(), stamps, strict=True)]
        self._file.write("".join(lines))
        self.samples += len(lines)


def _wanted() -> dict[str, Metric]:
    """Return the metrics that signals are made of.

    When a server began is in our own families, by process; its page's word for it is left out.
    """
    began = "process_start_time_seconds"
    return {m.name: m for s in SIGNALS.values() for m in s.metrics if m.name != began}


def _long() -> set[str]:
    """Return the metrics of what is judged over days and of what it depends on."""
    judged = [SIGNALS[name] for name in JUDGED]
    signals = [*judged, *(SIGNALS[s.load] for s in judged if s.load)]
    return {m.name for s in signals for m in s.metrics}


def _counted() -> set[str]:
    """Return the counters of ratios that are judged by counts, step by step."""
    return {
        m.name for name in JUDGED if SIGNALS[name].counts is not None for m in SIGNALS[name].metrics
    }


def _bucketed() -> set[str]:
    """Return the histograms that some signal is a quantile of."""
    return {
        m.name for s in SIGNALS.values() if s.operation.startswith("quantile") for m in s.metrics
    }


def _ours(world: World, epoch: float, at: FloatArray) -> Iterator[tuple[Metric, list[_Column]]]:
    """Yield our own families that signals are made of; a node that is down has no processes."""
    wanted = _wanted()
    up = {server.name: server.up(at) for server in world.fleet.servers}
    found = (row for row in rows(world, epoch, at) if row.metric.name in wanted)
    for _, group in groupby(found, key=lambda row: row.metric.name):
        members = list(group)
        columns = []
        for row in members:
            server = row.labels.get("server", "")
            values = np.where(up[server], row.values, np.nan) if server in up else row.values
            columns.append(_Column(row.metric.name, row.labels, values))
        yield members[0].metric, columns


class _Vllm:
    """What the vLLM servers say at the instants *at*, by pool."""

    def __init__(self, world: World, at: FloatArray) -> None:
        self._world = world
        self._at = at
        self._layout = Layout(world.fleet)
        wanted, bucketed = _wanted(), _bucketed()
        self._slots: dict[Side, dict[str, list[Slot]]] = {}
        for side in SIDES:
            by_family: dict[str, list[Slot]] = {}
            for slot in self._layout.slots[side]:
                family = _family(slot.name, wanted)
                if family and (slot.le is None or family in bucketed):
                    by_family.setdefault(family, []).append(slot)
            self._slots[side] = by_family
        self._keys = {
            side: {_key(slot): slot for found in self._slots[side].values() for slot in found}
            for side in SIDES
        }
        self._values = self._collect()

    def families(self) -> Iterator[tuple[Metric, list[_Column]]]:
        """Yield the families in the order of the catalogue."""
        for name, metric in _wanted().items():
            columns = [
                column
                for side in SIDES
                for slot in self._slots[side].get(name, [])
                for column in self._columns(side, slot)
            ]
            if columns:
                yield metric, columns

    def _columns(self, side: Side, slot: Slot) -> Iterator[_Column]:
        values = self._values[side][_key(slot)]
        for row, (server, rank) in enumerate(engines(self._world.fleet, side)):
            here = np.where(server.up(self._at), values[row], np.nan)
            labels = dict(line_labels(self._world.fleet, server, slot, rank))
            yield _Column(slot.name, labels, here)

    def _collect(self) -> dict[Side, dict[str, FloatArray]]:
        """Return values by pool and key, shape (engines, instants)."""
        shapes = {side: (len(engines(self._world.fleet, side)), len(self._at)) for side in SIDES}
        values = {side: {k: np.zeros(shapes[side]) for k in self._keys[side]} for side in SIDES}
        place = 0
        while place < len(self._at):
            chunk = self._world.chunk(float(self._at[place]))
            end = int(np.searchsorted(self._at, chunk.edges[-1], side="left"))
            for side in SIDES:
                self._fill(side, chunk, values[side], slice(place, end))
            place = end
        return values

    def _fill(self, side: Side, chunk: Chunk, values: dict[str, FloatArray], here: slice) -> None:
        pool = chunk.pools[side]
        at = self._at[here]
        places = (at - chunk.edges[0]) / CELL
        cells = places.astype(np.int64)
        buckets = (
            {f: np.floor(pool.buckets(f, places)) for f in _bucketed() & pool.before.keys()}
            if at[-1] >= -RECENT
            else {}
        )
        for key, slot in self._keys[side].items():
            if slot.le is not None:
                family = slot.name.removesuffix("_bucket")
                if family in buckets:
                    number = self._world.bounds[side][family].index(slot.le)
                    values[key][:, here] = buckets[family][:, number]
                else:
                    values[key][:, here] = np.nan
            elif key in pool.counters:
                values[key][:, here] = whole(key, at_edges(pool.counters[key], places))
            elif key in pool.gauges:
                values[key][:, here] = pool.gauges[key][:, cells]


def _family(sample: str, wanted: Mapping[str, Metric]) -> str | None:
    """Return the wanted family of a sample, None if there is none."""
    for name in (sample, *(sample.removesuffix(end) for end in ("_bucket", "_sum", "_count"))):
        if name in wanted and sample in wanted[name].exposed:
            return name
    return None


def _key(slot: Slot) -> str:
    return slot.key if slot.le is None else f"{slot.name}|{slot.le}"
