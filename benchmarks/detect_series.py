"""Seeded memory series whose truth is known: what a leak detector must find, and what it must not.

Every generator returns values in bytes, shape (series, points), at one minute unless told.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

import numpy as np

from catalog.panel import FloatArray, Panel

MIB = 2.0**20
GIB = 2.0**30
DAY = 1440  # points
ORIGIN = 1.7e9
Generator = Callable[[np.random.Generator, int, int], FloatArray]


def panel(values: FloatArray, step: float = 60.0, **labels: str) -> Panel:
    """Return *values* as a panel of private memory, one server a series."""
    place = {"deployment": "chat", "pool": "decode", "process": "worker", **labels}
    names = tuple(
        {**place, "server": f"node{i}:8000", "node": f"node{i}"} for i in range(len(values))
    )
    times = ORIGIN + step * np.arange(values.shape[1], dtype=np.float64)
    return Panel("host_anon_swap", times, values, names)


def noise(rng: np.random.Generator, series: int, points: int, phi: float = 0.8) -> FloatArray:
    """Return a level of 8 GiB with autocorrelated noise of 20 MiB."""
    shock = rng.normal(size=(series, points)) * np.sqrt(1 - phi**2)
    shock[:, 0] /= np.sqrt(1 - phi**2)
    for i in range(1, points):
        shock[:, i] += phi * shock[:, i - 1]
    level: FloatArray = 8 * GIB + 20 * MIB * shock
    return level


def hours(points: int) -> FloatArray:
    """Return hours since the first point."""
    since: FloatArray = np.arange(points, dtype=np.float64) / 60
    return since


def _white(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    return noise(rng, series, points, 0.0)


def _correlated(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    return noise(rng, series, points, 0.99)


def _walk(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    return 8 * GIB + MIB * np.cumsum(rng.normal(size=(series, points)), axis=1)


def _constant(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    level: FloatArray = rng.uniform(1, 64, (series, 1)) * GIB
    return np.repeat(level, points, axis=1)


def _two_valued(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    return 8 * GIB + GIB * rng.integers(0, 2, (series, points)).astype(float)


def _season(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    phase = rng.uniform(0, 2 * np.pi, (series, 1))
    return noise(rng, series, points) + GIB * np.sin(2 * np.pi * hours(points) / 24 + phase)


def _step(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    at = rng.integers(points // 4, points, (series, 1))
    return noise(rng, series, points) + 4 * GIB * (np.arange(points) >= at)


def _stairs(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    """Steps that come ever later: a pool of buffers that fills."""
    rise = np.zeros((series, points))
    for row in range(series):
        at = np.cumsum(points / 200 * 1.6 ** np.arange(9) * rng.uniform(0.7, 1.3, 9))
        for place in at[at < points]:
            rise[row, int(place) :] += rng.uniform(100, 300) * MIB
    return noise(rng, series, points) + rise


def _saturating(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    tau = rng.uniform(0.05, 0.4, (series, 1)) * hours(points)[-1]
    filling: FloatArray = 4 * GIB * (1 - np.exp(-hours(points) / tau))
    return noise(rng, series, points) + filling


def _logarithmic(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    tau = rng.uniform(0.1, 1.0, (series, 1))
    return noise(rng, series, points) + GIB * np.log1p(hours(points) / tau)


def _sawtooth(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    period = rng.uniform(2, 6, (series, 1))
    return noise(rng, series, points) + 2 * GIB * (hours(points) / period % 1)


def _restart(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    """A process that dies and fills up again to where it was."""
    at = rng.integers(points // 3, points - 120, (series, 1))
    since = np.maximum(np.arange(points) - at, 0) / 60
    fill = np.where(np.arange(points) >= at, 1 - 0.9 * np.exp(-since / 0.3), 1.0)
    return noise(rng, series, points) * fill


def _finished(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    """A leak that was mended when three quarters were over."""
    end = int(0.75 * points)
    rise = np.minimum(np.arange(points), end) / points * 8 * GIB
    return noise(rng, series, points) + rise


def _spike(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    values = noise(rng, series, points)
    values[np.arange(series), rng.integers(0, points, series)] *= 50
    return values


def _scrape_gap(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    values = noise(rng, series, points) + GIB * (np.arange(points) > 0.7 * points)
    values[:, int(0.65 * points) : int(0.75 * points)] = np.nan
    return values


NEGATIVES: MappingProxyType[str, Generator] = MappingProxyType(
    {
        "white noise": _white,
        "AR(.99)": _correlated,
        "random walk": _walk,
        "constant": _constant,
        "two values": _two_valued,
        "daily season": _season,
        "deploy step": _step,
        "filling by steps": _stairs,
        "saturating warm-up": _saturating,
        "logarithmic warm-up": _logarithmic,
        "collector sawtooth": _sawtooth,
        "restart": _restart,
        "mended leak": _finished,
        "one spike": _spike,
        "scrape gap": _scrape_gap,
    }
)


def leaking(points: int, onset: float, growth: float) -> FloatArray:
    """Return a leak that begins at the share *onset* of the points and adds *growth* bytes."""
    share = np.linspace(0, 1, points)
    rise: FloatArray = growth * np.maximum(share - onset, 0) / (1 - onset)
    return rise


def _plain_leak(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    return noise(rng, series, points) + leaking(points, 0.0, 2 * GIB)


def _late_leak(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    return noise(rng, series, points) + leaking(points, 0.6, 4 * GIB)


def _leak_after_warm_up(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    warm = 2 * GIB * (1 - np.exp(-np.arange(points) / (points / 60)))
    return noise(rng, series, points) + warm + leaking(points, 0.0, 4 * GIB)


def _leak_with_season(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    return _season(rng, series, points) + leaking(points, 0.2, 12 * GIB)


def _rising_floor(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    return _sawtooth(rng, series, points) + leaking(points, 0.2, 12 * GIB)


def _leak_after_step(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    step = 3 * GIB * (np.arange(points) >= 0.4 * points)
    return noise(rng, series, points) + step + leaking(points, 0.4, 4 * GIB)


POSITIVES: MappingProxyType[str, Generator] = MappingProxyType(
    {
        "plain leak": _plain_leak,
        "late leak": _late_leak,
        "leak after warm-up": _leak_after_warm_up,
        "leak with season": _leak_with_season,
        "rising floor": _rising_floor,
        "leak after a deploy": _leak_after_step,
    }
)
