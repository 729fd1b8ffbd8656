"""The examples against this project: each flag, path, port, name and key in them exists here.

No cluster and no init system run in tests; what their own tools can check offline they check.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import leadline
from catalog.config import ENV_PREFIX, Config, load
from exporters.web.config import read
from stack.binaries import find

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "examples/kubernetes"
SYSTEMD = ROOT / "examples/systemd"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
CONFIG = load(KUBERNETES / "leadline.yaml", {})
OBJECTS: list[dict[str, Any]] = [
    one
    for name in KUSTOMIZATION["resources"]
    for one in yaml.safe_load_all((KUBERNETES / name).read_text())
]
WORKLOADS = [one for one in OBJECTS if one["kind"] in ("DaemonSet", "Deployment")]
UNITS = sorted(path.name for path in SYSTEMD.glob("*.service"))
CAPABILITIES = {"SYS_PTRACE", "DAC_READ_SEARCH"}


def named(kind: str, name: str) -> dict[str, Any]:
    """Return the one object of a kind and name."""
    (found,) = [o for o in OBJECTS if o["kind"] == kind and o["metadata"]["name"] == name]
    return found


def pod(workload: dict[str, Any]) -> dict[str, Any]:
    """Return the pod that a workload makes."""
    spec: dict[str, Any] = workload["spec"]["template"]["spec"]
    return spec


def container(workload: dict[str, Any]) -> dict[str, Any]:
    """Return its one container."""
    (found,) = pod(workload)["containers"]
    return dict(found)


def by_name(workload: Any) -> str:
    """Name a workload in the test's id."""
    return str(workload["metadata"]["name"])


each_workload = pytest.mark.parametrize("workload", WORKLOADS, ids=by_name)


def test_every_file_is_in_the_kustomization() -> None:
    """None is forgotten, none is made up."""
    listed = {*KUSTOMIZATION["resources"], *KUSTOMIZATION["configMapGenerator"][0]["files"]}
    assert listed | {"kustomization.yaml"} == {path.name for path in KUBERNETES.iterdir()}
    assert {one["kind"] for one in OBJECTS} == {
        "Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DaemonSet",
        "PersistentVolumeClaim", "Deployment", "Service", "PodMonitor", "ServiceMonitor",
    }  # fmt: skip


def test_kustomize_builds_it() -> None:
    """All objects in the namespace, with the configuration as a map that the pods mount."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl here")
    done = subprocess.run(
        [kubectl, "kustomize", str(KUBERNETES)], capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    built = list(yaml.safe_load_all(done.stdout))
    (config,) = [one for one in built if one["kind"] == "ConfigMap"]
    assert load_text(config["data"]["leadline.yaml"]) == CONFIG
    whole = {"Namespace", "ClusterRole", "ClusterRoleBinding"}
    assert {one["metadata"].get("namespace") for one in built if one["kind"] not in whole} == {
        KUSTOMIZATION["namespace"]
    }
    mounted = {
        volume["configMap"]["name"]
        for one in built if one["kind"] in ("DaemonSet", "Deployment")
        for volume in pod(one)["volumes"] if "configMap" in volume
    }  # fmt: skip
    assert mounted == {config["metadata"]["name"]}


def load_text(text: str) -> Config:
    """Return the configuration that a text holds."""
    return Config.model_validate(yaml.safe_load(text))


@each_workload
def test_a_container_starts(workload: dict[str, Any]) -> None:
    """Its image is ours, its command line parses, its configuration is mounted where it looks."""
    one = container(workload)
    assert one["image"] == COMPOSE["x-leadline"]["image"]
    arguments = leadline._parser().parse_args(one["args"])
    mounts = {mount["mountPath"]: mount["name"] for mount in one["volumeMounts"]}
    folder, _, file = arguments.config.rpartition("/")
    volumes = {volume["name"]: volume for volume in pod(workload)["volumes"]}
    assert mounts.keys() >= {folder}
    assert set(mounts.values()) == volumes.keys()
    generated = KUSTOMIZATION["configMapGenerator"][0]
    assert volumes[mounts[folder]]["configMap"]["name"] == generated["name"]
    assert file in generated["files"]
    for variable in one.get("env", ()):
        if variable["name"].startswith(ENV_PREFIX):
            assert load(None, {variable["name"]: "seen"}) != load(None, {})


@each_workload
def test_a_pod_asks_for_little(workload: dict[str, Any]) -> None:
    """A read-only root, no capabilities but those that are needed, limits, and no other user."""
    one, spec = container(workload), pod(workload)
    security = {**spec["securityContext"], **one["securityContext"]}
    exporter = workload["kind"] == "DaemonSet"
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["capabilities"]["drop"] == ["ALL"]
    assert set(security["capabilities"].get("add", ())) == (CAPABILITIES if exporter else set())
    assert "privileged" not in security
    assert (security["runAsUser"] == 0) == exporter, "root is the exporter's alone"
    assert spec.get("hostPID", False) == exporter
    assert "hostNetwork" not in spec
    assert one["resources"].keys() == {"requests", "limits"}
    for volume in spec["volumes"]:
        if "hostPath" in volume:
            (mount,) = [m for m in one["volumeMounts"] if m["name"] == volume["name"]]
            assert mount["readOnly"] is True
    if not exporter:
        dockerfile = (ROOT / "Dockerfile").read_text()
        assert f"USER {security['runAsUser']}\n" in dockerfile
        assert security["fsGroup"] == security["runAsUser"]


def test_paths_of_the_host_are_read_where_they_are_mounted() -> None:
    """The configuration names the mounts, and each is of what it says."""
    daemon = named("DaemonSet", "leadline-exporter")
    paths = {v["name"]: v["hostPath"]["path"] for v in pod(daemon)["volumes"] if "hostPath" in v}
    mounts = {m["mountPath"]: paths.get(m["name"], "") for m in container(daemon)["volumeMounts"]}
    assert mounts[CONFIG.exporter.proc] == "/proc"
    assert mounts[CONFIG.exporter.sys] == "/sys"


def test_state_is_kept_on_the_volume() -> None:
    """The ledger lies below a mount of the claim, and only one pod writes it."""
    deployment = named("Deployment", "leadline")
    claims = {
        v["name"]: v["persistentVolumeClaim"]["claimName"]
        for v in pod(deployment)["volumes"] if "persistentVolumeClaim" in v
    }  # fmt: skip
    (mount,) = [m for m in container(deployment)["volumeMounts"] if m["name"] in claims]
    assert Path(CONFIG.service.state).is_relative_to(mount["mountPath"])
    assert named("PersistentVolumeClaim", claims[mount["name"]])
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


@pytest.mark.parametrize(
    ("workload", "listen"),
    [
        (named("DaemonSet", "leadline-exporter"), CONFIG.exporter.listen),
        (named("Deployment", "leadline"), CONFIG.service.listen),
    ],
    ids=["exporter", "detector"],
)
def test_ports_agree(workload: dict[str, Any], listen: str) -> None:
    """What is listened on is what is probed, selected and scraped, by one name."""
    (port,) = container(workload)["ports"]
    assert listen == f"0.0.0.0:{port['containerPort']}"
    for probe in ("livenessProbe", "readinessProbe"):
        assert container(workload)[probe]["httpGet"]["port"] == port["name"]
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"] == labels
    monitors = [one for one in OBJECTS if one["kind"] in ("PodMonitor", "ServiceMonitor")]
    (monitor,) = [m for m in monitors if m["spec"]["selector"]["matchLabels"] == labels]
    (endpoint,) = monitor["spec"].get("podMetricsEndpoints") or monitor["spec"]["endpoints"]
    assert endpoint["port"] == port["name"]
    assert endpoint["path"] == "/metrics"
    assert endpoint["honorLabels"] is True
    assert pod(workload)["serviceAccountName"] in {
        one["metadata"]["name"] for one in OBJECTS if one["kind"] == "ServiceAccount"
    }
    if workload["kind"] == "Deployment":
        service = named("Service", "leadline")
        assert service["spec"]["selector"] == service["metadata"]["labels"] == labels
        (served,) = service["spec"]["ports"]
        assert served["targetPort"] == port["name"]
        assert str(served["port"]) == CONFIG.service.external_url.rpartition(":")[2]


def test_probes_ask_for_what_is_served() -> None:
    """The exporter answers the paths that the kubelet asks for; the service has them in its API."""
    from exporters.scrape import Exporter  # noqa: PLC0415
    from exporters.server import ExporterServer  # noqa: PLC0415

    api = json.loads((ROOT / "docs/openapi.json").read_text())["paths"]
    routes = (ROOT / "detectors/service/api.py").read_text()
    probed = {
        kind: {container(named(kind, name))[p]["httpGet"]["path"] for p in
               ("livenessProbe", "readinessProbe")}
        for kind, name in (("DaemonSet", "leadline-exporter"), ("Deployment", "leadline"))
    }  # fmt: skip
    assert all(path in api or f'"{path}"' in routes for path in probed["Deployment"])
    exporter = Exporter(load(None, {}, {"exporter": {"discover": False}}))
    exporter.page()
    with ExporterServer("127.0.0.1", 0, exporter) as server:
        for path in sorted(probed["DaemonSet"]):
            server.timeout = 30
            got: list[int] = []
            answers(server, server.url.replace("/metrics", path), got.append)
            assert got == [200]
    exporter.close()


def answers(server: Any, url: str, then: Callable[[int], None]) -> None:
    """Have *server* answer one request for *url*."""
    import threading  # noqa: PLC0415

    thread = threading.Thread(target=server.handle_request)
    thread.start()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=30) as answer:
        then(answer.status)
    thread.join()


def test_rights_are_what_discovery_asks_for() -> None:
    """Listing pods, for the exporter's account alone; the detectors get no token at all."""
    role = named("ClusterRole", "leadline-exporter")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    binding = named("ClusterRoleBinding", "leadline-exporter")
    (subject,) = binding["subjects"]
    assert subject["name"] == pod(named("DaemonSet", "leadline-exporter"))["serviceAccountName"]
    assert subject["namespace"] == KUSTOMIZATION["namespace"]
    assert named("Namespace", KUSTOMIZATION["namespace"])
    assert CONFIG.exporter.kubernetes.enabled
    assert pod(named("DaemonSet", "leadline-exporter"))["automountServiceAccountToken"] is True
    assert pod(named("Deployment", "leadline"))["automountServiceAccountToken"] is False


def unit(name: str) -> dict[str, list[str]]:
    """Return the values of each key of a unit."""
    found: dict[str, list[str]] = {}
    for line in (SYSTEMD / name).read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and line[0] not in "#[":
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_a_command_that_exists(name: str) -> None:
    """Its flags parse, and what it writes to is its own folder of state."""
    told = unit(name)
    _, *line = shlex.split(told["ExecStart"][0])
    arguments = leadline._parser().parse_args(line)
    assert arguments.config == "/etc/leadline/leadline.yaml"
    if "state" in arguments:
        assert arguments.state == f"/var/lib/{told['StateDirectory'][0]}"
    assert told["DynamicUser"] == ["yes"]
    assert told["ProtectSystem"] == ["strict"]
    assert told["NoNewPrivileges"] == ["yes"]


@pytest.mark.parametrize("name", UNITS)
def test_systemd_takes_a_unit_and_finds_it_hardened(name: str, tmp_path: Path) -> None:
    """`systemd-analyze` knows each key and value, and holds little exposed."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze here")
    text = (SYSTEMD / name).read_text()
    (tmp_path / name).write_text(text.replace("/opt/leadline/bin/leadline", sys.executable))

    def run(*argv: str) -> str:
        done = subprocess.run(
            [analyze, *argv, str(tmp_path / name)], capture_output=True, text=True, timeout=60,
            check=False, env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert run("verify", "--man=no").strip() == ""
    level = re.search(r"exposure level for \S+: ([0-9.]+)", run("security", "--offline=true"))
    assert level
    assert float(level[1]) < 3


def test_the_exporter_has_the_same_powers_everywhere() -> None:
    """By systemd, Kubernetes and compose: two capabilities, and the reason beside them."""
    told = unit("leadline-exporter.service")
    wanted = {f"CAP_{name}" for name in CAPABILITIES}
    assert set(told["AmbientCapabilities"][0].split()) == wanted
    assert set(told["CapabilityBoundingSet"][0].split()) == wanted
    assert set(COMPOSE["services"]["exporter"]["cap_add"]) == CAPABILITIES
    assert unit("leadline.service")["CapabilityBoundingSet"] == [""]
    for path in (SYSTEMD / "leadline-exporter.service", KUBERNETES / "exporter.yaml"):
        comments = " ".join(x for x in path.read_text().splitlines() if "#" in x)
        for name in CAPABILITIES:
            assert name in comments


GUIDE = (ROOT / "docs/exporter.md").read_text()
BLOCKS = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)]


def test_the_guides_configurations_are_taken(tmp_path: Path) -> None:
    """By the exporter, and by Prometheus' own check."""
    seen = set()
    for number, block in enumerate(BLOCKS):
        path = tmp_path / f"{number}.yml"
        path.write_text(yaml.safe_dump(block))
        if "scrape_configs" in block:
            seen.add("prometheus")
            for job in block["scrape_configs"]:  # promtool looks for the files
                job.pop("tls_config", None)
                job.pop("basic_auth", None)
            path.write_text(yaml.safe_dump(block))
            done = subprocess.run(
                [find("promtool"), "check", "config", path], capture_output=True, text=True,
                timeout=60, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
        elif "basic_auth_users" in block:
            seen.add("web")
            assert read(path).tls_server_config.enabled
        else:
            seen.add("leadline")
            assert all(target.on_request for target in load(path, {}).exporter.targets)
    assert seen == {"prometheus", "web", "leadline"}


def test_the_guide_names_files_that_exist() -> None:
    """Links, and the files that its commands install."""
    names = re.findall(r"\]\((?!http)([^)#]+)\)", GUIDE)
    assert all((ROOT / "docs" / name).exists() for name in names)
    files = re.findall(r"\b(?:compose|examples)/[\w./-]+\w", GUIDE)
    assert files
    assert all((ROOT / name).exists() for name in files)
