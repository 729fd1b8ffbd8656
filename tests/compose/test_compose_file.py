"""docker-compose.yml and Dockerfile against the specification and against this project.

No engine runs here: what can be checked without one is that the file is valid and that each path,
port, flag and health check in it exists.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import leadline
from alerts import generate
from catalog.config import Config, load
from stack.binaries import find

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PROMETHEUS: dict[str, Any] = yaml.safe_load((ROOT / "compose/prometheus.yml").read_text())
OURS = [name for name, service in SERVICES.items() if "build" in service]
CONFIG = load(ROOT / "compose/leadline.yaml", {})


def test_it_follows_the_compose_specification() -> None:
    """The specification's own schema takes it."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run(
        [*command, "docker-compose.yml"], cwd=ROOT, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_part_of_the_stack_is_there() -> None:
    """The whole line from exporter to Grafana, and the simulator only by its profile."""
    always = {name for name, service in SERVICES.items() if "profiles" not in service}
    assert always == {"rules", "prometheus", "alertmanager", "service", "grafana", "exporter"}
    assert SERVICES["simulator"]["profiles"] == ["demo"]


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned_and_hardened(name: str) -> None:
    """A version on each image, a read-only root, no capabilities that aren't named."""
    service = SERVICES[name]
    assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+", service["image"])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert (service.get("user") == "0") == (name == "exporter"), "root is the exporter's alone"


@pytest.mark.parametrize("name", OURS)
def test_our_commands_parse(name: str) -> None:
    """The command line takes every flag that a container is started with."""
    arguments = leadline._parser().parse_args(SERVICES[name]["command"])
    assert callable(arguments.run)


@pytest.mark.parametrize("name", SERVICES)
def test_every_mounted_file_is_in_the_project(name: str) -> None:
    """A bind mount from here exists; a volume is declared."""
    for mount in SERVICES[name].get("volumes", []):
        source = mount.split(":")[0]
        if source.startswith("./"):
            assert (ROOT / source).exists(), source
        elif not source.startswith("/"):
            assert source in COMPOSE["volumes"], source


def test_addresses_agree() -> None:
    """Ports in Prometheus' configuration, flags and health checks are those listened on."""
    jobs = {job["job_name"]: job["static_configs"][0] for job in PROMETHEUS["scrape_configs"]}
    assert jobs["leadline"]["targets"] == [CONFIG.exporter.listen]
    assert jobs["leadline-service"]["targets"] == [CONFIG.service.listen]
    simulator = SERVICES["simulator"]["command"]
    assert jobs["simulator"]["targets"] == [simulator[simulator.index("--listen") + 1]]
    assert CONFIG.exporter.listen in SERVICES["exporter"]["healthcheck"]["test"][-1]
    assert CONFIG.service.listen in SERVICES["service"]["healthcheck"]["test"][-1]
    for name, url in (
        ("prometheus", CONFIG.prometheus.url),
        ("alertmanager", *CONFIG.alertmanager.urls),
    ):
        address = url.removeprefix("http://")
        assert f"--web.listen-address={address}" in SERVICES[name]["command"]
        assert SERVICES[name]["healthcheck"]["test"][-1] == f"{url}/-/ready"


def test_nothing_listens_beyond_loopback() -> None:
    """Everything shares the host's network, so each address is loopback by name."""
    for name, service in SERVICES.items():
        assert service["network_mode"] == "host", name
        assert "ports" not in service
    assert SERVICES["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert CONFIG.exporter.listen.startswith("127.0.0.1:")
    assert CONFIG.service.listen.startswith("127.0.0.1:")


def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    """Promtool accepts it, with the rules where the volume puts them."""
    generate.write(Config(), tmp_path)
    text = (ROOT / "compose/prometheus.yml").read_text()
    (tmp_path / "prometheus.yml").write_text(
        text.replace("/etc/prometheus/leadline", str(tmp_path))
    )
    done = subprocess.run(
        [find("promtool"), "check", "config", tmp_path / "prometheus.yml"], capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("rules found") >= 3


def test_the_image_gets_every_package() -> None:
    """What the wheel holds is copied into the build, past .dockerignore."""
    pyproject = (ROOT / "pyproject.toml").read_text()
    packed = re.search(r"only-include = \[(.*?)\]", pyproject, re.DOTALL)
    assert packed
    names = set(re.findall(r'"([a-z.]+)"', packed[1]))
    dockerfile = (ROOT / "Dockerfile").read_text()
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"}
    assert names <= kept
    for name in names:
        assert re.search(rf"^COPY .*\b{re.escape(name)}\b", dockerfile, re.MULTILINE), name


def test_grafana_finds_what_is_provisioned() -> None:
    """The provider's folder is the mount of the dashboards, and the first page is one of them."""
    provider = yaml.safe_load(
        (ROOT / "compose/grafana/provisioning/dashboards/leadline.yml").read_text()
    )
    folder = provider["providers"][0]["options"]["path"]
    assert f"./dashboards/json:{folder}:ro" in SERVICES["grafana"]["volumes"]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (ROOT / "dashboards/json" / Path(home).name).is_file()
