"""Brings series together that belong together: counters by pair, load and starts by labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from catalog.panel import FloatArray, Labels, Panel
from catalog.signal import Signal
from store.counts import differences
from store.grid import blank, frozen, key, sum_known


class NamedSeries(NamedTuple):
    """The raw series of one metric name."""

    values: FloatArray
    labels: tuple[Labels, ...]


def count_panel(
    signal: Signal,
    times: FloatArray,
    raw: FloatArray,
    successes: Sequence[NamedSeries],
    trials: Sequence[NamedSeries],
    parts: int,
) -> Panel:
    """Return successes and trials per step of *times*, summed to the labels of *signal*.

    Args:
        signal: A signal of counts.
        times: The panel's grid.
        raw: The finer grid of the counters, *parts* points a step.
        successes: Raw counters by name, the metric's own name first, then the former ones.
        trials: Likewise.
        parts: Points of *raw* in a step.
    """
    counts = signal.counts
    over, within = ((), ()) if counts is None else (counts.over, counts.within)
    won = _one_name([_over(one, over) for one in successes], len(raw))
    tried = _one_name([_over(one, over) for one in trials], len(raw))
    groups: dict[tuple[str, ...], list[tuple[FloatArray, FloatArray]]] = {}
    labels: dict[tuple[str, ...], Labels] = {}
    for one in won.values():
        labels_of_trials = {k: v for k, v in one.labels.items() if k not in within}
        of = tried.get(key(labels_of_trials))
        if of is None:  # one without the other is unknown, not zero
            continue
        identity = key(one.labels, signal.labels)
        labels[identity] = frozen(one.labels, signal.labels)
        groups.setdefault(identity, []).append(_pair(raw, one, of))
    order = sorted(groups)
    values, total = blank(len(order), len(times)), blank(len(order), len(times))
    for row, identity in enumerate(order):
        for at, into in enumerate((values, total)):
            summed = sum_known(np.stack([pair[at] for pair in groups[identity]]))
            into[row] = _by_step(summed, raw, times, parts)
    panel = Panel(signal.name, times, values, tuple(labels[i] for i in order), trials=total)
    return panel.rows(list(np.flatnonzero(np.isfinite(total).any(axis=1))))


def _over(series: NamedSeries, names: tuple[str, ...]) -> NamedSeries:
    """Return counters of one process added up over the labels *names*."""
    if not names or not series.labels:
        return series
    groups: dict[tuple[str, ...], list[int]] = {}
    kept = [{k: v for k, v in one.items() if k not in names} for one in series.labels]
    for row, one in enumerate(kept):
        groups.setdefault(key(one), []).append(row)
    values = [sum_known(series.values[rows]) for rows in groups.values()]
    labels = tuple(frozen(kept[rows[0]]) for rows in groups.values())
    return NamedSeries(np.array(values).reshape(len(labels), -1), labels)


class _Counter(NamedTuple):
    """One counter over all its names; `name` says which name each sample came under."""

    labels: Labels
    values: FloatArray
    name: FloatArray


def _one_name(named: Sequence[NamedSeries], points: int) -> dict[tuple[str, ...], _Counter]:
    """Join a counter's names by labels; where two have a sample the newer name holds."""
    joined: dict[tuple[str, ...], _Counter] = {}
    for number, (values, labels) in enumerate(named):
        for row, one in zip(values, labels, strict=True):
            empty = _Counter(one, np.full(points, np.nan), np.full(points, np.nan))
            into = joined.setdefault(key(one), empty)
            free = np.isnan(into.values) & np.isfinite(row)
            into.values[free] = row[free]
            into.name[free] = number
    return joined


def _pair(times: FloatArray, won: _Counter, tried: _Counter) -> tuple[FloatArray, FloatArray]:
    """Return the counts of both over the same steps: only where both have samples."""
    both = np.isfinite(won.values) & np.isfinite(tried.values)
    # A new name is a new version of the server: its counter began at zero.
    name = tried.name[both]
    restarted = np.zeros(len(times), dtype=bool)
    restarted[np.flatnonzero(both)[1:]] = name[1:] != name[:-1]
    pair = np.where(both, np.stack([won.values, tried.values]), np.nan)
    # A restart resets both counters, though one of them may have grown past its old value since.
    known = [row[both] for row in pair]
    fell = (np.diff(known[0]) < 0) | (np.diff(known[1]) < 0)
    restarted[np.flatnonzero(both)[1:]] |= fell
    count = differences(times, pair, np.stack([restarted, restarted]))
    return count[0], count[1]


def _by_step(counts: FloatArray, raw: FloatArray, times: FloatArray, parts: int) -> FloatArray:
    """Return the counts of the steps that end at *times*, from *parts* counts each."""
    if len(times) == 0:
        return times
    end = int(np.searchsorted(raw, times[0] - (raw[1] - raw[0]) / 2)) + 1
    cut = counts[end - parts : end - parts + parts * len(times)]
    return sum_known(cut.reshape(len(times), parts).T)


def join_load(panel: Panel, signal: Signal, load: Panel, of: Signal) -> Panel:
    """Return *panel* with the load of each series' pool (or of the narrowest scope both have).

    Loads of one scope are summed. Where the series spans pools, the largest pool's load is taken:
    prefill and decode both finish every request, so their sum would count it twice.
    """
    shared = tuple(name for name in signal.labels if name in of.labels)
    if load.times.shape != panel.times.shape or not load.labels:
        return panel
    by_pool: dict[tuple[tuple[str, ...], str], list[int]] = {}
    for row, labels in enumerate(load.labels):
        by_pool.setdefault((key(labels, shared), labels.get("pool", "")), []).append(row)
    scopes: dict[tuple[str, ...], FloatArray] = {}
    for (scope, _), rows in by_pool.items():
        total = sum_known(load.values[rows])
        scopes[scope] = np.fmax(scopes[scope], total) if scope in scopes else total
    nothing = np.full(len(panel.times), np.nan)
    rows_of_load = [scopes.get(key(labels, shared), nothing) for labels in panel.labels]
    return replace(panel, load=np.stack(rows_of_load))


def join_starts(panel: Panel, starts: Panel, signal: Signal) -> Panel:
    """Return *panel* with the start time of the process behind each sample."""
    if starts.times.shape != panel.times.shape or not starts.labels:
        return panel
    rows = {key(labels, signal.labels): row for row, labels in enumerate(starts.labels)}
    nothing = np.full(len(panel.times), np.nan)
    found = [rows.get(key(labels, signal.labels)) for labels in panel.labels]
    joined = [nothing if row is None else starts.values[row] for row in found]
    return replace(panel, starts=np.stack(joined))
