"""A fleet's common days through the service: cycle after cycle, and what Alertmanager hears."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from catalog.config import Config
from catalog.panel import FloatArray, Labels, Panel
from catalog.signal import Signal
from detectors.service import api
from detectors.service.alertmanager import Alert, Alertmanagers, alerts, outgoing
from detectors.service.cycle import Cycle, watched
from detectors.service.ledger import Ledger
from detectors.service.snapshot import Snapshot
from detectors.service.view import View
from simulator.fleet import Fleet, drained, fleet, rolled
from simulator.scenario import HOUR, SCENARIOS
from simulator.table import KNOWN, panels
from simulator.world import World

STEP = 120.0
PAST = 30 * HOUR
LIFETIME = 180.0


@dataclass(frozen=True)
class Seen:
    """A sample of an instant query."""

    labels: Labels


@dataclass
class Store:
    """Answers as Prometheus would that scraped this day: no series without a sample."""

    panels: Mapping[str, Panel]

    def panel(
        self, signal: Signal, start: float, end: float, step: float, selector: str = ""
    ) -> Panel:
        """Return what there is of *signal* in [start, end]."""
        assert step == STEP
        if signal.name not in self.panels:  # nothing exports it
            return Panel(signal.name, np.zeros(0), np.zeros((0, 0)), ())
        whole = self.panels[signal.name].until(end)
        first = int(np.searchsorted(whole.times, start))

        def cut(array: FloatArray | None) -> FloatArray | None:
            return None if array is None else array[:, first:]

        values = whole.values[:, first:]
        part = replace(
            whole, times=whole.times[first:], values=values, load=cut(whole.load),
            trials=cut(whole.trials), starts=cut(whole.starts),
        )  # fmt: skip
        if part.starts is not None:
            part = replace(part, starts=np.where(np.isfinite(values), part.starts, np.nan))
        return part.rows([int(i) for i in np.flatnonzero(np.isfinite(values).any(axis=1))])

    def instant(self, query: str, at: float) -> list[Seen]:
        """Return each process once: nothing is scraped twice."""
        known = self.panels["host_anon_swap"].until(at)
        job = {"job": "leadline", "instance": "a:9840"}
        return [Seen({**labels, **job}) for labels in known.labels if "start_time" in query]


@dataclass
class Day:
    """One service that lives through a day of the simulator; instants are hours from its now."""

    panels: Mapping[str, Panel]
    config: Config
    folder: Path
    now: float
    posts: list[tuple[float, list[Alert]]] = field(default_factory=list)
    hour: float = 0.0

    def __post_init__(self) -> None:
        self.cycle = Cycle(
            self.config, Store(self.panels), Ledger(self.folder), clock=lambda: self.clock
        )
        self.view = View.of(
            self.config, lambda: self.cycle.snapshot, Alertmanagers((), 1.0), lambda: self.clock
        )

    @property
    def clock(self) -> float:
        """Return unix seconds of the moment."""
        return self.now + self.hour * HOUR

    def live(self, begin: float, end: float, every: float) -> Iterator[Snapshot]:
        """Run a cycle and post what it gives, again and again; yield what is then known."""
        for hour in np.arange(begin, end + 1e-9, every):
            self.hour = float(hour)
            snapshot = self.cycle.run_once()
            self.posts.append((self.hour, alerts(snapshot, self.view.links, self.clock, LIFETIME)))
            self.cycle.deliver(i.id for i in outgoing(snapshot.incidents, self.clock))
            yield snapshot

    def heard(self) -> dict[tuple[tuple[str, str], ...], list[float]]:
        """Return the different alerts that were posted, each with its hours."""
        hours: dict[tuple[tuple[str, str], ...], list[float]] = {}
        for hour, posted in self.posts:
            for alert in posted:
                hours.setdefault(tuple(sorted(alert["labels"].items())), []).append(hour)
        return hours

    def get(self, path: str) -> httpx.Response:
        """Return what the API or the board answers now."""

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=api.create(self.view))
            async with httpx.AsyncClient(transport=transport, base_url="http://leadline") as client:
                return await client.get(path)

        return asyncio.run(ask()).raise_for_status()


Dawn = Callable[..., Day]


@pytest.fixture
def dawn(tmp_path: Path) -> Dawn:
    """Begins a day: a scenario, until an hour, with a fleet of its own."""

    def begin(
        scenario: str, until: float, servers: Fleet | None = None, now: float = 1_800_000_000.0
    ) -> Day:
        config = Config.model_validate({"prometheus": {"step": STEP}, "service": {"history": PAST}})
        now -= now % STEP
        found = panels(
            World(scenario, 11, PAST, servers), epoch=now, since=-PAST,
            until=until * HOUR, step=STEP, signals=set(watched(config)) & set(KNOWN),
        )  # fmt: skip
        return Day(found, config, tmp_path, now)

    return begin


def alert(severity: str, kind: str = "leak") -> tuple[tuple[str, str], ...]:
    """Return the labels of the one alert that a decode pool has."""
    named = {
        "alertname": f"Leadline{kind.title()}", "kind": kind, "severity": severity,
        "cluster": "demo", "deployment": "demo", "pool": "decode", "model_name": "glm-5.2",
    }  # fmt: skip
    return tuple(sorted(named.items()))


def test_eight_cores_that_leak_alike_are_one_page(
    dawn: Dawn, alertmanager: Any, receiver: Any, wait: Any
) -> None:
    """From the first sign to the breach a person hears of a ticket, then of a page: no third."""
    day = dawn("leak", 7.0, now=time.time() - 8 * HOUR)  # no alert may start in the future
    manager = alertmanager(receiver.config)
    with closing(Alertmanagers((manager.url,), 5.0)) as client:
        for snapshot in day.live(-6.5, 7.0, 0.75):
            # The day passes in seconds: what is posted is alive by Alertmanager's own clock.
            assert client.post(alerts(snapshot, day.view.links, time.time(), LIFETIME))
    heard = day.heard()
    assert set(heard) == {alert("ticket"), alert("page")}
    # Hours of warning, and once it is a page it stays one until the breach.
    paged, breach = heard[alert("page")], SCENARIOS["leak"].breach
    assert breach is not None
    assert breach - paged[0] * HOUR > 8 * HOUR
    assert paged == [hour for hour, _ in day.posts if hour >= paged[0]]
    [leak] = [i for i in snapshot.incidents if i.raised]
    assert (leak.state, leak.severity, len(leak.findings)) == ("firing", "page", 8)

    said = day.posts[-1][1][-1]["annotations"]
    assert said["ranks"] == ", ".join(f"DP{rank}" for rank in range(8))
    wait(lambda: any(a["labels"]["severity"] == "page" for a in receiver.firing), why="a page")
    time.sleep(1.5)  # a second page would come with the next interval of the group
    severities = [a["labels"]["severity"] for a in receiver.firing]
    assert severities in (["ticket", "page"], ["page"])


def test_a_rolling_restart_of_all_servers_wakes_nobody(dawn: Dawn) -> None:
    """Each warms up anew after its restart: that may be watched, and is never posted."""
    day = dawn("none", 9.0, rolled(fleet(), 1 * HOUR))
    warmed: set[str] = set()
    blind: set[tuple[str, str]] = set()
    for snapshot in day.live(1.0, 9.0, 1 / 3):
        found = [one.finding for one in snapshot.tracked.values()]
        assert {f.state for f in found} <= {"watch", "ended"}
        warmed |= {f.labels["server"] for f in found if f.verdict == "warm_up"}
        blind |= {(f.signal, f.labels["pool"]) for f in snapshot.unknown}
    starts = day.panels["host_anon_swap"].starts
    assert starts is not None
    assert (starts[:, -1] > day.now).all()
    assert len(warmed) >= 4  # the warm-ups were seen
    # The one server of a pool has no past for a while after its restart, and is judged again.
    assert blind == {("host_anon_swap", "decode")}
    assert not snapshot.unknown
    assert not day.heard()


def test_two_days_without_traffic_are_one_unknown_line_and_no_page(dawn: Dawn) -> None:
    """Acceptance can't be judged without a draft, and memory goes on to be; both come back."""
    day = dawn("idle", 51.0)
    lines: dict[float, list[tuple[str, str]]] = {}
    for snapshot in day.live(-1.0, 47.0, 2.0):
        lines[day.hour] = [(f.signal, f.labels["pool"]) for f in snapshot.unknown]
    each = [("acceptance_ratio", "decode"), ("prefix_hit_ratio", "prefill")]  # one a pool,
    assert all(found == [] for hour, found in lines.items() if hour < 1)
    assert all(sorted(found) == each for hour, found in lines.items() if 1 < hour < 24)
    assert lines[day.hour] == each[:1]  # and none of what has left the memory

    [unknown] = day.get("/api/v1/findings").json()
    said = (unknown["kind"], unknown["state"], unknown["severity"])
    assert said == ("unknown", "watch", "report")
    assert "no traffic" in unknown["cause"]
    signals = {s["name"]: s for s in day.get("/api/v1/signals").json()}
    assert signals["host_anon_swap"]["judged"] == signals["host_anon_swap"]["series"] == 58
    assert (signals["acceptance_ratio"]["judged"], signals["acceptance_ratio"]["unknown"]) == (0, 1)
    assert "nothing was tried" in day.get("/").text

    *_, snapshot = day.live(48.5, 51.0, 0.5)
    assert not snapshot.unknown
    assert not day.heard()


def test_a_drained_pod_ends_and_the_pod_beside_it_goes_on_as_the_same_incident(dawn: Dawn) -> None:
    """Nobody hears of it anew; what leaked there is over, because the pod is gone."""
    day = dawn("leak", 1.5, drained(fleet(decode=2), "node-5:8000", 1 * HOUR))
    *_, snapshot = *day.live(0.0, 0.5, 0.5), *day.live(1.0, 1.5, 0.125)
    gone = {o.why for o in snapshot.tracked.values() if o.finding.labels["server"] == "node-5:8000"}
    assert gone == {"its process or pod is gone"}
    [leak] = [i for i in snapshot.incidents if i.raised]
    lead = snapshot.tracked[leak.lead].finding
    assert (leak.state, len(leak.findings)) == ("firing", 8)
    assert lead.labels["server"] == "node-4:8000"
    assert set(day.heard()) == {alert("ticket")}


def test_the_last_pod_of_a_pool_that_is_drained_ends_its_page(dawn: Dawn) -> None:
    """No other process is left on its node, whose host goes on to report."""
    day = dawn("leak", 1.5, drained(fleet(), "node-4:8000", 1 * HOUR))
    *_, snapshot = *day.live(0.0, 0.5, 0.5), *day.live(1.0, 1.5, 0.125)
    [leak] = [i for i in snapshot.incidents if i.raised]
    assert (leak.state, leak.why) == ("ended", "its process or pod is gone")
    assert max(day.heard()[alert("page")]) < 1.5 - 1e-6
    assert not day.posts[-1][1]


def test_a_pause_of_traffic_does_not_end_a_fall_and_page_it_again(dawn: Dawn) -> None:
    """Half an hour without a draft says nothing of acceptance: the incident stays one."""
    day = dawn("acceptance", 1.5)
    ratio = day.panels["acceptance_ratio"]
    assert ratio.trials is not None
    pause = (ratio.times > day.now + 0.5 * HOUR) & (ratio.times < day.now + 1.0 * HOUR)
    ratio.values[:, pause] = ratio.trials[:, pause] = 0.0
    for snapshot in day.live(0.25, 1.5, 0.1):
        [fall] = [i for i in snapshot.incidents if i.raised]
        assert fall.state == "firing"
    assert len(day.heard()) == 1
