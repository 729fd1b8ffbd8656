"""Who is compared with whom, and what of a reading its load and its start explain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from catalog.panel import FloatArray, Labels, Panel
from detectors.drift.context import without
from detectors.drift.coverage import POOL_LABELS
from detectors.drift.creep_load import COVERED, fit, logarithm, medians, pool_key
from detectors.drift.leak_twins import PLACE

BIN = 900.0  # seconds
HISTORY = 86_400.0  # seconds that tell what load does
LEAST_LOAD = 0.2  # utilisation below which clock, power and heat say nothing
NEWEST = 8  # points in which a start time is looked for
RANGE = 0.2  # beyond the loads of the others, in logarithm
Place = tuple[tuple[str, str], ...]

HOSTS = ("host_anon_swap", "host_rss")


@dataclass(frozen=True)
class Reading:
    """What is compared, and from when a difference is worth a word.

    Attributes:
        signal: Name in the catalogue.
        bad: 1 where more is worse, -1 where less is, 0 where either is odd.
        worth: Smallest difference: in logarithm, or in the unit where `absolute`.
        load: "own" for the load of the signal, another signal, or empty for none.
        young: Seconds after a start that say nothing.
        absolute: Whether differences are told in the unit of the signal.
    """

    signal: str
    bad: int
    worth: float
    load: str = ""
    young: float = 3600.0
    absolute: bool = False


@dataclass(frozen=True)
class Peers:
    """One group in bins that end now; rows are peers.

    Attributes:
        rows: Of the panel.
        times: Middle of each bin.
        raw: Values, in the unit of the signal.
        rest: What is compared: told from the load, NaN where it says nothing.
    """

    rows: tuple[int, ...]
    times: FloatArray
    raw: FloatArray
    rest: FloatArray


def groups(panel: Panel, pools: Mapping[tuple[str, str], Place]) -> list[tuple[Place, list[int]]]:
    """Return the rows of peers with their place: same pool, and of processes the same kind.

    The answer for the last processes is kept: cycle after cycle they are the same.
    """
    if "gpu" in panel.labels[0]:
        return _groups(panel, pools)
    if _LAST[0][0] is not panel.labels:
        _LAST[0] = panel.labels, _groups(panel, pools)
    return _LAST[0][1]


_LAST: list[tuple[tuple[Labels, ...], list[tuple[Place, list[int]]]]] = [((), [])]


def _groups(panel: Panel, pools: Mapping[tuple[str, str], Place]) -> list[tuple[Place, list[int]]]:
    out: dict[object, list[int]] = defaultdict(list)
    for row, labels in enumerate(panel.labels):
        if "gpu" in labels:
            node = (labels.get("cluster", ""), labels.get("node", ""))
            out[pools.get(node) or node].append(row)
        elif labels.get("process"):
            out[without(labels, *PLACE)].append(row)
        else:
            out[tuple(map(labels.get, POOL_LABELS))].append(row)
    return [(_place(panel, rows[0], pools), rows) for rows in out.values() if len(rows) > 1]


def _place(panel: Panel, row: int, pools: Mapping[tuple[str, str], Place]) -> Place:
    labels = panel.labels[row]
    if "gpu" in labels:
        return pools.get((labels.get("cluster", ""), labels.get("node", "")), ())
    return pool_key(labels)


def pools_of_nodes(panels: Mapping[str, Panel]) -> dict[tuple[str, str], Place]:
    """Return the pool of each node that serves one pool alone, by (cluster, node)."""
    found: dict[tuple[str, str], set[Place]] = defaultdict(set)
    for name in HOSTS:
        for labels in panels[name].labels if name in panels else ():
            if labels.get("node"):
                found[labels.get("cluster", ""), labels["node"]].add(pool_key(labels))
    return {node: next(iter(some)) for node, some in found.items() if len(some) == 1}


def newest_starts(panels: Mapping[str, Panel]) -> dict[tuple[str, str], float]:
    """Return when what runs now was started, by ("server" or "node", name)."""
    out: dict[tuple[str, str], float] = {}

    def note(labels: Labels, started: float) -> None:
        for name in ("server", "node"):
            if labels.get(name):
                key = (name, labels[name])
                out[key] = max(out.get(key, 0.0), started)

    told = panels.get("instance_start")
    arrays = [] if told is None else [(told.labels, told.values)]
    for name in HOSTS:
        panel = panels.get(name)
        if panel is not None and panel.starts is not None:
            arrays.append((panel.labels, panel.starts))
    for labels, starts in arrays:
        if not starts.shape[1]:
            continue
        late = starts[:, : -NEWEST - 1 : -1]
        known = np.isfinite(late)
        newest = late[np.arange(len(late)), known.argmax(axis=1)]
        for row in np.flatnonzero(known.any(axis=1)).tolist():
            note(labels[row], float(newest[row]))
    return out


def peers(
    reading: Reading,
    panel: Panel,
    rows: list[int],
    load: FloatArray | None,
    starts: Mapping[tuple[str, str], float],
) -> Peers | None:
    """Return one group in bins, each reading told from its load; None where load isn't known."""
    width = max(1, round(BIN / panel.step))
    most = round(HISTORY / (width * panel.step)) * width
    raw = medians(panel.values[rows][:, -most:], width)
    if not raw.shape[1]:
        return None
    seconds = width * panel.step
    times = panel.times[-1] + panel.step / 2 - seconds * (np.arange(raw.shape[1])[::-1] + 0.5)
    y = raw.copy() if reading.absolute else logarithm(raw)
    for i, row in enumerate(rows):
        labels = panel.labels[row]
        began = [starts.get((name, labels.get(name, ""))) for name in ("server", "node")]
        began = [one for one in began if one is not None]
        if began:
            y[i, times < max(began) + reading.young] = np.nan  # type: ignore[type-var, operator]
    if reading.load:
        if load is None:
            return None
        x = logarithm(medians(load[:, -most:], width))
        if reading.load != "own":
            x = np.where(x >= np.log(LEAST_LOAD), x, np.nan)
        y = _without_load(y, x)
    return Peers(tuple(rows), times, raw, y)


def _without_load(y: FloatArray, x: FloatArray) -> FloatArray:
    """Return *y* without what load explains within each peer; NaN at loads that no other has.

    Each peer keeps a level of its own in the fit (fixed effects: Mundlak, Econometrica 46, 1978),
    so that what sets it apart isn't put down to its load.
    """
    both = np.isfinite(y) & np.isfinite(x)
    out = np.full(y.shape, np.nan)
    enough = both.sum(axis=1) >= max(4, 0.25 * (1 - COVERED) * y.shape[1])
    if enough.sum() < 2:
        return out
    centred = np.zeros_like(x)
    level = np.zeros(len(y))
    middle = np.zeros(len(y))
    for i in np.flatnonzero(enough):
        middle[i], level[i] = np.median(x[i, both[i]]), np.median(y[i, both[i]])
        centred[i] = x[i] - middle[i]
    used = both & enough[:, None]
    slope = fit(centred[used][:, None], (y - level[:, None])[used], 1)[0]
    typical = float(np.median(middle[enough]))
    for i in np.flatnonzero(enough):
        others = x[used & (np.arange(len(x)) != i)[:, None]]
        near = (x[i] >= others.min() - RANGE) & (x[i] <= others.max() + RANGE)
        out[i] = np.where(both[i] & near, y[i] - slope * (x[i] - typical), np.nan)
    return out
