"""Targets from files and from Kubernetes: found, kept while their source is away, and let go.

No cluster runs here: a small HTTPS server stands in for the API and answers in its shape (the list
of pods as `kubectl get pods -o json` prints it, with selectors, pages and tokens). Everything on
our side of the wire is the real thing.
"""

import json
import logging
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from catalog.config import Config, ConfigError, load
from catalog.config_targets import Pods
from exporters.fetch import FetchError
from exporters.scrape import Exporter
from exporters.targets.file_sd import FileSd
from exporters.targets.kubernetes import targets

TOKEN = "token-do-not-tell-0123"  # noqa: S105 - nobody's
Make = Callable[..., Config]
Grow = Callable[[Path, dict[str, str]], Path]
Page = dict[str, list[dict[str, str]]]


def pages(url: str, timeout: float, limit: int, **_: object) -> bytes:
    """Answer for every server."""
    return b'{"version": "1"}' if url.endswith("/version") else b"# TYPE a gauge\na 1\n"


def read(exporter: Exporter) -> Page:
    """Return the labels of a page's samples by name, those of the value 0 left out."""
    found: Page = {}
    for family in text_string_to_metric_families(exporter.page().decode()):
        for sample in family.samples:
            if sample.value:
                found.setdefault(sample.name, []).append(sample.labels)
    return found


def servers(page: Page) -> list[str]:
    """Return the servers that a page has."""
    return sorted(labels["server"] for labels in page.get("a", []))


def test_the_log_says_which_servers_are_read(
    tmp_path: Path, config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, and again when they change; without a server it says where to name one."""
    caplog.set_level(logging.INFO)
    file = tmp_path / "a.yml"
    file.write_text("[]")
    made = config(file_sd=[str(file)], discover=True, proc=str(tmp_path))
    exporter = Exporter(made, fetcher=pages)
    for text in ("[]", "- targets: ['10.0.0.1:80']\n  labels: {deployment: glm, pool: decode}\n",
                 "- targets: ['10.0.0.1:80']\n"):  # fmt: skip
        file.write_text(text)
        read(exporter)
        read(exporter)
    said = [m for m in caplog.messages if m.startswith(("no vLLM", "reading", "servers of"))]
    assert [message.partition(":")[0] for message in said[::3]] == [
        "no vLLM server found in the process table, and none named",
        "servers of an unknown pool are not judged",
    ]
    assert said[1:3] == [
        "reading 10.0.0.1:80 (decode of glm)", "reading 10.0.0.1:80 (unknown)"
    ]  # fmt: skip


def test_files_of_targets_are_followed(
    tmp_path: Path, config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Both formats; a change is seen, a broken file keeps its targets, a missing one has none."""
    yml, jsn = tmp_path / "a.yml", tmp_path / "b.json"
    group = {"targets": ["10.0.0.1:8000", "10.0.0.2:8000"], "labels": {"pool": "decode"}}
    yml.write_text(
        "- targets: ['10.0.0.3:9000']\n  labels: {deployment: glm, pool: prefill, env: x}\n"
    )
    jsn.write_text(json.dumps([group]))
    exporter = Exporter(config(file_sd=[str(tmp_path / "*.yml"), str(jsn)]), fetcher=pages)
    page = read(exporter)
    assert servers(page) == ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:9000"]
    assert {"pool": "prefill", "deployment": "glm", "cluster": "c1"}.items() <= next(
        labels for labels in page["a"] if labels["server"] == "10.0.0.3:9000"
    ).items()
    jsn.write_text(json.dumps([{**group, "targets": ["10.0.0.2:8000"]}]))
    assert servers(read(exporter)) == ["10.0.0.2:8000", "10.0.0.3:9000"]
    jsn.write_text("[{")
    page = read(exporter)
    assert servers(page) == ["10.0.0.2:8000", "10.0.0.3:9000"]
    assert {"collector": "file_sd"} not in page["leadline_collector_success"]
    assert f"{jsn}: " in caplog.text
    assert "kept as it was" in caplog.text
    jsn.unlink()
    yml.write_text("[]\n")
    assert servers(read(exporter)) == []
    exporter.close()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "must be a list"),
        ("- {labels: {}}", "group 0 has no list of targets"),
        ("- targets: [http://a:1/metrics]", "is no host:port"),
        ("- targets: ['a:1']\n  labels: {pool: dekode}", "did you mean 'decode'"),
        ("- targets: ['a:1']\n  labels: {kind: ruter}", "did you mean 'router'"),
        ("- targets: ['a:99999']", "no http address"),
        ("- targets: ['a:1']\n  labels: {__metrics_path__: '@b/'}", "is no path"),
        ("- targets: ['u:SECRET@a b:1']", "no http address"),
        ("- [", "a.yml"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    """One line with the group and the nearest right word, without credentials."""
    path = tmp_path / "a.yml"
    path.write_text(text)
    source = FileSd([str(path)])
    source.refresh()
    assert source.wanted == []
    assert said in source.problem
    assert "SECRET" not in source.problem
    assert "\n" not in source.problem


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=80))
def test_any_file_is_targets_or_a_problem(tmp_path: Path, data: bytes) -> None:
    """Nothing that a file may hold raises."""
    path = tmp_path / "a.yml"
    path.write_bytes(data)
    source = FileSd([str(path)])
    source.refresh()
    assert isinstance(source.problem, str)


def pod(
    name: str, address: str, *, role: str = "decode", ports: Any = None, node: str = "node7",
    notes: dict[str, str] | None = None, more: dict[str, Any] | None = None, **spec: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return a pod as the API shows it, in what matters here."""
    labels = {"llm-d.ai/role": role, "llm-d.ai/model": "glm"}
    container = {
        "name": "vllm", "image": "registry/vllm:v0.32.0",
        "ports": ports or [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
    }  # fmt: skip
    return {
        "metadata": {"name": name, "namespace": "prod", "labels": labels,
                     "annotations": notes or {}, **(more or {})},
        "spec": {"nodeName": node, "containers": [container], **spec},
        "status": {"phase": "Running", "podIP": address},
    }  # fmt: skip


class Api(ThreadingHTTPServer):
    """Stands in for the API of a cluster: lists pods to those who have the token."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.pods: list[dict[str, Any]] = []
        self.token = TOKEN
        self.asked: list[str] = []
        self.body: bytes | None = None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that don't trust us hang up."""


class _Answers(BaseHTTPRequestHandler):
    server: Api

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.headers.get("Authorization") != f"Bearer {self.server.token}":
            return self._send(401, b'{"kind": "Status"}')
        parts = urlsplit(self.path)
        if parts.path != "/api/v1/pods":
            return self._send(404, b"{}")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        node = query.get("fieldSelector", "").removeprefix("spec.nodeName=")
        key = query["labelSelector"]
        wanted = [
            p for p in self.server.pods
            if key in p["metadata"]["labels"] and node in ("", p["spec"]["nodeName"])
        ]  # fmt: skip
        at = int(query.get("continue", "0"))
        meta = {"continue": str(at + 2)} if at + 2 < len(wanted) else {}
        answer = {"kind": "PodList", "metadata": meta, "items": wanted[at : at + 2]}
        return self._send(200, self.server.body or json.dumps(answer).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Stay quiet."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate for 127.0.0.1, its key, and the authority that signed it."""
    folder = tmp_path_factory.mktemp("authority")
    signer = trustme.CA()
    signer.cert_pem.write_to_path(folder / "ca")
    signer.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "server")
    trustme.CA().cert_pem.write_to_path(folder / "other")
    return folder


@pytest.fixture
def api(authority: Path) -> Iterator[Api]:
    """The stand-in, over real TLS."""
    server = Api()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "server")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def in_cluster(api: Api, authority: Path, tmp_path: Path, config: Make) -> Callable[..., Exporter]:
    """Makes an exporter that believes to run in the stand-in's cluster; asks at each scrape."""
    (tmp_path / "token").write_text(TOKEN + "\n")

    def make(**kubernetes: Any) -> Exporter:
        told = {
            "enabled": True, "api": f"https://127.0.0.1:{api.server_address[1]}",
            "token_file": str(tmp_path / "token"), "ca_file": str(authority / "ca"),
            "refresh": 0.1, "timeout": 30.0, **kubernetes,
        }  # fmt: skip
        return Exporter(config(kubernetes=told, deadline=60.0), fetcher=pages)

    return make


def test_pods_are_found_with_role_deployment_and_image(
    api: Api, in_cluster: Callable[..., Exporter]
) -> None:
    """Over several pages of the list; those of other nodes only when asked for."""
    api.pods = [
        pod("d0", "10.1.0.1"),
        pod("p0", "10.1.0.2", role="prefill"),
        pod("b0", "10.1.0.3", role="both"),
        pod("far", "10.1.0.4", node="node8"),
        pod("done", "10.1.0.5") | {"status": {"phase": "Succeeded", "podIP": "10.1.0.5"}},
        pod("new", ""),
    ]
    exporter = in_cluster()
    page = read(exporter)
    exporter.close()
    found = {labels["server"]: labels for labels in page["a"]}
    assert {server: labels["pool"] for server, labels in found.items()} == {
        "10.1.0.1:8000": "decode", "10.1.0.2:8000": "prefill", "10.1.0.3:8000": "aggregate",
    }  # fmt: skip
    assert {"namespace": "prod", "deployment": "glm"}.items() <= found["10.1.0.1:8000"].items()
    images = {labels["image"] for labels in page["leadline_instance_info"]}
    assert images == {"registry/vllm:v0.32.0"}
    assert len(api.asked) == 3
    exporter = in_cluster(all_nodes=True)
    assert len(servers(read(exporter))) == 4
    exporter.close()


def test_programs_beside_vllm_are_found_by_their_own_selector(
    api: Api, in_cluster: Callable[..., Exporter]
) -> None:
    """A router serves the whole deployment, a cache in a pod of a pool belongs to the pool."""
    router = pod("epp", "10.1.0.1", ports=[{"name": "metrics", "containerPort": 9090}])
    router["metadata"]["labels"] = {"app": "epp"}
    api.pods = [router, pod("d0", "10.1.0.2")]
    pods = [
        {"selector": "app", "kind": "router", "deployment": "chat"},
        {"kind": "lmcache", "port": 8080},
    ]
    exporter = in_cluster(pods=pods)
    page = read(exporter)
    exporter.close()
    up = {labels.pop("server"): labels for labels in page["leadline_peer_up"]}
    place = {"cluster": "c1", "namespace": "prod"}
    assert up == {
        "10.1.0.1:9090": {**place, "deployment": "chat", "pool": "router", "kind": "router"},
        "10.1.0.2:8080": {**place, "deployment": "glm", "pool": "decode", "kind": "lmcache"},
    }
    assert servers(page) == sorted(up)


def test_a_pod_that_goes_is_drained_and_then_ends(
    api: Api, in_cluster: Callable[..., Exporter]
) -> None:
    """Scraped while it finishes, and marked; its series end with the next scrape after it."""
    api.pods = [pod("d0", "10.1.0.1"), pod("d1", "10.1.0.2")]
    exporter = in_cluster()
    page = read(exporter)
    assert servers(page) == ["10.1.0.1:8000", "10.1.0.2:8000"]
    assert "leadline_target_draining" not in page
    api.pods[1]["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z"
    again(exporter, lambda p: "leadline_target_draining" in p)
    page = read(exporter)
    assert [d["server"] for d in page["leadline_target_draining"]] == ["10.1.0.2:8000"]
    assert servers(page) == ["10.1.0.1:8000", "10.1.0.2:8000"]
    del api.pods[1]
    again(exporter, lambda p: servers(p) == ["10.1.0.1:8000"])
    assert "10.1.0.2" not in exporter.page().decode()
    exporter.close()


def again(exporter: Exporter, until: Callable[[Page], bool]) -> None:
    """Scrape until the next list has come."""
    for _ in range(200):
        if until(read(exporter)):
            return
        threading.Event().wait(0.05)
    raise AssertionError("the change was never seen")


def test_the_api_may_be_away_and_tokens_change(
    api: Api, in_cluster: Callable[..., Exporter], tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Its last word holds, one line says what is wrong, and no token is in it."""
    caplog.set_level("DEBUG")
    api.pods = [pod("d0", "10.1.0.1")]
    exporter = in_cluster()
    assert servers(read(exporter)) == ["10.1.0.1:8000"]
    api.token = "another"  # noqa: S105 - nobody's
    again(exporter, lambda p: {"collector": "kubernetes"} not in p["leadline_collector_success"])
    assert servers(read(exporter)) == ["10.1.0.1:8000"]
    assert "pods can't be listed: answered 401" in caplog.text
    (tmp_path / "token").write_text("another")
    again(exporter, lambda p: {"collector": "kubernetes"} in p["leadline_collector_success"])
    for body in (b"[", b"[]", b'{"items": 1}', b'{"items": [1, null, {"spec": []}]}'):
        api.body = body
        exporter.page()
    exporter.close()
    assert TOKEN not in caplog.text


def test_an_api_that_is_not_trusted_gets_no_token(
    api: Api, in_cluster: Callable[..., Exporter], authority: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Signed by nobody we know, or without TLS: nothing is sent."""
    exporter = in_cluster(ca_file=str(authority / "other"))
    assert servers(read(exporter)) == []
    exporter.close()
    assert api.asked == []
    assert "certificate" in caplog.text.lower()
    with pytest.raises(ConfigError, match="the token would go in the open"):
        load(None, {}, {"exporter": {"kubernetes": {"api": "http://10.0.0.1"}}})


@pytest.mark.parametrize(
    ("made", "urls"),
    [
        (pod("a", "10.0.0.1"), ["http://10.0.0.1:8000/metrics"]),
        (pod("a", "fd00::1"), ["http://[fd00::1]:8000/metrics"]),
        (
            pod("a", "10.0.0.1", notes={"prometheus.io/port": "9", "prometheus.io/path": "/m",
                                        "prometheus.io/scheme": "https"}),
            ["https://10.0.0.1:9/m"],
        ),
        (
            pod("a", "10.0.0.1", ports=[{"name": "nixl", "containerPort": 5557},
                                        {"name": "metrics", "containerPort": 8200}]),
            ["http://10.0.0.1:8200/metrics"],
        ),
        (
            pod("a", "10.0.0.1", ports=[{"name": f"http-{n}", "containerPort": 8000 + n}
                                        for n in range(3)]),
            [f"http://10.0.0.1:{8000 + n}/metrics" for n in range(3)],
        ),
        (pod("a", "10.0.0.1", ports=[{"containerPort": 7}]), ["http://10.0.0.1:7/metrics"]),
        (
            pod("a", "10.0.0.1", ports=[{"name": "x", "containerPort": 7},
                                        {"name": "y", "containerPort": 8}]),
            [],
        ),
        (pod("a", "10.0.0.1", ports=[{"name": "http", "containerPort": 7, "protocol": "UDP"}]), []),
        (pod("a", "10.0.0.1", notes={"prometheus.io/path": "@evil.example/"}), []),
        (pod("a", "10.0.0.1", notes={"prometheus.io/path": "/a b"}), []),
    ],
)  # fmt: skip
def test_a_pods_page_is_where_it_says(made: dict[str, Any], urls: list[str]) -> None:
    """Annotated, by the port's name, one for each rank, or the only one; else nowhere."""
    assert [w.url for w in targets(made, Pods(), "llm-d.ai/model")] == urls


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["metadata", "spec", "status", "podIP", "containers", "ports", "labels",
                         "annotations", "containerPort", "name", "nodeName"]), inner, max_size=5),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), junk))
def test_any_json_is_a_pod_or_none(made: dict[str, Any]) -> None:
    """Whatever the API may say, nothing raises."""
    list(targets(made, Pods(), "llm-d.ai/model"))


CONNECTED = '--kv-transfer-config\0{"kv_connector":"NixlConnector","kv_role":"kv_both"}\0'


def test_a_pod_of_this_node_is_the_server_found_in_it(
    api: Api, in_cluster: Callable[..., Exporter], tmp_path: Path, grow: Grow, config: Make,
    authority: Path,
) -> None:  # fmt: skip
    """Processes from the table, role from the API, once; behind a proxy's port too."""
    root = tmp_path / "proc"
    trie = "  |-- 10.1.0.7\n        /32 host LOCAL\n"
    fields = "20 (a) S 1 " + " ".join("0" for _ in range(17)) + " 77 0 0\n"
    grow(root, {"20/net/fib_trie": trie, "20/stat": fields, "stat": "btime 1000\n",
                "20/cmdline": "vllm\0serve\0m\0--port\0" + "8200\0" + CONNECTED})  # fmt: skip
    for process, space in (("20", "net:[2]"), ("self", "net:[1]")):
        (root / process / "ns").mkdir(parents=True)
        (root / process / "ns/net").symlink_to(space)
    api.pods = [pod("d0", "10.1.0.7")]
    (tmp_path / "token").write_text(TOKEN)
    asked: list[str] = []

    def fetcher(url: str, timeout: float, limit: int, **_: object) -> bytes:
        asked.append(url)
        return pages(url, timeout, limit)

    told = {"enabled": True, "api": f"https://127.0.0.1:{api.server_address[1]}",
            "token_file": str(tmp_path / "token"), "ca_file": str(authority / "ca")}  # fmt: skip
    exporter = Exporter(
        config(discover=True, kubernetes={**told, "timeout": 30.0}, deadline=60.0),
        proc=root, fetcher=fetcher,
    )  # fmt: skip
    page = read(exporter)
    exporter.close()
    assert servers(page) == ["10.1.0.7:8200"]
    assert [url for url in asked if "metrics" in url] == ["http://10.1.0.7:8200/metrics"]
    (info,) = page["leadline_instance_info"]
    assert {"pool": "decode", "namespace": "prod", "deployment": "glm", "model_name": "m",
            "node": "node7", "tensor_parallel": "1"}.items() <= info.items()  # fmt: skip


def test_a_pod_in_its_nodes_network_goes_by_the_node(
    api: Api, in_cluster: Callable[..., Exporter], tmp_path: Path, grow: Grow, config: Make,
    authority: Path,
) -> None:  # fmt: skip
    """Seen from a pod the node's network is another one, with many addresses; still one server."""
    root = tmp_path / "proc"
    trie = "".join(f"  |-- {a}\n        /32 host LOCAL\n" for a in ("172.17.0.1", "192.0.2.7"))
    fields = "20 (a) S 1 " + " ".join("0" for _ in range(17)) + " 77 0 0\n"
    grow(root, {"20/net/fib_trie": trie, "20/stat": fields, "stat": "btime 1000\n",
                "20/cmdline": "vllm\0serve\0m\0" + CONNECTED})  # fmt: skip
    for process, space in (("20", "net:[2]"), ("self", "net:[1]")):
        (root / process / "ns").mkdir(parents=True)
        (root / process / "ns/net").symlink_to(space)
    api.pods = [pod("d0", "192.0.2.7", hostNetwork=True)]
    (tmp_path / "token").write_text(TOKEN)
    told = {"enabled": True, "api": f"https://127.0.0.1:{api.server_address[1]}",
            "token_file": str(tmp_path / "token"), "ca_file": str(authority / "ca")}  # fmt: skip
    exporter = Exporter(
        config(discover=True, kubernetes={**told, "timeout": 30.0}, deadline=60.0),
        proc=root, fetcher=pages,
    )  # fmt: skip
    page = read(exporter)
    exporter.close()
    assert servers(page) == ["node7:8000"]
    assert page["leadline_instance_info"][0]["pool"] == "decode"
    assert page["leadline_instance_info"][0]["tensor_parallel"] == "1"


def test_a_process_that_ends_takes_its_series_along(
    tmp_path: Path, grow: Grow, config: Make
) -> None:
    """Nothing of a server that is gone stays on the page to freeze."""
    fields = "20 (a) S 1 " + " ".join("0" for _ in range(17)) + " 77 0 0\n"
    grow(tmp_path, {"20/stat": fields, "20/cmdline": "vllm\0serve\0m\0", "stat": "btime 1\n"})

    def fetcher(url: str, timeout: float, limit: int, **_: object) -> bytes:
        if (tmp_path / "20").exists():
            return pages(url, timeout, limit)
        raise FetchError("connection refused")

    exporter = Exporter(config(discover=True), proc=tmp_path, fetcher=fetcher)
    assert "node7:8000" in exporter.page().decode()
    for file in (tmp_path / "20").iterdir():
        file.unlink()
    (tmp_path / "20").rmdir()
    text = exporter.page().decode()
    exporter.close()
    assert "node7:8000" not in text
