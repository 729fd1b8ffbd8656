"""A run added up: counters since each incarnation, gauges and buckets at any instant.

Time is computed in chunks of half an hour. Only the totals at their edges are kept, so any chunk
can be had again, before or after the end of history, and always comes out the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from simulator.change import HOUR, Driver
from simulator.fleet import CHUNK, Fleet, fleet
from simulator.flow import CELL, Cells, Flow, engines
from simulator.noise import FloatArray
from simulator.scenario import Scenario, scenario
from simulator.template import bounds

Side = Literal["prefill", "decode"]
SIDES: Final[tuple[Side, Side]] = ("prefill", "decode")
CELLS: Final = round(CHUNK / CELL)
AT_ONCE: Final = 8
"""Chunks whose traffic is computed in one go."""

# Coefficients of variation of one observation, for the shape of buckets; others: 0.5.
_VARIATION: Final = {
    "vllm:request_prompt_tokens": 0.3,
    "vllm:request_prefill_kv_computed_tokens": 0.3,
    "vllm:request_params_n": 0.0,
    "vllm:request_params_max_tokens": 0.0,
    "vllm:request_num_preemptions": 0.0,
    "vllm:request_time_per_output_token_seconds": 0.12,
    "vllm:inter_token_latency_seconds": 0.15,
    "vllm:nixl_bytes_transferred": 0.3,
    "vllm:nixl_num_descriptors": 0.3,
    "vllm:request_queue_time_seconds": 1.2,
}

_DRIVERS: Final[dict[Driver, tuple[str, ...]]] = {
    "tokens": ("vllm:prompt_tokens_total", "vllm:generation_tokens_total"),
    "requests": ("vllm:request_params_n_count",),
    "steps": ("vllm:iteration_tokens_total_count",),
}
"""Counters that memory is lost by."""


@dataclass(frozen=True)
class Pool:
    """One pool in one chunk.

    Attributes:
        counters: By key, shape (engines, cells + 1): totals at the edges of cells.
        gauges: By key, shape (engines, cells).
        before: By histogram, shape (engines, buckets): cumulative buckets at the first edge.
        gained: Same shape: what they gain within the chunk.
    """

    counters: dict[str, FloatArray]
    gauges: dict[str, FloatArray]
    before: dict[str, FloatArray]
    gained: dict[str, FloatArray]

    def buckets(self, family: str, place: float | FloatArray) -> FloatArray:
        """Return cumulative buckets at *place* (in cells), shape (engines, buckets, places).

        Within a chunk they share in the growth of the count, so the last one always equals it.
        """
        count = self.counters[f"{family}_count"]
        now = at_edges(count, np.atleast_1d(place))
        gain = np.maximum(count[:, -1:] - count[:, :1], 1e-9)
        share = (now - count[:, :1]) / gain
        before, gained = self.before[family], self.gained[family]
        answer: FloatArray = before[:, :, None] + gained[:, :, None] * share[:, None, :]
        return answer


@dataclass(frozen=True)
class Chunk:
    """Half an hour of the run; `edges` are seconds from the end of history."""

    edges: FloatArray
    pools: dict[Side, Pool]


class World:
    """One run of a scenario with a seed.

    Args:
        name: A scenario or the name of one.
        seed: Seed of all noise.
        span: Seconds of history that counters reach back.
        servers: The deployment, by default 4P1D.
    """

    def __init__(
        self,
        name: str | Scenario,
        seed: int = 0,
        span: float = 72 * HOUR,
        servers: Fleet | None = None,
    ) -> None:
        self.scenario = scenario(name) if isinstance(name, str) else name
        self.seed = seed
        self.fleet = self.scenario.fleet(servers or fleet())
        self.flow = Flow(self.fleet, self.scenario, seed)
        self.origin = -math.ceil(max(span, 12 * HOUR) / CHUNK) * CHUNK
        depths = {s.pool: s.depth for s in self.fleet.servers}
        self.bounds = {side: bounds(side, depths[side]) for side in SIDES}
        self._carry: list[dict[Side, dict[str, FloatArray]]] = []
        self._odometers: list[dict[Side, dict[Driver, FloatArray]]] = []
        self._blocks = lru_cache(maxsize=2)(self._block)
        self._cached = lru_cache(maxsize=3)(self._chunk)

    def chunk(self, at: float) -> Chunk:
        """Return the chunk that holds the instant *at*, seconds from the end of history."""
        number = math.floor((at - self.origin) / CHUNK)
        if number < 0:
            raise ValueError(f"the run begins {-self.origin:.0f} s before now, not {-at:.0f} s")
        while len(self._carry) < number:
            self._cached(len(self._carry))
        return self._cached(number)

    def driven(self, side: Side, row: int, by: Driver, at: FloatArray) -> FloatArray:
        """Return how much of *by* an engine has done since the run began, at instants *at*.

        Restarts don't set it back. Before the run began it is none.
        """
        if by == "hours":
            return np.asarray(at / HOUR, dtype=np.float64)
        self.chunk(float(max(at.max(), self.origin)))
        place = (at - self.origin) / CHUNK
        number = np.floor(place).astype(np.int64)
        answer = np.zeros_like(at)
        for chunk in np.unique(number[number >= 0]):
            here = number == chunk
            done = self._odometers[chunk][side][by][row : row + 1]
            answer[here] = at_edges(done, (place[here] - chunk) * CELLS)[0]
        return answer

    def _odometer(self, cells: dict[Side, Cells]) -> dict[Side, dict[Driver, FloatArray]]:
        """Return what drives losses, at the edges of the next chunk's cells."""
        last = self._odometers[-1] if self._odometers else None
        found: dict[Side, dict[Driver, FloatArray]] = {}
        for side in SIDES:
            found[side] = {}
            for by, keys in _DRIVERS.items():
                cell = sum((cells[side].added[key] for key in keys), np.zeros(()))
                done = np.concatenate([np.zeros((len(cell), 1)), np.cumsum(cell, axis=1)], axis=1)
                found[side][by] = done + (last[side][by][:, -1:] if last else 0.0)
        return found

    def _chunk(self, number: int) -> Chunk:
        edges: FloatArray = self.origin + number * CHUNK + CELL * np.arange(CELLS + 1.0)
        block, place = divmod(number, AT_ONCE)
        cells = {
            side: found.part(slice(place * CELLS, (place + 1) * CELLS))
            for side, found in self._blocks(block).items()
        }
        carry = self._carry[number - 1] if number else {side: {} for side in SIDES}
        pools: dict[Side, Pool] = {}
        ends: dict[Side, dict[str, FloatArray]] = {}
        for side in SIDES:
            fresh = self._restarted(side, float(edges[0]))
            kept = {key: np.where(fresh, 0.0, value) for key, value in carry[side].items()}
            pools[side], ends[side] = self._add_up(side, cells[side], kept)
        if number == len(self._carry):
            self._carry.append(ends)
            self._odometers.append(self._odometer(cells))
        return Chunk(edges, pools)

    def _block(self, number: int) -> dict[Side, Cells]:
        """Return what happened in the cells of several chunks: numpy is cheaper by the dozen."""
        begin = self.origin + number * AT_ONCE * CHUNK
        middles: FloatArray = begin + CELL * (np.arange(float(AT_ONCE * CELLS)) + 0.5)
        prefill = self.flow.prefill(middles)
        arrived = prefill.added["vllm:request_params_n_count"].sum(axis=0)
        return {"prefill": prefill, "decode": self.flow.decode(middles, arrived)}

    def _restarted(self, side: Side, edge: float) -> npt.NDArray[np.bool_]:
        flags = [edge in server.starts for server, _ in engines(self.fleet, side)]
        return np.array(flags, dtype=np.bool_)[:, None]

    def _add_up(
        self, side: Side, cells: Cells, carry: dict[str, FloatArray]
    ) -> tuple[Pool, dict[str, FloatArray]]:
        """Return the pool in a chunk, and what the next chunk starts from."""
        counters = _accumulate(cells.added, carry)
        never = np.zeros((len(engines(self.fleet, side)), CELLS + 1))
        before, gained = {}, {}
        for family, limits in self.bounds[side].items():
            counters.setdefault(f"{family}_count", never)
            counters.setdefault(f"{family}_sum", never)
            count = counters[f"{family}_count"]
            total = counters[f"{family}_sum"]
            n, s = count[:, -1] - count[:, 0], total[:, -1] - total[:, 0]
            mean = s / np.maximum(n, 1e-9)
            shape = _below(np.array(limits), mean, _VARIATION.get(family, 0.5))
            gained[family] = n[:, None] * shape
            before[family] = carry.get(f"{family}_bucket", np.zeros((len(n), len(limits))))
        ends = {key: counter[:, -1:].copy() for key, counter in counters.items()}
        ends |= {f"{family}_bucket": before[family] + gained[family] for family in before}
        return Pool(counters, cells.gauges, before, gained), ends


def _accumulate(
    added: Mapping[str, FloatArray], carry: Mapping[str, FloatArray]
) -> dict[str, FloatArray]:
    """Return totals at the edges of cells, from what each cell added and what was before."""
    stacked = np.stack(list(added.values()))
    totals = np.zeros((*stacked.shape[:2], stacked.shape[2] + 1))
    np.cumsum(stacked, axis=2, out=totals[:, :, 1:])
    if carry:
        totals += np.stack([carry[key] for key in added])
    return dict(zip(added, totals, strict=True))


def _below(limits: FloatArray, mean: FloatArray, variation: float) -> FloatArray:
    """Return the share of observations at or below each bound, shape (engines, bounds).

    Observations are log-normal; without variation (or with mean zero) they all equal the mean.
    """
    steady = limits[None, :] >= mean[:, None] * (1.0 - 1e-9)
    if variation == 0.0:
        return steady.astype(np.float64)
    sigma = math.sqrt(math.log1p(variation**2))
    with np.errstate(divide="ignore"):
        z = (np.log(limits)[None, :] - np.log(np.maximum(mean, 1e-12))[:, None]) / sigma
    share: FloatArray = ndtr(z + sigma / 2)
    return np.where(mean[:, None] > 1e-9, share, steady)


def at_edges(counter: FloatArray, place: FloatArray) -> FloatArray:
    """Return totals at *place* (in cells from the first edge), shape (engines, places)."""
    left = np.clip(np.floor(place).astype(np.int64), 0, counter.shape[1] - 2)
    share = place - left
    between: FloatArray = counter[:, left] + (counter[:, left + 1] - counter[:, left]) * share
    return between
