"""The line from scrape to page as programs on one machine: addresses, files, start order.

Shared by `leadline up`, whose pages come from the exporter, and `leadline demo`, whose pages come
from the simulator.
"""

import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from catalog.config import ENV_PREFIX, Config
from stack import servers
from stack.configs import Job, write_prometheus
from stack.programs import Program, Stack, free_port

log = logging.getLogger("leadline.stack")

RULES_WITHIN = 120.0


@dataclass(frozen=True)
class Line:
    """Where everything is: a folder, the addresses in use, and the configuration that says so."""

    folder: Path
    config: Config

    @property
    def config_file(self) -> Path:
        """The configuration as our programs read it."""
        return self.folder / "leadline.yaml"

    @property
    def prometheus(self) -> str:
        """Base URL."""
        return self.config.prometheus.url

    @property
    def alertmanager(self) -> str:
        """Base URL."""
        return self.config.alertmanager.urls[0]

    @property
    def service(self) -> str:
        """Base URL, by which the board is reached from this machine."""
        return f"http://{reachable(self.config.service.listen)}"

    def ours(self, name: str, *arguments: str | Path, health: str | None = None) -> Program:
        """One of our own commands as a program, with this configuration."""
        return ours(name, *arguments, "--config", self.config_file, health=health)


def ours(name: str, *arguments: str | Path, health: str | None = None) -> Program:
    """One of our own commands as a program."""
    argv = [sys.executable, "-m", "leadline", *arguments]
    return Program(name, argv, health, environment=_environment())


def lay(config: Config, folder: Path) -> Line:
    """Choose addresses, prefer those configured, and write the configuration with them."""
    folder.mkdir(parents=True, exist_ok=True)
    prometheus = _port("Prometheus", config.prometheus.url, 9090)
    alertmanager = _port("Alertmanager", next(iter(config.alertmanager.urls), ""), 9093)
    line = Line(
        folder,
        config.model_copy(
            update={
                "prometheus": config.prometheus.model_copy(
                    update={"url": f"http://127.0.0.1:{prometheus}", "bearer_token_file": ""}
                ),
                "alertmanager": config.alertmanager.model_copy(
                    update={"urls": (f"http://127.0.0.1:{alertmanager}",)}
                ),
                "service": config.service.model_copy(
                    update={
                        "listen": _listen("the service", config.service.listen),
                        "state": str(folder / "service"),
                    }
                ),
            }
        ),
    )
    line.config_file.write_text(yaml.safe_dump(line.config.model_dump(mode="json")))
    return line


def with_exporter(config: Config) -> Config:
    """The configuration with a free port for the exporter."""
    listen = _listen("the exporter", config.exporter.listen)
    return config.model_copy(
        update={"exporter": config.exporter.model_copy(update={"listen": listen})}
    )


def start_alerting(stack: Stack, line: Line) -> None:
    """Write the rules and start Alertmanager, with the operator's own configuration if any."""
    rules = line.folder / "rules"
    stack.finish(line.ours("rules", "rules", "-o", rules), within=RULES_WITHIN)
    config = line.folder / "alertmanager.yml"
    if not config.exists():
        config.write_bytes((rules / "alertmanager.yml").read_bytes())
    port = urlsplit(line.alertmanager).port or 0
    stack.start(servers.alertmanager(config, line.folder / "alertmanager", port))


def start_prometheus(stack: Stack, line: Line, pages: Job, *, interval: str, resend: str) -> None:
    """Start Prometheus with our rules on these pages and on the service's own."""
    config = write_prometheus(
        line.folder / "prometheus.yml",
        [pages, Job("leadline-service", [urlsplit(line.service).netloc])],
        rules=[line.folder / "rules" / "rules" / "*.yml"],
        alertmanagers=[line.alertmanager],
        interval=interval,
    )
    port = urlsplit(line.prometheus).port or 0
    stack.start(servers.prometheus(config, line.folder / "prometheus", port, resend=resend))


def start_service(stack: Stack, line: Line) -> None:
    """Start the detector service; it takes all addresses from the configuration."""
    stack.start(line.ours("service", "serve", health=f"{line.service}/healthz"))


def reachable(listen: str) -> str:
    """Where a listening address is reached from this machine: 0.0.0.0 through loopback."""
    host, _, port = listen.rpartition(":")
    return f"127.0.0.1:{port}" if host in ("", "0.0.0.0", "[::]") else listen  # noqa: S104


def _port(name: str, url: str, default: int) -> int:
    """A free port, the configured one if that is on this machine and nobody has it."""
    parts = urlsplit(url)
    local = parts.hostname in ("127.0.0.1", "localhost")
    return _said(name, (parts.port if local else None) or default)


def _listen(name: str, listen: str) -> str:
    host, _, port = listen.rpartition(":")
    return f"{host}:{_said(name, int(port))}"


def _said(name: str, wanted: int) -> int:
    port = free_port(wanted)
    if port != wanted:
        log.info("port %d is taken, %s uses %d", wanted, name, port)
    return port


def _environment() -> dict[str, str | None]:
    """What our programs get beside our own environment.

    The configuration file holds what the environment said already, with the addresses in use, so
    its variables are taken away; the packages are found from wherever we run.
    """
    away = {name: None for name in os.environ if name.startswith(ENV_PREFIX)}
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    return {**away, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
