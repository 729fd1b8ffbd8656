"""Our own families about the simulated nodes: what the exporter adds to the pages of vLLM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from catalog.metric import Metric
from catalog.own import CONTAINER, EXPORTER, GPU, HOST, PROCESS
from catalog.signals import METRICS
from simulator.fleet import Server
from simulator.gpu import gpus
from simulator.memory import Readings, readings
from simulator.noise import FloatArray
from simulator.world import World

VERSION: Final = "0.32.0"
_ROLE: Final = {"prefill": "kv_producer", "decode": "kv_consumer"}
_COLLECTORS: Final = ("container", "gpu", "host", "info", "process", "vllm")


@dataclass(frozen=True)
class Row:
    """One series of ours at some instants."""

    metric: Metric
    labels: Mapping[str, str]
    values: FloatArray


def rows(world: World, epoch: float, at: FloatArray) -> list[Row]:
    """Return our series at instants *at* (ascending), family after family.

    Args:
        world: The run.
        epoch: Unix seconds of the end of history.
        at: Seconds from the end of history.
    """
    found = [
        row
        for server in world.fleet.servers
        for row in _of_node(world, server, readings(world, server, at), epoch, at)
    ]
    order = {m.name: i for i, m in enumerate((*PROCESS, *CONTAINER, *HOST, *GPU, *EXPORTER))}
    found += [
        Row(*reading) for server in world.fleet.servers for reading in gpus(world, server, at)
    ]
    build = METRICS["leadline_build_info"]
    found.append(Row(build, {"version": "simulated"}, np.ones_like(at)))
    return sorted(found, key=lambda row: order[row.metric.name])


def _of_node(
    world: World, server: Server, read: Readings, epoch: float, at: FloatArray
) -> Iterator[Row]:
    flat = np.ones_like(at)
    node = {"node": server.node}
    mine = world.fleet.labels(server)
    for process, values in read.processes.items():
        labels = mine | node | {"process": process.kind, "rank": process.rank}
        for name, value in values.items():
            is_start = name == "start_time_seconds"
            metric = METRICS[f"leadline_process_{name}"]
            yield Row(metric, labels, value + epoch if is_start else value)
    cgroup = mine | node | {"cgroup": f"vllm-{server.pool}-{server.node}"}
    for name, value in read.container.items():
        yield Row(METRICS[f"leadline_container_{name}"], cgroup, value)
    host = {"cluster": world.fleet.cluster} | node
    for name, value in read.host.items():
        yield Row(METRICS[f"leadline_host_memory_{name}"], host, value)
    yield Row(METRICS["leadline_target_up"], mine, flat)
    yield from _instances(world, server, epoch, at)
    for collector in _COLLECTORS:
        # The page speaks for several nodes, so each collector is told apart by its server.
        labels = {"collector": collector, "server": server.name}
        yield Row(METRICS["leadline_collector_success"], labels, flat)
        yield Row(METRICS["leadline_collector_duration_seconds"], labels, 0.004 * flat)


def setup(world: World, server: Server, start: float) -> dict[str, str]:
    """Return what an incarnation was started with, as labels: an image of each deployment."""
    later = any(c.shape == "image" and start >= c.start for c in world.scenario.changes)
    version = 2 if later else int(start > server.starts[0])
    return {"image": f"vllm:{VERSION}-{version}", "arguments": "5c1f7a09", "vllm_version": VERSION}


def _instances(world: World, server: Server, epoch: float, at: FloatArray) -> Iterator[Row]:
    """Yield each incarnation with its setup, as long as it runs."""
    labels = world.fleet.labels(server) | {"node": server.node}
    started, up = server.started(at), server.up(at)
    settings = {
        "kv_role": _ROLE[server.pool],
        "tensor_parallel": "1",
        "data_parallel": str(server.ranks),
    }
    info = METRICS["leadline_instance_info"]
    kinds: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for start in np.unique(started).tolist():
        kinds.setdefault(tuple(setup(world, server, start).items()), []).append(start)
    for kind, starts in kinds.items():
        values = np.where(np.isin(started, starts) & up, 1.0, np.nan)
        yield Row(info, labels | settings | dict(kind), values)
    begun = METRICS["leadline_instance_start_time_seconds"]
    yield Row(begun, labels, started + epoch)
