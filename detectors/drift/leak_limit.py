"""Time to the memory limit: headroom of the place over the growth of everything private in it.

Never one process against the limit. In order: a limit given by flag or configuration for the
process tree of a server; the same for its container; the container's own limit; the memory of the
host. Growth is the sum over all processes that share the place.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from catalog.panel import Labels, Panel
from detectors.drift.context import Z90, LimitsLike, without

PROCESS = ("process", "rank", "engine")
LEVEL_ERROR = 0.5  # of the line's level now, as a share of the noise about it
LATE = 64  # points in which the newest value is looked for first
Tree = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Slope:
    """Growth of one series.

    Attributes:
        labels: The series.
        slope: Units per second.
        error: Standard error of the slope.
        noise: Standard deviation of the level about its line.
        above: How far the newest value stands above the line: noise, which is no headroom lost.
    """

    labels: Labels
    slope: float
    error: float
    noise: float = 0.0
    above: float = 0.0

    @cached_property
    def tree(self) -> Tree:
        """The processes of one server."""
        return without(self.labels, *PROCESS)


@dataclass(frozen=True)
class Breach:
    """When the limit is met: the limit, what is left of it, and seconds with a 90 % interval.

    `slope` is that of all growth in the place together, `steepest` that of the worst in it.
    """

    limit: float
    headroom: float
    slope: float
    steepest: float
    seconds: float
    low: float
    high: float | None
    place: str
    processes: int


def by_tree(private: Panel) -> Mapping[Tree, Sequence[int]]:
    """Return the rows of *private* by the server whose processes they are.

    The answer for the last labels is kept: cycle after cycle they are the same.
    """
    known, trees = _LAST[0]
    if known is not private.labels:
        trees = defaultdict(list)
        for row, labels in enumerate(private.labels):
            trees[without(labels, *PROCESS)].append(row)
        _LAST[0] = private.labels, trees
    return trees


_LAST: list[tuple[tuple[Labels, ...], dict[Tree, list[int]]]] = [((), {})]


def breach(
    labels: Labels,
    panels: Mapping[str, Panel],
    private: Panel,
    slopes: Sequence[Slope],
    limits: LimitsLike,
    trees: Mapping[Tree, Sequence[int]],
) -> Breach | None:
    """Return when the place in which *labels* lives meets its limit; None where none is known.

    Args:
        labels: The growing process.
        panels: All panels; those of container and host are used where they are.
        private: The panel of private memory.
        slopes: Growth of every process that grows, this one included.
        limits: Limits by flag or configuration.
        trees: Rows of *private* by server (`by_tree`).
    """
    tree = without(labels, *PROCESS)
    same_tree = [s for s in slopes if s.tree == tree]
    if (limit := limits.limit(private.signal, labels)) is not None:
        used = sum(_last(private.values[row]) for row in trees[tree])
        return _breach(limit, used, same_tree, "the limit given for the server's processes")
    if (container := _container(labels, panels, limits)) is not None:
        limit, used, cgroup = container
        servers = _servers(cgroup, panels["container_working_set"])
        sharing = [s for s in slopes if _server(s.labels) in servers] if servers else same_tree
        name = cgroup.get("cgroup", "")
        return _breach(limit, used, sharing, f"the memory limit of container {name}".rstrip())
    return _host(labels, panels, slopes)


def _container(
    labels: Labels, panels: Mapping[str, Panel], limits: LimitsLike
) -> tuple[float, float, Labels] | None:
    """Return limit, working set and labels of the container of *labels*."""
    working = panels.get("container_working_set")
    if working is None:
        return None
    for row, place in enumerate(working.labels):
        if not _joins(place, labels):
            continue
        limit = limits.limit("container_working_set", place)
        if limit is None:
            limit = _at(panels.get("container_limit"), place)
        used = _last(working.values[row])
        if limit is not None and math.isfinite(used):
            return limit, used, place
    return None


def _host(labels: Labels, panels: Mapping[str, Panel], slopes: Sequence[Slope]) -> Breach | None:
    """Return when the host runs out of memory, by all growth on it."""
    node = {k: labels[k] for k in ("cluster", "node") if labels.get(k)}
    total = _at(panels.get("host_memory_total"), node)
    used = _at(panels.get("host_memory_used"), node)
    if total is None or used is None or "node" not in node:
        return None
    sharing = [s for s in slopes if all(s.labels.get(k) == v for k, v in node.items())]
    return _breach(total, used, sharing, f"the memory of host {node['node']}")


def _joins(place: Labels, labels: Labels) -> bool:
    """Whether the container *place* is that of process *labels*: same in all labels they share."""
    shared = [k for k in place if k not in ("cgroup", "engine") and k in labels]
    named = any(k in shared for k in ("server", "node"))
    return named and all(place[k] == labels[k] for k in shared)


def _server(labels: Labels) -> tuple[str, str, str]:
    return labels.get("cluster", ""), labels.get("node", ""), labels.get("server", "")


def _servers(cgroup: Labels, working: Panel) -> set[tuple[str, str, str]]:
    """Return all servers that live in the same control group of the same node."""
    key = tuple(cgroup.get(k) for k in ("cluster", "node", "cgroup"))
    if not cgroup.get("cgroup"):
        return {_server(cgroup)}
    return {
        _server(other)
        for other in working.labels
        if tuple(other.get(k) for k in ("cluster", "node", "cgroup")) == key
    }


def _at(panel: Panel | None, place: Labels) -> float | None:
    """Return the newest value of *panel* at *place*, or None."""
    if panel is None or not place:
        return None
    for row, labels in enumerate(panel.labels):
        if all(labels[k] == v for k, v in place.items() if k in labels) and set(labels) & set(
            place
        ):
            value = _last(panel.values[row])
            if math.isfinite(value):
                return value
    return None


def _last(values: np.typing.NDArray[np.float64]) -> float:
    """Return the newest of the last points of a series: the median of up to three; else NaN."""
    late = values[-LATE:]
    seen = late[np.isfinite(late)]
    if not len(seen):
        seen = values[np.isfinite(values)]
    return float(np.median(seen[-3:])) if len(seen) else float("nan")


def _breach(limit: float, used: float, slopes: Sequence[Slope], place: str) -> Breach | None:
    """Return the time to *limit*; growths are taken as independent, so errors add as squares.

    The interval holds the doubt of the slope and the noise of the level that will cross.
    """
    slope = sum(s.slope for s in slopes)
    if not math.isfinite(used) or slope <= 0:
        return None
    error = math.sqrt(sum(s.error**2 for s in slopes))
    headroom = max(limit - used + sum(s.above for s in slopes), 0.0)
    slowest = slope - Z90 * error
    wobble = Z90 * LEVEL_ERROR * math.sqrt(sum(s.noise**2 for s in slopes))
    return Breach(
        limit=limit,
        headroom=headroom,
        slope=slope,
        steepest=max(s.slope for s in slopes),
        seconds=headroom / slope,
        low=max(headroom - wobble, 0.0) / (slope + Z90 * error),
        high=(headroom + wobble) / slowest if slowest > 0 else None,
        place=place,
        processes=len(slopes),
    )
