"""`/probe?target=`: one configured target's page, and no request to anything else."""

import http.client
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.config import Config
from exporters.fetch import FetchError, fetch
from exporters.scrape import Exporter
from exporters.web.on_request import OnRequest, UnknownTargetError

Make = Callable[..., Config]
Get = Callable[..., bytes]
Serve = Callable[..., str]
PATIENCE = 60.0
PASSWORD = "hunter2-never-shown"  # noqa: S105 - made up


@contextmanager
def asked_for(config: Config, **more: Any) -> Iterator[OnRequest]:
    """Give what `/probe` answers with."""
    on_request = OnRequest(config, **more)
    try:
        yield on_request
    finally:
        on_request.close()


def refusal(get: Get, url: str) -> tuple[int, str]:
    """Return status and line of a refusal."""
    with pytest.raises(urllib.request.HTTPError) as refused:
        get(url)
    with refused.value as error:
        return error.code, error.read().decode()


def test_a_target_is_asked_when_it_is_asked_for(
    fakes: Any, decode_page: bytes, config: Make, serve: Serve, get: Get
) -> None:
    """By name and by URL, with its identity; it is not on the node's page."""
    fakes.pages = {"a": decode_page, "b": b"other 1\n"}
    asked = {"pool": "decode", "deployment": "glm", "on_request": True}
    targets = [
        {"url": fakes.url("a"), "server": "pod-a:8000", **asked},
        {"url": fakes.url("b"), "server": "pod-b:8000", **asked},
        {"url": fakes.url("gone"), "server": "gone", "on_request": True},
    ]
    whole = config(targets=targets)
    with asked_for(whole) as on_request:
        url = serve(Exporter(whole), on_request=on_request)
        assert "pod-" not in get(url).decode()
        probe = url.replace("metrics", "probe?target=")
        for name in ("pod-a:8000", fakes.url("a")):
            page = get(probe + quote(name, safe="")).decode()
            labels = 'cluster="c1",deployment="glm",pool="decode",server="pod-a:8000"'
            assert f"leadline_target_up{{{labels}}} 1.0" in page
            assert 'leadline_collector_success{collector="vllm",server="pod-a:8000"} 1.0' in page
            lines = [x for x in page.splitlines() if x.startswith("vllm:")]
            assert len(lines) > 250
            assert all('pool="decode"' in x and 'server="pod-a:8000"' in x for x in lines)
            assert "pod-b" not in page
            assert "leadline_host_" not in page
        page = get(probe + "gone").decode()
        assert 'leadline_target_up{cluster="c1",pool="unknown",server="gone"} 0.0' in page
        assert get(probe + "pod-a:8000", Accept="application/openmetrics-text").endswith(b"# EOF\n")


FORBIDDEN = [
    "http://169.254.169.254/latest/meta-data/", "169.254.169.254", "http://[::ffff:a9fe:a9fe]/",
    "http://metadata.google.internal/", "http://2852039166/", "http://0xa9fea9fe/",
    "file:///etc/passwd", "{url}@169.254.169.254/", "{url}/../../admin", "{url}?x=1", "{url}#",
    "{url} ", " {url}", "SERVER", "server.", "", "server\0", "http://localhost:22/",
]  # fmt: skip


@pytest.mark.parametrize("target", FORBIDDEN)
def test_nothing_else_is_asked(
    target: str, fakes: Any, config: Make, serve: Serve, get: Get
) -> None:
    """Every other text is refused in one line, and no connection is made for it."""
    fakes.pages = {"a": b"a 1\n"}

    def fetcher(url: str, timeout: float, limit: int, **_: object) -> bytes:
        raise AssertionError(url)

    url = fakes.url("a")
    whole = config(targets=[{"url": url, "server": "server"}])
    with asked_for(whole, fetcher=fetcher) as on_request:
        probe = serve(Exporter(config()), on_request=on_request).replace("metrics", "probe")
        wanted = quote(target.replace("{url}", url), safe="")
        code, line = refusal(get, f"{probe}?target={wanted}")
        assert code == (403 if target else 400)
        assert line.count("\n") == 1
        for query in ("", "?", "?target=", "?target=a&target=b", "?module=x", "?" + "a=b&" * 99):
            assert refusal(get, probe + query)[0] == 400


def test_only_whole_names_are_known(config: Make) -> None:
    """Whatever is asked for, it is a configured name to the letter or refused in one line."""
    targets = [{"url": f"http://user:{PASSWORD}@10.0.0.7:8000/metrics", "server": "a"}]
    with asked_for(config(targets=targets)) as on_request:

        @settings(deadline=None)
        @given(st.text().filter(lambda text: text not in ("a", "http://10.0.0.7:8000/metrics")))
        def refuse(text: str) -> None:
            with pytest.raises(UnknownTargetError) as refused:
                on_request.scrape(text)
            assert str(refused.value).isprintable()
            assert len(str(refused.value)) < 300

        refuse()


def test_a_target_is_named_without_its_password(
    fakes: Any, config: Make, serve: Serve, get: Get
) -> None:
    """Its URL without credentials will do, and no refusal or page shows them."""
    fakes.pages = {"a": b"a 1\n"}
    url = fakes.url("a")
    secret = url.replace("http://", f"http://user:{PASSWORD}@")
    whole = config(targets=[{"url": secret}])
    with asked_for(whole) as on_request:
        probe = serve(Exporter(whole), on_request=on_request).replace("metrics", "probe?target=")
        page = get(probe + quote(url, safe="")).decode()
        assert "\na{" in page
        code, line = refusal(get, probe + quote(f"{secret}x", safe=""))
        assert code == 403
        assert PASSWORD not in page + line


def test_redirects_lead_nowhere(fakes: Any, config: Make) -> None:
    """A target that sends us elsewhere is down."""
    whole = config(targets=[{"url": fakes.url("redirect"), "server": "s"}])
    fakes.pages = {"good": b"a 1\n"}
    with asked_for(whole) as on_request:
        page = on_request.scrape("s").text.decode()
    assert "leadline_target_up" in page
    assert "\na{" not in page


@pytest.mark.parametrize(
    ("host", "peer", "refused"),
    [
        ("vllm.example", "169.254.169.254", True), ("vllm.example", "fe80::1%eth0", True),
        ("vllm.example", "::ffff:169.254.169.254", True), ("vllm.example", "fd00:ec2::254", True),
        ("vllm.example", "100.100.100.200", True), ("vllm.example", "10.0.0.7", False),
        ("169.254.1.1", "169.254.1.1", False), ("[fe80::1]", "fe80::1", False),
    ],
)  # fmt: skip
def test_a_name_that_leads_to_metadata_is_not_asked(
    host: str, peer: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever holds the record of a target's name can't have us ask a cloud's metadata."""
    here, there = socket.socketpair()

    class Socket(socket.socket):
        def getpeername(self) -> Any:
            return peer, 80

    with Socket(fileno=here.detach()) as ours, there:
        monkeypatch.setattr(
            http.client.HTTPConnection, "connect", lambda self: setattr(self, "sock", ours)
        )
        if refused:
            with pytest.raises(FetchError, match="link-local"):
                fetch(f"http://{host}/metrics", PATIENCE, 1000)
            assert there.recv(1000) == b""
        else:
            there.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\na 1\n")
            assert fetch(f"http://{host}/metrics", PATIENCE, 1000) == b"a 1\n"


def test_targets_are_scraped_at_once(config: Make) -> None:
    """One that is slow holds up no other."""
    both, count = threading.Barrier(2), 0
    lock = threading.Lock()

    def fetcher(url: str, timeout: float, limit: int, **_: object) -> bytes:
        nonlocal count
        if url.endswith("/version"):
            return b"{}"
        with lock:
            count += 1
        both.wait(PATIENCE)
        return b"a 1\n"

    targets = [{"url": f"http://{name}:1/metrics", "server": name} for name in "ab"]
    with asked_for(config(targets=targets, deadline=PATIENCE), fetcher=fetcher) as on_request:
        pages: list[bytes] = []
        threads = [
            threading.Thread(target=lambda n=name: pages.append(on_request.scrape(n).text))
            for name in "ab"
        ]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert count == 2
    assert all(b"\na{" in page for page in pages)


def test_prometheus_scrapes_targets_through_it(
    fakes: Any, decode_page: bytes, config: Make, serve: Serve, prometheus: Any
) -> None:
    """With the relabelling of the documentation, each target once with its own instance."""
    fakes.pages = {"a": decode_page, "b": decode_page}
    targets = [
        {"url": fakes.url(name), "server": f"pod-{name}:8000", "on_request": True} for name in "ab"
    ]
    whole = config(targets=targets)
    with asked_for(whole) as on_request:
        address = serve(Exporter(whole), on_request=on_request).split("/")[2]
        server = prometheus(
            scrapes=[
                {
                    "job_name": "targets", "metrics_path": "/probe",
                    "static_configs": [{"targets": [t["server"] for t in targets]}],
                    "relabel_configs": [
                        {"source_labels": ["__address__"], "target_label": "__param_target"},
                        {"source_labels": ["__address__"], "target_label": "instance"},
                        {"target_label": "__address__", "replacement": address},
                    ],
                }
            ]
        )  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        while len(server.query("leadline_target_up == 1")) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        rows = server.query('count by (instance, server) ({__name__=~"vllm:.*"})')
    assert {(r["metric"]["instance"], r["metric"]["server"]) for r in rows} == {
        ("pod-a:8000", "pod-a:8000"), ("pod-b:8000", "pod-b:8000"),
    }  # fmt: skip
    assert len({r["value"][1] for r in rows}) == 1
