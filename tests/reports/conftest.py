"""A synthetic 4P1D soak as panels, made by plain formulas: what is in it is known."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from catalog.panel import Panel

GIB = 2.0**30
HOUR = 3600.0
DAY = 24 * HOUR
T0 = 1_764_000_000.0
BASE = {"cluster": "lab", "namespace": "llm", "deployment": "chat", "model_name": "some/model"}


def soak(
    *,
    days: float = 3.0,
    step: float = 300.0,
    leak: float = 0.0,
    leaking: tuple[str, ...] = ("DP1",),
    seed: int = 0,
    base: dict = BASE,
) -> dict[str, Panel]:
    """Return panels of a soak; *leak* in bytes an hour in decode's EngineCores *leaking*."""
    rng = np.random.default_rng(seed)
    times = T0 + np.arange(0, days * DAY, step)
    hours = (times - T0) / HOUR
    season = np.sin(2 * np.pi * hours / 24)
    servers = [("prefill", f"p{i}:8000") for i in range(4)] + [("decode", "d0:8000")]
    panels: dict[str, list[tuple[Mapping[str, str], np.ndarray, np.ndarray | None]]] = {}

    def add(name, labels, values, starts=None):
        panels.setdefault(name, []).append(({**base, **labels}, values, starts))

    for pool, server in servers:
        node = server.partition(":")[0]
        place = {"pool": pool, "server": server, "node": node}
        begun = np.full(len(times), T0 - 5 * DAY)
        total = 60 * GIB
        for process, rank, size in [
            ("api_server", "", 2.0),
            ("engine_core", "DP0", 6.0),
            ("engine_core", "DP1", 6.0),
            ("worker", "DP0", 20.0),
        ]:
            noise = np.cumsum(rng.normal(0, 1e-4, len(times)))
            noise -= np.linspace(0, noise[-1], len(times))
            values = (size + 0.02 * noise + 0.002 * rng.standard_normal(len(times))) * GIB
            starts = begun.copy()
            if server == "p2:8000":  # one server is restarted on the second day and warms up
                at = hours >= 30
                starts[at] = T0 + 30 * HOUR
                age = np.maximum(hours - 30, 0)
                values = np.where(at, values - 0.3 * GIB * np.exp(-age / 0.5), values)
            if (pool, process) == ("decode", "engine_core") and rank in leaking:
                grown = leak * np.maximum(hours - 10, 0)
                values, total = values + grown, total + grown
            add("host_anon_swap", {**place, "process": process, "rank": rank}, values, starts)
        group = {**place, "cgroup": f"vllm-{node}"}
        add("container_working_set", group, total + 0.1 * GIB * rng.standard_normal(len(times)))
        add("container_limit", group, np.full(len(times), 80 * GIB))
        for engine in ("0", "1"):
            labels = {"pool": pool, "server": server, "engine": engine}
            add(
                "kv_usage",
                labels,
                np.clip(0.5 + 0.2 * season + 0.02 * rng.standard_normal(len(times)), 0, 1),
            )
            add("requests_running", labels, 30 + 20 * season + rng.standard_normal(len(times)))
            add("requests_waiting", labels, rng.poisson(0.2, len(times)).astype(float))
    for pool in ("prefill", "decode"):
        labels, noise = {"pool": pool}, lambda size: 1 + size * rng.standard_normal(len(times))
        add("request_rate", labels, (10 + 6 * season) * noise(0.05))
        add("ttft_mean", labels, (0.6 if pool == "prefill" else 0.15) * noise(0.08))
        add("e2e_mean", labels, (0.6 if pool == "prefill" else 9.0) * noise(0.05))
        add("queue_mean", labels, 0.02 * noise(0.1) * (1 + 0.3 * season))
        add("ttft_p99", labels, 1.8 * noise(0.1))
    add("tpot_mean", {"pool": "decode"}, (0.0150 + 0.0010 * season) * noise(0.01))
    add("ttft_user_mean", {"source": "router"}, 0.8 * noise(0.06))
    add("transfer_time_mean", {"pool": "decode"}, 0.04 * (1 + 0.08 * hours / 24) * noise(0.02))
    built = {}
    for name, rows in panels.items():
        has_starts = rows[0][2] is not None
        built[name] = Panel(
            name, times, np.stack([row[1] for row in rows]), tuple(row[0] for row in rows),
            starts=np.stack([row[2] for row in rows]) if has_starts else None,
        )  # fmt: skip
    trials = rng.poisson(3000 * (10 + 6 * season)).astype(float)
    built["acceptance_ratio"] = Panel(
        "acceptance_ratio", times, rng.binomial(trials.astype(int), 0.65).astype(float)[None, :],
        ({**base, "pool": "decode"},), trials=trials[None, :],
    )  # fmt: skip
    return built


@pytest.fixture
def make_soak() -> Callable[..., dict[str, Panel]]:
    """Makes a soak, see `soak`."""
    return soak
