"""Signals of a run as panels, straight from the model: a week of 24 GPUs takes seconds.

What Prometheus would make of the pages, for tests and benchmarks that need none: the same means,
rates and quantiles over five minutes, counts of ratios by step, loads as the catalogue names them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import numpy as np

from catalog.panel import Panel
from catalog.signals import SIGNALS
from simulator.change import HOUR
from simulator.defects import spoilt
from simulator.flow import CELL
from simulator.grid import Grid
from simulator.nodes import READ, Nodes
from simulator.noise import FloatArray
from simulator.serving import SERVED, Serving
from simulator.totals import WINDOW
from simulator.world import World

EPOCH: Final = 1_800_000_000.0
"""Unix seconds of the end of history where none are given."""

KNOWN: Final = tuple(name for name in (*SERVED, *READ) if name in SIGNALS)
"""Signals that a table has."""


def panels(
    run: World | str,
    *,
    epoch: float = EPOCH,
    seed: int = 1,
    span: float = 72 * HOUR,
    since: float | None = None,
    until: float = 0.0,
    step: float = 60.0,
    signals: Collection[str] | None = None,
) -> dict[str, Panel]:
    """Return panels of *signals* by name.

    Args:
        run: Name of a scenario, or a run.
        epoch: Unix seconds of the end of history, to which the scenario's times refer.
        seed: Seed of all noise, where a scenario is named.
        span: Seconds before the end of history.
        since: First instant, seconds from the end of history: instead of *span*.
        until: Last instant; after 0 the run goes on as its truth says, up to breach and beyond.
        step: Seconds between instants, a multiple of 20.
        signals: Which; see `KNOWN`, and all of them by default.

    Raises:
        ValueError: A signal or the scenario is not known here.
    """
    first = (-span if since is None else since) // CELL * CELL
    world = World(run, seed, WINDOW - first) if isinstance(run, str) else run
    wanted = list(KNOWN if signals is None else signals)
    for name in wanted:
        if name not in KNOWN:
            raise ValueError(f"no panel of {name!r}: there are {', '.join(KNOWN)}")
    if step % CELL:
        raise ValueError(f"the step of a table must be a multiple of {CELL:g} s, not {step:g} s")
    at = np.arange(max(first, world.origin + WINDOW), until + 1e-6, step)
    table = _Table(Grid(world, epoch, at, step))
    found = {name: table.panel(name) for name in wanted}
    return {name: spoilt(panel, world, at) for name, panel in found.items() if panel.labels}


class _Table:
    """Makes panels on a grid, each once, with their loads."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._serving = Serving(grid)
        self._nodes = Nodes(grid)
        self._done: dict[str, Panel] = {}

    def panel(self, signal: str) -> Panel:
        """Return the panel of *signal*, with its load where the catalogue names one."""
        if signal not in self._done:
            made = self._serving.make(signal) or self._nodes.make(signal)
            load = SIGNALS[signal].load
            self._done[signal] = _loaded(made, self.panel(load)) if load in KNOWN else made
        return self._done[signal]


def _loaded(panel: Panel, load: Panel) -> Panel:
    """Return *panel* with the load of each series' scope, as the store joins it."""
    of = SIGNALS[load.signal].labels
    shared = [name for name in SIGNALS[panel.signal].labels if name in of]
    pools = sorted({labels.get("pool", "") for labels in load.labels})
    sums: dict[tuple[str, ...], FloatArray] = {}
    for pool in pools:
        members = [i for i, la in enumerate(load.labels) if la.get("pool", "") == pool]
        inside: dict[tuple[str, ...], list[int]] = {}
        for i in members:
            scope = tuple(load.labels[i].get(name, "") for name in shared)
            inside.setdefault(scope, []).append(i)
        for scope, picked in inside.items():
            total = np.nansum(load.values[picked], axis=0)
            sums[scope] = np.fmax(sums[scope], total) if scope in sums else total
    nothing = np.full(len(panel.times), np.nan)
    rows_ = [sums.get(tuple(la.get(n, "") for n in shared), nothing) for la in panel.labels]
    return replace(panel, load=np.array(rows_).reshape(panel.values.shape))
