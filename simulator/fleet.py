"""Who is there: servers, their engines and processes, with the labels of each and its restarts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from catalog.labels import Pool, ProcessKind
from simulator.change import HOUR

CHUNK: Final = 1800.0
"""Seconds that are computed at once; incarnations begin at its multiples."""

DOWN: Final = 240.0
"""Seconds that a server is away before an incarnation begins."""

_FIRST: Final = -1100 * HOUR
_DEPLOY: Final = -44 * HOUR
_PREFILL_AGAIN: Final = -16 * HOUR


@dataclass(frozen=True)
class Process:
    """One kind of process of one rank; `engine` is its place among the server's ranks."""

    kind: ProcessKind
    rank: str
    engine: int | None = None


@dataclass(frozen=True)
class Server:
    """One vLLM server on a node of its own.

    Attributes:
        node: Name of the node.
        pool: prefill or decode.
        ranks: Data-parallel ranks, one GPU each.
        depth: Tokens drafted a step.
        starts: Start of each incarnation, seconds from the end of history, ascending.
        ends: When it is drained: from then on there is no such pod; the node stays.
    """

    node: str
    pool: Pool
    ranks: int
    depth: int
    starts: tuple[float, ...]
    ends: float = math.inf

    @property
    def name(self) -> str:
        """Return the label `server`."""
        return f"{self.node}:8000"

    @property
    def processes(self) -> tuple[Process, ...]:
        """Return the processes that hold its memory."""
        ranks = range(self.ranks)
        return (
            Process("api_server", ""),
            Process("dp_coordinator", ""),
            *(Process("engine_core", f"DP{i}", i) for i in ranks),
            *(Process("worker", f"DP{i}_TP0", i) for i in ranks),
        )

    def started(self, at: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the start of the incarnation that runs (or last ran) at each instant."""
        starts = np.array(self.starts)
        index: npt.NDArray[np.intp] = np.searchsorted(starts, at, side="right") - 1
        return starts[np.maximum(index, 0)]

    def up(self, at: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Return whether it runs at each instant."""
        down: npt.NDArray[np.bool_] = (at >= self.ends) | (at < self.starts[0])
        for start in self.starts[1:]:
            down = down | ((at >= start - DOWN) & (at < start))
        return ~down


@dataclass(frozen=True)
class Fleet:
    """One P/D deployment."""

    servers: tuple[Server, ...]
    cluster: str = "demo"
    deployment: str = "demo"
    model_name: str = "glm-5.2"

    def pool(self, pool: Pool) -> tuple[Server, ...]:
        """Return the servers of *pool*."""
        return tuple(s for s in self.servers if s.pool == pool)

    def labels(self, server: Server) -> dict[str, str]:
        """Return the identity of *server*."""
        return {
            "cluster": self.cluster,
            "deployment": self.deployment,
            "pool": server.pool,
            "model_name": self.model_name,
            "server": server.name,
        }


def fleet(
    prefill: int = 4, prefill_ranks: int = 4, decode: int = 1, decode_ranks: int = 8
) -> Fleet:
    """Return an xPyD deployment, by default 4P1D on 24 GPUs.

    Its past: all servers are deployed anew, one after another, 44 hours before now, and the prefill
    servers once more 16 hours before now, so that healthy history has steps and warm-ups in it.
    """
    servers = []
    for i in range(prefill + decode):
        again = (_PREFILL_AGAIN + i * CHUNK,) if i < prefill else ()
        starts = (_FIRST, _DEPLOY + i * CHUNK, *again)
        server = (
            Server(f"node-{i}", "prefill", prefill_ranks, 1, starts)
            if i < prefill
            else Server(f"node-{i}", "decode", decode_ranks, 3, starts)
        )
        servers.append(server)
    return Fleet(tuple(servers))


def rolled(fleet: Fleet, begin: float) -> Fleet:
    """Return *fleet* with a restart of every server, one after another, a chunk apart.

    Args:
        fleet: As it is until then.
        begin: Start of the first new incarnation, a multiple of `CHUNK`.
    """
    return replace(
        fleet,
        servers=tuple(
            replace(server, starts=(*server.starts, begin + i * CHUNK))
            for i, server in enumerate(fleet.servers)
        ),
    )


def drained(fleet: Fleet, name: str, at: float) -> Fleet:
    """Return *fleet* whose server *name* is drained at *at* and doesn't come back."""
    servers = (replace(s, ends=at) if s.name == name else s for s in fleet.servers)
    return replace(fleet, servers=tuple(servers))


def steady(fleet: Fleet) -> Fleet:
    """Return *fleet* without deployments in its past: every server runs for weeks."""
    return replace(fleet, servers=tuple(replace(s, starts=s.starts[:1]) for s in fleet.servers))


def restarted(fleet: Fleet, name: str, *at: float) -> Fleet:
    """Return *fleet* whose server *name* starts anew at the instants *at*, multiples of `CHUNK`."""
    servers = (
        replace(s, starts=tuple(sorted((*s.starts, *at)))) if s.name == name else s
        for s in fleet.servers
    )
    return replace(fleet, servers=tuple(servers))


def scaled(fleet: Fleet, more: int, at: float) -> Fleet:
    """Return *fleet* with *more* prefill servers from *at* on, a multiple of `CHUNK`."""
    number = len(fleet.servers)
    first = fleet.pool("prefill")[0]
    new = (replace(first, node=f"node-{number + i}", starts=(at,)) for i in range(more))
    return replace(fleet, servers=(*fleet.servers, *new))


def drafting(fleet: Fleet, depth: int) -> Fleet:
    """Return *fleet* whose decode servers draft *depth* tokens a step."""
    servers = (replace(s, depth=depth) if s.pool == "decode" else s for s in fleet.servers)
    return replace(fleet, servers=tuple(servers))
