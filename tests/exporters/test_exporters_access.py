"""Pages that are not open to all: tokens of routers, certificates of servers."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from catalog.config import Config, ConfigError, load
from exporters.scrape import Exporter

Grow = Callable[[Path, dict[str, str]], Path]
Make = Callable[..., Config]
PAGE = b"# TYPE llm_d_epp_ready_endpoints gauge\nllm_d_epp_ready_endpoints 4\n"
GIVEN = "eyJhbGciOi.do-not-tell.0123456789"


@contextmanager
def serving(
    token: list[str], certificate: trustme.LeafCert | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Serve a page to who brings the newest token; yield its address, and what was brought."""
    brought: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            brought.append(self.headers.get("Authorization", ""))
            right = not token or brought[-1] == f"Bearer {token[-1]}"
            self.send_response(200 if right else 401)
            self.send_header("Content-Length", str(len(PAGE)))
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, *_: Any) -> None:
            """Stay quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    scheme = "http" if certificate is None else "https"
    try:
        yield f"{scheme}://127.0.0.1:{server.server_address[1]}/metrics", brought
    finally:
        server.shutdown()
        server.server_close()


def page(exporter: Exporter) -> str:
    """Return a page."""
    return exporter.page().decode()


def target(url: str, **more: Any) -> dict[str, Any]:
    """Return a router in the configuration."""
    return {"url": url, "kind": "router", "deployment": "glm", "server": "epp", **more}


def test_a_router_gets_its_token_and_nobody_else(
    tmp_path: Path, config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """The file is read each time, since tokens change; none of it is on the page or in the log."""
    file = tmp_path / "token"
    file.write_text(f"{GIVEN}\n")
    asked = [GIVEN]
    with serving(asked) as (url, brought), serving([]) as (other, open_to_all):
        targets = [target(url, token_file=str(file)), target(other, server="other")]
        exporter = Exporter(config(targets=targets), proc=tmp_path)
        said = page(exporter)
        assert 'pool="router",server="epp"} 4\n' in said
        asked.append("another")
        assert "401" not in said
        assert 'server="epp"} 0.0' in page(exporter)
        file.write_text("another")
        assert 'server="epp"} 4' in page(exporter)
        file.unlink()
        assert 'server="epp"} 0.0' in page(exporter)
        assert f"token file {file}: No such file" in caplog.text
        file.write_text("two\nlines")
        page(exporter)
        exporter.close()
    assert f"Bearer {GIVEN}" in brought
    assert set(open_to_all) == {""}
    assert GIVEN not in said
    assert GIVEN not in caplog.text


@pytest.mark.parametrize(
    ("more", "name", "up"),
    [
        ({}, "127.0.0.1", False),
        ({"ca_file": "{ca}"}, "127.0.0.1", True),
        ({"ca_file": "{ca}"}, "epp.glm.svc", False),
        ({"insecure": True}, "epp.glm.svc", True),
        ({"ca_file": "{other}"}, "127.0.0.1", False),
        ({"ca_file": "{gone}"}, "127.0.0.1", False),
    ],
)
def test_certificates_are_checked_as_told(
    more: dict[str, Any], name: str, up: bool, tmp_path: Path, config: Make
) -> None:
    """Against the system's, against a file, by name; or not at all."""
    ca, other = trustme.CA(), trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca")
    other.cert_pem.write_to_path(tmp_path / "other")
    paths = {name: str(tmp_path / name) for name in ("ca", "other", "gone")}
    told = {k: v.format(**paths) if isinstance(v, str) else v for k, v in more.items()}
    with serving([], ca.issue_cert(name)) as (url, _):
        exporter = Exporter(config(targets=[target(url, **told)]), proc=tmp_path)
        said = page(exporter)
        exporter.close()
    assert ("llm_d_epp_ready_endpoints{" in said) == up
    assert f'pool="router",server="epp"}} {up:.1f}\n' in said


def test_a_server_found_here_is_asked_whatever_its_certificate_says(
    tmp_path: Path, grow: Grow, config: Make
) -> None:
    """It is known by its process, and its certificate names a service."""
    with serving([], trustme.CA().issue_cert("decode.glm.svc")) as (url, _):
        port = url.split(":")[2].partition("/")[0]
        line = f"vllm\0serve\0m\0--port\0{port}\0--ssl-certfile\0c.pem\0--ssl-keyfile\0k.pem\0"
        stat = "20 (vllm) S 1 " + " ".join("0" for _ in range(17)) + " 500 0 0\n"
        grow(tmp_path, {"20/cmdline": line, "20/stat": stat, "stat": "btime 1700000000\n"})
        exporter = Exporter(config(discover=True), proc=tmp_path)
        assert "llm_d_epp_ready_endpoints{" in page(exporter)
        exporter.close()


def test_a_token_for_pods_is_told_to_one_namespace_alone(tmp_path: Path) -> None:
    """Whoever may label a pod anywhere would get it."""
    file = tmp_path / "leadline.yaml"
    pods = "{selector: app=epp, kind: router, port: 9090, token_file: /t%s}"
    text = "exporter: {kubernetes: {enabled: true, pods: [%s]}}\n"
    file.write_text(text % pods % "")
    with pytest.raises(ConfigError, match="token_file needs a namespace"):
        load(file, {})
    file.write_text(text % pods % ", namespace: glm")
    (one,) = load(file, {}).exporter.kubernetes.pods
    assert (one.token_file, one.namespace) == ("/t", "glm")
