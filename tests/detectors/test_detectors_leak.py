"""The leak detector: what it must find, what must stay quiet, and when the limit is met."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.detect_series import (
    DAY,
    GIB,
    MIB,
    NEGATIVES,
    ORIGIN,
    POSITIVES,
    leaking,
    noise,
    panel,
)
from catalog.panel import FloatArray, Panel
from detectors.drift.judge import Limits, judge
from detectors.drift.leak import find_leaks
from detectors.drift.live import LeakReplay
from detectors.finding import Finding

LIMITS = Limits({"host_anon_swap": 64 * GIB})
NONE = Limits()


def _leaks(values: FloatArray, limits: Limits = LIMITS, step: float = 60.0) -> list[Finding]:
    return [f for f in judge({"host_anon_swap": panel(values, step)}, limits) if f.kind == "leak"]


def _firing(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.state == "firing"]


@pytest.mark.parametrize("kind", sorted(NEGATIVES))
def test_hard_negatives_stay_quiet(kind: str) -> None:
    """Nothing fires on five series of three days, looked at four times as they grow."""
    values = NEGATIVES[kind](np.random.default_rng(100), 5, 3 * DAY)
    first = int(0.85 * 3 * DAY) if kind == "mended leak" else 6 * 60
    for end in np.linspace(first, 3 * DAY, 4).astype(int):
        fired = _firing(_leaks(values[:, :end]))
        assert not fired, (kind, end, fired[0].cause, fired[0].evidence["shape"])


@pytest.mark.parametrize("kind", sorted(POSITIVES))
def test_leaks_are_found(kind: str) -> None:
    """All four fire as leaks at the end of three days."""
    values = POSITIVES[kind](np.random.default_rng(101), 4, 3 * DAY)
    fired = _firing(_leaks(values))
    assert len(fired) == 4
    assert {f.verdict for f in fired} == {"leak"}


def test_rate_onset_and_time_left_are_right() -> None:
    """512 MiB/h since noon of the second day, 48 GiB limit: the numbers of the finding."""
    points = 2 * DAY
    rise = 512 * MIB * np.maximum(np.arange(points) - 1.5 * DAY, 0) / 60
    values = noise(np.random.default_rng(102), 1, points) + rise
    (finding,) = _firing(_leaks(values, Limits({"host_anon_swap": 48 * GIB})))
    assert finding.effect == pytest.approx(512 * MIB, rel=0.05)
    assert finding.since == pytest.approx(ORIGIN + 1.5 * DAY * 60, abs=3 * 3600)
    left = (48 - 8 - 6) * 2 * 3600
    assert finding.time_to_breach == pytest.approx(left, rel=0.06)
    assert finding.severity == "ticket"
    assert finding.effect_unit == "bytes/hour"


def test_page_when_little_is_left() -> None:
    """The same leak with 12 GiB as the limit pages: four hours left and twelve seen."""
    rise = 512 * MIB * np.maximum(np.arange(2 * DAY) - 1.5 * DAY, 0) / 60
    values = noise(np.random.default_rng(103), 1, 2 * DAY) + rise
    (finding,) = _firing(_leaks(values, Limits({"host_anon_swap": 16 * GIB})))
    assert finding.severity == "page"
    assert finding.time_to_breach is not None
    assert finding.time_to_breach < 5 * 3600


def test_without_limit_a_leak_is_a_ticket_with_its_rate() -> None:
    """No limit: rate alone, no time to breach."""
    values = noise(np.random.default_rng(104), 1, 2 * DAY) + leaking(2 * DAY, 0.3, 8 * GIB)
    (finding,) = _firing(_leaks(values, NONE))
    assert finding.time_to_breach is None
    assert finding.limit is None
    assert finding.severity == "ticket"


def test_five_seconds_and_fifteen_minutes_are_enough() -> None:
    """25 MiB/min on a process of 400 MiB at five seconds, from its start, beside a warm-up."""
    points = 180
    rng = np.random.default_rng(105)
    wobble = 0.3 * MIB * rng.normal(size=(2, points))
    minutes = np.arange(points) / 12
    leak = 400 * MIB + 25 * MIB * np.maximum(minutes - 1, 0)
    warm = 1400 * MIB + 200 * MIB * (1 - np.exp(-minutes / 2))
    fired = _firing(_leaks(np.stack([leak, warm]) + wobble, NONE, step=5.0))
    assert [f.labels["server"] for f in fired] == ["node0:8000"]
    assert fired[0].effect == pytest.approx(25 * 60 * MIB, rel=0.1)


def test_restart_by_start_time_begins_a_new_segment() -> None:
    """A leak before a restart is over: what counts is the running incarnation."""
    values = noise(np.random.default_rng(106), 1, 2 * DAY)
    values[:, : DAY + 600] += leaking(DAY + 600, 0.0, 6 * GIB)
    starts = np.where(np.arange(2 * DAY) < DAY + 600, ORIGIN, ORIGIN + (DAY + 600) * 60.0)[None]
    restarted = replace(panel(values), starts=starts)
    assert _firing(judge({"host_anon_swap": restarted}, LIMITS)) == []
    before = restarted.until(float(restarted.times[DAY + 500]))
    assert _firing(judge({"host_anon_swap": before}, LIMITS)) != []


def _daily_restarts(rise: FloatArray) -> Panel:
    """Return three days and six hours of a process that is started anew each day."""
    points = 3 * DAY + 360
    age = np.arange(points) % DAY
    values = noise(np.random.default_rng(112), 1, points) + rise[age]
    starts = ORIGIN + 60.0 * (np.arange(points) - age)
    return replace(panel(values), starts=starts[None])


def test_growth_is_remembered_over_restarts() -> None:
    """Each life too short for a warning of days ahead, and all of them alike, to their ends."""
    leak = _daily_restarts(6 * GIB * np.arange(DAY) / DAY)
    (finding,) = _firing(judge({"host_anon_swap": leak}, LIMITS))
    assert finding.verdict == "leak"
    assert finding.evidence["seen_before_restart"] > 2 * 86400
    alone = replace(leak, starts=np.full_like(leak.values, ORIGIN + 3 * 86400.0)).rows([0])
    first = replace(alone, times=alone.times[-360:], values=alone.values[:, -360:],
                    starts=alone.starts[:, -360:])  # type: ignore[index]  # fmt: skip
    assert _firing(judge({"host_anon_swap": first}, LIMITS)) == []


def test_a_warm_up_after_each_restart_is_no_memory() -> None:
    """What fills up anew each day and then stands is not made a leak by doing so often."""
    warm = _daily_restarts(6 * GIB * (1 - np.exp(-np.arange(DAY) / 240)))
    for hours in (1, 2, 3, 4, 6):
        until = ORIGIN + 3 * 86400.0 + hours * 3600.0
        assert _firing(judge({"host_anon_swap": warm}, LIMITS, as_of=until)) == []


def test_a_replay_says_what_a_judgement_of_that_moment_says() -> None:
    """Cycle by cycle with what is new, or at once with all: the findings are the same."""
    rng = np.random.default_rng(113)
    points = 2 * DAY
    values = noise(rng, 6, points)
    values[0] += leaking(points, 0.3, 8 * GIB)
    values[1] += 6 * GIB * (1 - np.exp(-np.arange(points) / 300))
    values[2] += GIB * np.sin(np.arange(points) / 230)
    values[3, : points // 2] = np.nan
    values[4, 1000:] += leaking(points - 1000, 0.0, 9 * GIB)
    starts = np.full_like(values, ORIGIN)
    starts[4, 1000:] = ORIGIN + 60_000
    whole = replace(panel(values), starts=starts)
    replay = LeakReplay(whole)
    for end in range(600, points + 1, 97):
        known = whole.until(float(whole.times[end - 1]))
        expected = [f.to_dict() for f in find_leaks({known.signal: known}, LIMITS, known.times[-1])]
        assert [f.to_dict() for f in replay.at(end, {}, LIMITS)] == expected, end
    assert {f["labels"]["server"] for f in expected} >= {"node0:8000", "node4:8000"}


def test_resident_memory_alone_says_so() -> None:
    """With RSS only, a leak is found and the evidence says that swap was not seen."""
    values = noise(np.random.default_rng(107), 1, 2 * DAY) + leaking(2 * DAY, 0.3, 8 * GIB)
    rss = replace(panel(values), signal="host_rss")
    (finding,) = _firing(judge({"host_rss": rss}, NONE))
    assert finding.evidence["resident_only"] is True
    assert "swap not seen" in finding.cause


def test_growth_by_load_is_told_from_growth_by_time() -> None:
    """A leak that follows the requests done, not the clock, says so."""
    rng = np.random.default_rng(108)
    load = 10 + 9 * np.sin(2 * np.pi * np.arange(3 * DAY) / DAY)[None]
    values = noise(rng, 1, 3 * DAY) + 5000 * np.cumsum(load * 60, axis=1)
    loaded = replace(panel(values), load=load)
    (finding,) = _firing(judge({"host_anon_swap": loaded}, LIMITS))
    assert finding.evidence["per"] == "load"
    assert finding.evidence["slope_per_load"] == pytest.approx(5000, rel=0.1)


def _pair() -> dict[str, Panel]:
    """Return two processes of one server that leak alike, and one that is quiet."""
    values = noise(np.random.default_rng(109), 3, 2 * DAY)
    values[:2] += leaking(2 * DAY, 0.5, 6 * GIB)
    base = panel(values)
    names = tuple(
        {**labels, "server": "node0:8000", "node": "node0", "rank": f"{i}"}
        for i, labels in enumerate(base.labels)
    )
    return {"host_anon_swap": replace(base, labels=names)}


def _one(signal: str, value: float, **labels: str) -> Panel:
    times = ORIGIN + 60.0 * np.arange(2 * DAY)
    return Panel(signal, times, np.full((1, 2 * DAY), value), (labels,))


def test_container_limit_takes_working_set_and_all_slopes() -> None:
    """Headroom is limit less working set; growth is the sum over the processes in the cgroup."""
    panels = _pair()
    place = {"server": "node0:8000", "node": "node0", "cgroup": "pod1"}
    panels["container_working_set"] = _one("container_working_set", 40 * GIB, **place)
    panels["container_limit"] = _one("container_limit", 50 * GIB, **place)
    fired = _firing(judge(panels, NONE))
    assert len(fired) == 2
    rate = 2 * 6 * GIB / 86400  # both together
    for finding in fired:
        assert finding.limit == 50 * GIB
        assert finding.time_to_breach == pytest.approx(10 * GIB / rate, rel=0.08)


def test_host_memory_is_the_limit_where_there_is_no_other() -> None:
    """Without container limit the host's memory counts, with everything that grows on it."""
    panels = _pair()
    panels["host_memory_total"] = _one("host_memory_total", 100 * GIB, node="node0")
    panels["host_memory_used"] = _one("host_memory_used", 70 * GIB, node="node0")
    fired = _firing(judge(panels, NONE))
    assert {f.limit for f in fired} == {100 * GIB}
    assert fired[0].time_to_breach == pytest.approx(30 * GIB / (12 * GIB / 86400), rel=0.08)


def test_given_limit_counts_the_process_tree() -> None:
    """A limit by flag is met by the sum of a server's processes, never by one of them."""
    panels = _pair()
    fired = _firing(judge(panels, Limits({"host_anon_swap": 60 * GIB})))
    used = 3 * 8 + 2 * 6
    assert fired[0].time_to_breach == pytest.approx(
        (60 - used) * GIB / (12 * GIB / 86400), rel=0.08
    )


def test_a_leak_of_weeks_under_daily_traffic_is_a_ticket_within_a_day() -> None:
    """721 GiB growing by 79 GiB in 40 hours with the blocks served, on 2 TiB: never a page."""
    points, onset = 5 * DAY, 72.0
    rng = np.random.default_rng(3)
    hours = np.arange(points) / 60
    traffic = 1 + 0.5 * np.sin(2 * np.pi * (hours - 9) / 24)
    grown = 79 / 40 * np.cumsum(traffic * (hours >= onset)) / 60
    season = np.sin(2 * np.pi * (hours - 10) / 24)
    values = GIB * (721 + grown + season + 0.3 * rng.normal(size=points))
    panels = {"host_anon_swap": panel(values[None])}
    limits = Limits({"host_anon_swap": 2048 * GIB})

    def seen(after: float) -> list[Finding]:
        return _firing(judge(panels, limits, as_of=ORIGIN + 3600 * (onset + after) - 60))

    assert seen(-24.0) == seen(0.0) == []
    for after in (24.0, 36.0, 48.0):
        (finding,) = seen(after)
        assert finding.severity in {"ticket", "report"}  # a month is left, give or take a day
    assert finding.effect == pytest.approx(79 / 40 * GIB, rel=0.15)
    assert finding.severity == "ticket"


@pytest.mark.parametrize("phase", [0.0, 1.6, 3.1, 4.7])
def test_the_rising_half_of_a_first_day_does_not_fire(phase: float) -> None:
    """A daily season of a quarter of the level, before a second day could show that it is one."""
    times = 1.795e9 + np.arange(0, 36 * 3600.0, 60.0)
    season = 5e9 * np.sin(2 * np.pi * (times - times[0]) / 86400 + phase)
    values = 20e9 + season + np.random.default_rng(3).normal(0, 2e7, len(times))
    labels = ({"pool": "decode", "server": "n:8000", "process": "engine_core"},)
    panel = Panel("host_anon_swap", times, values[None, :], labels)
    limits = Limits({"host_anon_swap": 40 * 2.0**30})
    for hours in range(1, 36):
        found = judge({panel.signal: panel}, limits, as_of=float(times[0]) + hours * 3600)
        assert [f for f in found if f.state == "firing"] == [], hours
