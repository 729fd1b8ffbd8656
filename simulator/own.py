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
        for row in _of_node(world, server, readings(world, server, at), epoch, np.ones_like(at))
    ]
    order = {m.name: i for i, m in enumerate((*PROCESS, *CONTAINER, *HOST, *GPU, *EXPORTER))}
    found += [
        Row(*reading) for server in world.fleet.servers for reading in gpus(world, server, at)
    ]
    build = METRICS["leadline_build_info"]
    found.append(Row(build, {"version": "simulated"}, np.ones_like(at)))
    return sorted(found, key=lambda row: order[row.metric.name])


def _of_node(
    world: World, server: Server, read: Readings, epoch: float, flat: FloatArray
) -> Iterator[Row]:
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
    setup = {
        "kv_role": _ROLE[server.pool],
        "vllm_version": VERSION,
        "tensor_parallel": "1",
        "data_parallel": str(server.ranks),
    }
    yield Row(METRICS["leadline_instance_info"], mine | node | setup, flat)
    yield Row(METRICS["leadline_target_up"], mine, flat)
    for collector in _COLLECTORS:
        # The page speaks for several nodes, so each collector is told apart by its server.
        labels = {"collector": collector, "server": server.name}
        yield Row(METRICS["leadline_collector_success"], labels, flat)
        yield Row(METRICS["leadline_collector_duration_seconds"], labels, 0.004 * flat)
