"""Each scenario does what its truth says, and what is healthy stays within the service levels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from catalog.panel import FloatArray, Panel
from detectors.drift.judge import NEEDED, Limits, judge
from simulator.scenario import GIB, HOUR, SCENARIOS
from simulator.table import KNOWN, panels
from simulator.world import World

NOW = 1_800_000_000.0
SLA = {"ttft_user_mean": 2.5, "tpot_mean": 0.020}
SEEDS = {"leak": 4, "acceptance": 5, "none": 6}


@cache
def run(name: str) -> Mapping[str, Panel]:
    """Three days and the nine hours after them, every two minutes."""
    world = World(name, SEEDS[name])
    return panels(world, epoch=NOW, until=9 * HOUR, step=120.0, signals=KNOWN)


def hours(panel: Panel) -> FloatArray:
    """Return the grid in hours from the end of history."""
    return (panel.times - NOW) / HOUR


def anonymous(name: str, pool: str, process: str) -> FloatArray:
    """Return the private bytes of a kind of process, one row each."""
    panel = run(name)["host_anon_swap"]
    rows = [i for i, la in enumerate(panel.labels)
            if (la["pool"], la["process"]) == (pool, process)]  # fmt: skip
    return panel.values[rows]


@pytest.mark.parametrize("name", SEEDS)
def test_service_levels_hold_while_nothing_is_wrong(name: str) -> None:
    """Before a scenario begins, deployments and days included, there is room below the SLA."""
    start = SCENARIOS[name].start / HOUR if not SCENARIOS[name].negative else 9.0
    for signal, sla in SLA.items():
        panel = run(name)[signal]
        healthy = panel.values[:, hours(panel) < start]
        assert np.nanmax(healthy) < 0.8 * sla
        assert np.nanmean(healthy) > 0.2 * sla


def test_healthy_acceptance_wanders_as_in_production() -> None:
    """Mean length stays within 2.92-3.12 but for noise, and does not stand still."""
    panel = run("none")["acceptance_ratio"]
    assert panel.trials is not None
    counted = panel.trials[0] > 0
    length = 1.0 + 3.0 * panel.values[0][counted] / panel.trials[0][counted]
    assert length.min() > 2.88
    assert length.max() < 3.16
    assert np.std(length) > 0.02


def test_traffic_has_days() -> None:
    """The same hour a day apart is alike, half a day apart is not."""
    panel = run("none")["request_rate"]
    rate = panel.values[0]
    # Hours without a deployment in them.
    last = rate[hours(panel) > -15]
    day = round(24 * HOUR / panel.step)
    place = np.flatnonzero(hours(panel) > -15)
    swing = last.max() / last.min()
    assert 1.4 < swing < 2.5
    assert np.median(np.abs(rate[place] / rate[place - day] - 1.0)) < 0.1


def test_a_leak_follows_its_truth() -> None:
    """Every decode EngineCore grows from the start on, and the container is full when it says."""
    truth = SCENARIOS["leak"]
    panel = run("leak")["host_anon_swap"]
    at = hours(panel)
    cores = anonymous("leak", "decode", "engine_core")
    i, j = np.searchsorted(at, [truth.start / HOUR, 0.0])
    grown = cores[:, j] - cores[:, i]
    assert grown.sum() / -truth.start * HOUR == pytest.approx(truth.rate, rel=0.05)
    assert grown.min() > 0.8 * grown.mean()
    healthy = anonymous("none", "decode", "engine_core")
    assert np.nanmax(np.abs(healthy[:, j] - healthy[:, i])) < 0.15 * GIB
    for pool, process in (("prefill", "engine_core"), ("decode", "worker")):
        other = anonymous("leak", pool, process)
        assert np.nanmax(np.abs(other[:, j] - other[:, i])) < 0.3 * GIB

    working = run("leak")["container_working_set"]
    decode = next(i for i, la in enumerate(working.labels) if la["pool"] == "decode")
    limit = run("leak")["container_limit"].values[decode]
    full = at[np.argmax(working.values[decode] >= limit)] * HOUR
    assert truth.breach is not None
    assert full == pytest.approx(truth.breach, abs=0.75 * HOUR)
    assert limit[-1] == truth.limit
    assert truth.breach < 12 * HOUR
    assert -truth.start > truth.breach / 3


def test_a_leak_grows_by_allocated_blocks() -> None:
    """Rank by rank and hour by hour the growth goes with the traffic, not with the clock."""
    panel = run("leak")["host_anon_swap"]
    cores = anonymous("leak", "decode", "engine_core").sum(axis=0)
    rate = run("leak")["request_rate"].values[1]
    at = hours(panel)
    edges = np.searchsorted(at, np.arange(-7.0, 9.0, 1.0))
    grown = np.diff(cores[edges])
    requests = np.array([rate[a:b].mean() for a, b in pairwise(edges)])
    assert np.corrcoef(grown, requests)[0, 1] > 0.95
    per_request = grown / requests
    assert np.std(per_request) / np.mean(per_request) < 0.05


def test_falling_acceptance_follows_its_truth() -> None:
    """Mean length falls from 3.0 to 2.4 and with it TPOT rises to its SLA; nothing else moves."""
    truth = SCENARIOS["acceptance"]
    ratio = run("acceptance")["acceptance_ratio"]
    assert ratio.trials is not None
    length = 1.0 + 3.0 * ratio.values[0] / np.maximum(ratio.trials[0], 1.0)
    at = hours(ratio)
    start, now = np.searchsorted(at, [truth.start / HOUR, 0.0])
    assert length[start - 15 : start].mean() == pytest.approx(3.0, abs=0.13)
    assert length[now - 15 : now].mean() == pytest.approx(2.4, abs=0.13)
    fell = (length[now] - length[start]) / 3.0 / (-truth.start / HOUR)
    assert fell == pytest.approx(truth.rate, abs=0.012)
    tpot = run("acceptance")["tpot_mean"].values[0]
    broken = at[np.argmax(tpot >= SLA["tpot_mean"])] * HOUR
    assert truth.breach is not None
    assert broken == pytest.approx(truth.breach, abs=0.75 * HOUR)
    ttft = run("acceptance")["ttft_mean"].values[0]
    assert ttft[now] == pytest.approx(ttft[start], rel=0.25)


def test_prefill_warms_up_to_a_plateau() -> None:
    """After its second deployment prefill grows for hours, fast at first, and then stands still."""
    workers = anonymous("none", "prefill", "worker")[:4]  # one server's: it came back first
    at = hours(run("none")["host_anon_swap"])
    again = -16.0
    early, later, late = (
        workers[:, np.searchsorted(at, again + h)] - workers[:, np.searchsorted(at, again + h - 1)]
        for h in (1.1, 3.0, 12.0)
    )
    assert early.min() > 3 * later.max() > 0
    assert np.abs(late).max() < 0.2 * GIB


def test_detectors_page_the_leak_and_nothing_else() -> None:
    """At the end of history the leak is a page with about the right time left; none is silent."""
    found = _firing("leak", 0.0)
    truth = SCENARIOS["leak"]
    assert found
    assert {f.severity for f in found} == {"page"}
    assert {(f.labels["pool"], f.labels["process"]) for f in found} == {("decode", "engine_core")}
    assert len(found) == 8
    for finding in found:
        assert finding.time_to_breach is not None
        assert 4 * HOUR < finding.time_to_breach < 9 * HOUR
        assert finding.effect == pytest.approx(truth.rate / 8, rel=0.35)
    assert not _firing("none", 0.0)
    for cut in (-60.0, -43.0, -30.0, -14.0, -5.0, 3.0, 8.0):
        assert not [f for f in _firing("none", cut) if f.severity == "page"]


def _firing(name: str, cut: float):
    known = {signal: panel for signal, panel in run(name).items() if signal in NEEDED}
    findings = judge(known, Limits(SLA), as_of=NOW + cut * HOUR)
    return [f for f in findings if f.state == "firing" and f.kind != "unknown"]


@pytest.mark.parametrize("name", ["none", "leak"])
def test_no_latency_is_forecast_to_break_where_none_does(name: str) -> None:
    """Days, deployments and a leak of memory are no growth towards an SLA, at any moment."""
    limits = Limits({**SLA, "e2e_mean": 60.0, "itl_mean": 0.06, "queue_mean": 2.0})
    known = {signal: run(name)[signal] for signal in limits.by_signal}
    for cut in range(-46, 10, 5):
        found = judge(known, limits, as_of=NOW + cut * HOUR)
        assert not [f for f in found if f.kind == "forecast"]
