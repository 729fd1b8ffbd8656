"""How the ranks of a data-parallel group are spread over servers, ports and nodes.

Internal load balancing: one server's page shows all ranks, its further nodes are headless. Hybrid:
each node's server shows the ranks of that node. External: each rank is a server of its own; with
several ports one command starts them on consecutive ports.

Elastic expert parallelism takes ranks away and adds some while the group runs. Its internal kind
tells nobody how many it has now. Of the external kind the ranks with the highest numbers go, so
that a group has at least each living rank and those below it: one that is gone from among them is
lost, one above them was taken away.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from typing import Final, Literal

from exporters.targets.arguments import Options

Balancing = Literal["internal", "hybrid", "external"]
MAX_RANKS: Final = 1024
_RPC_PORT: Final = "29550"


@dataclass(frozen=True)
class Ranks:
    """The data-parallel group of a server.

    Attributes:
        size: Ranks of the whole group; 0 where that isn't known.
        local: Ranks that run under this command.
        start: Global rank of the first of them.
        balancing: Who spreads requests over the ranks.
        ports: Servers that this command starts, on consecutive ports.
        group: What the servers of one group have in common, `address:port` of its first rank;
            empty where it is a group by itself, `:port` where it ends at this node.
        elastic: Whether ranks come and go while it runs.
        lazy: Whether its pages show a rank from its first request on only (the Rust front end).
    """

    size: int = 1
    local: int = 1
    start: int = 0
    balancing: Balancing = "internal"
    ports: int = 1
    group: str = ""
    elastic: bool = False
    lazy: bool = False

    @property
    def living(self) -> int:
        """Ranks that the whole group has while all is well, as far as it is known; else 0."""
        if self.elastic:
            return self.start + 1 if self.balancing == "external" else 0
        return 0 if self.lazy and self.balancing != "external" else self.size

    @property
    def shown(self) -> int:
        """Ranks that the page of one server shows while all is well; 0 where it isn't known."""
        return self.size if self.balancing == "internal" else self.local // self.ports


def ranks(given: Options, *, lazy: bool = False) -> Ranks:
    """Return how a command line lays out its ranks.

    Args:
        given: The command line.
        lazy: Whether its pages show a rank from its first request on only.
    """
    found = _laid_out(given)
    # Before it had a flag of its own, Ray's backend alone was enough.
    elastic = bool(given.flag("enable-elastic-ep")) or given.text("data-parallel-backend") == "ray"
    return replace(found, elastic=elastic and found.size > 1, lazy=lazy)


def _laid_out(given: Options) -> Ranks:
    size = _count(given, "data-parallel-size", 1 if given.whole else 0)
    told = _count(given, "data-parallel-size-local", 0)
    nodes = max(_count(given, "nnodes", 1), 1)
    local = told or max(size // nodes, 1 if size else 0)
    start = _count(
        given, "data-parallel-start-rank", _count(given, "node-rank", 0) * local if told else 0
    )
    if given.flag("data-parallel-multi-port-external-lb"):
        return Ranks(size, local, start, "external", max(local, 1), _group(given))
    rank = "data-parallel-rank" in given
    hybrid = given.flag("data-parallel-hybrid-lb") or "data-parallel-start-rank" in given
    hybrid = bool(hybrid) and not given.flag("headless") and bool(told) and local != size
    if rank or given.flag("data-parallel-external-lb") or (hybrid and local == 1):
        at = _count(given, "data-parallel-rank", start)
        return Ranks(size, 1, at, "external", 1, _group(given))
    if hybrid:
        return Ranks(size, local, start, "hybrid", 1, _group(given))
    return Ranks(size, local, start)


def _count(given: Options, name: str, otherwise: int) -> int:
    text = given.text(name)
    sound = text.isascii() and text.isdecimal() and len(text) <= 4
    return min(int(text), MAX_RANKS) if sound else otherwise


def _group(given: Options) -> str:
    port = given.text("data-parallel-rpc-port")
    port = port if port.isascii() and port.isdecimal() and len(port) <= 5 else _RPC_PORT
    address = given.text("data-parallel-address") or given.text("master-addr")
    return f":{port}" if _stays_here(address) else f"{address[:128]}:{port}"


def _stays_here(address: str) -> bool:
    if address in {"", "localhost"} or not all(c.isalnum() or c in ".:-[]" for c in address):
        return True
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False
