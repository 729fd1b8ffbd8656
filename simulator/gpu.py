"""GPUs of the simulated nodes: between what an idle and a busy one read, by the load of its pool.

Readings are drawn from recordings of one H200 under NVML and GPM, 40 at once taken readings of each
phase: idle; prefill batches of 8192 tokens; decode at batches of 16 and of 128; and a spin-wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Final

import numpy as np

from catalog.labels import Pool
from catalog.metric import Metric
from catalog.signals import METRICS
from simulator.change import GIB, What
from simulator.change import total as changed
from simulator.fleet import Server
from simulator.noise import FloatArray, keys, smooth, uniform
from simulator.world import World

LIMIT: Final = 700.0
MEMORY: Final = 141 * GIB

_STEADY: Final = ("memory_used_bytes", "memory_total_bytes", "power_limit_watts",
                  "memory_clock_hertz")  # fmt: skip
READINGS: Final = (
    "utilization_ratio", "memory_activity_ratio", "power_watts", "sm_clock_hertz",
    "temperature_celsius", "sm_active_ratio", "sm_occupancy_ratio", "tensor_active_ratio",
    "dram_active_ratio",
)  # fmt: skip
"""What a phase of work changes, as the columns of the recording."""

_DRAWN: Final[dict[Pool, float]] = {"prefill": 380.0, "decode": 426.0}
"""Watts, in a day's mean."""

_FILLED: Final[dict[Pool, float]] = {"prefill": 0.90, "decode": 0.92}


_REASONS: Final = (
    "gpu_idle", "clocks_setting", "power_cap", "hw_slowdown", "sync_boost", "sw_thermal",
    "hw_thermal", "hw_power_brake", "display_clocks",
)  # fmt: skip


def gpus(
    world: World, server: Server, at: FloatArray
) -> Iterator[tuple[Metric, dict[str, str], FloatArray]]:
    """Yield metric, labels and values of all GPUs of a node at instants *at*."""
    load = world.flow.load(at)
    number = world.fleet.servers.index(server)
    for gpu in range(server.ranks):
        labels = {
            "cluster": world.fleet.cluster,
            "node": server.node,
            "gpu": str(gpu),
            "uuid": f"GPU-00000000-0000-0000-{number:04d}-{gpu:012d}",
        }
        jitter = smooth(keys(world.seed, f"gpu/{server.node}/{gpu}"), at, 120.0)[0]
        busy = _busy(server.pool, load * (1.0 + 0.03 * jitter)) * server.up(at)
        read = _read(world, server, gpu, at, busy, load)
        for name in (*_STEADY, *READINGS, "energy_joules_total"):
            values = read[name] if name in read else _value(world, server, gpu, name, at)
            yield METRICS[f"leadline_gpu_{name}"], labels, values
        for reason in _REASONS:
            event = METRICS["leadline_gpu_clock_event"]
            yield event, labels | {"reason": reason}, np.zeros_like(at)


@cache
def _recorded() -> dict[str, FloatArray]:
    """Return readings by phase, shape (readings, columns of `READINGS`)."""
    text = resources.files("simulator").joinpath("captures", "gpu.csv").read_text()
    head, *lines = (line.split(",") for line in text.splitlines())
    if tuple(head[1:]) != READINGS:
        raise ValueError(f"captures/gpu.csv has columns {head[1:]}, not {READINGS}")
    phases = dict.fromkeys(line[0] for line in lines)
    return {p: np.array([line[1:] for line in lines if line[0] == p], float) for p in phases}


def _read(
    world: World, server: Server, gpu: int, at: FloatArray, busy: FloatArray, load: FloatArray
) -> dict[str, FloatArray]:
    """Return readings that are noisy as recorded ones, by name."""
    spin = _change(world, "spin", server, gpu, at) * (busy > 0.0)
    batch = np.clip(0.1 + (16.0 * load - 16.0) / 112.0, 0.0, 1.0)
    work = busy * (1.0 - spin)
    shares = {"idle": 1.0 - busy, "spin": spin * busy}
    if server.pool == "prefill":
        shares["prefill"] = work
    else:
        shares |= {"decode_16": work * (1.0 - batch), "decode_128": work * batch}
    draw = uniform(
        keys(world.seed, f"gpu draw/{server.node}/{gpu}"), np.floor(at / 10.0).astype(int)
    )
    total = np.zeros((len(READINGS), len(at)))
    for phase, share in shares.items():
        recorded = _recorded()[phase]
        middle = np.median(recorded, axis=0)
        drawn = recorded[(draw[0] * len(recorded)).astype(int)]
        # Between phases a mean is read, and what is left of the noise of each.
        total += share * middle[:, None] + (share**2) * (drawn - middle).T
    clock = 1.0 + _change(world, "clock", server, gpu, at)
    found = dict(zip(READINGS, total, strict=True))
    found["sm_clock_hertz"] = found["sm_clock_hertz"] * clock
    found["power_watts"] = np.maximum(found["power_watts"] * clock, 60.0)
    return {
        name: np.clip(values, 0.0, 1.0) if name.endswith("_ratio") else values
        for name, values in found.items()
    }


def _change(world: World, what: What, server: Server, gpu: int, at: FloatArray) -> FloatArray:
    place = (server.pool, world.fleet.pool(server.pool).index(server), gpu)
    row = changed(world.scenario.changes, what, at, [place], [server.started(at)])
    return np.broadcast_to(row[0], at.shape)


def _busy(pool: Pool, load: FloatArray) -> FloatArray:
    """Return the share of time in which a GPU works: decode steps all the time it has requests."""
    if pool == "prefill":
        return np.clip(0.45 * load, 0.0, 1.0)
    return np.clip(0.90 + 0.08 * (load - 1.0), 0.0, 1.0) * (load > 0.0)


def _value(world: World, server: Server, gpu: int, name: str, at: FloatArray) -> FloatArray:
    flat = np.ones_like(at)
    if name == "power_limit_watts":
        return LIMIT * (1.0 + _change(world, "power_limit", server, gpu, at))
    if name == "energy_joules_total":
        # What a day's mean draws, since long before: the fluid has no memory to add up exactly.
        return _DRAWN[server.pool] * (at + 400 * 3600.0)
    steady = {
        "memory_used_bytes": _FILLED[server.pool] * MEMORY,
        "memory_total_bytes": MEMORY,
        "memory_clock_hertz": 3.2e9,
    }
    return steady[name] * flat
