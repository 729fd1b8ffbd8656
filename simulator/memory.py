"""Host memory: each process's private bytes, the containers around them, and the hosts.

A process has a base, a warm-up to a plateau after each start (part of it in steps), what its
traffic holds, allocator noise, and, where a scenario says so, a leak.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from catalog.labels import Pool, ProcessKind
from simulator.change import GIB, HOUR, Loss, What
from simulator.change import total as changed
from simulator.fleet import Process, Server
from simulator.noise import FloatArray, keys, smooth
from simulator.world import Side, World

PAGE: Final = 4096.0


@dataclass(frozen=True)
class Size:
    """How much a kind of process holds, in GiB, and how it gets there.

    Attributes:
        base: Private memory when ready.
        warm: What warm-up adds to it.
        hours: Time constant of the warm-up.
        season: What a day's mean traffic more would add.
        noise: Size of the allocator's wander.
        deploy: What the deployed version needs more.
        shared: Shared pages mapped.
        threads: Threads.
        cpu: Cores kept busy.
    """

    base: float
    warm: float
    hours: float
    season: float
    noise: float
    deploy: float
    shared: float
    threads: int
    cpu: float


SIZES: Final[dict[tuple[Pool, ProcessKind], Size]] = {
    ("prefill", "api_server"): Size(2.8, 0.4, 1.0, 0.10, 0.010, 0.05, 0.3, 95, 0.8),
    ("prefill", "dp_coordinator"): Size(0.3, 0.0, 1.0, 0.0, 0.001, 0.0, 0.1, 12, 0.02),
    ("prefill", "engine_core"): Size(8.5, 1.2, 2.0, 0.06, 0.012, 0.15, 0.6, 60, 1.0),
    ("prefill", "worker"): Size(61.0, 3.0, 1.2, 0.10, 0.030, 0.9, 6.0, 180, 1.3),
    ("decode", "api_server"): Size(4.0, 0.3, 0.7, 0.15, 0.012, 0.05, 0.3, 110, 1.4),
    ("decode", "dp_coordinator"): Size(0.35, 0.0, 1.0, 0.0, 0.001, 0.0, 0.1, 12, 0.02),
    ("decode", "engine_core"): Size(8.0, 0.3, 0.7, 0.08, 0.012, 0.15, 0.6, 60, 1.0),
    ("decode", "worker"): Size(69.0, 0.8, 0.7, 0.10, 0.030, 0.9, 6.0, 180, 1.1),
}
LIMIT: Final[dict[Pool, float]] = {"prefill": 512 * GIB, "decode": 800 * GIB}
HOST: Final[dict[Pool, float]] = {"prefill": 1024 * GIB, "decode": 2048 * GIB}
SHARED_ONCE: Final = 12 * GIB
"""Shared pages of a container, each counted once (processes count them all)."""

_STEP_AT: Final = -30.5 * HOUR
_STEP: Final = 0.4 * GIB


def private(world: World, server: Server, process: Process, at: FloatArray) -> FloatArray:
    """Return anonymous bytes of a process at instants *at* (ascending)."""
    size = SIZES[server.pool, process.kind]
    key = f"memory/{server.name}/{process.kind}/{process.rank}"
    started = server.started(at)
    age = at - started
    own = float(smooth(keys(world.seed, f"{key}/base"), np.zeros(1), 1.0)[0, 0])
    held: FloatArray = size.base * (1.0 + 0.004 * own) * np.ones_like(at)
    held = held + size.deploy * (started > server.starts[0])
    held = held + size.warm * _warmed(age / HOUR / size.hours)
    held = held + size.season * (world.flow.load(at) - 1.0)
    # Arenas come and go within minutes, caches within hours; without work nothing moves.
    moving = (
        np.where(world.flow.idle(at), world.scenario.idle[0], at) if world.scenario.idle else at
    )
    for period, share in ((90.0, 0.5), (1500.0, 1.0), (5 * HOUR, 1.0)):
        wander = smooth(keys(world.seed, f"{key}/{period:.0f}"), moving, period)[0]
        held = held + size.noise * share * wander
    total = held * GIB
    if server.pool == "decode" and process.kind == "worker":
        total = total + _STEP * ((at >= _STEP_AT) & (started < _STEP_AT))
    total = total + GIB * _change(world, "private", server, process, at)
    total = total + lost(world, server, process, at)
    pages: FloatArray = np.round(total / PAGE) * PAGE
    return pages


def _warmed(age: FloatArray) -> FloatArray:
    """Return the share of the warm-up reached: partly smooth, partly in steps of one tenth."""
    grown = 1.0 - np.exp(-age)
    part: FloatArray = 0.6 * grown + 0.4 * np.floor(10.0 * grown) / 10.0
    return part


def _change(
    world: World, what: What, server: Server, process: Process | None, at: FloatArray
) -> FloatArray:
    """Return what the scenario adds on a server, or on a process of it."""
    number = world.fleet.pool(server.pool).index(server)
    rank, kind = (process.engine, process.kind) if process else (None, "")
    place = (server.pool, number, rank)
    row = changed(world.scenario.changes, what, at, [place], [server.started(at)], kind)
    return np.broadcast_to(row[0], at.shape)


def lost(
    world: World, server: Server, process: Process, at: FloatArray, *, swapped: bool = False
) -> FloatArray:
    """Return bytes that a process has lost since its start; a restart gives all of them back."""
    number = world.fleet.pool(server.pool).index(server)
    losses = [
        loss
        for loss in world.scenario.losses
        if loss.concerns(server.pool, number, process.engine, process.kind)
        and loss.swapped == swapped
    ]
    total = np.zeros_like(at)
    for loss in losses:
        total = total + _lost(world, loss, server, process, at)
    return total


def _lost(world: World, loss: Loss, server: Server, process: Process, at: FloatArray) -> FloatArray:
    side: Side = "prefill" if server.pool == "prefill" else "decode"
    begin = np.maximum(loss.start, server.started(at))
    end = np.minimum(at, loss.end)
    rows = _rows(world, server, process)
    done = sum(
        (
            world.driven(side, row, loss.by, np.maximum(end, world.origin))
            - world.driven(side, row, loss.by, np.maximum(begin, world.origin))
            for row in rows
        ),
        np.zeros_like(at),
    ) / len(rows)
    grown: FloatArray = np.maximum(done, 0.0) * _price(world, loss, side)
    return np.where(at >= loss.start, grown, 0.0)


def _price(world: World, loss: Loss, side: Side) -> float:
    """Return the bytes that one process loses a token, request, step or hour."""
    pool = world.fleet.pool(side)
    span = np.array([max(loss.start, world.origin), min(0.0, loss.end)])
    members = [
        (server, process)
        for number, server in enumerate(pool)
        for process in server.processes
        if loss.concerns(side, number, process.engine, process.kind)
    ]
    done = [
        float(np.diff(world.driven(side, row, loss.by, span))[0])
        for server, process in members
        for row in _rows(world, server, process)[:1]
    ]
    hours = float(span[1] - span[0]) / HOUR
    return loss.rate * hours / max(sum(done), 1e-9)


def _rows(world: World, server: Server, process: Process) -> list[int]:
    """Return the engines that a process serves: its own, or all of its server."""
    if process.engine is not None:
        return [engine_row(world, server, process.engine)]
    return [engine_row(world, server, rank) for rank in range(server.ranks)]


def engine_row(world: World, server: Server, rank: int) -> int:
    """Return the row of a server's rank among its pool's engines."""
    before = 0
    for other in world.fleet.pool(server.pool):
        if other == server:
            return before + rank
        before += other.ranks
    raise ValueError(f"{server.name} is not in this fleet")


@dataclass(frozen=True)
class Readings:
    """What the exporter on a server's node reads at some instants; arrays are over instants.

    Attributes:
        processes: For each process, its metrics by name without `leadline_process_`.
        container: Metrics by name without `leadline_container_`.
        host: Metrics by name without `leadline_host_memory_`.
    """

    processes: dict[Process, dict[str, FloatArray]]
    container: dict[str, FloatArray]
    host: dict[str, FloatArray]


def readings(world: World, server: Server, at: FloatArray) -> Readings:
    """Return what is read on the node of *server* at instants *at* (ascending)."""
    flat = np.ones_like(at)
    processes = {p: _process(world, server, p, at) for p in server.processes}
    anonymous = np.sum([values["anonymous_bytes"] for values in processes.values()], axis=0)
    extra = sum((_change(world, "shared", server, p, at) for p in server.processes), 0.0 * flat)
    # Page cache is dropped with the old container and fills again: growth that is no leak.
    age = (at - server.started(at)) / HOUR
    cache: FloatArray = 40.0 + 12.0 * (1.0 - np.exp(-age / 3.0))
    for period, size in ((300.0, 0.1), (HOUR, 0.4)):
        key = keys(world.seed, f"cache/{server.name}/{period:.0f}")
        cache = cache + size * smooth(key, at, period)[0]
    cache = cache + _change(world, "cache", server, None, at)
    working = anonymous + SHARED_ONCE + np.round((cache + extra) * GIB / PAGE) * PAGE
    other: FloatArray = 38.0 + 0.3 * smooth(keys(world.seed, f"host/{server.name}"), at, 1800.0)[0]
    total = HOST[server.pool] * flat
    used = working + np.round(other * GIB / PAGE) * PAGE
    return Readings(
        processes,
        {
            "working_set_bytes": working,
            "anonymous_bytes": anonymous,
            "limit_bytes": _limit(world, server, at),
        },
        {"total_bytes": total, "available_bytes": total - used, "used_bytes": used},
    )


def _limit(world: World, server: Server, at: FloatArray) -> FloatArray:
    """Return the limit of a container."""
    limit = world.scenario.container.get(server.pool, LIMIT[server.pool])
    return limit * (1.0 + _change(world, "limit", server, None, at))


def _process(
    world: World, server: Server, process: Process, at: FloatArray
) -> dict[str, FloatArray]:
    size = SIZES[server.pool, process.kind]
    flat = np.ones_like(at)
    anonymous = private(world, server, process, at)
    shared = (size.shared + _change(world, "shared", server, process, at)) * GIB
    started = server.started(at)
    load = world.flow.load(at)
    busy = process.kind == "api_server"
    fds: FloatArray = np.floor((90.0 + 40.0 * load) * flat) if busy else 64.0 * flat
    return {
        "resident_bytes": anonymous + shared,
        "anonymous_bytes": anonymous,
        "swap_bytes": np.round(lost(world, server, process, at, swapped=True) / PAGE) * PAGE,
        "shared_bytes": shared,
        "threads": size.threads * flat,
        "open_fds": fds,
        "start_time_seconds": started,
        "cpu_seconds_total": size.cpu * (at - started),
    }
