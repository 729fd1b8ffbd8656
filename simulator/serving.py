"""Signals of vLLM's pages as panels: by pool, by server and by engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from catalog.labels import identity
from catalog.panel import Panel
from simulator import totals
from simulator.flow import RESTORED, engines
from simulator.grid import Grid
from simulator.noise import FloatArray, keys, normal
from simulator.own import setup
from simulator.totals import FINISHED, MEANS, WINDOW, ratio
from simulator.world import SIDES, Side

_QUANTILES: Final = {
    "ttft_p50": ("ttft_mean", 0.5), "ttft_p90": ("ttft_mean", 0.9), "ttft_p99": ("ttft_mean", 0.99),
    "tpot_p50": ("tpot_mean", 0.5), "tpot_p99": ("tpot_mean", 0.99), "itl_p99": ("itl_mean", 0.99),
}  # fmt: skip
_DECODE: Final[tuple[Side, ...]] = ("decode",)
_PREFILL: Final[tuple[Side, ...]] = ("prefill",)
_DECODE_ONLY: Final = ("tpot_mean", "itl_mean", "decode_time_mean", "transfer_time_mean")
_RATES: Final[dict[str, tuple[tuple[Side, ...], tuple[str, ...]]]] = {
    "request_rate": (SIDES, FINISHED),
    "input_tokens_rate": (_PREFILL, ("vllm:prompt_tokens_total",)),
    "output_tokens_rate": (_DECODE, ("vllm:generation_tokens_total",)),
    "computed_tokens_rate": (SIDES, ("vllm:prompt_tokens_by_source_total|local_compute",)),
    "drafts_rate": (SIDES, (totals.DRAFTS,)),
    "transfer_bytes_rate": (SIDES, ("vllm:nixl_bytes_transferred_sum",)),
    "restore_bytes_rate": (_PREFILL, (RESTORED,)),
}
_SERVER_RATES: Final[dict[str, tuple[str, ...]]] = {
    "request_rate_by_server": FINISHED,
    "transfer_failures_rate": ("vllm:nixl_num_failed_transfers_total",),
    "leases_expired_rate": ("vllm:nixl_num_kv_expired_reqs_total",),
    "reads_after_expiry_rate": ("vllm:nixl_num_notifications_after_expiry_total",),
}
_COUNTS: Final[dict[str, tuple[Side, str, str]]] = {
    "acceptance_ratio": ("decode", totals.ACCEPTED, totals.DRAFTED),
    "prefix_hit_ratio": (
        "prefill", "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total",
    ),
    "external_hit_ratio": (
        "prefill", "vllm:external_prefix_cache_hits_total",
        "vllm:external_prefix_cache_queries_total",
    ),
}  # fmt: skip
_ENGINES: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "requests_running": ("", "vllm:num_requests_running", ()),
    "requests_waiting": ("", "vllm:num_requests_waiting", ()),
    "requests_waiting_capacity": ("", "vllm:num_requests_waiting_by_reason|capacity", ()),
    "requests_waiting_by_reason": (
        "reason", "vllm:num_requests_waiting_by_reason", ("capacity", "deferred"),
    ),
    "kv_fetch_by_stage": (
        "stage", "vllm:num_requests_kv_fetch_by_stage",
        ("waiting_to_start", "in_progress", "completed_waiting"),
    ),
    "kv_usage": ("", "vllm:kv_cache_usage_perc", ()),
}  # fmt: skip
_BY_SERVER: Final = tuple(f"{name}_by_server" for name in totals.BY_SERVER)

SERVED: Final = (
    "ttft_user_mean", *MEANS, *_QUANTILES, *_RATES, *_COUNTS, "error_ratio",
    "finished_rate_by_reason", "acceptance_length", "acceptance_by_position", *_ENGINES,
    "kv_fetch_waiting", "preemption_rate", "gauges_frozen", *_SERVER_RATES, *_BY_SERVER,
    "instance_start", "counter_resets", "probe_ttft", "probe_tpot",
)  # fmt: skip


class Serving:
    """Makes the panels on a grid."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def make(self, signal: str) -> Panel | None:
        """Return the panel of *signal*; None where vLLM doesn't tell it."""
        if signal in _SPECIAL:
            return _SPECIAL[signal](self)
        for names, make in _FORMS:
            if signal in names:
                return make(self, signal)
        return None

    def mean(self, signal: str) -> Panel:
        """Return the mean of a histogram by pool."""
        sides = _DECODE if signal in _DECODE_ONLY else SIDES
        return self.pools(signal, {s: self.grid.totals.mean(s, MEANS[signal]) for s in sides})

    def quantile(self, signal: str) -> Panel:
        """Return a quantile of a histogram by pool."""
        mean, q = _QUANTILES[signal]
        sides = _DECODE if mean in _DECODE_ONLY else SIDES
        found = {side: self.grid.totals.quantile(side, MEANS[mean], q) for side in sides}
        return self.pools(signal, found)

    def rate(self, signal: str) -> Panel:
        """Return a rate by pool."""
        sides, counters = _RATES[signal]
        return self.pools(signal, {s: self.grid.totals.rate(s, *counters) for s in sides})

    def counts(self, signal: str) -> Panel:
        """Return a ratio as successes and trials by step."""
        side, won, tried = _COUNTS[signal]
        wins, trials = (self.grid.totals.grown(side, key, self.grid.step) for key in (won, tried))
        return self.pools(signal, {side: wins}, trials=trials)

    def server_rate(self, signal: str) -> Panel:
        """Return a rate by server."""
        counters = _SERVER_RATES[signal]
        rates = {s: self.grid.totals.rate(s, *counters, scope="server") for s in SIDES}
        return self.servers(signal, rates)

    # What is kept by pool or deployment.

    def user(self) -> Panel:
        """Return the user's TTFT: the stages' sum."""
        stages = self.stages()
        labels = self.grid.deployment()
        return self.grid.panel("ttft_user_mean", stages[None, :], [labels | {"source": "stages"}])

    def stages(self) -> FloatArray:
        """Return the sum of prefill's end-to-end time and decode's TTFT."""
        prefill = self.grid.totals.mean("prefill", MEANS["e2e_mean"])
        return prefill + self.grid.totals.mean("decode", MEANS["ttft_mean"])

    def probe(self, signal: str) -> Panel:
        """Return what one request a minute of ours would see: the mean of five."""
        mean = self.stages() + 0.02
        spread = 0.25
        if signal == "probe_tpot":
            mean, spread = self.grid.totals.mean("decode", MEANS["tpot_mean"]), 0.06
        minute = np.floor(self.grid.at / 60.0).astype(np.int64)
        key = keys(self.grid.world.seed, signal)
        draws = np.mean([normal(key, minute - back)[0] for back in range(5)], axis=0)
        labels = self.grid.deployment()
        return self.grid.panel(signal, (mean * np.exp(spread * draws))[None, :], [labels])

    def errors(self) -> Panel:
        """Return the share of finished requests that failed or were given up."""
        step, grown = self.grid.step, self.grid.totals.grown
        bad = {s: sum(grown(s, key, step) for key in FINISHED[2:]) for s in SIDES}
        every = [sum(grown(s, key, step) for key in FINISHED) for s in SIDES]
        found = {s: np.asarray(one, dtype=np.float64) for s, one in bad.items()}
        return replace(self.pools("error_ratio", found), trials=np.array(every))

    def by_reason(self) -> Panel:
        """Return finished requests by reason."""
        # vLLM has one more reason, which none of these requests ends by.
        keys_ = (*FINISHED, "vllm:request_success_total|repetition")
        pairs = [(side, key) for side in SIDES for key in keys_]
        labels = [
            self.grid.pool(side) | {"finished_reason": key.partition("|")[2]} for side, key in pairs
        ]
        values = np.array([self.grid.totals.rate(side, key) for side, key in pairs])
        return self.grid.panel("finished_rate_by_reason", values, labels)

    def length(self) -> Panel:
        """Return the mean acceptance length."""
        accepted, drafts = (
            self.grid.totals.rate("decode", k) for k in (totals.ACCEPTED, totals.DRAFTS)
        )
        return self.pools("acceptance_length", {"decode": 1.0 + ratio(accepted, drafts)})

    def by_position(self) -> Panel:
        """Return acceptance by position."""
        depth = self.grid.fleet.pool("decode")[0].depth
        step, grown = self.grid.step, self.grid.totals.grown
        values = [grown("decode", f"{totals.POSITION}|{i}", step) for i in range(depth)]
        drafts = grown("decode", totals.DRAFTS, step)
        labels = [self.grid.pool("decode") | {"position": str(i)} for i in range(depth)]
        made = self.grid.panel("acceptance_by_position", np.array(values), labels)
        return replace(made, trials=np.broadcast_to(drafts, made.values.shape).copy())

    # What is kept by server or engine.

    def preemptions(self) -> Panel:
        """Return preemptions by engine."""
        key = "vllm:num_preemptions_total"
        parts = [self.grid.totals.rate(side, key, scope="engine") for side in SIDES]
        values = np.concatenate([np.broadcast_to(p, self.shape(s)) for s, p in _sided(parts)])
        return self.grid.panel(
            "preemption_rate", self.grid.while_up(values), self.grid.places("engine")
        )

    def fetching(self) -> Panel:
        """Return requests that wait for KV."""
        stages = ("waiting_to_start", "in_progress")
        name = "vllm:num_requests_kv_fetch_by_stage"
        values = np.concatenate(
            [sum(self.grid.totals.gauges[s, f"{name}|{x}"] for x in stages) for s in SIDES]
        )
        return self.grid.panel(
            "kv_fetch_waiting", self.grid.while_up(values), self.grid.places("engine")
        )

    def frozen(self) -> Panel:
        """Return 1 for engines with requests on their gauges and not one token in five minutes."""
        parts = []
        for side in SIDES:
            tokens = self.grid.totals.grown(side, "vllm:generation_tokens_total", WINDOW, "engine")
            running = self.grid.totals.gauges[side, "vllm:num_requests_running"]
            parts.append(((tokens <= 0.0) & (running > 0.0)).astype(np.float64))
        values = self.grid.while_up(np.concatenate(parts))
        return self.grid.panel("gauges_frozen", values, self.grid.places("engine"))

    def resets(self) -> Panel:
        """Return 1 where a server's counters began again within five minutes."""
        parts = []
        for server in self.grid.servers():
            started = np.round(server.started(self.grid.at))
            age = self.grid.at - started
            again = (started > server.starts[0]) & (age >= 0.0) & (age < WINDOW)
            parts.append(again.astype(np.float64))
        labels = [place | {"kind": "restart"} for place in self.grid.places("server")]
        return self.grid.panel("counter_resets", np.array(parts), labels)

    def starts(self) -> Panel:
        """Return the start of each incarnation, by what it was started with."""
        values, labels = [], []
        places = self.grid.places("server")
        for server, place in zip(self.grid.servers(), places, strict=True):
            started = server.started(self.grid.at)
            up = server.up(self.grid.at)
            made: dict[tuple[str, ...], FloatArray] = {}
            for start in server.starts:
                here = up & (started == start)
                if here.any():
                    kind = tuple(setup(self.grid.world, server, start).values())
                    before = made.get(kind, np.full(len(up), np.nan))
                    made[kind] = np.where(here, start + self.grid.epoch, before)
            for kind, value in made.items():
                values.append(value)
                named = zip(("image", "arguments", "vllm_version"), kind, strict=True)
                labels.append(place | dict(named))
        return self.grid.panel("instance_start", np.array(values), labels)

    def server_mean(self, signal: str) -> Panel:
        """Return the mean of a histogram by server."""
        family = MEANS[signal.removesuffix("_by_server")]
        sides = SIDES if signal.startswith("ttft") else _DECODE
        return self.servers(signal, {s: self.grid.totals.mean(s, family, "server") for s in sides})

    def servers(self, signal: str, found: Mapping[Side, FloatArray]) -> Panel:
        """Return the panel of values by server, with none while it is away."""
        shapes = {side: (len(self.grid.fleet.pool(side)), len(self.grid.at)) for side in found}
        values = np.concatenate([np.broadcast_to(v, shapes[s]) for s, v in found.items()])
        up = [server.up(self.grid.at) for side in found for server in self.grid.fleet.pool(side)]
        labels = [
            identity(self.grid.fleet.labels(server), "server")
            for side in found
            for server in self.grid.fleet.pool(side)
        ]
        return self.grid.panel(signal, np.where(np.array(up), values, np.nan), labels)

    def gauge(self, signal: str) -> Panel:
        """Return a gauge by engine."""
        label, key, children = _ENGINES[signal]
        values, labels = [], []
        for child in children or ("",):
            name = f"{key}|{child}" if child else key
            gauges = np.concatenate([self.grid.totals.gauges[side, name] for side in SIDES])
            values.append(self.grid.while_up(gauges))
            extra = {label: child} if child else {}
            labels += [place | extra for place in self.grid.places("engine")]
        return self.grid.panel(signal, np.concatenate(values), labels)

    def pools(
        self, signal: str, values: Mapping[Side, FloatArray], *, trials: FloatArray | None = None
    ) -> Panel:
        """Return the panel of values by pool."""
        labels = [self.grid.pool(side) for side in values]
        found = self.grid.panel(signal, np.array(list(values.values())), labels)
        return found if trials is None else replace(found, trials=trials[None, :])

    def shape(self, side: Side) -> tuple[int, int]:
        """Return (engines, instants) of a pool."""
        return len(engines(self.grid.fleet, side)), len(self.grid.at)


def _sided(parts: Sequence[FloatArray]) -> list[tuple[Side, FloatArray]]:
    return list(zip(SIDES, parts, strict=True))


_FORMS: Final[tuple[tuple[Collection[str], Callable[[Serving, str], Panel]], ...]] = (
    (MEANS, Serving.mean),
    (_QUANTILES, Serving.quantile),
    (_RATES, Serving.rate),
    (_COUNTS, Serving.counts),
    (_ENGINES, Serving.gauge),
    (_BY_SERVER, Serving.server_mean),
    (_SERVER_RATES, Serving.server_rate),
)

_SPECIAL: Final[dict[str, Callable[[Serving], Panel]]] = {
    "ttft_user_mean": Serving.user,
    "probe_ttft": partial(Serving.probe, signal="probe_ttft"),
    "probe_tpot": partial(Serving.probe, signal="probe_tpot"),
    "error_ratio": Serving.errors,
    "finished_rate_by_reason": Serving.by_reason,
    "acceptance_length": Serving.length,
    "acceptance_by_position": Serving.by_position,
    "preemption_rate": Serving.preemptions,
    "kv_fetch_waiting": Serving.fetching,
    "gauges_frozen": Serving.frozen,
    "counter_resets": Serving.resets,
    "instance_start": Serving.starts,
}
