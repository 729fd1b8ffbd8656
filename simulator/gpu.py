"""GPUs of the simulated nodes: between what an idle and a busy one read, by the load of its pool.

The two ends are medians of one H200 under NVML and GPM: idle; prefill batches of 8192 tokens; and
decode at batches of 16 and 128.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from catalog.labels import Pool
from catalog.metric import Metric
from catalog.signals import METRICS
from simulator.change import GIB
from simulator.fleet import Server
from simulator.noise import FloatArray, keys, smooth
from simulator.world import World

LIMIT: Final = 700.0
MEMORY: Final = 141 * GIB

_IDLE: Final = {
    "utilization_ratio": 0.0, "memory_activity_ratio": 0.0, "power_watts": 122.0,
    "sm_clock_hertz": 1.98e9, "temperature_celsius": 35.0, "sm_active_ratio": 0.0,
    "sm_occupancy_ratio": 0.0, "tensor_active_ratio": 0.0, "dram_active_ratio": 0.0,
}  # fmt: skip
_BUSY: Final[dict[Pool, dict[str, float]]] = {
    "prefill": {
        "utilization_ratio": 1.0, "memory_activity_ratio": 0.29, "power_watts": 691.0,
        "sm_clock_hertz": 1.5e9, "temperature_celsius": 57.0, "sm_active_ratio": 0.957,
        "sm_occupancy_ratio": 0.177, "tensor_active_ratio": 0.876, "dram_active_ratio": 0.221,
    },
    "decode": {
        "utilization_ratio": 0.90, "memory_activity_ratio": 0.72, "power_watts": 460.0,
        "sm_clock_hertz": 1.965e9, "temperature_celsius": 46.0, "sm_active_ratio": 0.51,
        "sm_occupancy_ratio": 0.072, "tensor_active_ratio": 0.09, "dram_active_ratio": 0.571,
    },
}  # fmt: skip
_STEADY: Final = ("memory_used_bytes", "memory_total_bytes", "power_limit_watts",
                  "memory_clock_hertz")  # fmt: skip
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
        for name in (*_STEADY, *_IDLE, "energy_joules_total"):
            yield METRICS[f"leadline_gpu_{name}"], labels, _value(server.pool, name, busy, at)
        for reason in _REASONS:
            event = METRICS["leadline_gpu_clock_event"]
            yield event, labels | {"reason": reason}, np.zeros_like(at)


def _busy(pool: Pool, load: FloatArray) -> FloatArray:
    """Return the share of time in which a GPU works: decode steps all the time it has requests."""
    if pool == "prefill":
        return np.clip(0.45 * load, 0.0, 1.0)
    return np.clip(0.90 + 0.08 * (load - 1.0), 0.0, 1.0) * (load > 0.0)


def _value(pool: Pool, name: str, busy: FloatArray, at: FloatArray) -> FloatArray:
    flat = np.ones_like(at)
    steady = {
        "memory_used_bytes": _FILLED[pool] * MEMORY,
        "memory_total_bytes": MEMORY,
        "power_limit_watts": LIMIT,
        "memory_clock_hertz": 3.2e9,
    }
    if name in steady:
        return steady[name] * flat
    if name == "energy_joules_total":
        # What a day's mean draws, since long before: the fluid has no memory to add up exactly.
        idle, full = _IDLE["power_watts"], _BUSY[pool]["power_watts"]
        share = 0.45 if pool == "prefill" else 0.90
        return (idle + (full - idle) * share) * (at + 400 * 3600.0)
    reading: FloatArray = _IDLE[name] + (_BUSY[pool][name] - _IDLE[name]) * busy
    return reading
