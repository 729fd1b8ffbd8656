"""Change at a rollout: what it cost is told with an interval; what changed nothing is silent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from catalog.panel import FloatArray, Panel
from detectors.drift.judge import Limits, judge
from detectors.drift.rollout_cold import SIGNALS as BY_SERVER
from detectors.finding import Finding

STEP = 120.0
HOUR = 3600.0
ORIGIN = 1.7e9
DAYS = 4.0
AT = DAYS * 24 - 8  # hours from the first point to the rollout
SERVERS = 4
PLACE = {"cluster": "c", "deployment": "d", "pool": "decode", "model_name": "m"}
Panels = dict[str, Panel]


def _hours() -> FloatArray:
    hours: FloatArray = np.arange(round(DAYS * 86400 / STEP)) * STEP / HOUR
    return hours


def _wander(rng: np.random.Generator, rows: int, phi: float) -> FloatArray:
    shock = rng.normal(size=(rows, len(_hours())))
    for i in range(1, shock.shape[1]):
        shock[:, i] = phi * shock[:, i - 1] + np.sqrt(1 - phi**2) * shock[:, i]
    return shock


def _tpot(rng: np.random.Generator, factor: FloatArray | float = 1.0) -> Panels:
    """Return TPOT of one pool with its daily load, times *factor*."""
    hours = _hours()
    load = 40 * (1 + 0.4 * np.sin(2 * np.pi * hours / 24 + rng.uniform(0, 6.3)))
    load = load * np.exp(0.03 * _wander(rng, 1, 0.9))
    noise = np.exp(0.012 * _wander(rng, 1, 0.9))
    values = (0.008 + 6e-5 * load + 2e-7 * load**2) * noise * factor
    return {"tpot_mean": Panel("tpot_mean", ORIGIN + STEP * np.arange(len(hours)), values,
                               (PLACE,), load=load)}  # fmt: skip


def _starts(
    at: float = AT, apart: float = 0.5, setup: tuple[dict[str, str], dict[str, str]] = ({}, {})
) -> Panel:
    """Return `instance_start` of four servers that are started anew one after another."""
    times = ORIGIN + STEP * np.arange(len(_hours()))
    labels, rows = [], []
    for i in range(SERVERS):
        began = ORIGIN + (at + i * apart) * HOUR
        server = {**PLACE, "server": f"n{i}:8000"}
        if setup[0] == setup[1]:
            labels.append({**server, **setup[0]})
            rows.append(np.where(times < began, ORIGIN - 86400, began))
        else:
            labels += [{**server, **one} for one in setup]
            rows.append(np.where(times < began, ORIGIN - 86400, np.nan))
            rows.append(np.where(times >= began, began, np.nan))
    return Panel("instance_start", times, np.array(rows), tuple(labels))


def _found(panels: Panels, back: float = 0.0, kind: str = "rollout") -> list[Finding]:
    end = ORIGIN + _hours()[-1] * HOUR
    found = judge(panels, Limits(), as_of=end - back * HOUR)
    return [finding for finding in found if finding.kind == kind]


def _fired(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.state == "firing"]


SETUP = ({"image": "vllm:1", "arguments": "a"}, {"image": "vllm:2", "arguments": "a"})


def test_six_percent_since_the_new_image_is_told_with_an_interval_that_holds_it() -> None:
    """Eight pools: found in most within 4 h, the interval is right as often as it says, no page."""
    after = _hours() > AT + 1.5
    inside, found = 0, 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        panels = _tpot(rng, np.where(after, 1.06, 1.0)) | {"instance_start": _starts(setup=SETUP)}
        assert _found(panels, back=6.5) == []  # it is not over, or just
        for finding in _fired(_found(panels, back=2.0)):
            found += 1
            low, high = finding.effect_low, finding.effect_high
            assert low is not None
            assert high is not None
            assert finding.effect == pytest.approx(0.06, abs=0.025)
            inside += low <= 0.06 <= high
            assert high - low < 0.06
            assert (finding.verdict, finding.severity) == ("step", "report")
            assert finding.evidence["changed"] == {"image": ["vllm:1", "vllm:2"]}
            assert finding.evidence["starts"] == SERVERS
            assert finding.since == pytest.approx(ORIGIN + AT * HOUR, abs=STEP)
            assert "since the new image vllm:2, at the same load" in finding.cause
    assert found >= 7
    assert inside >= found - 1


def test_a_large_change_is_a_ticket_and_never_a_page() -> None:
    """Twenty percent is work for somebody, in daylight."""
    panels = _tpot(np.random.default_rng(1), np.where(_hours() > AT + 1.5, 1.2, 1.0))
    [finding] = _found(panels | {"instance_start": _starts(setup=SETUP)})
    assert (finding.severity, finding.time_to_breach) == ("ticket", None)


@pytest.mark.parametrize("seed", range(8))
def test_restarts_that_change_no_cost_are_silent(seed: int) -> None:
    """A rolling restart, with or without another image, at whatever hour one looks."""
    rng = np.random.default_rng(100 + seed)
    setup = SETUP if seed % 2 else ({}, {})
    panels = _tpot(rng) | {"instance_start": _starts(setup=setup)}
    # Each start is slow for twenty minutes.
    cold = np.zeros(len(_hours()))
    for i in range(SERVERS):
        since = _hours() - (AT + 0.5 * i)
        cold += 0.25 * ((since > 0) & (since < 1 / 3))
    panels["tpot_mean"].values[0] *= 1 + cold
    for back in np.arange(0.0, 8.0, 0.5):
        assert _fired(_found(panels, back=float(back))) == []


def test_better_is_watched_only() -> None:
    """Nobody is told of what became cheaper, but it can be read."""
    panels = _tpot(np.random.default_rng(2), np.where(_hours() > AT + 1.5, 0.9, 1.0))
    [finding] = _found(panels | {"instance_start": _starts(setup=SETUP)})
    assert finding.state == "watch"
    assert finding.effect == pytest.approx(-0.1, abs=0.03)


def test_what_comes_hours_later_is_not_the_rollouts() -> None:
    """A step four hours after it, and one without any start."""
    late = _tpot(np.random.default_rng(3), np.where(_hours() > AT + 6.0, 1.1, 1.0))
    assert _found(late | {"instance_start": _starts(apart=0.1)}) == []
    alone = _tpot(np.random.default_rng(3), np.where(_hours() > AT, 1.1, 1.0))
    assert _found(alone | {"instance_start": _starts(at=-50.0)}) == []


def test_other_traffic_since_the_rollout_is_not_the_rollouts() -> None:
    """A load that doubled at the same hour was never seen before: there is nothing to compare."""
    hours = _hours()
    panels = _tpot(np.random.default_rng(4))
    load = panels["tpot_mean"].load
    assert load is not None
    more = load * np.where(hours > AT, 2.5, 1.0)
    values = (0.008 + 6e-5 * more) * 1.02
    panels["tpot_mean"] = replace(panels["tpot_mean"], values=values, load=more)
    assert _found(panels | {"instance_start": _starts(setup=SETUP)}) == []


def test_new_pods_in_the_place_of_old_ones_are_a_rollout_too() -> None:
    """Kubernetes gives them new names: the old ones vanish, and the setup is told from them."""
    times = ORIGIN + STEP * np.arange(len(_hours()))
    began = ORIGIN + AT * HOUR
    old, new = (
        {**PLACE, "server": f"{name}:8000", **setup}
        for name, setup in zip(("10.0.0.1", "10.0.0.9"), SETUP, strict=True)
    )
    rows = [np.where(times < began, ORIGIN - 5e4, np.nan), np.where(times >= began, began, np.nan)]
    starts = Panel("instance_start", times, np.array(rows), (old, new))
    panels = _tpot(np.random.default_rng(5), np.where(times > began, 1.08, 1.0))
    [finding] = _fired(_found(panels | {"instance_start": starts}))
    assert finding.evidence["changed"] == {"image": ["vllm:1", "vllm:2"]}


def test_cold_start_is_the_time_to_the_plateau() -> None:
    """Servers that answer after 4 minutes and are warm after 20 say so, the slowest beside."""
    panels = _tpot(np.random.default_rng(6), np.where(_hours() > AT + 1.5, 1.08, 1.0))
    times = panels["tpot_mean"].times
    labels, rows = [], []
    for i in range(SERVERS):
        since = (times - ORIGIN) / 60 - (AT + 0.5 * i) * 60
        warm = 20 if i else 40
        slow = np.where((since >= 0) & (since < warm), 1.8, 1.0)
        rows.append(np.where((since >= 0) & (since < 4), np.nan, 0.012 * slow))
        labels.append({**PLACE, "server": f"n{i}:8000"})
    by_server = Panel(BY_SERVER[1], times, np.array(rows), tuple(labels))
    given = panels | {"instance_start": _starts(setup=SETUP), by_server.signal: by_server}
    [finding] = _fired(_found(given))
    assert finding.evidence["cold_start_minutes"] == pytest.approx(20, abs=3)
    assert finding.evidence["slowest_cold_start_minutes"] == pytest.approx(40, abs=3)
    assert "From start to plateau a server took 20 min" in finding.cause


def test_it_is_news_for_three_days_and_without_starts_there_is_none() -> None:
    """Older rollouts are how things are; process starts serve where the exporter tells no more."""
    factor = np.where(_hours() > 12 + 1.5, 1.1, 1.0)
    panels = _tpot(np.random.default_rng(7), factor)
    early = _starts(at=12.0)
    assert len(_fired(_found(panels | {"instance_start": early}, back=70))) == 1
    assert _found(panels | {"instance_start": early}) == []
    assert _found(panels, back=70) == []
    memory = Panel(
        "host_anon_swap", early.times, np.full(early.values.shape, 8e9),
        tuple({**one, "process": "worker", "node": one["server"][:2]} for one in early.labels),
        starts=early.values,
    )  # fmt: skip
    [finding] = _fired(_found(panels | {"host_anon_swap": memory}, back=70))
    assert finding.verdict == "restart"
    assert "since the start of 4 servers" in finding.cause
