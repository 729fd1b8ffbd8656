"""The falling ratio: real declines are found, healthy wander and missing traffic are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from catalog.panel import FloatArray, Panel
from detectors.drift.judge import Limits, judge
from detectors.finding import Finding

DAY = 1440
NOTHING: Mapping[str, Panel] = {}
FLOOR = Limits({"acceptance_ratio": 0.4})


def _share(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    """Return a healthy share of 0.64 to 0.71 (mean length 2.92 to 3.12) that wanders for hours."""
    wander = np.zeros((series, points))
    keep = np.exp(-1 / 180)
    for i in range(1, points):
        wander[:, i] = keep * wander[:, i - 1]
        wander[:, i] += 0.014 * np.sqrt(1 - keep**2) * rng.normal(size=series)
    share: FloatArray = 0.675 + wander.clip(-0.033, 0.033)
    return share


def _panel(rng: np.random.Generator, share: FloatArray, per_minute: float = 6000) -> Panel:
    """Return counts with that share, overdispersed, under daily traffic."""
    points = share.shape[1]
    busy = 1 + 0.6 * np.sin(2 * np.pi * np.arange(points) / DAY)
    trials = rng.poisson(per_minute * busy, share.shape)
    wins = rng.binomial(trials, np.clip(share + rng.normal(0, 0.01, share.shape), 0, 1))
    labels = tuple({"deployment": f"d{i}", "pool": "decode"} for i in range(len(share)))
    times = 1.7e9 + 60.0 * np.arange(points)
    return Panel("acceptance_ratio", times, wins.astype(float), labels, trials=trials.astype(float))


def _judge(
    panel: Panel, minutes: int, limits: Limits = FLOOR, beside: Mapping[str, Panel] = NOTHING
) -> list[Finding]:
    as_of = float(panel.times[minutes - 1])
    panels = {**beside, panel.signal: panel}
    return [f for f in judge(panels, limits, as_of=as_of) if f.kind == "falling"]


def _traffic(panel: Panel, prompt: FloatArray | float = 8000.0) -> dict[str, Panel]:
    """Return the traffic of the deployments of *panel*: one request a second by day, with noise."""
    rng = np.random.default_rng(99)
    labels = tuple({**one, "pool": "prefill"} for one in panel.labels)
    shape = panel.values.shape
    rate = 1 + 0.5 * np.sin(2 * np.pi * np.arange(shape[1]) / DAY) + rng.normal(0, 0.03, shape)
    tokens = rate * prompt * (1 + rng.normal(0, 0.02, shape))
    return {
        name: Panel(name, panel.times, values, labels)
        for name, values in (("request_rate", rate), ("input_tokens_rate", tokens))
    }


def test_fast_decline_is_found_within_forty_minutes() -> None:
    """From 3.33 to 1.90 tokens in 2.2 hours, as in sglang#28771."""
    rng = np.random.default_rng(1)
    since = np.maximum(np.arange(2 * DAY) - 1.5 * DAY, 0)
    share = _share(rng, 4, 2 * DAY) + 0.1 - 0.477 * np.minimum(since / 132, 1)
    panel = _panel(rng, share)
    found = _judge(panel, int(1.5 * DAY) + 40)
    assert len(found) == 4
    assert {(f.state, f.verdict, f.effect_unit) for f in found} == {("firing", "drift", "1/hour")}
    late = _judge(panel, int(1.5 * DAY) + 75)
    for finding in late:
        assert finding.effect == pytest.approx(-0.477 / 2.2, rel=0.3)
        assert finding.time_to_breach == pytest.approx(60 * 60 * (0.505 - 0.4) / 0.217, rel=0.6)


def test_time_to_the_floor_is_as_sure_as_it_says() -> None:
    """A wander of hours may hasten or delay it: most of 24 truths lie within their intervals."""
    rng = np.random.default_rng(21)
    since = np.maximum(np.arange(2 * DAY) - 1.5 * DAY, 0)
    share = _share(rng, 24, 2 * DAY) - 0.06 * since / 60
    now = int(1.5 * DAY) + 120
    found = [f for f in _judge(_panel(rng, share), now) if f.time_to_breach is not None]
    held = []
    for f in found:
        row = share[int(f.labels["deployment"][1:]), now:]
        truth = 60.0 * float(np.argmax(row < 0.4))
        assert f.time_to_breach_low is not None
        assert f.time_to_breach_high is not None
        held.append(f.time_to_breach_low <= truth <= f.time_to_breach_high)
    assert len(held) >= 20
    assert np.mean(held) >= 0.75


def test_slow_decline_is_found_before_285() -> None:
    """From 3.03 to 2.76 in eight hours under a healthy wander, as in vLLM#41838."""
    rng = np.random.default_rng(2)
    since = np.maximum(np.arange(2 * DAY) - 1.5 * DAY, 0)
    share = _share(rng, 4, 2 * DAY) - 0.09 * since / 480
    panel = _panel(rng, share)
    found = _judge(panel, int(1.5 * DAY) + 375, beside=_traffic(panel))
    firing = [f for f in found if f.state == "firing"]
    assert len(firing) >= 3  # six hours and a quarter in, where the mean is 2.82


def test_healthy_wander_is_silent() -> None:
    """Eight series for three days, looked at every six hours from the first on."""
    rng = np.random.default_rng(3)
    panel = _panel(rng, _share(rng, 8, 3 * DAY))
    for minutes in range(360, 3 * DAY + 1, 360):
        assert [f for f in _judge(panel, minutes) if f.state == "firing"] == []


def test_wander_from_end_to_end_does_not_fire() -> None:
    """From 3.10 to 2.92 in six hours, after a day near the upper end: healthy, if new."""
    rng = np.random.default_rng(11)
    since = np.maximum(np.arange(2 * DAY) - 1.25 * DAY, 0)
    share = 0.7 - 0.06 * np.minimum(since / 360, 1) + np.zeros((4, 1))
    panel = _panel(rng, share)
    for minutes in range(int(1.25 * DAY), 2 * DAY, 60):
        assert [f for f in _judge(panel, minutes) if f.state == "firing"] == []


def test_small_step_is_a_watch_and_a_big_one_fires_as_a_fault() -> None:
    """Other traffic may shift acceptance by a step: only ten points count by themselves."""
    rng = np.random.default_rng(4)
    share = np.full((2, 2 * DAY), 0.68)
    share[0, -180:] -= 0.06
    share[1, -180:] -= 0.16
    small, big = sorted(_judge(_panel(rng, share), 2 * DAY), key=lambda f: f.labels["deployment"])
    assert (small.state, small.verdict) == ("watch", "step")
    assert (big.state, big.verdict) == ("firing", "fault")
    assert big.time_to_breach is None


def test_no_traffic_is_no_data() -> None:
    """A night without drafts (0/0) is neither a fall nor a finding."""
    rng = np.random.default_rng(5)
    panel = _panel(rng, _share(rng, 2, 2 * DAY))
    panel.values[:, DAY : DAY + 300] = 0.0
    assert panel.trials is not None
    panel.trials[:, DAY : DAY + 300] = 0.0
    for minutes in (DAY + 100, DAY + 310, DAY + 600):
        assert _judge(panel, minutes) == []


def test_plain_ratio_without_trials_is_judged_too() -> None:
    """A file may hold the ratio alone; a decline is found there as well."""
    rng = np.random.default_rng(6)
    since = np.maximum(np.arange(2 * DAY) - 1.8 * DAY, 0)
    share = _share(rng, 2, 2 * DAY) + rng.normal(0, 0.01, (2, 2 * DAY))
    share[0] -= 0.3 * since / (0.2 * DAY)
    labels = ({"deployment": "a"}, {"deployment": "b"})
    panel = Panel("acceptance_ratio", 60.0 * np.arange(2 * DAY), share, labels)
    found = _judge(panel, 2 * DAY)
    assert [(f.labels["deployment"], f.state) for f in found] == [("a", "firing")]


@pytest.mark.parametrize("empty", [0.0, np.nan])
def test_a_pool_that_need_not_try_is_nothing_to_judge(empty: float) -> None:
    """Prefill that never drafts is silent; decode that never does, or stopped, is unknown."""
    rng = np.random.default_rng(7)
    panel = _panel(rng, _share(rng, 4, DAY))
    assert panel.trials is not None
    for row, since in ((0, 0), (1, 0), (2, DAY - 90), (3, DAY - 30)):
        panel.values[row, since:] = empty
        panel.trials[row, since:] = 0.0
    pools = ("prefill", "decode", "decode", "decode")
    labels = tuple({**one, "pool": pool} for one, pool in zip(panel.labels, pools, strict=True))
    found = judge({"acceptance_ratio": replace(panel, labels=labels)}, FLOOR)
    assert {(f.kind, f.labels["deployment"]) for f in found} == {
        ("unknown", "d1"),
        ("unknown", "d2"),
    }
    causes = {f.labels["deployment"]: f.cause for f in found}
    assert "no trial here at all" in causes["d1"]
    assert "stopped" in causes["d2"]


@pytest.mark.parametrize("phase", [0.0, 2.1, 4.2])
def test_slow_fall_under_a_season_is_found_at_every_phase(phase: float) -> None:
    """From 0.8 to 0.6 in seven days under three points of daily season."""
    rng = np.random.default_rng(12)
    points = 7 * DAY
    angle = 2 * np.pi * np.arange(points) / DAY + phase
    share = 0.8 - 0.2 * np.arange(points) / points + 0.03 * np.sin(angle)
    panel = _panel(rng, share[None, :] + np.zeros((1, 1)))
    states = [[f.state for f in _judge(panel, day * DAY)] for day in (3, 4, 5, 6, 7)]
    assert states[1:] == [["firing"]] * 4
    season = replace(panel, values=panel.values / share * (0.75 + 0.03 * np.sin(angle)))
    for hours in range(72, 168, 8):
        assert _judge(season, hours * 60) == []


def test_a_step_stays_reported_until_a_rollout_sets_a_new_level() -> None:
    """A fall to a new level is told for days; a rollout after it makes that level the usual one."""
    rng = np.random.default_rng(13)
    share = np.full((1, 7 * DAY), 0.68)
    share[0, 2 * DAY :] -= 0.14
    panel = _panel(rng, share)
    for days in (2.1, 2.5, 3, 4, 5, 6, 7):
        (found,) = _judge(panel, int(days * DAY))
        assert (found.state, found.verdict) == ("firing", "fault")
        assert found.since == pytest.approx(panel.times[2 * DAY], abs=4 * 3600)
    labels = tuple({**panel.labels[0], "server": "n:1", "image": image} for image in ("a", "b"))
    begun = np.full((2, 7 * DAY), np.nan)
    begun[0, : 5 * DAY] = panel.times[0] - 3600
    begun[1, 5 * DAY :] = panel.times[5 * DAY]
    started = {"instance_start": Panel("instance_start", panel.times, begun, labels)}
    assert _judge(panel, 7 * DAY, beside=started) == []
    share[0, -600:] -= 0.12
    again = _judge(_panel(rng, share), 7 * DAY, beside=started)
    assert [(f.state, f.verdict) for f in again] == [("firing", "fault")]


def test_new_customers_are_new_traffic_and_the_same_fall_without_them_is_not() -> None:
    """Five points less since prompts are a third longer: watched; with the old prompts it fires."""
    rng = np.random.default_rng(14)
    points, since = 3 * DAY, 3 * DAY - 300
    share = _share(rng, 1, points)
    share[0, since:] -= 0.09
    panel = _panel(rng, share)
    longer = np.where(np.arange(points) >= since, 10800.0, 8000.0)
    (new,) = _judge(panel, points, beside=_traffic(panel, longer))
    assert (new.state, new.verdict, new.severity) == ("watch", "new_traffic", "report")
    assert "prompt length +3" in new.cause
    (same,) = _judge(panel, points, beside=_traffic(panel))
    assert (same.state, same.verdict) == ("firing", "step")


def _counts(
    name: str, share: FloatArray, labels: tuple[dict[str, str], ...], per_minute: float = 3000
) -> Panel:
    rng = np.random.default_rng(15)
    trials = rng.poisson(per_minute, share.shape)
    wins = rng.binomial(trials, share).astype(float)
    times = 1.7e9 + 60.0 * np.arange(share.shape[1])
    return Panel(name, times, wins, labels, trials=trials.astype(float))


def test_a_cache_that_its_tiers_make_up_for_is_no_decay() -> None:
    """Hits fall by half as sessions outgrow the cache: a fault, unless the tiers restore them."""
    pool = ({"deployment": "a", "pool": "prefill"}, {"deployment": "a", "pool": "decode"})
    fallen = np.arange(2 * DAY) > 2 * DAY - 200
    hits = _counts("prefix_hit_ratio", np.where(fallen, 0.45, 0.9) + np.zeros((2, 1)), pool)
    tiers = _counts("external_hit_ratio", np.where(fallen, 0.9, 0.1)[None, :], pool[:1])
    (lost,) = _judge(hits, 2 * DAY)
    assert (lost.labels["pool"], lost.state, lost.verdict) == ("prefill", "firing", "fault")
    (kept,) = _judge(hits, 2 * DAY, beside={"external_hit_ratio": tiers})
    assert (kept.state, kept.verdict) == ("watch", "new_traffic")


def test_positions_are_evidence_of_the_ratio_and_findings_where_it_stands() -> None:
    """The first position alone falls: it is found by itself; else it is told beside the ratio."""
    usual = np.array([[0.93], [0.65], [0.52]]) + np.zeros((3, 2 * DAY))
    fallen = np.arange(2 * DAY) > 2 * DAY - 240
    places = tuple({"deployment": "a", "pool": "decode", "position": str(i)} for i in range(3))

    def at(drops: list[float], ratio: float) -> list[Finding]:
        share = usual - np.array(drops)[:, None] * fallen
        by = _counts("acceptance_by_position", share, places)
        whole = (0.7 - ratio * fallen)[None, :]
        pool = ({"deployment": "a", "pool": "decode"},)
        return _judge(_counts("acceptance_ratio", whole, pool), 2 * DAY, beside={by.signal: by})

    firing = [f for f in at([0.21, 0.0, 0.0], 0.0) if f.state == "firing"]
    assert [(f.signal, f.labels["position"]) for f in firing] == [("acceptance_by_position", "0")]
    (whole,) = at([0.03, 0.15, 0.25], 0.15)
    told = whole.evidence["positions"]
    assert [round(one["usual"] - one["level"], 2) for one in told] == [0.03, 0.15, 0.25]
    assert "position 2 lost most" in whole.cause
    (broken,) = (f for f in at([0.21, 0.0, 0.0], 0.07) if f.signal == "acceptance_ratio")
    assert broken.verdict == "fault"  # a step for the ratio, but not for its first position


def test_failures_are_judged_as_successes_that_fall() -> None:
    """Two requests of a hundred fail, at 80 a minute: found in the unit of its signal."""
    share = np.where(np.arange(2 * DAY) > 2 * DAY - 60, 0.02, 0.0005)[None, :]
    panel = _counts("error_ratio", share, ({"deployment": "a", "pool": "decode"},), 80)
    (found,) = _judge(panel, 2 * DAY)
    assert (found.state, found.verdict) == ("firing", "fault")
    assert found.evidence["level"] == pytest.approx(0.02, abs=0.008)
    assert found.evidence["usual"] == pytest.approx(0.0005, abs=0.0005)
    assert _judge(panel, 2 * DAY - 70) == []


@pytest.mark.parametrize("rho", [0.0, 0.003, 0.02])
def test_overdispersion_and_a_spike_are_no_fall(rho: float) -> None:
    """Six beta-binomial series of three days, with one minute of nothing accepted: silent."""
    rng = np.random.default_rng(16)
    shape = (6, 3 * DAY)
    share = np.full(shape, 0.68)
    if rho:
        share = rng.beta(0.68 * (1 / rho - 1), 0.32 * (1 / rho - 1), shape)
    share[:, 2 * DAY] = 0.0
    panel = _panel(rng, share, 400)
    for minutes in (2 * DAY + 1, 2 * DAY + 5, 2 * DAY + 400, 3 * DAY):
        assert _judge(panel, minutes) == []


def test_a_length_alone_is_judged_in_tokens() -> None:
    """A file may hold the mean length and nothing else."""
    rng = np.random.default_rng(17)
    since = np.maximum(np.arange(2 * DAY) - 2 * DAY + 120, 0)
    length = 3.0 - 0.65 * since / 60 + rng.normal(0, 0.03, (1, 2 * DAY))
    panel = Panel("acceptance_length", 60.0 * np.arange(2 * DAY), length, ({"deployment": "a"},))
    (found,) = _judge(panel, 2 * DAY - 60, Limits({"acceptance_length": 1.5}))
    assert (found.state, found.verdict, found.effect_unit) == ("firing", "drift", "tokens/hour")
    assert found.effect == pytest.approx(-0.65, rel=0.2)
    assert found.time_to_breach == pytest.approx(3600 * 0.85 / 0.65, rel=0.3)
