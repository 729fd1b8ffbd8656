"""Who is told and what keeps quiet, on the real amtool and the real Alertmanager."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from alerts import alertmanager as configuration
from catalog.config import Config
from stack import binaries

if TYPE_CHECKING:
    from conftest import Server, StartAlertmanager

CONFIG = Path(__file__).parents[2] / "alerts" / "alertmanager.yml"
POOL = {"cluster": "c1", "deployment": "chat", "pool": "decode"}


def amtool(*arguments: str) -> str:
    """Run amtool and return what it printed."""
    argv = [str(binaries.find("amtool")), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_the_configuration_is_valid(tmp_path: Path) -> None:
    """As committed, and with a webhook in every receiver but the silent one."""
    assert "SUCCESS" in amtool("check-config", str(CONFIG))
    content = configuration.build("http://127.0.0.1:9/hook")
    path = tmp_path / "alertmanager.yml"
    path.write_text(yaml.safe_dump(content))
    assert "SUCCESS" in amtool("check-config", str(path))
    hooks = {r["name"]: bool(r.get("webhook_configs")) for r in content["receivers"]}
    assert hooks == {"page": True, "ticket": True, "report": True, "null": False}


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (("alertname=LeadlineLeak", "severity=page"), "page"),
        (("alertname=LeadlineKvPressure", "severity=ticket"), "ticket"),
        (("alertname=LeadlineUnknown", "severity=report"), "report"),
        (("alertname=LeadlineDetectorAlive", "severity=none"), "null"),
        (("alertname=SomebodyElse",), "ticket"),
    ],
)
def test_severity_chooses_the_receiver(labels: tuple[str, ...], receiver: str) -> None:
    """Page, ticket and report go their ways, the sign of life goes nowhere."""
    amtool("config", "routes", "test", f"--config.file={CONFIG}",
           f"--verify.receivers={receiver}", *labels)  # fmt: skip


def test_the_detector_and_graver_alerts_keep_others_quiet(
    module_alertmanager: StartAlertmanager,
) -> None:
    """Inhibition as a real Alertmanager sees it, and its end when the detector dies."""
    server = module_alertmanager(CONFIG)
    place = {**POOL, "server": "d0:8000"}
    elsewhere = {**POOL, "pool": "prefill", "server": "p0:8000"}
    exporter = {name: elsewhere[name] for name in ("cluster", "server")}
    alerts = {
        "alive": _alert("LeadlineDetectorAlive", "none"),
        "fallback": _alert("LeadlineFallbackMemory", "page", **place, cgroup="pod0"),
        "page": _alert("LeadlineLeak", "page", **POOL),
        "ticket": _alert("LeadlineLeak", "ticket", **POOL),
        "report": _alert("LeadlineLeak", "report", **POOL),
        "ticket elsewhere": _alert("LeadlineLeak", "ticket", **elsewhere),
        "other ticket": _alert("LeadlineFalling", "ticket", **POOL),
        "down": _alert("LeadlineTargetDown", "ticket", **elsewhere),
        "its collector": _alert("LeadlineCollectorFailed", "ticket", **exporter),
        "its leases": _alert("LeadlineLeasesExpired", "ticket", **elsewhere),
    }  # fmt: skip
    _post(server, alerts.values())
    quiet = {"fallback", "ticket", "report", "ticket elsewhere", "its collector", "its leases"}
    _until_suppressed(server, alerts, quiet)

    # The detector dies: its sign of life is resolved, the fallback rule speaks at once.
    _post(server, [{**alerts["alive"], "endsAt": _instant(time.time() - 1)}])
    _until_suppressed(server, alerts, quiet - {"fallback"})


def test_one_incident_is_one_group(module_alertmanager: StartAlertmanager) -> None:
    """Eight engines of one pool are one group; another pool is another."""
    server = module_alertmanager(CONFIG)
    ranks = [
        _alert("LeadlineKvPressure", "ticket", **POOL, engine=str(n)) for n in range(8)
    ]  # fmt: skip
    _post(server, [*ranks, _alert("LeadlineKvPressure", "ticket", **{**POOL, "pool": "prefill"})])
    deadline = time.monotonic() + 20
    sizes: list[int] = []
    while sizes != [1, 8] and time.monotonic() < deadline:
        groups = server.get("/api/v2/alerts/groups")
        sizes = sorted(len(group["alerts"]) for group in groups)
        time.sleep(0.1)
    assert sizes == [1, 8]


def test_every_name_that_the_configuration_matches_exists() -> None:
    """An inhibition by a name that no rule has would never hold."""
    from alerts import rules  # noqa: PLC0415

    names = {alert.name for alert in rules.all_alerts(Config())}
    for rule in configuration.build()["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            if matcher.startswith('alertname="'):
                assert matcher.removeprefix('alertname="').rstrip('"') in names


def _alert(name: str, severity: str, **labels: str) -> dict[str, Any]:
    return {"labels": {"alertname": name, "severity": severity, **labels}}


def _instant(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _post(server: Server, alerts: Any) -> None:
    request = urllib.request.Request(  # noqa: S310 - a server that the test started
        f"{server.url}/api/v2/alerts",
        data=json.dumps(list(alerts)).encode(),
        headers={"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as reply:
        assert reply.status == 200


def _until_suppressed(server: Server, alerts: dict[str, Any], wanted: set[str]) -> None:
    """Wait until exactly *wanted* are inhibited."""
    deadline = time.monotonic() + 20
    found: set[str] = set()
    while time.monotonic() < deadline:
        known = server.get("/api/v2/alerts")
        quiet = [alert["labels"] for alert in known if alert["status"]["inhibitedBy"]]
        found = {name for name, alert in alerts.items() if alert["labels"] in quiet}
        if found == wanted:
            return
        time.sleep(0.1)
    assert found == wanted
