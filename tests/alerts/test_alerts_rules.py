"""The rules on the real promtool, and the laws that hold for every alert."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import get_args

import pytest
import yaml

from alerts import generate, rules, slo
from alerts.rule import Alert
from catalog.config import Config
from catalog.signals import METRICS, SIGNALS
from detectors.finding import Kind
from stack import binaries

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RUNBOOKS = ROOT / "runbooks"
UNIT_TESTS = sorted(path for path in HERE.glob("*.yml") if path.stem != "scopes")
SECTIONS = ("First command", "Decide", "Mitigate", "Over when", "False trails")
ALERTS = rules.all_alerts(Config())


def promtool(*arguments: str | Path) -> str:
    """Run promtool and return what it said; a failure is the test's."""
    argv = [str(binaries.find("promtool")), *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: path.stem)
def test_promtool_unit_tests(path: Path) -> None:
    """Recorded values are those worked out by hand; alerts fire and are silent when they must."""
    assert "SUCCESS" in promtool("test", "rules", path)


def test_nearest_scope_gives_the_service_level(tmp_path: Path) -> None:
    """A model's level wins over its deployment's, that over the default; floors work as well."""
    config = Config.model_validate(
        {
            "sla": {"tpot_mean": "20ms"},
            "deployments": {
                "fast": {
                    "sla": {"tpot_mean": "10ms"},
                    "models": {"tiny": {"sla": {"tpot_mean": "5ms"}}},
                },
                "drafts": {"sla": {"acceptance_ratio": "50%"}, "limits": {"host_rss": "64GiB"}},
            },
            "service": {"external_url": "https://leadline.example/", "grafana_url": "http://g:3000"},
        }
    )  # fmt: skip
    generate.write(config, tmp_path)
    (tmp_path / "scopes.yml").write_text((HERE / "scopes.yml").read_text())
    promtool("check", "rules", *sorted((tmp_path / "rules").glob("*.yml")))
    assert "SUCCESS" in promtool("test", "rules", tmp_path / "scopes.yml")
    # The rules and the detectors read the same configuration alike.
    assert config.limit("tpot_mean", {"deployment": "fast", "model_name": "tiny"}) == 0.005
    # What nobody named keeps its default.
    assert slo.sla_signals(config) == ["acceptance_ratio", "tpot_mean", "ttft_user_mean"]


def test_committed_files_are_the_generated_ones() -> None:
    """`leadline rules` would change nothing."""
    for path, text in generate.files(Config()).items():
        assert (ROOT / "alerts" / path).read_text(encoding="utf-8") == text, path


def test_every_signal_is_recorded() -> None:
    """No signal lacks its recording rule, and promtool finds every rule valid."""
    recorded = yaml.safe_load((ROOT / "alerts/rules/recording.yml").read_text())
    names = [rule["record"] for group in recorded["groups"] for rule in group["rules"]]
    assert sorted(names) == sorted(signal.record for signal in SIGNALS.values())
    promtool("check", "rules", *sorted((ROOT / "alerts/rules").glob("*.yml")))


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: f"{alert.name}-{alert.severity}")
def test_every_alert_says_what_a_reader_needs(alert: Alert) -> None:
    """A name of ours, a static sentence, numbers with their limit, a runbook, catalogued names."""
    assert re.fullmatch(r"Leadline[A-Z][A-Za-z]+", alert.name)
    assert alert.summary.endswith(".")
    assert "{{" not in alert.summary
    assert "limit" in alert.description or "service level" in alert.description
    assert alert.description.endswith(".")
    written = alert.to_dict(Config())
    assert written["annotations"]["runbook_url"].endswith(f"/runbooks/{alert.name}")
    bare = re.sub(r'"[^"]*"|by \([^)]*\)|on \([^)]*\)', "", alert.expr)
    names = set(re.findall(r"[a-z]+:leadline_\w+:\w+|\b(?:vllm:\w+|leadline_\w+|up)\b", bare))
    records = {signal.record for signal in SIGNALS.values()}
    targets = {f"{signal.level}:leadline_{signal.name}:target" for signal in SIGNALS.values()}
    exposed = {name for metric in METRICS.values() for name in metric.exposed}
    assert names
    assert names <= records | targets | exposed


def _expected() -> tuple[set[tuple[str, str]], set[str]]:
    """Return which alerts are asserted to fire, and which to be silent."""
    fires: set[tuple[str, str]] = set()
    silent: set[str] = set()
    for path in UNIT_TESTS:
        for test in yaml.safe_load(path.read_text())["tests"]:
            for case in test.get("alert_rule_test", ()):
                name, wanted = case["alertname"], case["exp_alerts"]
                fires |= {(name, alert["exp_labels"]["severity"]) for alert in wanted}
                silent |= set() if wanted else {name}
    return fires, silent


def test_every_alert_is_tested_for_firing_and_for_silence() -> None:
    """No alert goes out untried."""
    fires, silent = _expected()
    assert fires == {(alert.name, alert.severity) for alert in ALERTS}
    assert silent == {alert.name for alert in ALERTS}


def _kind_alerts() -> set[str]:
    """Return the alerts of the kinds that detectors and service really find."""
    sources = "".join(path.read_text() for path in (ROOT / "detectors").rglob("*.py"))
    kinds = set(re.findall(r'kind="(\w+)"', sources))
    assert kinds <= set(get_args(Kind))
    return {"Leadline" + kind.title().replace("_", "") for kind in kinds}


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    """Rules and kinds of findings on one side, files on the other."""
    written = {path.stem for path in RUNBOOKS.glob("*.md")}
    named = {alert.name for alert in ALERTS} | {"LeadlineSlaBroken"}
    assert written == named | _kind_alerts()


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: path.stem)
def test_every_runbook_can_be_used_at_night(path: Path) -> None:
    """A title, all sections, a command to copy with its output, and a decision by number."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"# {path.stem}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == list(SECTIONS)
    first, decide = _section(text, "First command"), _section(text, "Decide")
    assert re.search(r"```sh\n.+```text\n", first, re.DOTALL)
    assert re.search(r"\d.* → ", decide)
    assert len(text.splitlines()) <= 70


def _section(text: str, name: str) -> str:
    return text.split(f"## {name}\n")[1].split("\n## ", maxsplit=1)[0]


def test_links_follow_the_configuration() -> None:
    """The runbook's address is the service's, and Grafana is linked to only where it is."""
    plain = ALERTS[0].to_dict(Config())["annotations"]
    assert plain["runbook_url"].startswith("http://127.0.0.1:9841/runbooks/")
    assert "dashboard_url" not in plain
    service = {"external_url": "https://x.example/", "grafana_url": "https://g.example"}
    linked = ALERTS[0].to_dict(Config.model_validate({"service": service}))["annotations"]
    assert linked["runbook_url"] == f"https://x.example/runbooks/{ALERTS[0].name}"
    assert linked["dashboard_url"].startswith("https://g.example/d/leadline-fleet?var-cluster=")


def test_every_module_with_alerts_is_registered() -> None:
    """A file of alerts that nobody calls would never fire."""
    sources = {path.stem: path.read_text() for path in (ROOT / "alerts").glob("*.py")}
    written = {name for name, text in sources.items() if "\ndef alerts(" in text}
    assert {f"alerts.{name}" for name in written} == {m.__module__ for m in rules.MODULES.values()}
