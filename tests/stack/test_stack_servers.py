"""Real Prometheus and Alertmanager, as the fixtures of all rooms start them."""

import time
from typing import TYPE_CHECKING

import pytest

from stack.configs import Job

if TYPE_CHECKING:
    from conftest import StartAlertmanager, StartPrometheus

RULES = """
groups:
  - name: test
    rules:
      - alert: Old
        expr: last_over_time(old[2d]) > 41
"""


def test_history_and_live_scrapes_and_alerts_meet(
    prometheus: "StartPrometheus", alertmanager: "StartAlertmanager", tmp_path
) -> None:
    """History filled in up to now and scrapes from now on are one series' past and present."""
    end = int(time.time())
    lines = [f"old {42 if t > end - 60 else 1} {t}" for t in range(end - 86400, end, 600)]
    history = "# TYPE old gauge\n" + "\n".join(lines) + f"\nold 42 {end}\n# EOF\n"
    rules = tmp_path / "rules.yml"
    rules.write_text(RULES)
    receiver = alertmanager()
    target = receiver.url.removeprefix("http://")
    server = prometheus(
        jobs=[Job("live", [target], {"pool": "decode"})],
        rules=[rules],
        openmetrics=history,
        alertmanagers=[receiver.url],
    )

    assert server.query("old", at=end - 86400)[0]["value"][1] == "1"
    assert server.query("old", at=end)[0]["value"][1] == "42"
    _until(lambda: server.query('up{pool="decode"} == 1'))
    _until(lambda: receiver.get("/api/v2/alerts", active="true"))


def _until(condition, within: float = 30.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {within} s")
        time.sleep(0.2)
