"""Leadline as its user runs it: exporter, Prometheus, Alertmanager and service on loopback."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from stack import binaries, servers
from stack.configs import Job, write_prometheus
from stack.programs import Program, Running, Stack, free_port

INTERVAL = "5s"
# A grid fine enough for a leak that is over within the hour; the default is made for days.
STEP = "15s"
# A niced CPU has no latency to promise: the service levels must not page here.
NO_PROMISE = {"ttft_user_mean": "10m", "tpot_mean": "1m"}


@dataclass
class Eyes:
    """The addresses of all that watches the pair, and where it keeps its files.

    The service's port is chosen when the service starts, minutes after the others: a port that is
    only remembered may be somebody else's by then.
    """

    folder: Path
    exporter: str
    prometheus: str
    alertmanager: str
    service: str = ""

    @classmethod
    def on_free_ports(cls, folder: Path) -> Eyes:
        """Choose the usual ports where they are free, others where not."""
        ports = (free_port(p) for p in (9840, 9090, 9093))
        return cls(folder, *(f"127.0.0.1:{port}" for port in ports))

    def start(self, stack: Stack) -> Running:
        """Start all that watches before a limit is known, and return Prometheus."""
        self._write(limit=None)
        self._rules(stack)
        self.start_exporter(stack)
        port = int(self.alertmanager.rsplit(":", 1)[1])
        config = self.folder / "alerts" / "alertmanager.yml"
        stack.start(servers.alertmanager(config, self.folder / "alertmanager", port))
        port = int(self.prometheus.rsplit(":", 1)[1])
        config = self._scrape([Job("leadline", [self.exporter])])
        return stack.start(servers.prometheus(config, self.folder / "prometheus", port))

    def start_exporter(self, stack: Stack) -> None:
        """Start the exporter of this machine; it needs its configuration first."""
        if not (self.folder / "leadline.yaml").exists():
            self._write(limit=None)
        stack.start(self._leadline("exporter", f"http://{self.exporter}/healthz"))

    def judge(self, stack: Stack, prometheus: Running, limit: float) -> None:
        """Tell the limit to the rules, and start the service with it as a flag."""
        self.service = f"127.0.0.1:{free_port(9841)}"
        self._write(limit)
        self._rules(stack)
        # Only now: a service that is not there yet would count as a target that is down.
        self._scrape([Job("leadline", [self.exporter]), Job("leadline-service", [self.service])])
        prometheus.signal_group(signal.SIGHUP)
        limits = ("--limit", f"host_anon_swap={limit:.0f}B")
        stack.start(self._leadline("serve", f"http://{self.service}/healthz", *limits))

    def page(self) -> str:
        """The exporter's page, as Prometheus gets it."""
        answer = httpx.get(f"http://{self.exporter}/metrics", timeout=10.0)
        answer.raise_for_status()
        return answer.text

    def _write(self, limit: float | None) -> None:
        content: dict[str, Any] = {
            "deployment": "live",
            "sla": NO_PROMISE,
            "exporter": {"listen": self.exporter},
            "prometheus": {"url": f"http://{self.prometheus}", "step": STEP},
            "alertmanager": {"urls": [f"http://{self.alertmanager}"]},
            "service": {
                **({"listen": self.service} if self.service else {}),
                "every": STEP,
                "history": "1d",
                "state": str(self.folder / "state"),
            },
        }
        if limit is not None:
            content["limits"] = {"host_anon_swap": f"{limit:.0f}B"}
        (self.folder / "leadline.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")

    def _scrape(self, jobs: list[Job]) -> Path:
        return write_prometheus(
            self.folder / "prometheus.yml",
            jobs,
            rules=[self.folder / "alerts" / "rules" / "*.yml"],
            alertmanagers=[f"http://{self.alertmanager}"],
            interval=INTERVAL,
        )

    def _leadline(self, command: str, health: str | None, *more: str) -> Program:
        line = [sys.executable, "-m", "leadline", command]
        line += ["--config", str(self.folder / "leadline.yaml"), *more]
        return Program(command, line, health)

    def _rules(self, stack: Stack) -> None:
        stack.finish(self._leadline("rules", None, "-o", str(self.folder / "alerts")), within=60.0)


def find_binaries() -> None:
    """Get Prometheus and Alertmanager first: without them nothing else is worth starting."""
    binaries.find("prometheus")
    binaries.find("alertmanager")
