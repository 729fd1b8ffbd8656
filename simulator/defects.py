"""What scraping does to samples: gaps, a clock put forward, counters that begin again, spikes.

Samples that come twice or late are a matter of files: `simulator.table_file` writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from catalog.panel import Panel
from simulator.change import HOUR
from simulator.noise import FloatArray, keys, normal, uniform
from simulator.world import World

GAP: Final = 2 * HOUR
CLOCK: Final = 90.0
SPIKE: Final = 50.0
PHI: Final = 0.99

Mask = npt.NDArray[np.bool_]


def spoilt(panel: Panel, world: World, at: FloatArray) -> Panel:
    """Return *panel* as scraping left it in the run's scenario."""
    defect, start = world.scenario.defect, world.scenario.start
    if defect == "gap":
        return _without(panel, (at >= start) & (at < start + GAP))
    if defect == "clock_step":
        return _without(panel, (at >= start) & (at < start + CLOCK))
    if defect == "reset" and panel.trials is not None:
        return _without(panel, np.abs(at - start) < panel.step / 2)
    if defect in _SHAPES and panel.trials is None and panel.signal not in _KEPT:
        return replace(panel, values=_SHAPES[defect](panel.values, world, panel.signal, at))
    return panel


_KEPT: Final = ("container_limit", "host_memory_total", "process_start_time", "instance_start")


def _without(panel: Panel, gone: Mask) -> Panel:
    def cut(array: FloatArray | None) -> FloatArray | None:
        return None if array is None else np.where(gone[None, :], np.nan, array)

    values = np.where(gone[None, :], np.nan, panel.values)
    return replace(panel, values=values, trials=cut(panel.trials), load=cut(panel.load))


def _middle(values: FloatArray) -> FloatArray:
    known = np.where(np.isfinite(values).any(axis=1, keepdims=True), values, 0.0)
    middle: FloatArray = np.nanmedian(known, axis=1, keepdims=True)
    return middle


def _constant(values: FloatArray, _world: World, _name: str, _at: FloatArray) -> FloatArray:
    return np.where(np.isfinite(values), _middle(values), np.nan)


def _two_valued(values: FloatArray, world: World, name: str, at: FloatArray) -> FloatArray:
    turn = np.floor(at / 2400.0).astype(np.int64)
    high = uniform(keys(world.seed, *(f"two/{name}/{i}" for i in range(len(values)))), turn) > 0.5
    return _constant(values, world, name, at) * np.where(high, 1.02, 1.0)


def _spike(values: FloatArray, world: World, _name: str, at: FloatArray) -> FloatArray:
    start = world.scenario.start
    once = (at >= start) & (at < start + 60.0)
    return np.where(once[None, :], SPIKE * values, values)


def _ar99(values: FloatArray, world: World, name: str, at: FloatArray) -> FloatArray:
    """Return each series' middle with a wander of 1 % whose steps are one AR(.99) process."""
    minute = np.round(at / 60.0).astype(np.int64)
    shocks = normal(keys(world.seed, *(f"ar/{name}/{i}" for i in range(len(values)))), minute)
    wander = np.zeros_like(shocks)
    state = shocks[:, 0]
    for i in range(shocks.shape[1]):
        state = PHI * state + np.sqrt(1.0 - PHI**2) * shocks[:, i]
        wander[:, i] = state
    return _constant(values, world, name, at) * (1.0 + 0.01 * wander)


_SHAPES: Final[dict[str, Callable[[FloatArray, World, str, FloatArray], FloatArray]]] = {
    "constant": _constant,
    "two_valued": _two_valued,
    "spike": _spike,
    "ar99": _ar99,
}
