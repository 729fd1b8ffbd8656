"""Findings over time and their incidents: steady, grouped, ended for a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.panel import Panel
from detectors.finding import Finding, finding_id
from detectors.service.alertmanager import outgoing
from detectors.service.incident import FALLS_AFTER, Forecast, Incident, advance, held
from detectors.service.track import CALM, SILENT, Presences, Tracked, follow

FRESH = {"host_anon_swap"}
HOUR = 3600.0


def leak(rank: int, *, left: float | None = 5 * HOUR, at: float = 1e6, **changes: Any) -> Finding:
    """Return a firing leak of one rank."""
    labels = {"deployment": "chat", "pool": "decode", "process": "engine_core", "node": "n1",
              "server": "n1:8000", "rank": f"DP{rank}"}  # fmt: skip
    finding = Finding(
        id=finding_id("leak", "host_anon_swap", labels, 0.0), kind="leak", verdict="leak",
        detector="leak", signal="host_anon_swap", labels=labels, as_of=at, since=at - 2 * HOUR,
        effect=1e9, effect_unit="bytes/hour", limit=64e9, time_to_breach=left,
        time_to_breach_low=None if left is None else left * 0.8,
        time_to_breach_high=None if left is None else left * 1.2,
        severity="page", state="firing",
    )  # fmt: skip
    return replace(finding, **changes)


class Life:
    """Findings and incidents judged again and again, a minute apart."""

    def __init__(self) -> None:
        self.tracked: dict[str, Tracked] = {}
        self.incidents: list[Incident] = []
        self.now = 1e6

    def judge(self, *findings: Finding, times: int = 1, presence: Any = "reports") -> Incident:
        """Judge the same again *times* times; return the newest incident."""
        for _ in range(times):
            self.now += 60.0
            self.tracked = follow(self.tracked, findings, FRESH, self.now, lambda _f: presence)
            self.incidents = advance(self.incidents, self.tracked.values(), self.now)
        return max(self.incidents, key=lambda i: i.opened)


def test_eight_leaking_ranks_are_one_incident_and_the_soonest_leads() -> None:
    """However many series show it, a person is told once."""
    life = Life()
    incident = life.judge(*(leak(rank, left=(9 - rank) * HOUR) for rank in range(8)))
    assert len(life.incidents) == 1
    assert len(incident.findings) == 8
    assert incident.lead == leak(7).id
    assert incident.forecast is not None
    assert incident.forecast.breach == leak(7, left=2 * HOUR).as_of + 2 * HOUR
    assert "DP" not in str(incident.labels)


def test_an_incident_ends_an_eighth_of_its_time_after_it_was_seen_last() -> None:
    """What was seen for two hours is neither over, nor a second page, for a look that differs."""
    life = Life()
    first = life.judge(leak(0, at=life.now + 60))
    assert life.judge(times=14).state == "firing"
    assert life.judge(leak(0, at=life.now + 60)).id == first.id
    assert life.judge(times=14 + CALM - 1).state == "firing"
    over = life.judge()
    assert (over.id, over.state, over.why) == (first.id, "ended", "no longer found")


def test_a_leak_stands_while_what_is_found_speaks_for_it() -> None:
    """Not clear enough to fire is not over; what it would say as a leak is what is said."""
    life = Life()
    first = life.judge(leak(0, at=life.now + 60))
    for _ in range(100):
        doubt = leak(0, at=life.now + 60, state="watch", verdict="warm_up", cause="Too early.",
                     evidence={"stands": "It grows."})  # fmt: skip
        incident = life.judge(doubt)
    assert (incident.id, incident.state) == (first.id, "firing")
    (finding,) = (one.finding for one in life.tracked.values())
    assert (finding.verdict, finding.cause) == ("leak", "It grows.")


def test_a_restart_ends_a_leak_at_once() -> None:
    """Whoever restarts the process must not look at its page for hours."""
    life = Life()
    life.judge(leak(0, at=life.now + 60, since=0.0))
    over = life.judge(times=CALM, presence="restarted")
    assert (over.state, over.why) == ("ended", "its process was started anew")
    fired = leak(0, at=1000.0)
    values = np.ones((1, 30))
    times = np.arange(0.0, 1800.0, 60.0)
    before = Panel(fired.signal, times, values, (dict(fired.labels),), starts=0 * values)
    assert Presences({fired.signal: before})(fired) == "reports"
    starts = np.where(times > 1200, 1200.0, 0.0)[None]
    assert Presences({fired.signal: replace(before, starts=starts)})(fired) == "restarted"


def test_nothing_ends_while_its_signal_brings_no_new_points() -> None:
    """Prometheus away, or one failing query: what is known stays."""
    life = Life()
    life.judge(leak(0))
    for _ in range(10):
        life.tracked = follow(life.tracked, [], {"acceptance_ratio"}, 2e6, lambda _f: "reports")
    assert {one.finding.state for one in life.tracked.values()} == {"firing"}


@pytest.mark.parametrize(
    ("rows", "presence"),
    [
        ({"a": [1, 1, 1], "b": [1, 1, 1]}, "reports"),
        ({"a": [1, np.nan, np.nan], "b": [1, 1, 1]}, "drained"),
        ({"a": [1, np.nan, np.nan], "b": [1, np.nan, np.nan]}, "silent"),
        ({"b": [1, 1, 1]}, "drained"),
        ({"b": [np.nan, np.nan, np.nan]}, "lost"),
    ],
)
def test_a_drained_process_is_told_from_a_silent_node(
    rows: dict[str, Sequence[float]], presence: str
) -> None:
    """A process that is gone while its node reports was drained; a silent node proves nothing."""
    wide = {name: np.repeat(values, 6) for name, values in rows.items()}
    panel = Panel(
        "host_anon_swap", 60.0 * np.arange(18.0), np.array(list(wide.values()), dtype=float),
        tuple({"node": "n1", "rank": name} for name in wide),
    )  # fmt: skip
    finding = leak(0, labels={"node": "n1", "rank": "a"})
    assert Presences({finding.signal: panel})(finding) == presence


@pytest.mark.parametrize(
    ("host", "container", "presence"),
    [
        ([1, 1, 1], [1, np.nan, np.nan], "drained"),
        ([1, 1, 1], None, "drained"),
        ([1, 1, 1], [1, 1, 1], "silent"),
        ([1, np.nan, np.nan], [1, np.nan, np.nan], "silent"),
        (None, None, "silent"),
    ],
)
def test_a_host_that_reports_tells_the_last_pod_on_it_from_a_failed_reading(
    host: Sequence[float] | None, container: Sequence[float] | None, presence: str
) -> None:
    """With nothing beside it the node's own memory says that it lives; a container, that it is."""

    def panel(signal: str, values: Sequence[float], **labels: str) -> Panel:
        wide = np.repeat(np.array([values], dtype=float), 6, axis=1)
        return Panel(signal, 60.0 * np.arange(18.0), wide, ({"node": "n1", **labels},))

    gone = panel("host_anon_swap", [1, np.nan, np.nan], server="n1:8000", rank="a")
    beside = {"container_working_set": container, "host_memory_total": host}
    places = {"container_working_set": {"server": "n1:8000"}, "host_memory_total": {}}
    around = {
        name: panel(name, values, **places[name])
        for name, values in beside.items() if values is not None
    }  # fmt: skip
    finding = leak(0, labels=dict(gone.labels[0]))
    assert Presences({**around, gone.signal: gone})(finding) == presence


def test_a_silent_node_keeps_its_page_and_a_drained_pod_ends_it() -> None:
    """Missing data is unknown, never healthy."""
    life = Life()
    life.judge(leak(0))
    assert life.judge(times=3 * CALM, presence="silent").state == "firing"
    life.now += SILENT
    assert life.judge(times=CALM, presence="silent").why == "its node stopped reporting"
    life = Life()
    life.judge(leak(0))
    assert life.judge(times=CALM, presence="drained").why == "its process or pod is gone"


def test_severity_rises_at_once_as_an_alert_of_its_own_and_falls_late() -> None:
    """A ticket that becomes a page keeps the ticket's alert; a page doesn't flicker."""
    life = Life()
    assert life.judge(leak(0, severity="ticket")).raised == ("ticket",)
    assert life.judge(leak(0)).raised == ("ticket", "page")
    calmer = leak(0, severity="ticket")
    assert life.judge(calmer, times=FALLS_AFTER - 1).severity == "page"
    fallen = life.judge(calmer)
    assert (fallen.severity, fallen.raised) == ("ticket", ("ticket",))


def test_an_incident_that_ended_undelivered_is_still_delivered() -> None:
    """Alertmanager was down for all of its life: somebody must hear of it all the same."""
    life = Life()
    life.judge(leak(0, since=1e6))
    over = life.judge(times=CALM)
    assert over.state == "ended"
    assert outgoing([over], life.now) == [over]
    assert outgoing([replace(over, delivered=True)], life.now) == []
    watch = Life().judge(leak(0, state="watch"))
    assert outgoing([watch], life.now) == []


instants = st.floats(1e5, 1e6)
halves = st.floats(10, 1e5)


def around(instant: float, half: float) -> Forecast:
    """Return a forecast with an interval of twice *half*."""
    return Forecast(instant, instant - half, instant + half, 0.0)


@settings(deadline=None)
@given(instants, halves, st.lists(st.tuples(instants, halves), min_size=1, max_size=9))
def test_a_published_instant_is_steady(
    breach: float, half: float, later: list[tuple[float, float]]
) -> None:
    """It stays within half its interval, moves by less than half, and ends where the data are."""
    published = around(breach, half)
    for instant, width in later:
        shown = held(published, around(instant, width))
        assert shown is not None
        assert shown.high is not None
        assert shown.low <= shown.breach <= shown.high
        assert abs(shown.breach - published.breach) < shown.width / 2
        if abs(instant - published.breach) <= published.width / 2:
            assert shown.breach == published.breach
        published = shown
    final = around(*later[-1])
    for _ in range(30):
        published = held(published, final) or published
    assert abs(published.breach - final.breach) <= published.width / 2
    assert published.width <= 2 * final.width + 1e-6


def test_a_forecast_that_is_gone_is_not_published_any_longer() -> None:
    """Nor is one held against nothing."""
    assert held(None, around(2e5, 10)) == around(2e5, 10)
    assert held(around(2e5, 10), None) is None


def test_incidents_survive_the_ledgers_json() -> None:
    """What is written is what is read."""
    life = Life()
    incident = life.judge(leak(0), leak(1, left=None))
    assert Incident.from_dict(incident.to_dict()) == incident
    for one in life.tracked.values():
        assert Tracked.from_dict(one.to_dict()) == one
