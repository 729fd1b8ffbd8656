"""`leadline up` brings the whole line up on one machine, and Ctrl-C takes all of it down."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil

from stack import binaries

ROOT = Path(__file__).parents[2]


def test_up_runs_the_line_until_ctrl_c(tmp_path: Path) -> None:
    """Exporter and service are scraped, rules are loaded; after SIGINT nothing is left, exit 0."""
    for name in ("prometheus", "alertmanager"):
        binaries.find(name)
    config = tmp_path / "leadline.yaml"
    config.write_text("exporter: {discover: false}\n")
    argv = [sys.executable, "-m", "leadline", "up", "--config", str(config), "--state", "data"]
    process = subprocess.Popen(
        argv,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        said = _said_until_ready(process)
        prometheus = said["Prometheus"]
        up = "count by (job) (up{job=~'leadline|leadline-service'} == 1)"
        _until(lambda: len(_query(prometheus, up)) == 2)
        groups = _get(f"{prometheus}/api/v1/rules")["groups"]
        assert any(rule["type"] == "alerting" for group in groups for rule in group["rules"])
        assert httpx.get(said["board"], timeout=30, trust_env=False).status_code == 200
        children = psutil.Process(process.pid).children(recursive=True)

        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
        assert len(children) >= 4
        assert not [child for child in children if child.is_running()]
    finally:
        process.kill()
        process.communicate()


def _said_until_ready(process: "subprocess.Popen[str]") -> dict[str, str]:
    """What it prints, by first word, up to its last line of the start."""
    assert process.stdout is not None
    said: dict[str, str] = {}
    for line in process.stdout:
        if line.startswith("Ctrl-C"):
            return said
        name, _, value = line.partition(" ")
        said[name] = value.strip()
    raise AssertionError(f"ended with {process.wait()} after saying {said}")


def _get(url: str, **parameters: str) -> dict:
    return httpx.get(url, params=parameters, timeout=30, trust_env=False).json()["data"]


def _query(prometheus: str, expression: str) -> list:
    return _get(f"{prometheus}/api/v1/query", query=expression)["result"]


def _until(condition: Callable[[], bool], within: float = 90.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within} s"
        time.sleep(0.5)
