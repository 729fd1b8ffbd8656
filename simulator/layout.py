"""The text of a page without its numbers, and the place of each number in one long row."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import numpy as np
import numpy.typing as npt

from catalog.exposition import escape, series
from simulator.fleet import Fleet, Server
from simulator.flow import BLOCK, KV_TOKENS, engines
from simulator.template import Slot, template
from simulator.world import SIDES, Side


class Layout:
    """Lines of all vLLM servers, their families grouped under one HELP and TYPE.

    The row of numbers has, pool by pool and slot by slot, one number for each engine, or for each
    server where the page has one for the server.

    Attributes:
        slots: By pool, the samples of one server's page in its order.
        texts: Text before each number, with the comments of a family before its first line.
        places: Place of each number in the row.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.slots: dict[Side, list[Slot]] = {}
        self.texts: list[str] = []
        self._offsets: dict[Side, list[int]] = {}
        self._families: dict[Side, dict[str, list[int]]] = {}
        comments: dict[str, str] = {}
        offset = 0
        for side in SIDES:
            families = template(side, fleet.pool(side)[0].depth)
            comments |= {family.name: family.comment for family in families}
            slots = [slot for family in families for slot in family.slots]
            widths = [len(_rows(fleet, side, slot)) for slot in slots]
            self._offsets[side] = [offset + int(w) for w in np.cumsum([0, *widths[:-1]])]
            offset += sum(widths)
            self.slots[side] = slots
            owners = [family.name for family in families for _ in family.slots]
            self._families[side] = {
                name: [i for i, _ in found]
                for name, found in groupby(enumerate(owners), key=lambda pair: pair[1])
            }
        places: list[int] = []
        for name, comment in comments.items():
            head = comment
            for server in fleet.servers:
                for text, place in self._lines(server, name):
                    self.texts.append(head + text)
                    places.append(place)
                    head = ""
        self.places: npt.NDArray[np.int64] = np.array(places, dtype=np.int64)

    def _lines(self, server: Server, family: str) -> Iterator[tuple[str, int]]:
        """Yield text and place of each line of one server's family, engine after engine."""
        side: Side = "prefill" if server.pool == "prefill" else "decode"
        numbers = self._families[side].get(family, [])
        for rank in range(server.ranks):
            for number in numbers:
                slot = self.slots[side][number]
                if slot.engine or rank == 0:
                    row = _rows(self._fleet, side, slot).index((server, rank))
                    text = f"{series(slot.name, line_labels(self._fleet, server, slot, rank))} "
                    yield text, self._offsets[side][number] + row


def _rows(fleet: Fleet, side: Side, slot: Slot) -> list[tuple[Server, int]]:
    """Return whose numbers a slot has: every engine's, or only each server's."""
    return [(s, rank) for s, rank in engines(fleet, side) if slot.engine or rank == 0]


def line_labels(fleet: Fleet, server: Server, slot: Slot, rank: int) -> tuple[tuple[str, str], ...]:
    """Return the labels of a line: the identity first, then the page's own."""
    identity = fleet.labels(server)
    if slot.engine:
        identity["engine"] = str(rank)
    tokens = KV_TOKENS[server.pool]
    config = {
        "block_size": str(BLOCK),
        "effective_attention_block_size": str(BLOCK),
        "num_gpu_blocks": str(tokens // BLOCK),
        "kv_cache_size_tokens": str(tokens),
        "kv_cache_memory_bytes": "None",
        "kv_cache_max_concurrency": str(tokens / 8192),
    }
    own = dict(slot.labels)
    own |= {name: value for name, value in config.items() if name in own}
    return tuple((name, escape(value)) for name, value in (identity | own).items())
