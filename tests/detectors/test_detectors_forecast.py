"""The forecast to a limit: real creep is found, seasons, steps, warm-ups and busy days are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from catalog.panel import FloatArray, Panel
from detectors.drift.judge import Limits, judge
from detectors.finding import Finding

DAY = 288  # points of five minutes
STEP = 300.0
SLA = Limits({"tpot_mean": 0.020})
SERIES = 6


def _hours(days: float) -> FloatArray:
    hours: FloatArray = np.arange(round(days * DAY)) * STEP / 3600
    return hours


def _noise(rng: np.random.Generator, points: int, phi: float = 0.9) -> FloatArray:
    """Return autocorrelated noise of 2 % of the level."""
    shock = rng.normal(size=(SERIES, points)) * 2e-4
    for i in range(1, points):
        shock[:, i] = phi * shock[:, i - 1] + np.sqrt(1 - phi**2) * shock[:, i]
    return shock


def _day(hours: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return a daily season between -1 and 1, each series at its own hour."""
    season: FloatArray = np.sin(2 * np.pi * hours / 24 + rng.uniform(0, 6.3, (SERIES, 1)))
    return season


def _panel(values: FloatArray, load: FloatArray | None = None) -> Panel:
    labels = tuple({"deployment": f"d{i}", "pool": "decode"} for i in range(len(values)))
    times = 1.7e9 + STEP * np.arange(values.shape[1])
    return Panel("tpot_mean", times, values, labels, load=load)


def _judge(panel: Panel, limits: Limits = SLA) -> list[Finding]:
    return [f for f in judge({panel.signal: panel}, limits) if f.kind == "forecast"]


@pytest.mark.parametrize("days", [2.0, 3.0, 7.0])
def test_creep_of_one_percent_an_hour_is_found_with_its_breach(days: float) -> None:
    """It fires below the SLA with the onset, the speed, and the busy hour of the breach."""
    rng = np.random.default_rng(1)
    hours = _hours(days + 1)
    season = _day(hours, rng)
    load = 40 * (1 + 0.4 * season) + rng.normal(0, 1, season.shape)
    begun = hours[-1] - 40
    creep = 1 + 0.01 * np.maximum(hours - begun, 0)
    levels = (0.011 + 2e-5 * (load - 40)) * creep + _noise(rng, len(hours))
    found = _judge(_panel(levels, load))
    assert len(found) >= SERIES - 1
    assert {(f.verdict, f.state, f.limit) for f in found} == {("drift", "firing", 0.020)}
    for finding in found:
        i = int(finding.labels["deployment"][1:])
        assert finding.effect == pytest.approx(0.011 * 0.01, rel=0.35)
        assert finding.since == pytest.approx(1.7e9 + begun * 3600, abs=14 * 3600)
        ahead = hours[-1] + np.arange(0, 100, 0.1)
        phase = np.angle(np.fft.rfft(season[i][-DAY:])[1]) - 2 * np.pi * (hours[-DAY] / 24)
        busy = 0.011 + 2e-5 * 16 * np.cos(2 * np.pi * ahead / 24 + phase)
        truth = (ahead[(busy * (1 + 0.01 * (ahead - begun)) >= 0.020).argmax()] - hours[-1]) * 3600
        assert finding.time_to_breach == pytest.approx(truth, rel=0.5)
        assert finding.time_to_breach_low <= finding.time_to_breach  # type: ignore[operator]
        assert finding.severity in {"ticket", "page"}


def _nothing(hours: FloatArray, rng: np.random.Generator) -> FloatArray:
    return np.zeros((SERIES, len(hours)))


def _season(hours: FloatArray, rng: np.random.Generator) -> FloatArray:
    return 0.003 * _day(hours, rng)


def _week(hours: FloatArray, rng: np.random.Generator) -> FloatArray:
    """A daily season, half as large on two days of seven."""
    weekend = (hours + rng.uniform(0, 168, (SERIES, 1))) % 168 < 48
    return np.asarray(0.003 * (1 + _day(hours, rng)) * np.where(weekend, 0.5, 1.0))


def _step(hours: FloatArray, rng: np.random.Generator) -> FloatArray:
    at = rng.uniform(0.2, 0.95, (SERIES, 1)) * hours[-1]
    return np.asarray(0.003 * (hours >= at) + 0.0005 * _day(hours, rng))


def _warm_up(hours: FloatArray, rng: np.random.Generator) -> FloatArray:
    tau = rng.uniform(0.1, 0.3, (SERIES, 1)) * hours[-1]
    return np.asarray(0.004 * (1 - np.exp(-hours / tau)))


def _walk(hours: FloatArray, rng: np.random.Generator) -> FloatArray:
    return np.cumsum(rng.normal(0, 6e-5, (SERIES, len(hours))), axis=1)


QUIET: dict[str, Callable[[FloatArray, np.random.Generator], FloatArray]] = {
    "noise": _nothing,
    "season": _season,
    "week": _week,
    "step": _step,
    "warm_up": _warm_up,
    "walk": _walk,
}


@pytest.mark.parametrize("shape", QUIET)
@pytest.mark.parametrize("days", [1.2, 2.6, 7.0])
def test_what_does_not_go_on_is_silent(shape: str, days: float) -> None:
    """Nothing fires on noise, seasons, steps, warm-ups or a wander, at many moments."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        hours = _hours(days)
        panel = _panel(0.011 + QUIET[shape](hours, rng) + _noise(rng, len(hours)))
        for share in (0.85, 0.93, 1.0):
            fired = [f for f in _judge(panel.until(panel.times[int(share * len(hours)) - 1]))
                     if f.state == "firing"]  # fmt: skip
            assert fired == []


def test_a_busier_day_is_no_drift() -> None:
    """Traffic that doubles over two days, with a latency that follows it, is put down to it."""
    rng = np.random.default_rng(3)
    hours = _hours(4)
    load = 40 * (1 + 0.3 * _day(hours, rng)) * (1 + np.maximum(hours - 48, 0) / 48)
    levels = 0.008 + 6e-5 * load + 2e-7 * load**2 + _noise(rng, len(hours))
    assert _judge(_panel(levels, load + rng.normal(0, 1, load.shape))) == []


def test_idle_nights_and_gaps_are_no_creep() -> None:
    """Hours without requests every night and a gap make no finding; they delay a real one."""
    rng = np.random.default_rng(6)
    hours = _hours(5)
    load = 40 * (1 + 0.3 * _day(hours, rng)) + rng.normal(0, 1, (SERIES, len(hours)))
    quiet = 0.009 + 5e-5 * load + _noise(rng, len(hours))
    creep = 1 + 0.01 * np.maximum(hours - hours[-1] + 42, 0)
    silent = (hours % 24 < 4) | ((hours > 90) & (hours < 92))
    for levels, least, most in ((quiet, 0, 0), (quiet * creep, 1, SERIES)):
        found = _judge(_panel(np.where(silent, np.nan, levels), np.where(silent, np.nan, load)))
        assert least <= len(found) <= most


def test_without_a_limit_or_above_it_there_is_no_forecast() -> None:
    """Nothing to be met, or met already: that is a rule's matter."""
    rng = np.random.default_rng(4)
    hours = _hours(3)
    panel = _panel(0.011 * (1 + 0.01 * np.maximum(hours - 24, 0)) + _noise(rng, len(hours)))
    assert len(_judge(panel)) == SERIES
    assert _judge(panel, Limits()) == []
    found = judge({"tpot_mean": panel}, Limits())
    assert {(f.kind, f.state) for f in found} <= {("creep", "watch")}  # its load is not known
    assert _judge(panel, Limits({"tpot_mean": 0.012})) == []


def test_each_signal_with_a_limit_is_judged_and_a_silent_pool_is_told_once() -> None:
    """One line says that a pool has no recent data, however many signals it is missing in."""
    rng = np.random.default_rng(5)
    hours = _hours(3)
    tpot = _panel(0.011 * (1 + 0.01 * np.maximum(hours - 24, 0)) + _noise(rng, len(hours)))
    itl = replace(tpot, signal="itl_mean", values=2 * tpot.values)
    limits = Limits({"tpot_mean": 0.020, "itl_mean": 0.040})
    found = judge({"tpot_mean": tpot, "itl_mean": itl}, limits)
    assert {f.signal for f in found if f.kind == "forecast"} == {"tpot_mean", "itl_mean"}
    late = judge({"tpot_mean": tpot, "itl_mean": itl}, limits, as_of=tpot.times[-1] + 2 * 86400)
    assert [f.kind for f in late] == ["unknown"] * SERIES
