"""Requests as a fluid: arrivals, queue and prefill, KV transfer, decode steps with drafts.

Arrivals are counts in cells of 20 seconds; between them load turns into times by closed forms, so
that no state is carried from cell to cell. Sizes follow a 4P1D deployment at 8K tokens of input.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from catalog.labels import Pool
from simulator.change import HOUR, What
from simulator.change import total as changed
from simulator.fleet import Fleet, Server
from simulator.noise import FloatArray, keys, normal, smooth, uniform
from simulator.traffic import ARRIVALS, OUTPUT, PROMPT, Traffic
from simulator.truth import Scenario

CELL: Final = 20.0

PREFILL_SPEED: Final = 12_000.0  # tokens a second and GPU, one request after another
PREFILL_HITS: Final = 0.25
DECODE_HITS: Final = 0.30
STEP_FIXED, STEP_PER_REQUEST = 0.0355, 0.00035  # seconds of a decode step with three drafts
ACCEPTED: Final = np.array([0.80, 0.65, 0.52])  # by position
_MEAN_ACCEPTED: Final = 2.02  # healthy mean length 3.02, wandering between 2.92 and 3.12
_FALL_BY_POSITION: Final = np.array([0.25, 0.33, 0.42])
KV_BYTES: Final = 44_928.0  # a token: 78 layers x (512 + 64), FP8
LINK: Final = 25e9
KV_TOKENS: Final[dict[Pool, int]] = {"prefill": 196_608, "decode": 393_216}
BLOCK: Final = 64
STEP_PER_DRAFT: Final = 0.0085  # seconds that one draft more costs a step
RESTORE: Final = 26e-12  # seconds a byte from the CPU tier: 26 ms a GB
BATCH: Final[dict[Pool, float]] = {"prefill": 64.0, "decode": 256.0}
RESTORED: Final = "vllm:kv_offload_load_bytes_total"
"""Not on the pages, whose servers have no offloading; the tables have it."""

FROZEN: Final = {
    "vllm:num_requests_running": 106.0,
    "vllm:num_requests_waiting": 0.0,
    "vllm:num_requests_waiting_by_reason|capacity": 0.0,
    "vllm:num_requests_waiting_by_reason|deferred": 0.0,
    "vllm:num_requests_kv_fetch_by_stage|in_progress": 0.0,
    "vllm:kv_cache_usage_perc": 0.904,
}
"""Gauges that a mass abort left behind: vllm-project/vllm#22545."""

_POSITIONS: Final[tuple[What, ...]] = ("position_0", "position_1")


@dataclass
class Cells:
    """What happened in some cells, by sample name: `name` or `name|label value`.

    Attributes:
        added: What counters and sums grew by, shape (engines, cells).
        gauges: Values, same shape.
    """

    added: dict[str, FloatArray] = field(default_factory=dict)
    gauges: dict[str, FloatArray] = field(default_factory=dict)

    def part(self, cells: slice) -> Cells:
        """Return what happened in some of the cells."""
        return Cells(
            {key: array[:, cells] for key, array in self.added.items()},
            {key: array[:, cells] for key, array in self.gauges.items()},
        )

    def observe(self, family: str, count: FloatArray, total: FloatArray) -> None:
        """Add observations to a histogram."""
        self.added[f"{family}_count"] = count
        self.added[f"{family}_sum"] = total


class Flow:
    """The traffic of one run; every method takes instants in seconds from the end of history."""

    def __init__(self, fleet: Fleet, scenario: Scenario, seed: int) -> None:
        self.fleet = fleet
        self.scenario = scenario
        self._seed = seed
        self._traffic = Traffic(scenario.traffic, seed, scenario.weekday)

    def _keys(self, what: str, pool: Pool) -> npt.NDArray[np.uint64]:
        return keys(self._seed, *(f"{what}/{s.name}/{i}" for s, i in engines(self.fleet, pool)))

    def change(self, what: What, pool: Pool, at: FloatArray) -> FloatArray:
        """Return what the scenario adds to *what*, shape (engines or 1, instants or 1)."""
        rows = engines(self.fleet, pool)
        numbers = {server.name: i for i, server in enumerate(self.fleet.pool(pool))}
        places = [(pool, numbers[server.name], rank) for server, rank in rows]
        if not any(change.what == what for change in self.scenario.changes):
            return np.zeros((1, 1))
        started = {s.name: s.started(at) for s in self.fleet.pool(pool)}
        begun = [started[server.name] for server, _ in rows]
        return changed(self.scenario.changes, what, at, places, begun)

    def arrivals(self, at: FloatArray) -> FloatArray:
        """Return requests a second of the whole deployment, as the fluid has it."""
        rate = ARRIVALS * self._traffic.rate(at) * (1.0 + self.change("traffic", "decode", at)[0])
        arriving: FloatArray = rate * self._served(at) * ~self.idle(at)
        return arriving

    def idle(self, at: FloatArray) -> npt.NDArray[np.bool_]:
        """Return whether the scenario lets no request arrive."""
        begin, end = self.scenario.idle or (np.inf, np.inf)
        still: npt.NDArray[np.bool_] = (at >= begin) & (at < end)
        return still

    def load(self, at: FloatArray) -> FloatArray:
        """Return the traffic relative to a day's mean."""
        return self.arrivals(at) / ARRIVALS

    def _served(self, at: FloatArray) -> FloatArray:
        """Return whether some server of each pool is up: else nothing arrives."""
        pools: tuple[Pool, Pool] = ("prefill", "decode")
        up = [np.any([s.up(at) for s in self.fleet.pool(p)], axis=0) for p in pools]
        served: FloatArray = np.logical_and(*up).astype(np.float64)
        return served

    def _shares(self, pool: Pool, at: FloatArray) -> FloatArray:
        """Return each engine's share of the pool's requests; none while its server is away."""
        up = np.array([s.up(at) for s, _ in engines(self.fleet, pool)], dtype=np.float64)
        weight = up * (1.0 + 0.04 * smooth(self._keys("share", pool), at, 3 * HOUR))
        weight = weight * np.maximum(1.0 + self.change("share", pool, at), 0.0)
        shares: FloatArray = weight / np.maximum(weight.sum(axis=0), 1e-9)
        return shares

    def mean_accepted(self, at: FloatArray) -> FloatArray:
        """Return the mean number of drafted tokens that a decode step accepts."""
        wander = np.tanh(smooth(keys(self._seed, "acceptance"), at, 4 * HOUR)[0])
        healthy: FloatArray = _MEAN_ACCEPTED + 0.1 * wander
        more: FloatArray = self.change("accepted", "decode", at)[0]
        return np.maximum(healthy + more, 0.02)

    def prompt(self, at: FloatArray) -> FloatArray:
        """Return the mean length of prompts."""
        wander = 1.0 + 0.03 * smooth(keys(self._seed, "prompt"), at, 2 * HOUR)
        factor = self._traffic.prompt(at) * (1.0 + self.change("prompt", "decode", at)[:1])
        mean: FloatArray = PROMPT * wander * factor
        return mean

    def output(self, at: FloatArray) -> FloatArray:
        """Return the mean length of answers."""
        wander = 1.0 + 0.02 * smooth(keys(self._seed, "output"), at, 3 * HOUR)
        factor = self._traffic.output(at) * (1.0 + self.change("output", "decode", at)[:1])
        mean: FloatArray = OUTPUT * wander * factor
        return mean

    def prefill(self, at: FloatArray) -> Cells:
        """Return what the prefill engines did in the cells around *at*."""
        pool: Pool = "prefill"
        cell = cell_of(at)
        rate = self.arrivals(at) * self._shares(pool, at)
        expected = rate * CELL
        z = normal(self._keys("arrive", pool), cell)
        n = np.maximum(np.round(expected + np.sqrt(expected) * z), 0.0)

        prompt = self.prompt(at)
        hits = self._hits(at)
        tier = np.clip(self.change("tier_hits", pool, at), 0.0, 1.0 - hits)
        service = self._service(at, prompt * (1.0 - hits - tier), prompt * tier)
        busy = np.minimum(rate * service, 0.95)
        wait = 0.6 * service * busy / (1.0 - busy)  # M/G/1 with a variation of .45 in service
        backlog = self.change("backlog", pool, at) / len(rate)
        wait = wait + backlog / np.maximum(rate, 0.05)
        wait = wait * self._tail("prefill", cell)

        cells = Cells()
        tokens = total(n, prompt, 0.3, normal(self._keys("tokens", pool), cell))
        found = tokens * hits
        fetched = tokens * tier
        computed = tokens - found - fetched
        queued = total(n, wait, 1.2, normal(self._keys("wait", pool), cell))
        worked = total(n, service, 0.3, normal(self._keys("work", pool), cell))
        zero = np.zeros_like(n)
        self._requests(cells, n, tokens, computed, output=n, limit=n)
        cells.added |= {
            "vllm:prefix_cache_queries_total": tokens,
            "vllm:prefix_cache_hits_total": found,
            "vllm:external_prefix_cache_queries_total": tokens - found,
            "vllm:external_prefix_cache_hits_total": fetched,
            "vllm:prompt_tokens_by_source_total|local_compute": computed,
            "vllm:prompt_tokens_by_source_total|local_cache_hit": found,
            "vllm:prompt_tokens_by_source_total|external_kv_transfer": fetched,
            "vllm:prompt_tokens_cached_total": found + fetched,
            "vllm:prompt_tokens_cached_by_source_total|device": found,
            RESTORED: fetched * KV_BYTES * self.scenario.churn,
        }
        # One token and done: that is how a P/D router asks a prefill server.
        self._finished(cells, pool, at, n, {"length": 1.0})
        self._faults(cells, pool, at, n)
        first = queued + worked + 0.01 * n
        cells.observe("vllm:time_to_first_token_seconds", n, first)
        cells.observe("vllm:request_queue_time_seconds", n, queued)
        cells.observe("vllm:request_prefill_time_seconds", n, worked)
        cells.observe("vllm:request_inference_time_seconds", n, worked)
        cells.observe("vllm:request_decode_time_seconds", n, zero)
        cells.observe("vllm:request_time_per_output_token_seconds", n, zero)
        self._whole(cells, n, tokens, n, first + 0.002 * n)
        cells.observe("vllm:iteration_tokens_total", 1.15 * n, computed + n)
        draw = uniform(self._keys("gauge", pool), cell)
        running = np.floor(busy * 1.15 + draw)
        waiting = np.floor(rate * wait + draw)
        waiting = np.minimum(waiting, np.floor(backlog + 40.0 + draw))
        pulling = np.floor(rate * 0.5 + draw)  # blocks stay until decode has read them
        self._occupancy(cells, pool, running, (running + pulling) * prompt, capacity=waiting)
        self._freeze(cells, pool, at)
        return cells

    def decode(self, at: FloatArray, arrived: FloatArray) -> Cells:
        """Return what the decode engines did in the cells around *at*.

        Args:
            at: Middles of the cells.
            arrived: Requests that prefill finished in each cell, shape (cells,).
        """
        pool: Pool = "decode"
        cell = cell_of(at)
        shares = self._shares(pool, at)
        rate = self.arrivals(at) * shares
        z = normal(self._keys("arrive", pool), cell)
        spread = np.sqrt(arrived * shares) * (z - z.mean(axis=0))
        n = np.maximum(arrived * shares + spread, 0.0)

        prompt, output = self.prompt(at), self.output(at)
        by_position = self._by_position(at)
        length = 1.0 + by_position.sum(axis=0)
        demand = rate * output
        batch, step = self._steps(at, rate, demand, length)

        cells = Cells()
        tokens = total(n, prompt, 0.3, normal(self._keys("tokens", pool), cell))
        local = np.clip(DECODE_HITS + self.change("decode_hits", pool, at), 0.0, 0.98)
        fetched = tokens * (1.0 - local)
        written = total(n, output, 0.5, normal(self._keys("output", pool), cell))
        self._requests(cells, n, tokens, tokens * (1.0 - self._hits(at)), written, 4096.0 * n)
        self._transfers(cells, at, n, tokens, fetched, rate)
        drafts = written / length
        self._drafts(cells, drafts, by_position, cell)
        self._finished(cells, pool, at, n, {"stop": 0.97, "length": 0.03})
        self._faults(cells, pool, at, n)
        moved = cells.added["vllm:nixl_xfer_time_seconds_sum"]
        backlog = self.change("backlog", pool, at) / len(n)
        late = backlog / np.maximum(rate, 0.05) + 0.03 * self._tail("decode", cell)
        queued = moved + late * n
        worked = total(n, step, 0.1, normal(self._keys("work", pool), cell))
        paced = total(n, step / length, 0.08, normal(self._keys("pace", pool), cell))
        decoding = paced * (output - 1.0)
        first = queued + worked + 0.005 * n
        cells.observe("vllm:time_to_first_token_seconds", n, first)
        cells.observe("vllm:request_queue_time_seconds", n, queued)
        cells.observe("vllm:request_prefill_time_seconds", n, worked)
        cells.observe("vllm:request_inference_time_seconds", n, worked + decoding)
        cells.observe("vllm:request_decode_time_seconds", n, decoding)
        cells.observe("vllm:request_time_per_output_token_seconds", n, paced)
        self._whole(cells, n, tokens, written, first + decoding)
        cells.observe("vllm:inter_token_latency_seconds", drafts, drafts * step)
        cells.observe("vllm:iteration_tokens_total", (batch > 0.01) * CELL / step, written)
        draw = uniform(self._keys("gauge", pool), cell)
        running = np.floor(batch + 0.3 * np.sqrt(batch) * z.clip(-3, 3) + draw).clip(0)
        pulling = np.floor(rate * 0.05 + draw)
        held = running * (prompt + output / 2) + pulling * prompt
        blocked = np.floor(backlog + draw) * (backlog > 0.0)
        self._occupancy(cells, pool, running, held, capacity=blocked, pulling=pulling)
        self._freeze(cells, pool, at)
        return cells

    def _steps(
        self, at: FloatArray, rate: FloatArray, demand: FloatArray, length: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return batch and time of decode steps: Little's law, solved for the batch."""
        pool: Pool = "decode"
        dearer = 1.0 + self.change("step", pool, at)
        dearer = dearer * (1.0 + self.change("step_mixed", pool, at) * np.minimum(rate / 1.4, 2.0))
        fixed = STEP_FIXED * dearer + self.change("step_fixed", pool, at)
        depth = self.fleet.pool(pool)[0].depth
        fixed = fixed + STEP_PER_DRAFT * (depth - len(ACCEPTED))
        each = STEP_PER_REQUEST * dearer
        batch = fixed * demand / np.maximum(length - each * demand, 0.2)
        batch = np.minimum(batch, BATCH[pool])
        wobble = 1.0 + 0.008 * smooth(self._keys("speed", pool), at, 900.0)
        return batch, (fixed + each * batch) * wobble

    def _service(self, at: FloatArray, computed: FloatArray, restored: FloatArray) -> FloatArray:
        """Return the time that prefill works on a request of so many tokens."""
        speed = 1.0 + 0.02 * smooth(self._keys("speed", "prefill"), at, 1200.0)
        speed = speed * (1.0 + self.change("prefill", "prefill", at))
        time: FloatArray = 0.02 + computed / PREFILL_SPEED * speed + restored * KV_BYTES * RESTORE
        return time

    def _hits(self, at: FloatArray) -> FloatArray:
        """Return the share of prompt tokens that prefill finds in its own cache."""
        reuse = self._traffic.reuse(at)
        base = PREFILL_HITS if reuse is None else reuse
        wander = 0.02 * smooth(keys(self._seed, "hits"), at, 4 * HOUR)
        more = self.change("prefix_hits", "prefill", at)[:1]
        share: FloatArray = np.clip(base + wander + more, 0.0, 0.995)
        return share

    def _tail(self, name: str, cell: npt.NDArray[np.int64]) -> FloatArray:
        """Return factors with a heavy tail, of mean one, where the scenario has waits like that."""
        sizes = [c.size for c in self.scenario.changes if c.what == "queue_tail"]
        if not sizes:
            return np.ones((1, 1))
        draw = uniform(keys(self._seed, f"tail/{name}"), cell)
        alpha = 1.0 + 1.0 / sizes[0]
        pareto: FloatArray = (alpha - 1.0) / alpha * draw ** (-1.0 / alpha)
        return np.minimum(pareto, 200.0)

    def _finished(
        self, cells: Cells, pool: Pool, at: FloatArray, n: FloatArray, reasons: dict[str, float]
    ) -> None:
        """Add finished requests by reason; some fail, some are given up, some never counted."""
        counted = n * (1.0 - np.clip(self.change("uncounted", pool, at), 0.0, 1.0))
        failed = np.clip(self.change("errors", pool, at), 0.0, 1.0)
        given_up = np.clip(self.change("aborts", pool, at), 0.0, 1.0 - failed)
        for reason, share in reasons.items():
            done = counted * share * (1.0 - failed - given_up)
            cells.added[f"vllm:request_success_total|{reason}"] = done
        cells.added["vllm:request_success_total|error"] = counted * failed
        cells.added["vllm:request_success_total|abort"] = counted * given_up

    def _faults(self, cells: Cells, pool: Pool, at: FloatArray, n: FloatArray) -> None:
        """Add what goes wrong between the pools; none of it makes a request fail by itself."""
        names: dict[str, What] = {
            "vllm:nixl_num_failed_transfers_total": "transfer_failures",
            "vllm:nixl_num_kv_expired_reqs_total": "leases",
            "vllm:nixl_num_notifications_after_expiry_total": "late_reads",
            "vllm:num_preemptions_total": "preemptions",
        }
        for key, what in names.items():
            cells.added[key] = n * self.change(what, pool, at)

    def _freeze(self, cells: Cells, pool: Pool, at: FloatArray) -> None:
        """Let gauges stand still where the scenario has it so: at what a public report read."""
        frozen = np.broadcast_to(self.change("frozen", pool, at) > 0.0, cells_shape(cells))
        if not frozen.any():
            return
        for key, value in FROZEN.items():
            cells.gauges[key] = np.where(frozen, value, cells.gauges[key])

    def _requests(
        self,
        cells: Cells,
        n: FloatArray,
        tokens: FloatArray,
        computed: FloatArray,
        output: FloatArray,
        limit: FloatArray,
    ) -> None:
        """Add what both pools count for each request."""
        cells.added["vllm:prompt_tokens_total"] = tokens
        cells.added["vllm:generation_tokens_total"] = output
        cells.observe("vllm:request_prompt_tokens", n, tokens)
        cells.observe("vllm:request_generation_tokens", n, output)
        cells.observe("vllm:request_max_num_generation_tokens", n, output)
        cells.observe("vllm:request_params_n", n, n)
        cells.observe("vllm:request_params_max_tokens", n, limit)
        cells.observe("vllm:request_num_preemptions", n, np.zeros_like(n))
        # On decode this is what prefill computed: its own server computed nothing.
        cells.observe("vllm:request_prefill_kv_computed_tokens", n, computed)

    def _whole(
        self, cells: Cells, n: FloatArray, tokens: FloatArray, output: FloatArray, time: FloatArray
    ) -> None:
        """Add the time of whole requests, which the web server in front counts once more."""
        cells.observe("vllm:e2e_request_latency_seconds", n, time)
        for family in ("http_request_duration_highr_seconds", "http_request_duration_seconds"):
            cells.observe(family, n, time + 0.003 * n)
        cells.observe("http_request_size_bytes", n, 4.2 * tokens)
        cells.observe("http_response_size_bytes", n, 600.0 * n + 4.2 * output)
        cells.added["http_requests_total"] = n

    def _transfers(
        self,
        cells: Cells,
        at: FloatArray,
        n: FloatArray,
        tokens: FloatArray,
        fetched: FloatArray,
        rate: FloatArray,
    ) -> None:
        """Add the KV that decode pulled from prefill; NIXL counts on the side that reads."""
        local = tokens - fetched
        cells.added |= {
            "vllm:prefix_cache_queries_total": tokens,
            "vllm:prefix_cache_hits_total": local,
            "vllm:external_prefix_cache_queries_total": fetched,
            "vllm:external_prefix_cache_hits_total": fetched,
            "vllm:prompt_tokens_by_source_total|local_cache_hit": local,
            "vllm:prompt_tokens_by_source_total|external_kv_transfer": fetched,
            "vllm:prompt_tokens_cached_total": tokens,
            "vllm:prompt_tokens_cached_by_source_total|device": local,
            "vllm:prompt_tokens_cached_by_source_total|p2p": fetched,
        }
        size = fetched * KV_BYTES
        wander = 1.0 + 0.05 * smooth(self._keys("link", "decode"), at, 1500.0)
        slower = 1.0 + self.change("link", "decode", at)
        time = (size / LINK * (1.0 + 0.15 * rate) + 0.004 * n) * wander * slower
        cells.observe("vllm:nixl_xfer_time_seconds", n, time)
        cells.observe("vllm:nixl_post_time_seconds", n, 0.08 * time)
        cells.observe("vllm:nixl_bytes_transferred", n, size)
        cells.observe("vllm:nixl_num_descriptors", n, fetched / BLOCK * 78)

    def _by_position(self, at: FloatArray) -> FloatArray:
        """Return acceptance by position, shape (positions, engines, cells)."""
        profile = np.array(self.scenario.profile) if self.scenario.profile else ACCEPTED
        spread = np.resize(_FALL_BY_POSITION, len(profile))
        change = self.mean_accepted(at) - ACCEPTED.sum()
        rank = 0.006 * smooth(self._keys("rank acceptance", "decode"), at, 5 * HOUR)
        base = profile[:, None, None] + spread[:, None, None] * change + rank
        for position, what in enumerate(_POSITIONS):
            base[position] = base[position] + self.change(what, "decode", at)
        ratio: FloatArray = np.clip(base, 0.003, 0.99)
        return ratio

    def _drafts(
        self,
        cells: Cells,
        drafts: FloatArray,
        by_position: FloatArray,
        cell: npt.NDArray[np.int64],
    ) -> None:
        """Add drafts and what of them was accepted, with more than binomial noise."""
        accepted = np.zeros_like(drafts)
        ceiling = drafts
        for position, ratio in enumerate(by_position):
            z = normal(self._keys(f"accept {position}", "decode"), cell)
            noisy = drafts * ratio + 1.5 * z * np.sqrt(drafts * ratio * (1.0 - ratio))
            ceiling = np.clip(noisy, 0.0, ceiling)
            cells.added[f"vllm:spec_decode_num_accepted_tokens_per_pos_total|{position}"] = ceiling
            accepted = accepted + ceiling
        cells.added["vllm:spec_decode_num_drafts_total"] = drafts
        cells.added["vllm:spec_decode_num_draft_tokens_total"] = drafts * len(by_position)
        cells.added["vllm:spec_decode_num_accepted_tokens_total"] = accepted

    def _occupancy(
        self,
        cells: Cells,
        pool: Pool,
        running: FloatArray,
        held: FloatArray,
        *,
        capacity: FloatArray | None = None,
        pulling: FloatArray | None = None,
    ) -> None:
        zero = np.zeros_like(running)
        blocked = zero if capacity is None else capacity
        deferred = zero if pulling is None else pulling
        cells.gauges |= {
            "vllm:num_requests_running": running,
            "vllm:num_requests_waiting": blocked + deferred,
            "vllm:num_requests_waiting_by_reason|capacity": blocked,
            "vllm:num_requests_waiting_by_reason|deferred": deferred,
            "vllm:num_requests_kv_fetch_by_stage|waiting_to_start": zero,
            "vllm:num_requests_kv_fetch_by_stage|in_progress": deferred,
            "vllm:num_requests_kv_fetch_by_stage|completed_waiting": zero,
            "vllm:kv_cache_usage_perc": np.minimum(held / KV_TOKENS[pool], 1.0),
            "vllm:engine_sleep_state|awake": zero + 1.0,
        }


def engines(fleet: Fleet, pool: Pool) -> list[tuple[Server, int]]:
    """Return the engines of *pool* in page order: server and rank."""
    return [(server, i) for server in fleet.pool(pool) for i in range(server.ranks)]


def cells_shape(cells: Cells) -> tuple[int, ...]:
    """Return (engines, cells)."""
    return next(iter(cells.gauges.values())).shape


def cell_of(at: FloatArray) -> npt.NDArray[np.int64]:
    """Return the number of the cell around each instant; cell 0 begins at the end of history."""
    cell: npt.NDArray[np.int64] = np.floor(at / CELL).astype(np.int64)
    return cell


def total(n: FloatArray, mean: FloatArray, variation: float, z: FloatArray) -> FloatArray:
    """Return the sum of *n* observations with a mean and a coefficient of variation."""
    factor: FloatArray = 1.0 + variation * z.clip(-4, 4) / np.sqrt(np.maximum(n, 1.0))
    return n * mean * np.maximum(factor, 0.05)
