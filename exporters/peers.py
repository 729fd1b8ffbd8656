"""Collector `peers`: the pages of the programs beside vLLM, passed through with their identity.

Router, caches, transfer library, GPU exporter: each by its `kind`, since what its labels mean and
which of them have no bound depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from catalog.splice import Page, Splicer
from exporters.budget import OverBudgetError, Room
from exporters.families import Families
from exporters.fetch import Fetch
from exporters.fold import Bounds, Folder
from exporters.look import Look, Result, Task
from exporters.targets.instances import Instance

_EPP: Final = Bounds(
    dropped=frozenset({"fairness_id", "program_id"}),
    capped=frozenset({"model_name", "target_model_name", "priority", "endpoint_name",
                      "model_server_endpoint", "pod_identifier", "pod"}),
    amounts=("queue", "inflight", "running", "attained_service_tokens"),
)  # fmt: skip
BOUNDS: Final[Mapping[str, Bounds]] = {
    "router": _EPP,
    "kv_index": _EPP,
    "vllm_router": Bounds(capped=frozenset({"worker", "worker_url", "model", "route"})),
    "sidecar": Bounds(),
    "lmcache": Bounds(
        dropped=frozenset({"cache_salt"}),
        capped=frozenset({"instance_id", "engine_id", "worker_id", "model_name"}),
        amounts=("usage", "active", "num_", "inflight", "count"),
    ),
    "nixl": Bounds(capped=frozenset({"agent_name", "pid", "agent_instance"})),
    "dcgm": Bounds(capped=frozenset({"container", "pod", "namespace"})),
}
"""By kind of target."""


@dataclass
class _Known:
    """How to fold and splice the pages of one target, and the memory that takes."""

    labels: Mapping[str, str]
    folder: Folder
    splicer: Splicer
    memory: Room


class Peers:
    """Reads pages by *fetch* and remembers per target how to fold and splice."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._known: dict[str, _Known] = {}

    def tasks(self, look: Look) -> Mapping[str, Task]:
        """Return one task per target."""
        self._known = {
            i.server: self._knows(look, i) for i in look.peers
        }  # of one that is gone nothing is left
        return {
            i.server: Task(partial(self.collect, look, i), _families(i, up=0)) for i in look.peers
        }

    def collect(self, look: Look, peer: Instance) -> Result:
        """Read one page, bound its labels and splice its identity into it.

        Raises:
            FetchError: There is no page.
        """
        exporter = look.config.exporter
        timeout = min(exporter.target_timeout, look.seconds)
        known = self._known[peer.server]
        fetch = peer.access.through(self._fetch)
        with look.pages.room(peer.server) as room:
            text = room.fetch(fetch, peer.url, timeout, int(exporter.max_page))
            try:
                page = _folded_and_spliced(known, text, room)
            except OverBudgetError:
                known.splicer, known.memory = _splicer(look, peer)
                raise
        if known.folder.beyond:
            page.dropped["limit"] += known.folder.beyond
        families = _families(peer, up=1)
        for label, count in sorted(known.folder.folded.items()):
            where = {"server": peer.server, "label": label}
            families.add("leadline_folded_series", where, count)
        return Result(families, page)

    def _knows(self, look: Look, peer: Instance) -> _Known:
        labels = _labels(peer)
        known = self._known.get(peer.server)
        if known is None or known.labels != labels:
            folder = Folder(BOUNDS.get(peer.kind, Bounds()))
            known = _Known(labels, folder, *_splicer(look, peer))
        return known


def _folded_and_spliced(known: _Known, text: bytes, room: Room) -> Page:
    """Return what a page comes to, if there is memory for it and for what is remembered of it.

    Raises:
        OverBudgetError: There is not.
    """
    room.take(known.folder.weigh(text))
    text = known.folder.fold(text)
    spliced, remembered = known.splicer.weigh(text)
    known.memory.hold(remembered)
    room.take(spliced)
    return known.splicer.splice(text)


def _splicer(look: Look, peer: Instance) -> tuple[Splicer, Room]:
    model = "" if peer.kind == "dcgm" else peer.labels.get("model_name", "")
    splicer = Splicer(_labels(peer), {"model_name": model})
    return splicer, look.pages.memory(peer.server, splicer)


def _labels(peer: Instance) -> dict[str, str]:
    """Return what is written on every line: of GPUs the node, of all else the identity."""
    if peer.kind == "dcgm":
        node = peer.node or peer.server.rpartition(":")[0]
        return {"cluster": peer.labels.get("cluster", ""), "node": node, "server": peer.server}
    return {name: value for name, value in peer.labels.items() if name != "model_name"}


def _families(peer: Instance, *, up: int) -> Families:
    families = Families()
    labels = {name: value for name, value in peer.labels.items() if name != "model_name"}
    families.add("leadline_peer_up", {**labels, "kind": peer.kind}, up)
    if peer.draining is not None:
        draining = {**labels, "kind": peer.kind}
        families.add("leadline_target_draining", draining, float(peer.draining))
    return families
