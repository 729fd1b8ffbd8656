"""The laws that every registered detector keeps, each written once."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import detectors.drift
from benchmarks.detect_series import DAY, GIB, ORIGIN, leaking, noise, panel
from catalog.panel import FloatArray, Panel
from catalog.signals import SIGNALS as CATALOGUE
from detectors.drift.judge import DETECTORS, NEEDED, SIGNALS, Limits, judge
from detectors.finding import Finding

Panels = dict[str, Panel]
LIMITS = Limits({"host_anon_swap": 64 * GIB, "acceptance_ratio": 0.4, "tpot_mean": 0.02})


def _memory(rng: np.random.Generator, series: int, bad: int) -> Panels:
    """Return quiet memory of which the first *bad* series leak for the last half."""
    values = noise(rng, series, 2 * DAY)
    values[:bad] += leaking(2 * DAY, 0.5, 8 * GIB)
    return {"host_anon_swap": panel(values)}


def _acceptance(rng: np.random.Generator, series: int, bad: int) -> Panels:
    """Return healthy acceptance of which the first *bad* series fall for the last four hours."""
    points = 2 * DAY
    share = 0.68 + 0.02 * np.sin(
        2 * np.pi * np.arange(points) / 400 + rng.uniform(0, 6, (series, 1))
    )
    share = share + rng.normal(0, 0.01, share.shape)
    share[:bad] -= 0.3 * np.maximum(np.arange(points) - points + 240, 0) / 240
    trials = rng.poisson(4000, share.shape)
    wins = rng.binomial(trials, np.clip(share, 0, 1)).astype(float)
    labels = tuple({"deployment": f"d{i}", "pool": "decode"} for i in range(series))
    times = ORIGIN + 60.0 * np.arange(points)
    made = Panel("acceptance_ratio", times, wins, labels, trials=trials.astype(float))
    return {"acceptance_ratio": made}


def _latency(rng: np.random.Generator, series: int, bad: int) -> Panels:
    """Return TPOT with its daily load, of which the first *bad* creep by 1 % an hour."""
    points = 3 * DAY
    hours = np.arange(points) / 60
    load = 40 + 15 * np.sin(2 * np.pi * hours / 24 + rng.uniform(0, 6, (series, 1)))
    load = load + rng.normal(0, 2, load.shape)
    level = 0.009 + 6e-5 * load + rng.normal(0, 2e-4, load.shape)
    level[:bad] *= 1 + 0.01 * np.maximum(hours - hours[-1] + 36, 0)
    labels = tuple({"deployment": f"d{i}", "pool": "decode"} for i in range(series))
    times = ORIGIN + 60.0 * np.arange(points)
    return {"tpot_mean": Panel("tpot_mean", times, level, labels, load=load)}


def _started(rng: np.random.Generator, series: int, bad: int) -> Panels:
    """Return TPOT with its load and a new image six hours ago, 8 % slower for the first *bad*."""
    made = _latency(rng, series, 0)["tpot_mean"]
    at = made.times[-1] - 6 * 3600
    made.values[:bad] *= np.where(made.times >= at, 1.08, 1.0)
    labels = tuple(
        {**labels, "server": f"{labels['deployment']}:8000", "image": image}
        for image in ("v1", "v2")
        for labels in made.labels
    )
    old = np.where(made.times < at, made.times[0] - 86400, np.nan)
    new = np.where(made.times >= at, at, np.nan)
    starts = np.concatenate([np.tile(old, (series, 1)), np.tile(new, (series, 1))])
    return {
        "tpot_mean": made,
        "instance_start": Panel("instance_start", made.times, starts, labels),
    }


def _peers(rng: np.random.Generator, series: int, bad: int) -> Panels:
    """Return TPOT of three servers a deployment; the first one of the first *bad* is 20 % slow."""
    parts = [_latency(rng, series, 0)["tpot_mean"] for _ in range(3)]
    parts[0].values[:bad, -600:] *= 1.2
    labels = tuple(
        {**labels, "server": f"s{i}-{labels['deployment']}"}
        for i, part in enumerate(parts)
        for labels in part.labels
    )
    values = np.concatenate([part.values for part in parts])
    load = np.concatenate([part.load for part in parts if part.load is not None])
    name = "tpot_mean_by_server"
    return {name: Panel(name, parts[0].times, values, labels, load=load)}


MAKERS: Mapping[str, Callable[[np.random.Generator, int, int], Panels]] = {
    "leak": _memory,
    "falling": _acceptance,
    "forecast": _latency,
    "creep": _latency,
    "rollout": _started,
    "straggler": _peers,
}
WITHOUT_BREACH = ("rollout", "straggler")  # what has happened is no way to a limit


@pytest.fixture(params=sorted(DETECTORS))
def name(request: pytest.FixtureRequest) -> str:
    """Return each registered detector in turn."""
    return str(request.param)


def _run(name: str, panels: Panels, as_of: float | None = None) -> list[Finding]:
    newest = max(float(p.times[-1]) for p in panels.values())
    return DETECTORS[name](panels, LIMITS, newest if as_of is None else as_of)


def _firing(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.state == "firing"]


def _with(panels: Panels, change: Callable[[FloatArray], FloatArray]) -> Panels:
    return {k: replace(p, values=change(p.values.copy())) for k, p in panels.items()}


def test_every_detector_is_registered_and_has_signals() -> None:
    """A module with a `find_*` function is in the dict, with signals of the catalogue."""
    written = set()
    for module in pkgutil.iter_modules(detectors.drift.__path__):
        loaded = importlib.import_module(f"detectors.drift.{module.name}")
        if hasattr(loaded, "NAME"):
            written.add(loaded.NAME)
    assert written == set(DETECTORS) == set(SIGNALS) == set(MAKERS)
    assert set(NEEDED) <= set(CATALOGUE)


def test_every_detector_is_documented_and_has_its_runbook(name: str) -> None:
    """Its null, its needs, its smallest effect and its method are on the page."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "detectors.md").read_text()
    part = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
    for word in ("Null", "Needs", "Smallest effect", "Unknown", "Method"):
        assert f"- **{word}**: " in part
    assert (root / "runbooks" / f"Leadline{name.capitalize()}.md").is_file()


def test_finds_the_shape_it_claims_and_only_there(name: str) -> None:
    """What goes wrong is firing with its effect and onset; what is well is silent."""
    found = _firing(_run(name, MAKERS[name](np.random.default_rng(1), 6, 2)))
    places = {(f.labels.get("server") or f.labels["deployment"])[-1:] for f in found}
    assert len(found) == 2
    assert places <= {"0", "1"}
    for finding in found:
        assert finding.effect is not None
        assert finding.effect_low is not None
        assert finding.effect_high is not None
        assert finding.effect_low <= finding.effect <= finding.effect_high
        assert finding.since is not None
        assert finding.since < finding.as_of
        assert (finding.time_to_breach is None) == (name in WITHOUT_BREACH)


def test_pure_input_unchanged_and_same_answer_twice(name: str) -> None:
    """Judging changes nothing and depends on nothing but its arguments."""
    panels = MAKERS[name](np.random.default_rng(2), 4, 1)
    before = {k: p.values.copy() for k, p in panels.items()}
    first, second = _run(name, panels), _run(name, panels)
    assert [f.to_dict() for f in first] == [f.to_dict() for f in second]
    assert first
    for key, values in before.items():
        assert np.array_equal(values, panels[key].values, equal_nan=True)


def test_does_not_peek_at_later_points(name: str) -> None:
    """What comes after `as_of` changes nothing in the judgement at `as_of`."""
    panels = MAKERS[name](np.random.default_rng(3), 4, 1)
    whole = next(iter(panels.values()))
    as_of = float(whole.times[-61])
    later = _with(panels, lambda v: np.where(np.arange(v.shape[1]) >= v.shape[1] - 60, 9e12, v))
    known = {key: p.until(as_of) for key, p in panels.items()}
    expected = [f.to_dict() for f in _run(name, known)]
    assert expected
    assert [f.to_dict() for f in _run(name, later, as_of)] == expected


def test_holes_stay_local(name: str) -> None:
    """NaN in one series changes no finding of another, and invents none of its own."""
    panels = MAKERS[name](np.random.default_rng(4), 4, 2)

    def holed(values: FloatArray) -> FloatArray:
        values[1] = np.nan
        values[3, ::3] = np.nan
        return values

    def of_first(findings: list[Finding]) -> Finding:
        first = next(iter(panels.values())).labels[0]
        (finding,) = (f for f in findings if f.labels == first)
        return finding

    after = _run(name, _with(panels, holed))
    now, then = of_first(after), of_first(_run(name, panels))
    assert (now.id, now.state, now.since) == (then.id, then.state, then.since)
    assert now.effect == pytest.approx(then.effect, rel=1e-5)  # in part single precision
    assert now.effect_low == pytest.approx(then.effect_low, rel=1e-5)
    assert len(_firing(after)) == 1


def test_constant_is_silent(name: str) -> None:
    """A series that never moves is never a finding, at any level."""
    panels = MAKERS[name](np.random.default_rng(5), 4, 0)
    for level in (0.0, 1.0):
        still = _with(panels, lambda v, level=level: np.full_like(v, level))  # type: ignore[misc]
        assert _run(name, still) == []


def test_false_alarms_on_noise_are_below_the_bound(name: str) -> None:
    """Sixty quiet series of two days: none fires (bound: one in sixty, at 95 % one in twenty)."""
    for seed in (6, 7, 8):
        panels = MAKERS[name](np.random.default_rng(seed), 20, 0)
        assert _firing(_run(name, panels)) == []


@pytest.mark.parametrize("points", [0, 1, 2, 31])
def test_too_little_data_is_unknown_and_never_healthy(name: str, points: int) -> None:
    """A pool without enough data gets one `unknown` finding that says from when it is judged."""
    panels = MAKERS[name](np.random.default_rng(9), 3, 0)
    short = {k: p.until(float(p.times[points - 1]) if points else 0.0) for k, p in panels.items()}
    found = judge(short, LIMITS, as_of=float(next(iter(panels.values())).times[max(points - 1, 0)]))
    assert {f.kind for f in found} == {"unknown"}
    assert len(found) == (1 if name == "leak" else 3)  # one a pool, and each deployment has its own


def test_an_absurd_series_is_unknown_and_the_others_are_judged() -> None:
    """Values that overflow arithmetic are no data: a leak beside them is found all the same."""
    times = 1.795e9 + np.arange(0, 30 * 3600.0, 60.0)
    leak = 40e9 + 1e9 / 3600 * (times - times[0])
    values = np.stack([leak, np.full(len(times), 1e300), np.full(len(times), 1e160)])
    labels = tuple(
        {"pool": pool, "server": f"n:{i}", "process": "engine_core"}
        for i, pool in enumerate(("decode", "prefill", "encode"))
    )
    panel = Panel("host_anon_swap", times, values, labels)
    found = judge({panel.signal: panel}, Limits({panel.signal: 128 * 2.0**30}))
    assert [(f.kind, f.labels["pool"]) for f in found if f.kind == "leak"] == [("leak", "decode")]
    assert {f.labels["pool"] for f in found if f.kind == "unknown"} == {"prefill", "encode"}
