"""A small fleet with a past, a receiver of notifications, and the service as a process."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

GIB = 2.0**30
STEP = 30.0
HOURS = 6.0
PLACE = {"namespace": "llm", "deployment": "chat", "model_name": "glm"}


def history(until: float, *, leaking: int = 2, ranks: int = 3, gib_per_hour: float = 1.2) -> str:
    """Return OpenMetrics text: a prefill and a decode server, of whose ranks the first leak.

    The limit leaves three hours, of a growth that was seen for six.
    """
    rng = np.random.default_rng(7)
    times = np.arange(until - HOURS * 3600.0, until, STEP)
    hours = (times - times[0]) / 3600.0
    rows: dict[str, list[tuple[dict[str, str], Any]]] = {}
    for pool, node in (("prefill", "node1"), ("decode", "node2")):
        server = {**PLACE, "pool": pool, "server": f"{node}:8000", "node": node}
        used = np.zeros(len(times))
        names = [("api_server", ""), *(("engine_core", f"DP{r}") for r in range(ranks))]
        for process, rank in names:
            labels = {**server, "process": process, "rank": rank}
            level = (0.7 if process == "api_server" else 3.0) * GIB
            anon = level + rng.normal(0, 3e6, len(times))
            if pool == "decode" and rank and int(rank[2:]) < leaking:
                anon += gib_per_hour * GIB * hours
            used += anon
            rows.setdefault("leadline_process_anonymous_bytes", []).append((labels, anon))
            rows.setdefault("leadline_process_swap_bytes", []).append((labels, 0.0 * anon))
            started = np.full(len(times), times[0] - 86400.0)
            rows.setdefault("leadline_process_start_time_seconds", []).append((labels, started))
        place = {**server, "cgroup": f"vllm-{pool}"}
        rows.setdefault("leadline_container_working_set_bytes", []).append((place, used + 2 * GIB))
        growth = leaking * gib_per_hour * GIB
        limit = np.full(len(times), used[-1] + 2 * GIB + 3.0 * growth + GIB)
        rows.setdefault("leadline_container_limit_bytes", []).append((place, limit))
    return _text(times, rows)


def _text(times: Any, rows: dict[str, list[tuple[dict[str, str], Any]]]) -> str:
    lines: list[str] = []
    for name, series in rows.items():
        lines.append(f"# TYPE {name} gauge")
        for labels, values in series:
            inner = ",".join(f'{k}="{v}"' for k, v in labels.items() if v)
            pairs = zip(values.tolist(), times.tolist(), strict=True)
            lines += [f"{name}{{{inner}}} {value:.0f} {at:.3f}" for value, at in pairs]
    return "\n".join([*lines, "# EOF", ""])


@dataclass
class Receiver:
    """Takes Alertmanager's webhooks; each is what a person's phone would show."""

    port: int
    notifications: list[dict[str, Any]] = field(default_factory=list)

    @property
    def firing(self) -> list[dict[str, Any]]:
        """Return the alerts of notifications that say firing."""
        return [
            alert
            for one in self.notifications
            if one["status"] == "firing"
            for alert in one["alerts"]
            if alert["status"] == "firing"
        ]

    @property
    def config(self) -> str:
        """Return an Alertmanager configuration that notifies here at once."""
        return f"""
route: {{receiver: hook, group_by: [alertname, deployment, pool], group_wait: 0s,
        group_interval: 1s, repeat_interval: 4h}}
receivers:
  - name: hook
    webhook_configs: [{{url: "http://127.0.0.1:{self.port}/", send_resolved: true}}]
inhibit_rules:
  - source_matchers: [severity="page"]
    target_matchers: [severity=~"ticket|report"]
    equal: [alertname, cluster, namespace, deployment, pool, model_name]
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A running receiver."""
    got: list[dict[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            got.append(json.loads(self.rfile.read(size)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Receiver(server.server_port, got)
    server.shutdown()
    server.server_close()
    thread.join(5)


@dataclass
class Served:
    """A service process."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def get(self, path: str) -> httpx.Response:
        """Return what a path answers."""
        return httpx.get(f"{self.url}{path}", timeout=10.0, trust_env=False)

    def json(self, path: str) -> Any:
        """Return the JSON at a path."""
        return self.get(path).raise_for_status().json()

    def ready(self) -> bool:
        """Return whether a cycle has been completed."""
        try:
            return self.get("/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        """Kill it as the kernel does when memory runs out."""
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> int:
        """Stop it as a person does; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(15)


Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts the service; what still runs at the end is killed."""
    running: list[Served] = []

    def start(*flags: str, port: int, state: Path | None = None) -> Served:
        log = tmp_path / f"serve{len(running)}.log"
        argv = [
            sys.executable, "-m", "leadline", "serve", "--listen", f"127.0.0.1:{port}",
            "--state", str(state or tmp_path / "state"), *flags,
        ]  # fmt: skip
        environment = {**os.environ, "LEADLINE_SERVICE__HISTORY": f"{HOURS:g}h"}
        with log.open("wb") as out:
            process = subprocess.Popen(argv, stdout=out, stderr=out, env=environment)
        running.append(Served(f"http://127.0.0.1:{port}", process, log))
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.kill()


def wait(what: Callable[[], Any], within: float = 30.0, *, why: str = "") -> Any:
    """Return the first true answer of *what*; fail when none comes in time."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if answer := what():
            return answer
        time.sleep(0.1)
    raise AssertionError(f"not within {within:g} s: {why or what}")


@pytest.fixture(scope="session", name="past")
def _past() -> str:
    """A history that ends now."""
    return history(time.time())


@pytest.fixture(name="wait")
def _wait() -> Callable[..., Any]:
    """Waits for something to become true."""
    return wait
