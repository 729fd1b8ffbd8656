"""Where a series belongs in a report: the pool, the deployment as a whole, or the hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from catalog.guards import WINDOW
from catalog.labels import POOLS
from catalog.panel import Labels, Panel
from catalog.signal import Signal
from catalog.signals import NOT_DECODE, NOT_PREFILL, SIGNALS

# What a week is judged by. Signals that only explain one of these are on the boards.
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "Service level": ("ttft_user_mean", "tpot_mean", "ttft_mean", "itl_mean", "e2e_mean",
                      "error_ratio"),
    "Host memory": ("host_anon_swap", "container_working_set", "host_memory_used", "host_rss",
                    "host_shmem", "host_threads", "host_fds"),
    "Speculative decoding": ("acceptance_ratio", "acceptance_length", "acceptance_by_position",
                             "drafts_rate"),
    "Queues and KV cache": ("queue_mean", "prefill_time_mean", "decode_time_mean",
                            "requests_waiting", "requests_waiting_capacity", "kv_fetch_waiting",
                            "kv_fetch_time_mean", "kv_usage", "preemption_rate",
                            "prefix_hit_ratio", "external_hit_ratio", "restore_bytes_rate"),
    "KV transfer": ("transfer_time_mean", "transfer_bytes_rate", "transfer_failures_rate",
                    "notification_failures_rate", "leases_expired_rate",
                    "reads_after_expiry_rate"),
    "Tails": ("ttft_p50", "ttft_p90", "ttft_p99", "tpot_p50", "tpot_p99", "itl_p99"),
    "Traffic": ("request_rate", "input_tokens_rate", "output_tokens_rate",
                "computed_tokens_rate", "tokens_per_step", "requests_running"),
    "Probes": ("probe_ttft", "probe_tpot", "probe_error_ratio", "probe_wrong_ratio"),
    "GPUs": ("gpu_utilization", "gpu_memory_activity", "gpu_memory_used", "gpu_power",
             "gpu_power_limit", "gpu_sm_clock", "gpu_temperature", "gpu_sm_active",
             "gpu_sm_occupancy", "gpu_tensor_active", "gpu_dram_active"),
    "Faults": ("gpu_xid_rate", "gpu_ecc_rate", "host_oom_kills_rate", "rdma_errors_rate",
               "network_errors_rate", "engines_missing"),
}  # fmt: skip
SHOWN: Final = frozenset(name for names in GROUPS.values() for name in names)
ALWAYS: Final = frozenset(
    {"ttft_mean", "e2e_mean", "queue_mean", "request_rate", "requests_running",
     "requests_waiting", "kv_usage", "host_anon_swap", "tpot_mean", "ttft_user_mean"}
)  # fmt: skip
"""Every vLLM deployment has these: where one is missing it is unknown, not inapplicable."""


@dataclass(frozen=True, order=True)
class Place:
    """A pool of a deployment; a deployment as a whole (no pool); hosts (neither)."""

    cluster: str = ""
    namespace: str = ""
    deployment: str = ""
    model_name: str = ""
    pool: str = ""

    @property
    def title(self) -> str:
        """Return its name for a heading."""
        if self.pool:
            return f"{self.deployment or self.model_name or 'deployment'} · {self.pool}"
        if self.deployment or self.model_name:
            return f"{self.deployment or self.model_name} · as a whole"
        return "Hosts" if self == Place(self.cluster) else "All series"

    @property
    def about(self) -> str:
        """Return what else identifies it."""
        named = (
            ("model", self.model_name),
            ("namespace", self.namespace),
            ("cluster", self.cluster),
        )
        return ", ".join(f"{name} {value}" for name, value in named if value)

    @property
    def rank(self) -> tuple[str, ...]:
        """Return what it is sorted by: deployments by name, pools as requests pass them."""
        hosts = "1" if not (self.deployment or self.model_name or self.pool) else "0"
        pools: tuple[str, ...] = ("", *POOLS)
        order = str(pools.index(self.pool)) if self.pool in pools else "9"
        return (
            hosts, self.cluster, self.namespace, self.deployment, self.model_name,
            order, self.pool,
        )  # fmt: skip


@dataclass
class Fleet:
    """The places seen so far, and how many servers each has."""

    servers: dict[Place, set[str]] = field(default_factory=dict)

    def see(self, panel: Panel) -> None:
        """Take note of the places and servers of *panel*."""
        for labels in panel.labels:
            at = self.servers.setdefault(place_of(labels), set())
            if server := labels.get("server") or labels.get("node"):
                at.add(server)

    @property
    def shape(self) -> str:
        """Return the fleet as people write it, `4P1D`, or an empty text."""
        letters = {"prefill": "P", "decode": "D"}
        count: Counter[str] = Counter()
        for place, servers in self.servers.items():
            count[place.pool] += len(servers)
        if not (count["prefill"] and count["decode"]):
            return ""
        return "".join(f"{count[pool]}{letter}" for pool, letter in letters.items())


def place_of(labels: Labels) -> Place:
    """Return the place of a series."""
    return Place(*(labels.get(name, "") for name in Place.__dataclass_fields__))


SPLIT: Final = ("process", "position", "source")
"""Labels whose values are different things, not many of one: each gets a line of its own."""


def by_place(panel: Panel) -> dict[tuple[Place, str], list[int]]:
    """Return the rows of *panel* by place and what it splits into there."""
    rows: dict[tuple[Place, str], list[int]] = {}
    for row, labels in enumerate(panel.labels):
        detail = " ".join(_detail(name, labels[name]) for name in SPLIT if labels.get(name))
        rows.setdefault((place_of(labels), detail), []).append(row)
    return rows


def _detail(name: str, value: str) -> str:
    return {"position": f"position {value}", "source": f"by {value}"}.get(name, value)


def expected(signal: Signal, seen: Iterable[Place]) -> list[Place]:
    """Return the places that have servers and where *signal* must be, if all is well."""
    serving = [place for place in seen if place.pool in ("prefill", "decode", "aggregate")]
    if signal.name not in ALWAYS:
        return []
    if signal.level == "deployment":
        return list(dict.fromkeys(replace(place, pool="") for place in serving))
    return [place for place in serving if not _barred(signal, place.pool)]


def _barred(signal: Signal, pool: str) -> bool:
    condition = {"prefill": NOT_PREFILL, "decode": NOT_DECODE}.get(pool)
    return condition is not None and condition in signal.expr


def shown() -> list[tuple[str, Signal]]:
    """Return every signal of the report with its group, in the order of the report."""
    grouped = {name: group for group, names in GROUPS.items() for name in names}
    return [(group, SIGNALS[name]) for name, group in grouped.items() if name in SIGNALS]


def meaning(signals: Iterable[Signal]) -> str:
    """Return how the signals are made, for the page's foot."""
    names = sorted({signal.name for signal in signals if signal.operation.endswith(WINDOW)})
    return f"Rates, means and quantiles ({len(names)} signals) are over {WINDOW}."
