"""Creep, rollout and straggler as a person meets them: one incident, plain words, a chart."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from catalog.config import Config
from catalog.panel import Labels, Panel
from catalog.signal import Signal
from detectors.service import api
from detectors.service.alertmanager import Alert, Alertmanagers, alerts
from detectors.service.cycle import Cycle, watched
from detectors.service.ledger import Ledger
from detectors.service.view import View
from simulator.table import EPOCH, KNOWN, panels

STEP = 300.0
HOUR = 3600.0
PAST = 72 * HOUR


@dataclass(frozen=True)
class Store:
    """Answers what a simulated run had until the end of its history."""

    panels: Mapping[str, Panel]

    def panel(
        self, signal: Signal, start: float, end: float, step: float, selector: str = ""
    ) -> Panel:
        """Return what there is of *signal*; nothing exports the others."""
        if signal.name not in self.panels:
            return Panel(signal.name, np.zeros(0), np.zeros((0, 0)), ())
        whole = self.panels[signal.name].until(end)
        return whole.rows([int(i) for i in np.flatnonzero(np.isfinite(whole.values).any(axis=1))])

    def instant(self, _query: str, _at: float) -> list[Any]:
        """Return that nobody is scraped twice."""
        return []


@dataclass(frozen=True)
class Told:
    """What a service says of one scenario.

    Attributes:
        view: What board and API read.
        posted: What Alertmanager is given.
    """

    view: View
    posted: list[Alert]

    def get(self, path: str) -> httpx.Response:
        """Return what the API or the board answers."""

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=api.create(self.view))
            async with httpx.AsyncClient(transport=transport, base_url="http://leadline") as client:
                return await client.get(path)

        return asyncio.run(ask()).raise_for_status()

    def of(self, kind: str) -> list[Alert]:
        """Return the alerts of one kind."""
        return [alert for alert in self.posted if alert["labels"]["kind"] == kind]


def _told(scenario: str, folder: Path, after: float = 0.0) -> Told:
    config = Config.model_validate({"prometheus": {"step": STEP}, "service": {"history": PAST}})
    now = EPOCH + after * HOUR
    made = panels(
        scenario, seed=3, span=PAST, until=after * HOUR, step=STEP,
        signals=set(watched(config)) & set(KNOWN),
    )  # fmt: skip
    cycle = Cycle(config, Store(made), Ledger(folder), clock=lambda: now)
    cycle.run_once()
    view = View.of(config, lambda: cycle.snapshot, Alertmanagers((), 1.0), lambda: now)
    return Told(view, alerts(cycle.snapshot, view.links, now, 180.0))


def _same(labels: Labels, **wanted: str) -> bool:
    return all(labels.get(name) == value for name, value in wanted.items())


def test_creep_of_a_pool_is_one_incident_with_the_speed_and_the_time_left(tmp_path: Path) -> None:
    """TPOT, ITL and what follows them are one page-worthy matter, told with its SLA."""
    told = _told("tpot_creep", tmp_path, after=4.0)
    [alert] = told.of("creep")
    assert _same(alert["labels"], alertname="LeadlineCreep", pool="decode", deployment="demo")
    said = alert["annotations"]
    assert "grows at the same load at 0." in said["description"]
    assert "ms/h" in said["summary"]
    assert "at the same load" in said["cause"]
    assert said["runbook_url"].endswith("/runbooks/LeadlineCreep")
    [incident] = [i for i in told.view.snapshot().running() if i.kind == "creep" and i.raised]
    signals = {f.signal for f in told.view.snapshot().members(incident)}
    assert {"tpot_mean", "itl_mean"} <= signals
    assert incident.forecast is not None
    assert 'class="fit"' in told.get(f"/findings/{incident.lead}").text


def test_a_rollout_that_costs_is_one_note_that_says_by_how_much(tmp_path: Path) -> None:
    """No page, no time left, no word about a limit that isn't set."""
    told = _told("slow_rollout", tmp_path)
    [alert] = told.of("rollout")
    assert _same(alert["labels"], alertname="LeadlineRollout", pool="decode", severity="report")
    said = alert["annotations"]
    assert "changed at the last rollout by " in said["description"]
    assert " % (" in said["description"]
    assert "breach" not in said["description"]
    assert "limit" not in said["description"]
    assert "since the new image" in said["cause"]
    [incident] = [i for i in told.view.snapshot().running() if i.kind == "rollout" and i.raised]
    assert 'class="fit"' in told.get(f"/findings/{incident.lead}").text
    assert told.get("/runbooks/LeadlineRollout").is_success


def test_a_slow_gpu_belongs_to_its_pool_and_is_named(tmp_path: Path) -> None:
    """Its series know a node alone; the incident is that of the pool which the node serves."""
    told = _told("slow_gpu", tmp_path)
    [alert] = told.of("straggler")
    assert _same(alert["labels"], alertname="LeadlineStraggler", pool="decode", severity="ticket")
    said = alert["annotations"]
    assert "GPU 3 of node-4 is unlike its peers" in said["summary"]
    assert "clock of the multiprocessors" in said["summary"]
    [incident] = [i for i in told.view.snapshot().running() if i.kind == "straggler"]
    assert 'class="fit"' in told.get(f"/findings/{incident.lead}").text
    assert told.get(f"/api/v1/findings/{incident.lead}/series").json()["values"]


@pytest.mark.parametrize("scenario", ["rolling_restart", "scaled"])
def test_common_days_are_no_incident_of_these_kinds(scenario: str, tmp_path: Path) -> None:
    """A rolling restart of all servers, and a pool made wider."""
    told = _told(scenario, tmp_path)
    assert [a["labels"]["kind"] for kind in ("creep", "rollout", "straggler")
            for a in told.of(kind)] == []  # fmt: skip
