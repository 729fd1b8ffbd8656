"""What board and API say of a made-up fleet: never healthy without data, and all escaped."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from catalog.config import Config, load
from catalog.panel import Panel
from catalog.signal import Signal
from detectors.service import api, openapi, runbook
from detectors.service.alertmanager import Alertmanagers, alerts
from detectors.service.cycle import Cycle
from detectors.service.ledger import Ledger
from detectors.service.view import View
from store.errors import UnreachableError
from store.prometheus import Sample

NOW = 1_795_000_000.0
STEP = 60.0
GIB = 2.0**30
EVIL = '<script>alert("x")</script>'
PLACE = {"deployment": "chat", "pool": "decode", "model_name": "glm", "server": "n1:8000",
         "node": "n1"}  # fmt: skip

Values = Mapping[str, tuple[tuple[dict[str, str], Any], ...]]


class Fleet:
    """A store with what a test puts into it; `away` makes it fail as a dead Prometheus does."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.seen: list[Sample] = []
        self.away = False
        self.now = NOW

    def panel(
        self, signal: Signal, start: float, end: float, step: float, selector: str = ""
    ) -> Panel:
        """Return what was put in, on the grid."""
        if self.away:
            raise UnreachableError("http://prom:9090: connection refused; is it running?")
        times = np.arange(np.ceil(start / step), np.floor(end / step) + 1) * step
        rows = self.values.get(signal.name, ())
        values = np.array([series(times) for _, series in rows]).reshape(len(rows), len(times))
        return Panel(signal.name, times, values, tuple(labels for labels, _ in rows))

    def instant(self, query: str, at: float) -> list[Sample]:
        """Return who is scraped by whom."""
        return self.seen if "process_start_time" in query else []


def grows(gib_per_hour: float, at: float = 3.0) -> Callable[[Any], Any]:
    """Return a series with a little noise that grows from *at* GiB, five hours ago."""
    rng = np.random.default_rng(3)

    def series(times: Any) -> Any:
        hours = (times - NOW) / 3600 + 5
        return (at + gib_per_hour * hours) * GIB + rng.normal(0, 3e6, len(times))

    return series


def flat(gib: float) -> Callable[[Any], Any]:
    """Return a series that stays."""
    return lambda times: np.full(len(times), gib * GIB)


def process(rank: str, **labels: str) -> dict[str, str]:
    """Return the labels of an EngineCore."""
    return {**PLACE, "process": "engine_core", "rank": rank, **labels}


LEAK: Values = {
    "host_anon_swap": (
        (process("DP0"), grows(1.3)),
        (process("DP1"), grows(0.0)),
    ),
    "container_working_set": (({**PLACE, "cgroup": "c"}, grows(1.3, at=8.0)),),
    "container_limit": (({**PLACE, "cgroup": "c"}, flat(17.0)),),
}


class Running:
    """A service without its threads: cycles are run by hand."""

    def __init__(self, fleet: Fleet, folder: Path, config: Config) -> None:
        self.fleet = fleet
        self.cycle = Cycle(config, fleet, Ledger(folder), clock=lambda: fleet.now)
        self.alertmanagers = Alertmanagers(("http://am:9093",), 1.0)
        self.view = View.of(
            config, lambda: self.cycle.snapshot, self.alertmanagers, lambda: fleet.now
        )
        self.app = api.create(self.view)

    def run(self, times: int = 1) -> None:
        """Run cycles a minute apart."""
        for _ in range(times):
            self.cycle.run_once()
            self.fleet.now += STEP

    def get(self, path: str) -> httpx.Response:
        """Return what a path answers."""

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.get(path)

        return asyncio.run(ask())

    def text(self, path: str) -> str:
        """Return a page."""
        return self.get(path).text

    def json(self, path: str) -> Any:
        """Return what the API answers."""
        return self.get(f"/api/v1{path}").raise_for_status().json()


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a service over a made-up fleet."""

    def make(values: Values, **more: Any) -> Running:
        flags = {"service": {"history": "5h", "state": str(tmp_path)}, **more}
        return Running(Fleet(values), tmp_path, load(None, {}, flags))

    return make


def test_a_leak_is_on_the_board_with_its_chart_and_in_the_api(start: Start) -> None:
    """Who, how fast, which limit, how long; the series is there to draw again."""
    service = start(LEAK)
    service.run(2)
    [incident] = service.json("/incidents")
    [finding] = service.json("/findings?state=firing&pool=decode&kind=leak")
    assert finding["id"] == incident["lead"]
    assert service.json("/findings?pool=prefill") == []
    for path in ("/", f"/findings/{finding['id']}"):
        page = service.text(path)
        for words in ("EngineCore DP0 leaks host memory", "GiB/h", "17.0 GiB", 'class="fit"'):
            assert words in page, (path, words)
    series = service.json(f"/findings/{finding['id']}/series?points=50")
    assert len(series["times"]) == 50
    assert series["unit"] == "bytes"
    assert len(series["fit_times"]) == len(series["fit_values"]) > 10


def test_missing_data_is_unknown_and_an_empty_board_says_what_it_watches(start: Start) -> None:
    """No finding is not health: how much is judged, since when, and what is not."""
    nothing = start({})
    assert "Reading history back" in nothing.text("/")
    nothing.run()
    assert "Nothing can be judged" in nothing.text("/")
    assert {s["judged"] for s in nothing.json("/signals")} == {0}


def test_a_quiet_fleet_says_how_many_series_are_judged_since_when(start: Start) -> None:
    """The opposite of "all good": a number, a date, and what is left out."""
    quiet = start(
        {
            "host_anon_swap": (
                (process("DP0"), flat(3.0)),
                (process("DP1"), lambda times: np.where(times > NOW - 90, 3 * GIB, np.nan)),
            )
        }
    )
    quiet.run()
    page = quiet.text("/")
    assert "Nothing drifts in what is judged" in page
    assert "1 series of private host memory" in page
    assert "too little data since its last start" in page
    [status] = [s for s in quiet.json("/signals") if s["name"] == "host_anon_swap"]
    assert (status["judged"], status["unknown"]) == (1, 1)
    assert NOW - status["since"] == pytest.approx(5 * 3600, abs=2 * STEP)


class Tags(HTMLParser):
    """Collects the tags of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of a tag."""
        self.tags.append(tag)
        self.attributes += attrs


def test_labels_from_outside_are_text_and_nothing_else(start: Start) -> None:
    """A label that is a script is shown, not run; nothing comes from another host."""
    evil = {"deployment": EVIL, "model_name": '"><img src=x onerror=alert(1)>', "server": EVIL}
    values = {
        name: tuple(({**labels, **evil, "rank": "'\"><b>"} if "rank" in labels else
                     {**labels, **evil}, series) for labels, series in rows)
        for name, rows in LEAK.items()
    }  # fmt: skip
    service = start(values)
    service.run(2)
    [incident] = service.json("/incidents")
    for path in ("/", f"/findings/{incident['lead']}", f"/findings/{EVIL}"):
        answer = service.get(path)
        found = Tags(answer.text)
        assert not {"script", "img"} & set(found.tags)
        assert not [name for name, _ in found.attributes if name.startswith("on")]
        links = [v for n, v in found.attributes if n == "href" and v and "//" in v]
        assert all(link.startswith("http://127.0.0.1:") for link in links)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "script" not in answer.headers["content-security-policy"]
    assert "&lt;script&gt;" in service.text("/")


def test_servers_of_no_known_pool_are_refused_and_named(start: Start) -> None:
    """Never guessed: a leak there is no finding, and the board says how to name the pool."""
    unknown = {
        name: tuple(({**labels, "pool": "unknown"}, series) for labels, series in rows)
        for name, rows in LEAK.items()
    }
    service = start(unknown)
    service.run()
    assert service.json("/incidents") == []
    refused = service.json("/findings?kind=unknown")
    assert refused
    for one in refused:
        assert "the pool of n1:8000 is unknown" in service.json(f"/findings/{one['id']}")["cause"]
    assert "the pool of n1:8000 is unknown" in service.text("/")


def test_a_server_under_two_jobs_is_refused_and_named(start: Start) -> None:
    """Each value counts twice there; the other server is judged all the same."""
    other = (process("DP0", server="n2:8000", node="n2"), flat(3.0))
    service = start({**LEAK, "host_anon_swap": (*LEAK["host_anon_swap"], other)})
    place = {k: v for k, v in PLACE.items() if k != "node"}
    service.fleet.seen = [Sample({**place, "job": job}, NOW, 1.0) for job in ("vllm", "leadline")]
    service.run()
    assert service.json("/incidents") == []
    assert "under the jobs leadline and vllm" in service.text("/")
    [memory] = [s for s in service.json("/signals") if s["name"] == "host_anon_swap"]
    assert (memory["judged"], memory["unknown"]) == (1, 2)
    books = {f["runbook"] for f in service.json("/findings?kind=unknown")}
    assert all(service.get(f"/runbooks/{book}").is_success for book in books)


def test_prometheus_away_keeps_alerts_alive_with_their_old_as_of(start: Start) -> None:
    """The same labels and the same numbers, a later end; then the gap is read, nothing doubles."""
    service = start(LEAK)
    service.run(2)
    [before] = alerts(service.cycle.snapshot, service.view.links, service.fleet.now, 180.0)
    [incident] = service.json("/incidents")
    service.fleet.away = True
    service.run(30)
    [during] = alerts(service.cycle.snapshot, service.view.links, service.fleet.now, 180.0)
    assert during["labels"] == before["labels"]
    assert during["annotations"] == before["annotations"]
    assert during["startsAt"] == before["startsAt"]
    assert during["endsAt"] > before["endsAt"]
    assert "Prometheus is away" in service.text("/")
    service.fleet.away = False
    service.run()
    panel = service.cycle.snapshot.panels["host_anon_swap"]
    assert np.isfinite(panel.values[:, -40:]).all()
    [after] = service.json("/incidents")
    assert after["id"] == incident["id"]
    assert after["as_of"] > incident["as_of"] + 25 * STEP
    assert "Prometheus is away" not in service.text("/")


def test_a_sample_that_arrives_late_is_taken_over(start: Start) -> None:
    """The newest point is read again: a scrape counts from its start and arrives after its end."""

    def late(times: Any) -> Any:
        return np.where(times > service.fleet.now - STEP, np.nan, 3 * GIB)

    service = start({"host_anon_swap": ((process("DP0"), late),)})
    service.run(5)
    values = service.cycle.snapshot.panels["host_anon_swap"].values[0]
    assert np.isfinite(values[:-1]).all()
    assert np.isnan(values[-1])


def test_a_restarted_service_knows_what_it_said_before_it_reads_anything(start: Start) -> None:
    """The alert after a restart is the alert before it, to the letter."""
    first = start(LEAK)
    first.run(2)
    again = start(LEAK)
    again.fleet.now = first.fleet.now
    [old] = alerts(first.cycle.snapshot, first.view.links, first.fleet.now, 180.0)
    [new] = alerts(again.cycle.snapshot, again.view.links, again.fleet.now, 180.0)
    assert new == old
    again.run()
    [still] = alerts(again.cycle.snapshot, again.view.links, first.fleet.now, 180.0)
    assert (still["labels"], still["startsAt"]) == (old["labels"], old["startsAt"])


def test_alert_labels_are_identity_and_hold_no_number(start: Start) -> None:
    """Nothing computed but the severity; ranks, servers and rates are annotations."""
    service = start(LEAK)
    service.run(2)
    [alert] = alerts(service.cycle.snapshot, service.view.links, service.fleet.now, 180.0)
    assert alert["labels"] == {
        "alertname": "LeadlineLeak", "deployment": "chat", "pool": "decode", "model_name": "glm",
        "kind": "leak", "severity": service.json("/incidents")[0]["severity"],
    }  # fmt: skip
    notes = alert["annotations"]
    assert {"summary", "description", "action", "runbook_url", "panel_url", "dashboard"} <= set(
        notes
    )
    assert notes["runbook_url"].endswith("/runbooks/LeadlineLeak")


def test_a_page_names_the_ranks_that_may_do_the_same(start: Start) -> None:
    """Who drains the ranks of a page is told of the one that is not certain yet."""
    rows = (*LEAK["host_anon_swap"], (process("DP2"), grows(1.3)))
    service = start({**LEAK, "host_anon_swap": rows})
    service.run(2)
    snapshot = service.cycle.snapshot
    tracked = {
        key: replace(one, finding=replace(one.finding, state="watch"))
        if one.finding.labels["rank"] == "DP2" else one
        for key, one in snapshot.tracked.items()
    }  # fmt: skip
    snapshot = replace(snapshot, tracked=tracked)
    [alert] = alerts(snapshot, service.view.links, service.fleet.now, 180.0)
    said = alert["annotations"]
    assert "EngineCore DP0 leaks host memory" in said["description"]
    assert "EngineCore DP2 may too: too early to tell." in said["description"]
    assert "DP2" not in said["summary"]


def test_a_ledger_that_can_no_longer_be_written_stops_nothing(start: Start) -> None:
    """The service goes on from memory, says so on the board, and catches up."""
    service = start(LEAK)
    ledger = service.cycle._ledger
    ledger._db.execute("PRAGMA query_only = ON")
    service.run(2)
    assert service.json("/incidents")
    assert "The ledger can&#39;t be written" in service.text("/")
    assert ledger.incidents() == []
    ledger._db.execute("PRAGMA query_only = OFF")
    service.fleet.away = True  # nothing changes any more, yet all that was missed is written
    service.run()
    assert [i.id for i in ledger.incidents()] == [i["id"] for i in service.json("/incidents")]
    assert "The ledger" not in service.text("/")


def test_metrics_are_valid_and_no_two_findings_share_their_labels(start: Start) -> None:
    """What Prometheus would drop without a word isn't there."""
    twins = [(process("DP0", engine=str(i)), grows(1.3)) for i in range(2)]
    service = start({**LEAK, "host_anon_swap": (*twins, (process("DP1"), flat(3.0)))})
    service.run(2)
    assert len(service.json("/findings?state=firing")) == 2
    families = {f.name: f for f in text_string_to_metric_families(service.text("/metrics"))}
    for family in families.values():
        keys = [tuple(sorted(s.labels.items())) for s in family.samples]
        assert len(keys) == len(set(keys)), family.name
    [effect] = families["leadline_finding_effect"].samples
    assert effect.value == pytest.approx(1.3 * GIB, rel=0.05)
    assert effect.labels["rank"] == "DP0"
    [judged] = [
        s for s in families["leadline_detector_series"].samples
        if s.labels == {"signal": "host_anon_swap", "state": "judged"}
    ]  # fmt: skip
    assert judged.value == 3


def test_ready_only_after_a_cycle(start: Start) -> None:
    """Alive at once; ready when history has been read back."""
    service = start({})
    assert service.get("/healthz").status_code == 200
    assert service.get("/readyz").status_code == 503
    service.run()
    assert service.get("/readyz").status_code == 200


@pytest.mark.parametrize("name", ["../catalog/config", "..%2f..%2fREADME", "a/b", "Nope", ""])
def test_no_path_leads_out_of_the_runbooks(start: Start, name: str) -> None:
    """Only names of alerts are looked up."""
    assert start({}).get(f"/runbooks/{name}").status_code == 404


def test_a_runbook_is_served_as_page(start: Start) -> None:
    """The address in a page's annotation works."""
    answer = start({}).get("/runbooks/LeadlineLeak")
    assert answer.status_code == 200
    assert "<h1>" in answer.text


def test_the_commands_of_a_runbook_ask_the_prometheus_of_this_installation(start: Start) -> None:
    """They can be pasted as they stand; a password never goes into a page."""
    url = "http://watcher:hush@prom.example:9091/prom"
    service = start({}, prometheus={"url": url})
    for name in runbook.names():
        page = service.text(f"/runbooks/{name}")
        assert ":9090" not in page, name
        assert "hush" not in page, name
    assert "promtool query instant http://prom.example:9091/prom &#39;" in service.text(
        "/runbooks/LeadlineLeak"
    )


def test_markdown_lets_no_markup_through() -> None:
    """Our few marks become tags, all else is text."""
    text = (
        "# Leak & <b>\n\nRun `a < b` and **look**.\n\n1. one\n2. two [x](javascript:alert(1))\n\n"
        "```\n<script>\n```\n\n| a | b |\n|---|---|\n| 1 | [r](LeadlineX.md) |\n"
    )
    page = runbook.render(text)
    assert "<h1>Leak &amp; &lt;b&gt;</h1>" in page
    assert "<code>a &lt; b</code> and <strong>look</strong>" in page
    assert "<ol><li>one</li>" in page
    assert 'href="javascript' not in page
    assert "<pre><code>&lt;script&gt;</code></pre>" in page
    assert '<a href="LeadlineX">r</a>' in page


def test_the_committed_openapi_document_is_what_the_code_makes() -> None:
    """Programs that read it get what is served."""
    committed = Path(__file__).parents[2] / "docs" / "openapi.json"
    assert json.loads(committed.read_text()) == openapi.document()


def accepts(times: Any) -> Any:
    """Return accepted tokens of 10,000 drafted a minute: 70 %, for four hours falling."""
    rng = np.random.default_rng(5)
    hours = np.maximum((times - NOW) / 3600 + 4, 0)
    return np.round(10_000 * (0.70 - 0.06 * hours) + rng.normal(0, 60, len(times)))


def test_a_falling_ratio_is_told_in_points_against_its_floor(tmp_path: Path) -> None:
    """Counts become a ratio on the chart; what falls meets a floor, not a limit."""
    place = {k: v for k, v in PLACE.items() if k not in {"server", "node"}}

    class Counts(Fleet):
        def panel(
            self, signal: Signal, start: float, end: float, step: float, selector: str = ""
        ) -> Panel:
            """Return counts where the signal has them."""
            made = super().panel(signal, start, end, step)
            trials = np.full_like(made.values, 10_000.0) if signal.counts else None
            return replace(made, trials=trials)

    flags = {"service": {"history": "3d"}, "limits": {"acceptance_ratio": "40%"}}
    fleet = Counts({"acceptance_ratio": ((place, accepts),)})
    service = Running(fleet, tmp_path, load(None, {}, flags))
    service.run()
    [alert] = alerts(service.cycle.snapshot, service.view.links, service.fleet.now, 180.0)
    assert alert["labels"]["alertname"] == "LeadlineFalling"
    said = alert["annotations"]["description"]
    assert re.search(r"share of drafted tokens accepted is falling at -[5-7]\S* points/h", said)
    assert "Floor 40.0 %" in said
    page = service.text("/")
    assert "Share of drafted tokens accepted is falling" in page
    assert "floor of 40.0 % is met here" in page
