"""What counters grew by, gauges were and buckets held in a run, on one grid of instants."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from simulator.flow import CELL, RESTORED, engines
from simulator.noise import FloatArray
from simulator.world import SIDES, Chunk, Side, World

WINDOW: Final = 300.0

FINISHED: Final = tuple(
    f"vllm:request_success_total|{reason}" for reason in ("stop", "length", "error", "abort")
)
MEANS: Final = {
    "ttft_mean": "vllm:time_to_first_token_seconds",
    "e2e_mean": "vllm:e2e_request_latency_seconds",
    "queue_mean": "vllm:request_queue_time_seconds",
    "prefill_time_mean": "vllm:request_prefill_time_seconds",
    "decode_time_mean": "vllm:request_decode_time_seconds",
    "tpot_mean": "vllm:request_time_per_output_token_seconds",
    "itl_mean": "vllm:inter_token_latency_seconds",
    "transfer_time_mean": "vllm:nixl_xfer_time_seconds",
    "tokens_per_step": "vllm:iteration_tokens_total",
}
BY_SERVER: Final = ("ttft_mean", "tpot_mean", "itl_mean")
ACCEPTED: Final = "vllm:spec_decode_num_accepted_tokens_total"
DRAFTED: Final = "vllm:spec_decode_num_draft_tokens_total"
DRAFTS: Final = "vllm:spec_decode_num_drafts_total"
POSITION: Final = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
COUNTED: Final = (
    *FINISHED, ACCEPTED, DRAFTED, DRAFTS, RESTORED,
    *(f"{POSITION}|{i}" for i in range(5)),
    "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
    "vllm:prompt_tokens_by_source_total|local_compute",
    "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
    "vllm:external_prefix_cache_queries_total", "vllm:external_prefix_cache_hits_total",
    "vllm:nixl_bytes_transferred_sum",
)  # fmt: skip
PER_SERVER: Final = (
    *FINISHED, *(f"{MEANS[name]}{part}" for name in BY_SERVER for part in ("_sum", "_count")),
    "vllm:nixl_num_failed_transfers_total", "vllm:nixl_num_kv_expired_reqs_total",
    "vllm:nixl_num_notifications_after_expiry_total",
)  # fmt: skip
PER_ENGINE: Final = ("vllm:num_preemptions_total", "vllm:generation_tokens_total")
GAUGES: Final = (
    "vllm:num_requests_running", "vllm:num_requests_waiting",
    "vllm:num_requests_waiting_by_reason|capacity", "vllm:num_requests_waiting_by_reason|deferred",
    "vllm:num_requests_kv_fetch_by_stage|waiting_to_start",
    "vllm:num_requests_kv_fetch_by_stage|in_progress",
    "vllm:num_requests_kv_fetch_by_stage|completed_waiting", "vllm:kv_cache_usage_perc",
)  # fmt: skip
LADDERS: Final = tuple(MEANS[name] for name in BY_SERVER)
"""Histograms that signals are quantiles of."""


class Totals:
    """The counters, gauges and buckets of a run at instants *at*, multiples of 20 s apart.

    Everything is read once, chunk by chunk; a counter's growth leaves out its restarts.
    """

    def __init__(self, world: World, at: FloatArray) -> None:
        self._world = world
        self._at = at
        self._first = at[0] - WINDOW
        self._grown: dict[tuple[str, Side, str], list[FloatArray]] = {}
        self._gauges: dict[tuple[Side, str], list[FloatArray]] = {}
        self._servers = {
            side: np.cumsum([0, *(s.ranks for s in world.fleet.pool(side))])[:-1] for side in SIDES
        }
        begin = float(self._first)
        while begin < at[-1]:
            chunk = world.chunk(begin)
            for side in SIDES:
                self._read(side, chunk)
            begin = float(chunk.edges[-1])
        self._sums = {
            name: np.concatenate([np.zeros_like(parts[0][..., :1]), *parts], axis=-1).cumsum(-1)
            for name, parts in self._grown.items()
        }
        self.gauges = {name: np.concatenate(p, axis=-1) for name, p in self._gauges.items()}
        self._end = np.round((at - self._first) / CELL).astype(np.int64)

    def _read(self, side: Side, chunk: Chunk) -> None:
        pool = chunk.pools[side]
        low, high = self._first + 1e-6, self._at[-1] + 1e-6
        inside = (chunk.edges[1:] > low) & (chunk.edges[1:] <= high)
        for key, counter in pool.counters.items():
            scopes = [s for s, keys in _SCOPES.items() if key in keys]
            if not scopes:
                continue
            cells = np.diff(counter, axis=1)[:, inside]
            for scope in scopes:
                self._grown.setdefault((scope, side, key), []).append(
                    cells if scope == "engine"
                    else np.add.reduceat(cells, self._servers[side], axis=0) if scope == "server"
                    else cells.sum(axis=0)
                )  # fmt: skip
        edges = np.arange(len(chunk.edges), dtype=np.float64)
        for family in LADDERS:
            held = pool.buckets(family, edges).sum(axis=0)
            self._grown.setdefault(("bucket", side, family), []).append(
                np.diff(held, axis=1)[:, inside]
            )
        mine = self._at[(self._at >= chunk.edges[0]) & (self._at < chunk.edges[-1])]
        # The last instant may be the end of the last chunk: what the cell before it says, stays.
        if chunk.edges[-1] == self._at[-1]:
            mine = np.append(mine, chunk.edges[-1] - CELL)
        cell = ((mine - chunk.edges[0]) / CELL).astype(np.int64)
        for key in GAUGES:
            self._gauges.setdefault((side, key), []).append(pool.gauges[key][:, cell])

    def grown(self, side: Side, key: str, window: float, scope: str = "pool") -> FloatArray:
        """Return growth in the *window* before each instant; zeros for a counter there is none of.

        Shape: instants; (servers, instants) or (engines, instants) by *scope*; for the scope
        "bucket" (buckets, instants) of the pool.
        """
        total = self._sums.get((scope, side, key))
        if total is None:
            rows = {"server": len(self._servers[side]), "engine": self._count(side)}
            return np.zeros((*([rows[scope]] if scope in rows else []), len(self._at)))
        before = self._end - round(window / CELL)
        added: FloatArray = total[..., self._end] - total[..., np.maximum(before, 0)]
        return added

    def rate(self, side: Side, *keys: str, scope: str = "pool") -> FloatArray:
        """Return the rate of the sum of some counters over five minutes."""
        grown = [self.grown(side, key, WINDOW, scope) for key in keys]
        rate: FloatArray = np.sum(grown, axis=0) / WINDOW
        return rate

    def mean(self, side: Side, family: str, scope: str = "pool") -> FloatArray:
        """Return the mean of a histogram over five minutes; NaN without an observation."""
        total, count = (self.grown(side, family + p, WINDOW, scope) for p in ("_sum", "_count"))
        return ratio(total, count)

    def quantile(self, side: Side, family: str, q: float) -> FloatArray:
        """Return a quantile over five minutes as Prometheus would say it from the buckets."""
        held = np.maximum.accumulate(self.grown(side, family, WINDOW, "bucket"), axis=0)
        limits = np.array(self._world.bounds[side][family])
        rank = q * held[-1]
        place: npt.NDArray[np.int64] = (held < rank).sum(axis=0)
        place = np.minimum(place, len(limits) - 1)
        column = np.arange(held.shape[1])
        below = np.where(place > 0, held[place - 1, column], 0.0)
        low = np.where(place > 0, limits[place - 1], 0.0)
        high = limits[place]
        share = ratio(rank - below, held[place, column] - below)
        inside = low + (np.where(np.isfinite(high), high, low) - low) * share
        value = np.where(np.isinf(high), limits[-2], inside)
        return np.where(held[-1] > 1e-6, value, np.nan)

    def _count(self, side: Side) -> int:
        return len(engines(self._world.fleet, side))


_SCOPES: Final = {
    "pool": frozenset((*COUNTED, *(f + p for f in MEANS.values() for p in ("_sum", "_count")))),
    "server": frozenset(PER_SERVER),
    "engine": frozenset(PER_ENGINE),
}


def ratio(over: FloatArray, under: FloatArray) -> FloatArray:
    """Return *over* / *under*, NaN where the latter is none."""
    share: FloatArray = np.full(np.shape(over), np.nan)
    return np.divide(over, under, out=share, where=under > 1e-9)
