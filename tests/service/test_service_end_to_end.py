"""The service between a real Prometheus and a real Alertmanager, read in a real browser."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stack import binaries

Wait = Callable[..., Any]


def flags(prometheus: str, alertmanager: str, every: str) -> list[str]:
    """Return the flags of a fast service."""
    return [
        "--prometheus", prometheus, "--alertmanager", alertmanager,
        "--every", every, "--step", "30s",
    ]  # fmt: skip


def browse(url: str) -> str:
    """Return the document that a browser makes of a page."""
    program = binaries.find("chromium-headless-shell")
    argv: list[str | Path] = [
        program,
        "--no-sandbox",
        "--disable-gpu",
        "--dump-dom",
        "--timeout=20000",
        url,
    ]
    done = subprocess.run(argv, capture_output=True, timeout=60, check=True)
    return done.stdout.decode()


def cycles(service: Any, count: int, wait: Wait) -> None:
    """Wait until *count* more cycles have ended."""
    for _ in range(count):
        last = service.json("/api/v1/status")["last_cycle"]
        wait(lambda seen=last: service.json("/api/v1/status")["last_cycle"] != seen, 90)


def test_a_leak_is_one_page_and_a_killed_service_neither_loses_nor_doubles_it(
    prometheus: Any,
    alertmanager: Any,
    receiver: Any,
    serve: Any,
    past: str,
    free_port: int,
    wait: Wait,
) -> None:
    """Two leaking ranks are one notification; after kill -9 it is still that one, still active."""
    prom, manager = prometheus(openmetrics=past), alertmanager(receiver.config)
    # A restart must fit into three cycles, on a busy machine too.
    service = serve(*flags(prom.url, manager.url, "10s"), port=free_port)
    wait(lambda: receiver.firing, 90, why="a notification")
    [alert] = receiver.firing
    assert alert["labels"] == {
        "alertname": "LeadlineLeak", "namespace": "llm", "deployment": "chat", "pool": "decode",
        "model_name": "glm", "kind": "leak", "severity": "page",
    }  # fmt: skip
    said = alert["annotations"]["description"]
    assert re.search(r"EngineCore DP0, DP1 leak host memory at 2\.4 GiB/h together", said), said
    assert re.search(r"About (2\.9|3\.\d) h \(.*\) left, as of .*UTC; breach about .*UTC", said)
    assert "container vllm-decode" in said
    parts = alert["annotations"]
    assert (parts["process"], parts["ranks"]) == ("engine_core", "DP0, DP1")
    assert service.get(alert["annotations"]["panel_url"].removeprefix(service.url)).is_success
    assert alert["generatorURL"].startswith(f"{prom.url}/graph?")

    page = browse(f"{service.url}/")
    for words in ("pool decode", "EngineCore DP0, DP1", "PAGE", "<svg", "Runbook"):
        assert words.lower() in page.lower(), words
    assert re.search(r"<b>(2\.9|3\.\d)</b> h <span>left", page)

    [before] = manager.get("/api/v2/alerts")
    service.kill()
    again = serve(*flags(prom.url, manager.url, "10s"), port=free_port)
    wait(again.ready, 90)
    cycles(again, 1, wait)
    [after] = manager.get("/api/v2/alerts")
    assert [one["status"] for one in receiver.notifications] == ["firing"]
    assert after["fingerprint"] == before["fingerprint"]
    assert after["startsAt"] == before["startsAt"]
    assert again.stop() == 0


def test_alerts_wait_for_alertmanager_and_outlive_prometheus(
    prometheus: Any,
    alertmanager: Any,
    receiver: Any,
    serve: Any,
    past: str,
    free_port: int,
    wait: Wait,
) -> None:
    """Alertmanager down: delivered later. Prometheus down: kept alive, said, never twice."""
    from stack import programs  # noqa: PLC0415 - a second free port

    prom, port = prometheus(openmetrics=past), programs.free_port()
    service = serve(*flags(prom.url, f"http://127.0.0.1:{port}", "4s"), port=free_port)
    wait(lambda: service.ready() and service.json("/api/v1/incidents"), 90)
    wait(lambda: not service.json("/api/v1/status")["alertmanagers"][0]["ok"])
    assert "takes no alerts" in service.get("/").text
    manager = alertmanager(receiver.config, port=port)
    wait(lambda: receiver.firing, 90, why="the alert that waited")

    [incident] = service.json("/api/v1/incidents")
    prom.stack.stop()
    wait(lambda: not service.json("/api/v1/status")["prometheus"]["ok"], 90)
    cycles(service, 3, wait)
    assert "Prometheus is away" in service.get("/").text
    [alive] = manager.get("/api/v2/alerts")
    assert alive["status"]["state"] == "active"
    prometheus(openmetrics=past, port=int(prom.url.rpartition(":")[2]))
    wait(lambda: service.json("/api/v1/status")["prometheus"]["ok"], 90)
    [still] = service.json("/api/v1/incidents")
    assert (still["id"], still["since"]) == (incident["id"], incident["since"])
    assert [one["status"] for one in receiver.notifications] == ["firing"]
