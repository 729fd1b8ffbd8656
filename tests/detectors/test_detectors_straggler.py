"""Stragglers: one unlike its peers is named; peers that differ by load, role or age are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from catalog.panel import FloatArray, Panel
from detectors.drift.judge import Limits, judge
from detectors.finding import Finding

STEP = 120.0
HOUR = 3600.0
ORIGIN = 1.7e9
HOURS = 30.0
PLACE = {"cluster": "c", "deployment": "d", "pool": "decode", "model_name": "m"}


def _times() -> FloatArray:
    times: FloatArray = ORIGIN + STEP * np.arange(round(HOURS * HOUR / STEP))
    return times


def _hours_left() -> FloatArray:
    left: FloatArray = (_times()[-1] - _times()) / HOUR
    return left


def _wander(rng: np.random.Generator, rows: int, phi: float) -> FloatArray:
    shock = rng.normal(size=(rows, len(_times())))
    for i in range(1, shock.shape[1]):
        shock[:, i] = phi * shock[:, i - 1] + np.sqrt(1 - phi**2) * shock[:, i]
    return shock


def _tpot(rng: np.random.Generator, peers: int, share: FloatArray | float = 1.0) -> Panel:
    """Return TPOT of servers whose load swings by the day, each with its *share* of it."""
    day = 1 + 0.4 * np.sin(2 * np.pi * _hours_left() / 24)
    load = 40 * day * share * np.exp(0.05 * _wander(rng, peers, 0.95))
    values = (0.008 + 1e-4 * load) * np.exp(0.015 * _wander(rng, peers, 0.9))
    labels = tuple({**PLACE, "server": f"n{i}:8000"} for i in range(peers))
    return Panel("tpot_mean_by_server", _times(), values, labels, load=load)


def _slow(panel: Panel, row: int, factor: float, since: float) -> Panel:
    """Return *panel* with one peer slower for the last *since* hours."""
    values = panel.values.copy()
    values[row, _hours_left() <= since] *= factor
    return replace(panel, values=values)


def _found(*panels: Panel, back: float = 0.0) -> list[Finding]:
    given = {panel.signal: panel for panel in panels}
    found = judge(given, Limits(), as_of=float(_times()[-1]) - back * HOUR)
    return [finding for finding in found if finding.kind == "straggler"]


@pytest.mark.parametrize("peers", [3, 4, 8, 72])
@pytest.mark.parametrize("always", [False, True])
def test_one_that_is_slower_than_its_peers_is_named(peers: int, always: bool) -> None:
    """By 18 % for four hours, or for ever; with its size, its interval and since when."""
    rng = np.random.default_rng(peers)
    since = 4.0 if not always else HOURS
    panel = _slow(_tpot(rng, peers), 1, 1.18, since)
    [finding] = _found(panel)
    assert finding.labels["server"] == "n1:8000"
    assert (finding.verdict, finding.state, finding.severity) == ("fault", "firing", "report")
    low, high = finding.effect_low, finding.effect_high
    assert low is not None
    assert high is not None
    assert finding.effect == pytest.approx(0.18, abs=0.03)
    assert low < finding.effect < high
    assert finding.since == pytest.approx(_times()[-1] - min(since, 24) * HOUR, abs=HOUR)
    assert f"above its {peers - 1} peers at the same load" in finding.cause
    assert len(finding.evidence["fit"]["line"]) == len(finding.evidence["fit"]["t"])


def test_of_two_it_is_told_which_only_where_the_past_tells() -> None:
    """One that became slower is named; two that always differed are named together."""
    rng = np.random.default_rng(2)
    pair = _tpot(rng, 2)
    [became] = _found(_slow(pair, 0, 1.3, 6.0))
    assert became.labels["server"] == "n0:8000"
    assert (became.verdict, became.severity) == ("fault", "ticket")
    [always] = _found(_slow(pair, 0, 1.3, HOURS))
    assert always.verdict == "unknown"
    assert "server" not in always.labels
    assert always.evidence["between"] == ["n0:8000", "n1:8000"]
    assert "their past does not tell which" in always.cause
    assert always.effect == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize("peers", [2, 3, 8])
def test_alike_peers_are_silent_and_so_is_what_lasts_minutes(peers: int) -> None:
    """Noise with a memory, at many moments, and half an hour of trouble."""
    for seed in range(4):
        panel = _tpot(np.random.default_rng(seed), peers)
        for back in (0.0, 3.0, 6.0):
            assert _found(panel, back=back) == []
        brief = (_hours_left() < 2.0) & (_hours_left() > 1.5)
        panel.values[0, brief] *= 2
        assert _found(panel) == []


def test_a_peer_that_serves_more_is_no_straggler() -> None:
    """What load explains is taken out; a load that no other has is not judged at all."""
    rng = np.random.default_rng(4)
    share = np.ones((4, 1))
    share[2] = 1.5
    assert _found(_tpot(rng, 4, share)) == []
    share[2] = 5.0
    assert _found(_tpot(rng, 4, share)) == []


def test_a_slow_peer_that_serves_less_is_one_all_the_same() -> None:
    """Its router spares it: in seconds it is like the others, at its load it is not."""
    share = np.ones((4, 1))
    share[2] = 0.7
    panel = _slow(_tpot(np.random.default_rng(5), 4, share), 2, 1.25, 8.0)
    [finding] = _found(panel)
    assert finding.labels["server"] == "n2:8000"
    assert finding.effect == pytest.approx(0.25, abs=0.06)


def test_roles_and_halves_that_differ_are_silent() -> None:
    """Prefill is no peer of decode, and of four that are two and two none is the odd one."""
    rng = np.random.default_rng(6)
    panel = _tpot(rng, 6)
    mixed = tuple(
        {**one, "pool": "prefill"} if i < 3 else one for i, one in enumerate(panel.labels)
    )
    panel.values[:3] *= 3
    assert _found(replace(panel, labels=mixed)) == []
    halves = _tpot(rng, 4)
    halves.values[:2] *= 1.4
    assert _found(halves) == []


def test_one_that_was_just_started_is_left_out_for_an_hour() -> None:
    """Cold, it is slower than its peers; what stays slow is named later."""
    panel = _slow(_tpot(np.random.default_rng(7), 4), 3, 1.5, 4.0)
    starts = np.full((4, len(_times())), ORIGIN - 86400)
    began = _times()[-1] - 4 * HOUR
    starts[3, _times() >= began] = began
    told = Panel("instance_start", _times(), starts, panel.labels)
    assert _found(panel, told, back=2.5) == []
    assert [f.labels["server"] for f in _found(panel, told)] == ["n3:8000"]


def _gpus(rng: np.random.Generator, signal: str, level: float, spread: float) -> Panel:
    """Return a reading of eight GPUs of one node that follows their utilisation."""
    values = level * np.exp(spread * _wander(rng, 8, 0.9)) * np.ones((8, len(_times())))
    labels = tuple(
        {"cluster": "c", "node": "n0", "gpu": str(i), "uuid": f"GPU-{i}"} for i in range(8)
    )
    return Panel(signal, _times(), values, labels)


def _used(rng: np.random.Generator, level: float = 0.7) -> Panel:
    return replace(_gpus(rng, "gpu_utilization", level, 0.05), signal="gpu_utilization")


def _hosts() -> Panel:
    """Return private memory that tells which pool the node serves."""
    labels = ({**PLACE, "server": "n0:8000", "node": "n0", "process": "worker", "rank": "DP0"},)
    values = np.full((1, len(_times())), 8e9)
    return Panel("host_anon_swap", _times(), values, labels, starts=np.full(values.shape, ORIGIN))


@pytest.mark.parametrize(
    ("signal", "level", "factor"),
    [
        ("gpu_sm_clock", 1.98e9, 0.9),
        ("gpu_power", 500.0, 0.75),
        ("gpu_power", 300.0, 1.3),
        ("gpu_temperature", 55.0, 1.25),
        ("gpu_memory_used", 120e9, 1.15),
    ],
)
def test_a_gpu_unlike_the_others_of_its_pool_is_named(
    signal: str, level: float, factor: float
) -> None:
    """Slower, hungry, starved, hot or full; with the pool of its node, so that it has an owner."""
    rng = np.random.default_rng(8)
    gpus = _gpus(rng, signal, level, 0.004)
    [finding] = _found(_slow(gpus, 5, factor, 5.0), _used(rng), _hosts())
    assert (finding.labels["gpu"], finding.labels["pool"]) == ("5", "decode")
    unit = finding.effect_unit
    assert unit == ("celsius" if signal == "gpu_temperature" else "ratio")
    want = level * (factor - 1) if unit == "celsius" else factor - 1
    assert finding.effect == pytest.approx(want, rel=0.2)
    assert "GPU 5 of n0" in finding.cause
    assert _found(gpus, _used(rng), _hosts()) == []


def test_idle_gpus_and_small_differences_are_silent() -> None:
    """Without work clocks and power are whatever they are; a degree more is no finding."""
    rng = np.random.default_rng(9)
    clock = _slow(_gpus(rng, "gpu_sm_clock", 1.9e9, 0.004), 2, 0.5, 9.0)
    assert _found(clock, _used(rng, 0.05), _hosts()) == []
    assert _found(clock) == []  # nobody knows what they do
    warm = _slow(_gpus(rng, "gpu_temperature", 55.0, 0.004), 2, 1.06, 9.0)
    assert _found(warm, _used(rng), _hosts()) == []


def test_memory_of_one_rank_that_is_far_larger_is_named() -> None:
    """Among ranks of the same kind; other kinds of process are no peers."""
    rng = np.random.default_rng(10)
    values = 8e9 * np.exp(0.01 * _wander(rng, 5, 0.9))
    values[2] *= 1.6
    values[4] *= 0.1
    kinds = ["engine_core"] * 4 + ["api_server"]
    labels = tuple(
        {**PLACE, "server": "n0:8000", "node": "n0", "process": kind, "rank": f"DP{i}"}
        for i, kind in enumerate(kinds)
    )
    starts = np.full(values.shape, ORIGIN - 86400)
    [finding] = _found(Panel("host_anon_swap", _times(), values, labels, starts=starts))
    assert (finding.labels["rank"], finding.severity) == ("DP2", "ticket")
