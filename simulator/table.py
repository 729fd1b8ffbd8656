"""Signals of a run as panels, straight from the model: for tests that need no Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from catalog.labels import identity
from catalog.panel import Labels, Panel
from catalog.signals import SIGNALS
from simulator.change import HOUR
from simulator.flow import CELL
from simulator.noise import FloatArray
from simulator.own import Row, rows
from simulator.world import SIDES, Side, World

WINDOW: Final = 300.0
EPOCH: Final = 1_800_000_000.0
"""A Friday at 08:00 UTC: unix seconds of the end of history where none are given."""

_GAUGES: Final = {
    "host_rss": "leadline_process_resident_bytes",
    "container_working_set": "leadline_container_working_set_bytes",
    "container_limit": "leadline_container_limit_bytes",
    "host_memory_total": "leadline_host_memory_total_bytes",
    "host_memory_used": "leadline_host_memory_used_bytes",
}
_PROCESS: Final = ("host_anon_swap", "host_rss")
_MEANS: Final = {
    "ttft_mean": "vllm:time_to_first_token_seconds",
    "e2e_mean": "vllm:e2e_request_latency_seconds",
    "queue_mean": "vllm:request_queue_time_seconds",
    "prefill_time_mean": "vllm:request_prefill_time_seconds",
    "tpot_mean": "vllm:request_time_per_output_token_seconds",
    "itl_mean": "vllm:inter_token_latency_seconds",
    "transfer_time_mean": "vllm:nixl_xfer_time_seconds",
}
_DECODE_ONLY: Final = ("tpot_mean", "itl_mean", "transfer_time_mean")
_ACCEPTED: Final = "vllm:spec_decode_num_accepted_tokens_total"
_DRAFTED: Final = "vllm:spec_decode_num_draft_tokens_total"
_REQUESTS: Final = "vllm:request_params_n_count"

KNOWN: Final = (
    "host_anon_swap", *_GAUGES, *_MEANS, "ttft_user_mean", "acceptance_ratio", "request_rate",
)  # fmt: skip


def panels(
    run: World | str,
    *,
    epoch: float = EPOCH,
    seed: int = 1,
    span: float = 72 * HOUR,
    since: float | None = None,
    until: float = 0.0,
    step: float = 60.0,
    signals: Iterable[str] | None = None,
) -> dict[str, Panel]:
    """Return panels of *signals* by name.

    Args:
        run: Name of a scenario, or a run.
        epoch: Unix seconds of the end of history, to which the scenario's times refer.
        seed: Seed of all noise, where a scenario is named.
        span: Seconds before the end of history.
        since: First instant, seconds from the end of history: instead of *span*.
        until: Last instant; behind 0 the run goes on as its truth says, up to breach and beyond.
        step: Seconds between instants, a multiple of 20.
        signals: Which; see `KNOWN`.

    Raises:
        ValueError: A signal or the scenario is not known here.
    """
    since = -span if since is None else since
    world = World(run, seed, -since + HOUR) if isinstance(run, str) else run
    wanted = list(KNOWN if signals is None else signals)
    for name in wanted:
        if name not in KNOWN:
            raise ValueError(f"no panel of {name!r}: there are {', '.join(KNOWN)}")
    at = np.arange(max(since, world.origin + WINDOW), until + 1e-6, step)
    table = _Table(world, epoch, at, step)
    return {name: table.panel(name) for name in wanted}


class _Table:
    """Reads all that panels at the instants *at* are made of."""

    def __init__(self, world: World, epoch: float, at: FloatArray, step: float) -> None:
        self._world = world
        self._at = at
        self._step = step
        self._times = at + epoch
        self._epoch = epoch
        self._found: list[Row] = []
        self._totals: dict[Side, dict[str, FloatArray]] = {}

    def panel(self, signal: str) -> Panel:
        """Return the panel of *signal*."""
        if signal == "host_anon_swap" or signal in _GAUGES:
            return self._hosts(signal)
        if signal == "acceptance_ratio":
            accepted, drafted = (
                self._added("decode", k, self._step) for k in (_ACCEPTED, _DRAFTED)
            )
            return self._pools(signal, {"decode": accepted}, trials=drafted)
        if signal == "request_rate":
            rates = {side: self._added(side, _REQUESTS, WINDOW) / WINDOW for side in SIDES}
            return self._pools(signal, rates)
        if signal == "ttft_user_mean":
            stages = self._mean("prefill", "e2e_mean") + self._mean("decode", "ttft_mean")
            load = self._added("prefill", _REQUESTS, WINDOW) / WINDOW
            fleet = self._world.fleet
            labels = identity(fleet.labels(fleet.servers[0]), "deployment") | {"source": "stages"}
            return Panel(signal, self._times, stages[None, :], (labels,), load[None, :])
        sides: tuple[Side, ...] = ("decode",) if signal in _DECODE_ONLY else SIDES
        means = {side: self._mean(side, signal) for side in sides}
        load = np.array([self._added(side, _REQUESTS, WINDOW) / WINDOW for side in sides])
        return self._pools(signal, means, load=load)

    def _hosts(self, signal: str) -> Panel:
        self._found = self._found or rows(self._world, self._epoch, self._at)
        metric = _GAUGES.get(signal, "leadline_process_anonymous_bytes")
        chosen = [row for row in self._found if row.metric.name == metric]
        if signal == "host_anon_swap":
            swap = [r for r in self._found if r.metric.name == "leadline_process_swap_bytes"]
            chosen = [
                replace(row, values=row.values + swapped.values)
                for row, swapped in zip(chosen, swap, strict=True)
            ]
        starts = None
        if signal in _PROCESS:
            begun = "leadline_process_start_time_seconds"
            starts = np.array([r.values for r in self._found if r.metric.name == begun])
        level = SIGNALS[signal].level
        labels = tuple(identity(row.labels, level) for row in chosen)
        values = np.array([self._while_up(row.labels, row.values) for row in chosen])
        return Panel(signal, self._times, values, labels, starts=starts)

    def _while_up(self, labels: Labels, values: FloatArray) -> FloatArray:
        """Return values with none where the server is away; hosts are never away."""
        for server in self._world.fleet.servers:
            if server.name == labels.get("server"):
                return np.where(server.up(self._at), values, np.nan)
        return values

    def _mean(self, side: Side, signal: str) -> FloatArray:
        total, count = (self._added(side, _MEANS[signal] + p, WINDOW) for p in ("_sum", "_count"))
        return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)

    def _added(self, side: Side, key: str, window: float) -> FloatArray:
        """Return what a pool's counter grew by in the *window* before each instant."""
        if not self._totals:
            self._totals = self._add_up()
        total = self._totals[side][key]
        end = np.round((self._at - self._at[0] + WINDOW) / CELL).astype(np.int64)
        added: FloatArray = total[end] - total[end - round(window / CELL)]
        return added

    def _add_up(self) -> dict[Side, dict[str, FloatArray]]:
        """Return pool totals at all edges from a window before the first instant, by key."""
        keys = (*(f"{f}{p}" for f in _MEANS.values() for p in ("_sum", "_count")),
                _ACCEPTED, _DRAFTED, _REQUESTS)  # fmt: skip
        first, last = self._at[0] - WINDOW, self._at[-1]
        grown: dict[Side, dict[str, list[FloatArray]]] = {side: {} for side in SIDES}
        begin = first
        while begin < last:
            chunk = self._world.chunk(begin)
            inside = (chunk.edges[1:] > first + 1e-6) & (chunk.edges[1:] <= last + 1e-6)
            for side in SIDES:
                for key in keys:
                    if key in (counters := chunk.pools[side].counters):
                        cells = np.diff(counters[key], axis=1).sum(axis=0)
                        grown[side].setdefault(key, []).append(cells[inside])
            begin = float(chunk.edges[-1])
        return {
            side: {k: np.concatenate([[0.0], *parts]).cumsum() for k, parts in grown[side].items()}
            for side in SIDES
        }

    def _pools(
        self,
        signal: str,
        values: Mapping[Side, FloatArray],
        *,
        load: FloatArray | None = None,
        trials: FloatArray | None = None,
    ) -> Panel:
        fleet = self._world.fleet
        labels = tuple(identity(fleet.labels(fleet.pool(side)[0]), "pool") for side in values)
        return Panel(
            signal,
            self._times,
            np.array(list(values.values())),
            labels,
            load=load,
            trials=None if trials is None else trials[None, :],
        )
