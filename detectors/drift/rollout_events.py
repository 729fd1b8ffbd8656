"""When servers of a pool were started anew, and what was changed with it.

An incarnation is the start time as a value, with the hash of arguments, the image and the version
beside it as labels: `instance_start`. Without that signal the start times of the processes tell
when, and not what.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from catalog.panel import FloatArray, Panel
from detectors.drift.creep_load import pool_key

SIGNAL = "instance_start"
PROCESSES = ("host_anon_swap", "host_rss")
SETUP = ("image", "vllm_version", "arguments")
TOGETHER = 2 * 3600.0  # starts that follow one another within this are one rollout
NEWEST = 5  # points at the end that are glanced at
LATER = 5.0  # seconds: a start time that moves by less is the same one, read twice
PLACE = ("cluster", "server")

Key = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Start:
    """One server that began anew.

    Attributes:
        at: Unix seconds.
        server: Its name.
        before: Setup of the incarnation before, or of the pool's others if it is a new server.
        after: Setup of this one.
    """

    at: float
    server: str
    before: Mapping[str, str]
    after: Mapping[str, str]


@dataclass(frozen=True)
class Rollout:
    """Starts of one pool that belong together."""

    starts: tuple[Start, ...]

    @property
    def begin(self) -> float:
        """Return the first start, unix seconds."""
        return self.starts[0].at

    @property
    def end(self) -> float:
        """Return the last start."""
        return self.starts[-1].at

    @property
    def changed(self) -> dict[str, tuple[str, str]]:
        """Return what was changed: by name, the value before and after."""
        out: dict[str, tuple[str, str]] = {}
        for start in self.starts:
            for name in SETUP:
                old, new = start.before.get(name, ""), start.after.get(name, "")
                if old and new and old != new:
                    out[name] = (old, new)
        return out


def rollouts(
    panels: Mapping[str, Panel], since: float, pools: Collection[Key] | None = None
) -> dict[Key, list[Rollout]]:
    """Return the rollouts of each pool that began after *since*, oldest first.

    Args:
        panels: Signals by name.
        since: Unix seconds.
        pools: Which pools; default: all.
    """
    starts: dict[Key, list[Start]] = defaultdict(list)
    for key, start in _starts(panels, since, pools):
        starts[key].append(start)
    return {key: _grouped(some) for key, some in starts.items()}


def _grouped(starts: list[Start]) -> list[Rollout]:
    groups: list[list[Start]] = []
    for start in sorted(starts, key=lambda one: (one.at, one.server)):
        if groups and start.at - groups[-1][-1].at <= TOGETHER:
            groups[-1].append(start)
        else:
            groups.append([start])
    return [Rollout(tuple(group)) for group in groups]


def _starts(
    panels: Mapping[str, Panel], since: float, pools: Collection[Key] | None
) -> list[tuple[Key, Start]]:
    panel = panels.get(SIGNAL)
    if panel is not None and panel.labels and len(panel.times):
        chosen = _of_pools(panel, _anew(panel, panel.values, since), pools)
        return _told(chosen, since) if chosen.labels else []
    found = (panels[name] for name in PROCESSES if name in panels)
    processes = next((one for one in found if one.starts is not None and len(one.times)), None)
    if processes is None or processes.starts is None:
        return []
    chosen = _of_pools(processes, _anew(processes, processes.starts, since), pools)
    return _by_process(chosen, since) if chosen.labels else []


def _anew(panel: Panel, begun: FloatArray, since: float) -> list[int]:
    """Return the rows whose newest start is after *since*: a glance at their last points."""
    newest = begun[:, -NEWEST:]
    newest = np.where(np.isfinite(newest), newest, -np.inf).max(axis=1)
    return [int(row) for row in np.flatnonzero(newest > max(since, float(panel.times[0])))]


def _of_pools(panel: Panel, anew: list[int], pools: Collection[Key] | None) -> Panel:
    """Return the series of the pools in which something was started anew."""
    wanted = {pool_key(panel.labels[row]) for row in anew}
    if pools is not None:
        wanted &= set(pools)
    if not wanted:
        return panel.rows([])
    return panel.rows([i for i, one in enumerate(panel.labels) if pool_key(one) in wanted])


def _told(panel: Panel, since: float) -> list[tuple[Key, Start]]:
    """Return the starts that `instance_start` tells of."""
    servers: dict[Key, list[int]] = defaultdict(list)
    pools: dict[Key, Key] = {}
    for row, labels in enumerate(panel.labels):
        place = tuple((name, labels.get(name, "")) for name in PLACE)
        servers[place].append(row)
        pools[place] = pool_key(labels)
    out = []
    for place, rows in servers.items():
        told = _incarnations(panel, rows)
        for i, (at, row) in enumerate(told):
            if at <= max(since, float(panel.times[0])):
                continue
            after = _setup(panel.labels[row])
            before = _setup(panel.labels[told[i - 1][1]]) if i else _others(panel, row, at)
            if i or before:
                out.append((pools[place], Start(at, dict(place)["server"], before, after)))
    return out


def _incarnations(panel: Panel, rows: list[int]) -> list[tuple[float, int]]:
    """Return each start time of one server with the series that told it, ascending.

    For some minutes the old setup may still be read beside the new start: the series that stays
    knows what was started.
    """
    seen: list[tuple[float, int, int]] = []
    for row in rows:
        known = np.flatnonzero(np.isfinite(panel.values[row]))
        if not len(known):
            continue
        values = panel.values[row, known]
        fresh = np.flatnonzero(np.abs(np.diff(values)) > LATER) + 1
        ends = [*(known[fresh - 1]), known[-1]]
        seen += [
            (float(values[i]), int(end), row) for i, end in zip((0, *fresh), ends, strict=True)
        ]
    seen.sort()
    out: list[tuple[float, int, int]] = []
    for at, end, row in seen:
        if out and at - out[-1][0] <= LATER:
            out[-1] = max(out[-1], (out[-1][0], end, row), key=lambda one: one[1])
        else:
            out.append((at, end, row))
    return [(at, row) for at, _, row in out]


def _others(panel: Panel, row: int, at: float) -> dict[str, str]:
    """Return the setup that the pool had before a new server came; empty if there was no pool."""
    key = pool_key(panel.labels[row])
    for other, labels in enumerate(panel.labels):
        if other != row and pool_key(labels) == key:
            known = panel.values[other][np.isfinite(panel.values[other])]
            if len(known) and known[0] < at - LATER:
                return _setup(labels) or {"": ""}
    return {}


def _setup(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: labels[name] for name in SETUP if labels.get(name)}


def _by_process(panel: Panel, since: float) -> list[tuple[Key, Start]]:
    """Return the starts of servers by the newest of their processes."""
    begun = panel.values if panel.starts is None else panel.starts
    servers: dict[tuple[Key, str], list[int]] = defaultdict(list)
    for row, labels in enumerate(panel.labels):
        if labels.get("server"):
            servers[pool_key(labels), labels["server"]].append(row)
    out = []
    for (key, server), rows in servers.items():
        told = np.concatenate([begun[row][np.isfinite(begun[row])][::5] for row in rows])
        times = np.unique(told)
        # Processes of one server come up within minutes of one another.
        apart = [float(t) for i, t in enumerate(times) if not i or t - times[i - 1] > 600.0]
        floor = max(since, float(panel.times[0]))
        out += [(key, Start(at, server, {}, {})) for at in apart[1:] if at > floor]
    return out
