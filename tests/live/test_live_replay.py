"""A real run's record, judged again at successive instants by the doors its users go through.

The record is of a real vLLM pair with NIXL under traffic, from process start on: warm-up of six
processes, and a true leak in decode's EngineCore (how it was made: ``benchmarks/live``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas
import pytest

from benchmarks.live.alerts import Alert
from benchmarks.live.scrapes import openmetrics, read_scrapes
from catalog.config import Config
from catalog.signals import SIGNALS
from detectors.drift.judge import judge
from detectors.finding import Finding
from detectors.service.alertmanager import alerts
from detectors.service.cycle import Cycle
from detectors.service.ledger import Ledger
from detectors.service.links import Links
from store.prometheus import PromStore
from store.table import read_table

FOLDER = Path(__file__).parents[1] / "fixtures" / "live"
# The first minutes are warm-up alone; from then on every minute is a cut.
CUT_SECONDS = 60.0
LEAKS = ("decode", "engine_core")


class _Started(Protocol):
    """The real Prometheus that a fixture started."""

    url: str


@dataclass(frozen=True)
class Run:
    """A record in a real Prometheus, with what the rig knew of it."""

    store: PromStore
    config: Config
    start: float
    end: float
    facts: dict[str, Any]


@pytest.fixture(scope="module")
def run(module_prometheus: Any, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The scrapes of the live run, filled into a Prometheus of their own."""
    facts = json.loads((FOLDER / "facts.json").read_text(encoding="utf-8"))
    scrapes = list(read_scrapes(FOLDER / "scrapes.xz"))
    path = tmp_path_factory.mktemp("live") / "record.om"
    target = {"job": "leadline", "instance": "node:9840"}
    with path.open("w", encoding="utf-8") as file:
        file.writelines(openmetrics(scrapes, target))
    server: _Started = module_prometheus(openmetrics=path)
    limits = {"host_anon_swap": facts["leak"]["limit"]}
    overrides = {
        "limits": limits,
        "prometheus": {"url": server.url, "step": 15.0},
        "service": {"history": 86400.0},
        # As in the run: a niced CPU has no latency to promise.
        "sla": {"ttft_user_mean": 600.0, "tpot_mean": 60.0},
    }
    config = Config.model_validate(overrides)
    return Run(PromStore(server.url), config, scrapes[0][0], scrapes[-1][0], facts)


def _cuts(start: float, end: float) -> Iterator[float]:
    at = start + 2 * CUT_SECONDS
    while at <= end:
        yield at
        at += CUT_SECONDS


def _who(finding: Finding) -> tuple[str, str]:
    return finding.labels.get("pool", ""), finding.labels.get("process", "")


def _check_cuts(found: dict[float, list[Finding]], limit: float, breach: float) -> None:
    """The leak fires, then pages, stays, and tells the time left; nobody else is accused."""
    firing = {at: [f for f in fs if f.state == "firing"] for at, fs in found.items()}
    named = {_who(f) for fs in found.values() for f in fs if f.kind != "unknown"}
    assert named == {LEAKS}  # a watch about anybody else would be one too many as well
    first = min(at for at, fs in firing.items() if fs)
    late = [at for at in firing if at >= first]
    assert sum(bool(firing[at]) for at in late) >= 0.9 * len(late)
    pages = [f for fs in firing.values() for f in fs if f.severity == "page"]
    assert pages
    assert all(f.limit == pytest.approx(limit) for f in pages)
    for page in pages:
        # The true instant depends on the CPU the leak gets from here on: half of it is fair.
        assert page.time_to_breach == pytest.approx(breach - page.as_of, rel=0.5)


def test_a_table_of_the_first_record_tells_the_leak_from_five_warm_ups() -> None:
    """What `leadline detect --input` reads: silent at every cut but for decode's EngineCore."""
    panels = read_table(FOLDER / "processes.csv.gz")
    times = panels["host_anon_swap"].times
    config = Config.model_validate({"limits": {"host_anon_swap": 4e9}})
    found = {at: judge(panels, config, as_of=at) for at in _cuts(times[0], times[-1])}
    _check_cuts(found, 4e9, breach=times[-1] + 20 * 60)


def test_a_run_without_a_leak_is_silent_at_every_cut() -> None:
    """Six warm-ups under traffic and a limit not far above: nothing is said, not even watch."""
    panels = read_table(FOLDER / "quiet.csv.gz")
    times = panels["host_anon_swap"].times
    config = Config.model_validate({"limits": {"host_anon_swap": 2.906e9}})
    last: list[Finding] = []
    for at in _cuts(times[0], times[-1]):
        last = judge(panels, config, as_of=at)
        assert [f for f in last if f.kind != "unknown"] == []
    assert last == []  # at the end it is judged, not unknown


@pytest.mark.parametrize("step", [10.0, 15.0, 20.0, 30.0])
def test_a_process_beside_a_leak_is_not_accused(tmp_path: Path, step: float) -> None:
    """On a machine too busy to scrape in time, API servers still fill while EngineCore leaks.

    What they grow by is nothing beside the leak, however near the limit that all of them share.
    """
    columns = pandas.read_csv(FOLDER / "busy.csv.gz", dtype={"rank": str})
    columns["time"] = np.ceil(columns["time"] / step) * step
    series = ["server", "pool", "process", "time"]
    columns.drop_duplicates(series, keep="last").to_csv(tmp_path / "busy.csv", index=False)
    panels = read_table(tmp_path / "busy.csv")
    times = panels["host_anon_swap"].times
    config = Config.model_validate({"limits": {"host_anon_swap": 3850872021.96}})
    accused = [
        (finding.labels["pool"], finding.labels["process"])
        for at in _cuts(times[0], times[-1])
        for finding in judge(panels, config, as_of=at)
        if finding.state == "firing"
    ]
    assert set(accused) == {LEAKS}


def test_the_scrapes_of_the_live_run_are_judged_alike_from_prometheus(run: Run) -> None:
    """Exporter's page, real Prometheus, the catalogue's expressions and the detector agree."""
    signal = SIGNALS["host_anon_swap"]
    panel = run.store.panel(signal, run.start, run.end, 15.0)
    assert len(panel.labels) == 6
    panels = {signal.name: panel}
    found = {at: judge(panels, run.config, as_of=at) for at in _cuts(run.start, run.end)}
    _check_cuts(found, run.facts["leak"]["limit"], run.facts["breach"])


def test_the_service_pages_the_leak_once_and_nothing_else(run: Run, tmp_path: Path) -> None:
    """Cycle after cycle through the run: one page, no other alert, as early as live."""
    clock = [run.start]
    ledger = Ledger(tmp_path)
    cycle = Cycle(run.config, run.store, ledger, clock=lambda: clock[0])
    links = Links.of(run.config)
    seen: dict[tuple[tuple[str, str], ...], Alert] = {}
    first: dict[str, float] = {}
    for at in _cuts(run.start, run.end):
        clock[0] = at
        snapshot = cycle.run_once()
        for sent in alerts(snapshot, links, at, 180.0):
            alert = Alert(sent["labels"], sent["annotations"], sent["startsAt"])
            assert alert.is_the_leak(), alert
            seen.setdefault(alert.key, alert)
            first.setdefault("fired", at)
            if alert.is_the_page():
                first.setdefault("paged", at)
    ledger.close()
    # Not much later than it was when the run was live: a young process is judged in time.
    assert first["fired"] <= run.facts["fired_at"] + 2 * CUT_SECONDS
    assert first["paged"] <= run.facts["paged_at"] + 2 * CUT_SECONDS
    assert [a.labels["severity"] for a in seen.values()].count("page") == 1
