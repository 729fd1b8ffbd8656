"""`leadline doctor`: an installation that can page, and each way in which one can't."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import leadline
from alerts import alertmanager as routing
from alerts import generate
from catalog.config import load

if TYPE_CHECKING:
    from conftest import Server, StartAlertmanager, StartPrometheus

POOL = 'deployment="chat",pool="{pool}",server="{server}"'
MEMORY = 'leadline_process_anonymous_bytes{{{place},process="engine_core",rank="DP0"}} 1e9\n'
SERVER = (
    "vllm:num_requests_running{{{place}}} 1\n"
    'leadline_instance_info{{{place},vllm_version="0.32.0"}} 1\n'
)


@pytest.fixture(scope="module")
def pages() -> Iterator[str]:
    """Serve /fleet, two servers; /lost, one of no pool, without memory; /service, a detector."""
    place = [POOL.format(pool=pool, server=f"{pool}:8000") for pool in ("prefill", "decode")]
    lost = POOL.format(pool="unknown", server="lost:8000")
    texts = {
        "/fleet": "".join((SERVER + MEMORY).format(place=one) for one in place),
        "/lost": SERVER.format(place=lost) + 'leadline_collector_success{collector="gpu"} 0\n',
        "/service": (
            "leadline_detector_last_cycle_timestamp_seconds NOW\n"
            'leadline_detector_series{state="judged"} 4\n'
        ),
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = texts[self.path].replace("NOW", str(time.time())).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(5)


def _scrapes(pages: str, **paths: str) -> list[dict[str, Any]]:
    return [
        {"job_name": job, "metrics_path": path, "static_configs": [{"targets": [pages]}]}
        for job, path in paths.items()
    ]


def _doctor(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, list[str]]:
    """Return exit code and lines."""
    code = leadline.main(["doctor", *flags])
    told = capsys.readouterr()
    assert told.err == ""
    return code, told.out.splitlines()


def _states(lines: list[str], about: str) -> list[str]:
    """Return the states of the lines about something."""
    return [line.split()[0] for line in lines[:-1] if line[9:].startswith(about)]


def _line(lines: list[str], *words: str) -> str:
    """Return the one line that has all *words*."""
    found = [line for line in lines if all(word in line for word in words)]
    assert len(found) == 1, "\n".join(lines)
    return found[0]


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rules of the defaults, evaluated every second."""
    folder = tmp_path_factory.mktemp("rules")
    for path in generate.write(load(None, {}), folder):
        content = yaml.safe_load(path.read_text())
        for group in content.get("groups", ()):
            group["interval"] = "1s"
        path.write_text(yaml.safe_dump(content))
    return folder / "rules"


@pytest.fixture(scope="module")
def well(
    pages: str,
    rules: Path,
    module_prometheus: StartPrometheus,
    module_alertmanager: StartAlertmanager,
) -> tuple[Server, Server]:
    """A Prometheus and an Alertmanager with nothing wrong."""
    config = yaml.safe_dump(routing.build("http://127.0.0.1:9/hook"))
    manager = module_alertmanager(config)
    scrapes = _scrapes(pages, **{"leadline": "/fleet", "leadline-service": "/service"})
    server = module_prometheus(
        rules=sorted(rules.glob("*.yml")), alertmanagers=[manager.url], scrapes=scrapes
    )
    return server, manager


def test_a_whole_installation_is_well(
    well: tuple[Server, Server], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0 with a line for each part, up to the receiver of a page."""
    server, manager = well
    flags = ("--prometheus", server.url, "--alertmanager", manager.url)
    deadline = time.monotonic() + 120
    while (answer := _doctor(capsys, *flags))[0] and time.monotonic() < deadline:
        time.sleep(1)
    code, lines = answer
    assert code == 0, "\n".join(lines)
    parts = ("config", "prometheus", "clock", "rules", "freshness", "targets", "detector",
             "alerts", "alertmanager", "route", "prefill of chat", "decode of chat")  # fmt: skip
    for about in parts:
        assert "ok" in _states(lines, about), about
    assert "up: 1 of job leadline, 1 of job leadline-service" in _line(lines, "targets")
    assert "heartbeat LeadlineDetectorAlive arrives" in _line(lines, "heartbeat")

    told = " ".join(lines)
    assert "a page goes to receiver page" in told
    assert "1 server, vLLM 0.32.0" in told


def test_another_sla_than_prometheus_holds_is_a_warning(
    well: tuple[Server, Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both values are in the line, and the command that writes the rules again."""
    file = tmp_path / "leadline.yaml"
    file.write_text("sla: {tpot_mean: 12ms}\nlimits: {host_anon_swap: 64GiB}\n")
    _, lines = _doctor(capsys, "--config", str(file), "--prometheus", well[0].url)
    limits = [line for line in lines if line[9:].startswith("limits")]
    assert [line.split()[0] for line in limits] == ["warn", "warn"]
    assert "host_anon_swap is not set in Prometheus' rules, 6.87195e+10" in limits[0]
    assert "tpot_mean is 0.02 in Prometheus' rules, 0.012 in the configuration" in limits[1]
    assert "-> leadline rules -o" in limits[1]
    # No Alertmanager: what the detector finds pages nobody.
    assert _states(lines, "alertmanager") == ["fail"]


def test_what_is_wrong_is_told_with_its_remedy(
    pages: str,
    rules: Path,
    tmp_path: Path,
    prometheus: StartPrometheus,
    alertmanager: StartAlertmanager,
    free_port: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Edited, missing and doubled rules, a dead exporter, an unknown pool, a mute receiver."""
    edited = yaml.safe_load((rules / "recording.yml").read_text())
    edited["groups"][0]["rules"][0]["expr"] += " * 2"
    paths = [tmp_path / "recording.yml", tmp_path / "again.yml"]
    paths[0].write_text(yaml.safe_dump(edited))
    edited["groups"] = edited["groups"][:1]
    paths[1].write_text(yaml.safe_dump(edited))
    manager = alertmanager()
    scrapes = _scrapes(pages, leadline="/lost")
    scrapes[0]["static_configs"].append({"targets": [f"127.0.0.1:{free_port}"]})
    server = prometheus(rules=paths, scrapes=scrapes)
    deadline = time.monotonic() + 60
    while len(server.query("up")) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)

    flags = ("--prometheus", server.url, "--alertmanager", manager.url)
    code, lines = _doctor(capsys, *flags)
    assert code == 1
    name = edited["groups"][0]["rules"][0]["record"]
    assert _line(lines, "are not loaded", "Leadline").startswith("fail")
    assert _line(lines, "not as this version", name, "-> leadline rules").startswith("warn")
    assert _line(lines, "loaded more than once", "rule_files").startswith("warn")
    down = _line(lines, f"127.0.0.1:{free_port}", "is down", "LeadlineExporterDown.md")
    assert down.startswith("fail")
    assert "refused" in down
    assert _line(lines, "their pool is unknown", "deployments.NAME.ports").startswith("fail")
    assert _line(lines, "collector gpu fails", "LeadlineCollectorFailed.md").startswith("warn")
    assert _line(lines, "no detector service is scraped", "leadline serve").startswith("fail")
    assert _line(lines, "sends its alerts nowhere", "alertmanagers:").startswith("fail")
    assert _line(lines, "a page goes to", "nobody, which tells nobody").startswith("fail")
    assert _line(lines, "inhibit_rules").startswith("warn")
    counts = [f"{sum(x.startswith(s) for x in lines[:-1])} {s}" for s in
              ("ok", "warn", "fail", "unknown")]  # fmt: skip
    assert lines[-1] == f"{', '.join(counts)}."


def test_the_wrong_address_is_a_line_and_never_a_password(
    well: tuple[Server, Server], free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody there, an Alertmanager for a Prometheus and the other way round."""
    server, manager = well
    gone = f"http://127.0.0.1:{free_port}"
    code, lines = _doctor(
        capsys, "--prometheus", gone.replace("//", "//u:hush@"), "--alertmanager", gone
    )
    assert code == 1
    assert "refused" in _line(lines, "prometheus.url or --prometheus names it")
    assert "hush" not in " ".join(lines)
    code, lines = _doctor(capsys, "--prometheus", manager.url, "--alertmanager", server.url)
    assert code == 1
    for about in ("prometheus", "alertmanager"):
        assert _states(lines, about) == ["fail"]
        assert "base address" in " ".join(lines)
