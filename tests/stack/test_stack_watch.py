"""The demo's verdict is Alertmanager's own: the right alert, or silence while series are judged."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from catalog.config import load
from stack.line import Line
from stack.programs import Stack
from stack.watch import Clock, until_page, until_quiet

if TYPE_CHECKING:
    from conftest import Server, StartAlertmanager, StartPrometheus

LEAK = {"alertname": "LeadlineLeak", "pool": "decode", "severity": "page"}
HEARTBEAT = {"alertname": "LeadlineDetectorAlive", "severity": "none"}

MakeLine = Callable[..., Line]


@pytest.fixture
def line(alertmanager: "StartAlertmanager", tmp_path: Path) -> MakeLine:
    """Makes a line whose Alertmanager is real and holds the given alerts."""

    def make(*alerts: Mapping[str, str], prometheus: str = "http://127.0.0.1:1") -> Line:
        server = alertmanager()
        _post(server, alerts)
        urls = {"prometheus": {"url": prometheus}, "alertmanager": {"urls": [server.url]}}
        return Line(tmp_path, load(None, {}, urls))

    return make


@pytest.mark.parametrize(
    ("labels", "verdict"),
    [(LEAK, 0), ({**LEAK, "pool": "prefill"}, 1), ({**LEAK, "severity": "ticket"}, 1)],
)
def test_only_the_page_of_the_scenario_counts(
    line: MakeLine, tmp_path: Path, labels: dict[str, str], verdict: int
) -> None:
    """A leak page of the decode pool ends the check with 0; another pool or severity doesn't."""
    with Stack(tmp_path / "logs") as stack:
        laid = line(HEARTBEAT, labels)
        assert until_page(stack, laid, Clock(), wanted=LEAK, deadline=1.5) == verdict


@pytest.mark.parametrize(("judged", "alerts", "verdict"), [(7, [], 0), (0, [], 1), (7, [LEAK], 1)])
def test_silence_counts_only_while_series_are_judged(
    line: MakeLine,
    prometheus: "StartPrometheus",
    tmp_path: Path,
    judged: int,
    alerts: list[dict[str, str]],
    verdict: int,
) -> None:
    """Nothing active is a verdict only if the detector judges, and a heartbeat is no alert."""
    now = int(time.time())
    name = "leadline_detector_series"
    history = f'# TYPE {name} gauge\n{name}{{state="judged"}} {judged} {now}\n# EOF\n'
    source = prometheus(openmetrics=history).url
    with Stack(tmp_path / "logs") as stack:
        laid = line(HEARTBEAT, *alerts, prometheus=source)
        assert until_quiet(stack, laid, Clock(), quiet_for=1.0, deadline=4.0) == verdict


def _post(server: "Server", alerts: tuple[Mapping[str, str], ...]) -> None:
    body = [{"labels": dict(labels)} for labels in alerts]
    reply = httpx.post(f"{server.url}/api/v2/alerts", json=body, timeout=30, trust_env=False)
    reply.raise_for_status()
