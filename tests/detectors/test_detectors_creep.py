"""Creep at the same load: the same load that costs more is found, a busier day is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from catalog.panel import FloatArray, Panel
from detectors.drift.judge import Limits, judge
from detectors.drift.latencies import LATENCIES, LOADS
from detectors.finding import Finding
from simulator.table import panels as simulated

STEP = 120.0
HOUR = 3600.0
SERIES = 6
SLA = Limits({"tpot_mean": 0.020})
ORIGIN = 1.7e9


def _hours(days: float) -> FloatArray:
    hours: FloatArray = np.arange(round(days * 86400 / STEP)) * STEP / HOUR
    return hours


def _wander(rng: np.random.Generator, points: int, phi: float) -> FloatArray:
    """Return autocorrelated noise of size one."""
    shock = rng.normal(size=(SERIES, points))
    for i in range(1, points):
        shock[:, i] = phi * shock[:, i - 1] + np.sqrt(1 - phi**2) * shock[:, i]
    return shock


def _load(rng: np.random.Generator, hours: FloatArray) -> FloatArray:
    """Return concurrency with days, hours and minutes in it."""
    season = np.sin(2 * np.pi * hours / 24 + rng.uniform(0, 6.3, (SERIES, 1)))
    slow, fast = _wander(rng, len(hours), 0.98), _wander(rng, len(hours), 0.5)
    return np.asarray(40 * (1 + 0.4 * season + 0.04 * slow) * np.exp(0.03 * fast))


def _cost(load: FloatArray) -> FloatArray:
    """Return what a load costs while nothing is wrong: more than in proportion."""
    return 0.008 + 6e-5 * load + 2e-7 * load**2


def _panel(values: FloatArray, load: FloatArray | None, signal: str = "tpot_mean") -> Panel:
    labels = tuple({"deployment": f"d{i}", "pool": "decode"} for i in range(len(values)))
    times = ORIGIN + STEP * np.arange(values.shape[1])
    return Panel(signal, times, values, labels, load=load)


def _creep(panel: Panel, *more: Panel, back: float = 0.0, limits: Limits = SLA) -> list[Finding]:
    given = {one.signal: one for one in (panel, *more)}
    found = judge(given, limits, as_of=float(panel.times[-1]) - back * HOUR)
    return [finding for finding in found if finding.kind == "creep"]


def _fired(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.state == "firing"]


def test_one_percent_an_hour_at_varying_load_is_found_before_eight_percent() -> None:
    """In the median of pools whose latency itself wanders by a percent, and in none before it."""
    rng = np.random.default_rng(11)
    hours = _hours(5.5)
    begun = hours[-1] - 13
    load = _load(rng, hours)
    noise = np.exp(0.01 * _wander(rng, len(hours), 0.9))
    panel = _panel(_cost(load) * noise * (1 + 0.01 * np.maximum(hours - begun, 0)), load)
    first: dict[str, float] = {}
    for after in np.arange(-3, 13, 1.0):
        found = _fired(_creep(panel, back=13 - after, limits=Limits()))
        for finding in found:
            first.setdefault(finding.labels["deployment"], float(after))
    assert len(first) == SERIES
    assert min(first.values()) > 0
    assert np.median([*first.values()]) <= 7.5
    assert max(first.values()) < 12
    for finding in found:
        assert finding.verdict == "drift"
        assert finding.evidence["share_per_hour"] == pytest.approx(0.01, rel=0.4)
        assert finding.since == pytest.approx(ORIGIN + begun * HOUR, abs=5 * HOUR)
        assert finding.evidence["loads"] == ["requests_running"]


def test_time_to_breach_is_the_busy_hour_at_which_the_level_breaks() -> None:
    """A day like the last, grown as it grows, meets the SLA when it truly does, interval around."""
    rng = np.random.default_rng(3)
    hours = _hours(6)
    load = _load(rng, hours)
    begun = hours[-1] - 16
    noise = np.exp(0.005 * _wander(rng, len(hours), 0.9))
    panel = _panel(_cost(load) * noise * (1 + 0.01 * np.maximum(hours - begun, 0)), load)
    found = _fired(_creep(panel))
    assert len(found) == SERIES
    for finding in found:
        i = int(finding.labels["deployment"][1:])
        day = panel.values[i, -720:]
        ahead = np.arange(0, 200, 0.1)
        usual = np.interp((ahead - 24) % 24 - 24, np.linspace(-24, 0, 720), day)
        grown = (1 + 0.01 * (16 + ahead)) / (1 + 0.01 * np.maximum(16 + (ahead % 24) - 24, 0))
        truth = ahead[(usual * grown >= 0.020).argmax()] * HOUR
        # It comes at the busy hour, of that day or of the one beside it.
        assert finding.time_to_breach == pytest.approx(truth, abs=28 * HOUR)
        assert finding.effect == pytest.approx(0.01 * np.median(_cost(load)), rel=0.4)
        assert finding.time_to_breach_low <= truth  # type: ignore[operator]
        assert finding.time_to_breach_low <= finding.time_to_breach  # type: ignore[operator]
        high = finding.time_to_breach_high
        assert high is None or finding.time_to_breach <= high  # type: ignore[operator]


Made = tuple[FloatArray, FloatArray | None]


def _quiet(rng: np.random.Generator, hours: FloatArray) -> tuple[FloatArray, FloatArray]:
    load = _load(rng, hours)
    return load, np.exp(0.015 * _wander(rng, len(hours), 0.9))


def _doubling(rng: np.random.Generator, hours: FloatArray) -> Made:
    load, noise = _quiet(rng, hours)
    load = load * (1 + (hours > hours[-1] - rng.uniform(2, 40, (SERIES, 1))))
    return _cost(load) * noise, load


def _growing_all_week(rng: np.random.Generator, hours: FloatArray) -> Made:
    load, noise = _quiet(rng, hours)
    load = load * (1 + 0.6 * hours / hours[-1])
    return _cost(load) * noise, load


def _monday(rng: np.random.Generator, hours: FloatArray) -> Made:
    load, noise = _quiet(rng, hours)
    load = load * np.where((hours > hours[-1] - 60) & (hours < hours[-1] - 12), 0.5, 1.0)
    return _cost(load) * noise, load


def _backfill(rng: np.random.Generator, hours: FloatArray) -> Made:
    load, noise = _quiet(rng, hours)
    night = (hours % 24 > 1) & (hours % 24 < 6) & (hours > hours[-1] - 60)
    return _cost(load * (1 + 1.2 * night)) * noise * (1 + 0.08 * night), load * (1 + 1.2 * night)


def _other_prompts(rng: np.random.Generator, hours: FloatArray) -> Made:
    load, noise = _quiet(rng, hours)
    since = hours > hours[-1] - rng.uniform(3, 40, (SERIES, 1))
    return _cost(load) * noise * (1 + 0.1 * since), load


def _heavy(rng: np.random.Generator, hours: FloatArray) -> Made:
    load, noise = _quiet(rng, hours)
    tail = np.exp(0.03 * np.clip(rng.standard_t(2, load.shape), -20, 80))
    return _cost(load) * noise * tail, load


def _memory(rng: np.random.Generator, hours: FloatArray) -> Made:
    load, _ = _quiet(rng, hours)
    return _cost(load) * np.exp(0.02 * _wander(rng, len(hours), 0.99)), load


def _spike(rng: np.random.Generator, hours: FloatArray) -> Made:
    load, noise = _quiet(rng, hours)
    values = _cost(load) * noise
    for row in values:
        at = len(hours) - int(rng.integers(4, 600))
        row[at : at + 3] *= 50
    return values, load


def _gaps(rng: np.random.Generator, hours: FloatArray) -> Made:
    load, noise = _quiet(rng, hours)
    for row in load:
        at = len(hours) - int(rng.integers(61, 900))
        row[at : at + 60] = np.nan
    return _cost(load) * noise, load


def _step(rng: np.random.Generator, hours: FloatArray) -> Made:
    load, noise = _quiet(rng, hours)
    size = rng.choice([0.06, 0.15, 0.5], (SERIES, 1))
    at = hours[-1] - rng.uniform(1, 40, (SERIES, 1))
    return _cost(load) * noise * (1 + size * (hours > at)), load


def _hours_of_the_day(rng: np.random.Generator, hours: FloatArray) -> Made:
    """Something that the load does not tell costs 5 % more each afternoon."""
    load, noise = _quiet(rng, hours)
    season = np.sin(2 * np.pi * hours / 24 + rng.uniform(0, 6.3, (SERIES, 1)))
    return _cost(load) * noise * (1 + 0.05 * season), load


QUIET: dict[str, Callable[[np.random.Generator, FloatArray], Made]] = {
    "doubling": _doubling,
    "growing_all_week": _growing_all_week,
    "monday": _monday,
    "backfill": _backfill,
    "other_prompts": _other_prompts,
    "heavy_tail": _heavy,
    "ar99": _memory,
    "spike": _spike,
    "gaps": _gaps,
    "step": _step,
    "hours_of_the_day": _hours_of_the_day,
}


@pytest.mark.parametrize("kind", QUIET)
def test_what_is_no_creep_is_silent(kind: str) -> None:
    """Nothing fires on any day of two, whenever it is looked at."""
    rng = np.random.default_rng(21)
    hours = _hours(5)
    panel = _panel(*QUIET[kind](rng, hours))
    for back in np.arange(0, 45, 9.0):
        assert _fired(_creep(panel, back=float(back), limits=Limits())) == []


def test_a_load_never_seen_before_is_new_traffic() -> None:
    """It is said that the rise can't be judged yet, and of which load; a day later it is quiet."""
    rng = np.random.default_rng(5)
    hours = _hours(5)
    load, noise = _quiet(rng, hours)
    load = load * (1 + 1.5 * (hours > hours[-1] - 30))
    panel = _panel(_cost(load) * noise, load)
    early = _creep(panel, back=27)
    assert {(f.verdict, f.state) for f in early} == {("new_traffic", "watch")}
    assert "outside what was learned (requests_running)" in early[0].cause
    assert _creep(panel) == []


def test_without_a_load_a_rise_is_unknown() -> None:
    """It may be the traffic: that is said, and nobody is told."""
    rng = np.random.default_rng(6)
    hours = _hours(5)
    _, noise = _quiet(rng, hours)
    panel = _panel(0.011 * noise * (1 + 0.01 * np.maximum(hours - hours[-1] + 20, 0)), None)
    found = _creep(panel, limits=Limits())
    assert {(f.verdict, f.state) for f in found} == {("unknown", "watch")}


def test_further_loads_are_taken_out_where_their_signals_are_there() -> None:
    """Prompts that grow longer for hours are no creep of TTFT: tokens a request say so."""
    rng = np.random.default_rng(7)
    hours = _hours(5)
    load, noise = _quiet(rng, hours)
    length = 8000 * np.exp(0.03 * _wander(rng, len(hours), 0.98))
    length = length * (1 + 0.02 * np.maximum(hours - hours[-1] + 14, 0))
    ttft = _panel((0.2 + 0.004 * load) * (0.2 + length / 10_000) * noise, load, "ttft_mean")
    rate = replace(ttft, signal="request_rate", values=load, load=None)
    tokens = replace(ttft, signal="input_tokens_rate", values=load * length, load=None)
    assert len(_creep(ttft)) >= SERIES - 1
    assert _fired(_creep(ttft, rate, tokens)) == []


def test_fewer_accepted_tokens_are_not_creep() -> None:
    """TPOT that rises because steps bring fewer tokens is the falling ratio's matter."""
    rng = np.random.default_rng(8)
    hours = _hours(5)
    load, noise = _quiet(rng, hours)
    length = 3.0 - 0.04 * np.maximum(hours - hours[-1] + 14, 0) * np.ones((SERIES, 1))
    tpot = _panel(_cost(load) * noise * 3.0 / length, load)
    accepted = replace(tpot, signal="acceptance_length", values=length, load=None)
    assert len(_fired(_creep(tpot))) == SERIES
    assert _fired(_creep(tpot, accepted)) == []


@pytest.mark.parametrize("better", [False, True])
def test_a_step_at_a_start_is_the_rollouts_and_what_it_mended_is_over(better: bool) -> None:
    """A start that makes it dearer is no creep, and one that takes the growth away ends it."""
    rng = np.random.default_rng(9)
    hours = _hours(6)
    load, noise = _quiet(rng, hours)
    at = hours[-1] - 10
    grown = 1 + 0.01 * np.clip(hours - at + 20, 0, 20) if better else np.ones(len(hours))
    after = 1.0 if better else 1.12
    panel = _panel(_cost(load) * noise * np.where(hours < at, grown, after), load)
    starts = np.where(hours < at, panel.times[0] - 86400, ORIGIN + at * HOUR)
    labels = tuple({**one, "server": f"{one['deployment']}:8000"} for one in panel.labels)
    began = Panel("instance_start", panel.times, np.tile(starts, (SERIES, 1)), labels)
    assert bool(_fired(_creep(panel, began, back=11))) == better
    for back in (8.0, 4.0, 0.0):
        assert _fired(_creep(panel, began, back=back)) == []


def test_creep_in_the_simulated_fleet_and_a_week_of_its_quiet_life() -> None:
    """TPOT of decode is found between 3 and 8 % with its own load; the healthy fleet is silent."""
    needed = (*LATENCIES, *LOADS, "instance_start")
    found: dict[str, list[Finding]] = {}
    for name in ("none", "tpot_creep"):
        given = simulated(name, seed=3, span=3 * 86400.0, step=300.0, signals=needed)
        end = float(given["tpot_mean"].times[-1])
        back = (0.0,) if name == "tpot_creep" else tuple(np.arange(0.0, 32.0, 8.0))
        found[name] = [
            f for b in back for f in _fired(judge(given, Limits(), as_of=end - b * HOUR))
        ]
    assert [f for f in found["none"] if f.kind == "creep"] == []
    crept = {f.signal: f for f in found["tpot_creep"] if f.kind == "creep"}
    assert {"tpot_mean", "itl_mean"} <= set(crept)
    assert {f.labels["pool"] for f in crept.values()} == {"decode"}
    assert 0.03 < crept["tpot_mean"].evidence["grown_share"] < 0.11
