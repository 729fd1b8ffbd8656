"""The falling ratio: real declines are found, healthy wander and missing traffic are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from catalog.panel import FloatArray, Panel
from detectors.drift.judge import Limits, judge
from detectors.finding import Finding

DAY = 1440
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


def _judge(panel: Panel, minutes: int, limits: Limits = FLOOR) -> list[Finding]:
    as_of = float(panel.times[minutes - 1])
    return [
        f for f in judge({"acceptance_ratio": panel}, limits, as_of=as_of) if f.kind != "unknown"
    ]


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


def test_slow_decline_is_found_before_285() -> None:
    """From 3.03 to 2.76 in eight hours under a healthy wander, as in vLLM#41838."""
    rng = np.random.default_rng(2)
    since = np.maximum(np.arange(2 * DAY) - 1.5 * DAY, 0)
    share = _share(rng, 4, 2 * DAY) - 0.09 * since / 480
    panel = _panel(rng, share)
    firing = [f for f in _judge(panel, int(1.5 * DAY) + 375) if f.state == "firing"]
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


def test_small_step_is_a_watch_and_a_big_one_fires_as_a_step() -> None:
    """Other traffic may shift acceptance by a step: only ten points count by themselves."""
    rng = np.random.default_rng(4)
    share = np.full((2, 2 * DAY), 0.68)
    share[0, -180:] -= 0.06
    share[1, -180:] -= 0.16
    small, big = sorted(_judge(_panel(rng, share), 2 * DAY), key=lambda f: f.labels["deployment"])
    assert (small.state, small.verdict) == ("watch", "step")
    assert (big.state, big.verdict) == ("firing", "step")
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
