"""The exporter's HTTP side as clients see it, well behaved and not."""

import contextlib
import logging
import re
import select
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.config import Config
from exporters.scrape import Exporter
from exporters.server import MAX_CONNECTIONS, run
from exporters.targets.places import Places
from exporters.web.handler import Writer
from exporters.web.listen import Web

Make = Callable[..., Config]
Get = Callable[..., bytes]
Serve = Callable[..., str]
PATIENCE = 60.0


@pytest.fixture
def url(config: Make, serve: Serve) -> str:
    """Where an exporter that looks for nothing serves its page."""
    return serve(Exporter(config()))


@pytest.fixture
def connect(url: str) -> Iterator[Callable[[], socket.socket]]:
    """Opens connections to it, closed at the end."""
    host, _, port = url.split("/")[2].rpartition(":")
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(socket.create_connection((host, int(port)), PATIENCE))


def answer(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of what comes back."""
    response = HTTPResponse(connection)
    response.begin()
    return response.status, dict(response.headers), response.read()


def status(get: Get, url: str, **headers: str) -> tuple[int, str]:
    """Return status and text of a page."""
    try:
        return 200, get(url, **headers).decode()
    except urllib.request.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_pages(url: str, get: Get) -> None:
    """Metrics, packed on request, landing page, health; nothing else."""
    base = url.removesuffix("metrics")

    def names(page: bytes) -> list[str]:
        return [line.split(" ")[2] for line in page.decode().splitlines() if "# TYPE" in line]

    assert names(get(url)) == names(get(url, Accept_Encoding="gzip"))
    landing = get(base)
    for link in re.findall(rb'href="/([a-z]+)"', landing):
        assert get(base + link.decode())
    assert landing.count(b"href=") == 3
    assert get(f"{base}healthz") == b"ok\n"
    assert status(get, f"{base}metrics/../etc") == (404, "see /metrics\n")
    assert status(get, f"{base}probe?target=x")[0] == 404


def test_ready_once_it_has_looked_for_servers(
    recorded: Path, config: Make, serve: Serve, get: Get, tmp_path: Path
) -> None:
    """Not before the first look, not without a process table, and not with a bad web file."""
    roots = {"proc": recorded / "proc", "cgroup": recorded / "cgroup"}
    file = tmp_path / "web.yml"
    file.write_text("http_server_config: {headers: {X-Frame-Options: deny}}\n")
    url = serve(Exporter(config(discover=True), **roots), web=Web(str(file)))
    ready = url.replace("metrics", "readyz")
    assert status(get, ready) == (503, "has not looked for servers yet\n")
    get(url)
    assert status(get, ready) == (200, "ready\n")
    file.write_text("http_server_config: {headers: {X-Frame: deny}}\n")
    assert status(get, ready) == (503, "the web configuration is wrong, see the log\n")
    assert get(ready.replace("readyz", "healthz")) == b"ok\n"
    file.write_text("http_server_config: {}\n")
    assert status(get, ready) == (200, "ready\n")
    nowhere = serve(Exporter(config(discover=True), proc=tmp_path / "none"))
    get(nowhere)
    assert status(get, nowhere.replace("metrics", "readyz"))[0] == 503


def test_headers_of_the_web_configuration_are_sent(
    config: Make, serve: Serve, tmp_path: Path
) -> None:
    """On every answer, refusals among them, and as the file says now."""
    file = tmp_path / "web.yml"
    file.write_text("http_server_config: {headers: {Strict-Transport-Security: max-age=1}}\n")
    host, _, port = serve(Exporter(config()), web=Web(str(file))).split("/")[2].rpartition(":")

    def sent(path: str) -> dict[str, str]:
        with socket.create_connection((host, int(port)), PATIENCE) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            return answer(connection)[1]

    for path in ("/metrics", "/nothing", "/healthz"):
        assert sent(path)["Strict-Transport-Security"] == "max-age=1"
        assert sent(path)["X-Content-Type-Options"] == "nosniff"
    file.write_text("http_server_config: {headers: {X-Frame-Options: sameorigin}}\n")
    assert sent("/metrics")["X-Frame-Options"] == "sameorigin"
    assert "Strict-Transport-Security" not in sent("/metrics")


def test_a_rate_limit_holds(config: Make, serve: Serve, get: Get, tmp_path: Path) -> None:
    """So many at once, then no more until time has passed."""
    file = tmp_path / "web.yml"
    file.write_text("rate_limit: {interval: 1h, burst: 3}\n")
    url = serve(Exporter(config()), web=Web(str(file)))
    assert [status(get, url)[0] for _ in range(5)] == [200, 200, 200, 429, 429]
    assert get(url.replace("metrics", "healthz")) == b"ok\n"
    now = [0.0]
    web = Web(str(file), lambda: now[0])
    limit = web.settings().limit
    assert [web.within_limit(limit) for _ in range(4)] == [True, True, True, False]
    now[0] = 3600.0
    assert [web.within_limit(limit) for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n", 200),
        (b"GET /healthz\r\n\r\n", 200),
        (b"GET //healthz HTTP/1.0\r\n\r\n", 200),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 405),
        (b"POST / HTTP/1.1\r\nContent-Length: 90000\r\n\r\n" + b"a" * 90_000, 405),
        (b"TRACE / HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/9.9\r\n\r\n", 505),
        (b"GET / HTTP/x\r\n\r\n", 400),
        (b"GET /<script>alert(1)</script> HTTP/1.1 x\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"\xff\xfe\xfd\xfc \x00 \x1b[31m\r\n\r\n", 400),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.0\r\n\r\n", 414),
        (b"GET / HTTP/1.0\r\nA: " + b"a" * 70_000, 431),
        (b"GET / HTTP/1.0\r\n" + b"A: b\r\n" * 200, 431),
        (b"GET / HTTP/1.0\r\n" + b"A: " + b"a" * 60_000 + b"\r\nB: " + b"b" * 60_000
         + b"\r\nC: " + b"c" * 60_000, 431),
    ],
)  # fmt: skip
def test_odd_requests(
    sent: bytes, expected: int, connect: Callable[[], socket.socket], get: Get, url: str
) -> None:
    """Each is answered once, in a line that repeats nothing of it, and the next is served."""
    connection = connect()
    connection.sendall(sent)
    code, headers, body = answer(connection)
    assert code == expected
    assert headers["Content-Type"].startswith("text/plain")
    assert len(body) < 40
    assert b"script" not in body
    if expected == 405:
        assert headers["Allow"] == "GET, HEAD"
    assert connection.recv(10) == b""
    assert get(url.replace("metrics", "healthz")) == b"ok\n"


def test_a_head_has_the_headers_alone(connect: Callable[[], socket.socket]) -> None:
    """The length of the page, and no page."""
    connection = connect()
    connection.sendall(b"HEAD /healthz HTTP/1.0\r\n\r\n")
    whole = b"".join(iter(lambda: connection.recv(1000), b""))
    assert b"Content-Length: 3\r\n" in whole
    assert whole.endswith(b"\r\n\r\n")


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_break_the_server(
    connect: Callable[[], socket.socket], get: Get, url: str, sent: bytes, half: bool
) -> None:
    """Whatever is sent, and whether or not the client can still hear, the next one is served."""
    with contextlib.suppress(OSError), connect() as connection:
        connection.sendall(sent)
        if half:
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1000):
                pass
    assert get(url.replace("metrics", "healthz")) == b"ok\n"


def test_a_client_that_only_listens_on_is_answered(connect: Callable[[], socket.socket]) -> None:
    """Half-closed after its request, as some clients do."""
    connection = connect()
    connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
    connection.shutdown(socket.SHUT_WR)
    assert answer(connection)[2] == b"ok\n"


def test_slow_and_silent_clients_keep_nobody_out(
    connect: Callable[[], socket.socket], url: str, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thrice as many as there are places: the oldest lose theirs to whoever comes."""
    monkeypatch.setattr("exporters.server.REQUEST_SECONDS", 10 * PATIENCE)
    slow = [connect() for _ in range(3 * MAX_CONNECTIONS)]
    for number, connection in enumerate(slow):
        with contextlib.suppress(OSError):
            connection.sendall(b"GET /metrics HTTP/1.0\r\nX: "[: number % 26])
    for _ in range(5):
        assert get(url.replace("metrics", "healthz")) == b"ok\n"
    for connection in slow[: 2 * MAX_CONNECTIONS]:
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(10) == b""


def test_more_than_can_be_answered_are_hung_up_on(
    fakes: Any, config: Make, serve: Serve, get: Get
) -> None:
    """Requests that are being answered are left alone; places come free again."""
    targets = [{"url": fakes.url("slow"), "server": "s"}]
    url = serve(Exporter(config(targets=targets, deadline=60.0, target_timeout=60.0)))
    host, _, port = url.split("/")[2].rpartition(":")
    deadline = time.monotonic() + PATIENCE
    with contextlib.ExitStack() as stack:
        busy: list[socket.socket] = []
        refused = False
        # Whoever comes too soon may lose its place, or take that of a request on its way.
        while not refused or len(busy) != MAX_CONNECTIONS:
            assert time.monotonic() < deadline
            last = socket.create_connection((host, int(port)), PATIENCE)
            busy.append(stack.enter_context(last))
            with contextlib.suppress(OSError):
                last.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            hung_up = select.select(busy, [], [], 0.1)[0]
            refused = last in hung_up
            busy = [connection for connection in busy if connection not in hung_up]
        fakes.release.set()
        assert all(b"200 OK" in connection.recv(100) for connection in busy)
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            assert get(url.replace("metrics", "healthz")) == b"ok\n"
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_clients_that_leave_in_the_middle_cost_no_place(
    fakes: Any, dp8_page: bytes, config: Make, serve: Serve, get: Get
) -> None:
    """More of them than there are places, each gone after the first byte of a large page."""
    fakes.pages = {"dp8": dp8_page}
    url = serve(Exporter(config(targets=[{"url": fakes.url("dp8"), "server": "s"}])))
    host, _, port = url.split("/")[2].rpartition(":")
    for _ in range(MAX_CONNECTIONS + 4):
        with socket.create_connection((host, int(port)), PATIENCE) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            connection.recv(1)
    assert get(url.replace("metrics", "healthz")) == b"ok\n"


def test_a_client_that_reads_slowly_is_left_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is for the whole answer: a byte now and then does not stretch it."""
    monkeypatch.setattr("exporters.web.handler.ANSWER_SECONDS", 0.3)
    ours, theirs = socket.socketpair()
    done = threading.Event()

    def sip() -> None:
        while not done.wait(0.01):
            theirs.recv(1)

    with ours, theirs:
        slow = threading.Thread(target=sip)
        slow.start()
        with pytest.raises(TimeoutError):
            Writer(ours).write(b"a" * (16 << 20))
        ours.shutdown(socket.SHUT_RDWR)
        done.set()
        slow.join()


def test_places_are_neither_lost_nor_made_up() -> None:
    """As many as at first once all have left, whoever was put out in between."""
    pairs = [socket.socketpair() for _ in range(7)]
    places = Places(3)
    first, second, third = (places.enter(pair[0]) for pair in pairs[:3])
    assert first
    assert second
    assert third
    assert places.arrived(first)
    fourth = places.enter(pairs[3][0])
    assert fourth
    assert second.evicted
    assert not places.arrived(second)
    assert places.arrived(third)
    assert places.arrived(fourth)
    assert places.enter(pairs[4][0]) is None
    for place in (second, first, third, fourth):
        places.leave(place)
    assert all(places.enter(pair[0]) for pair in pairs[4:])
    assert [place for place in places._arriving if place.evicted] == []
    for pair in pairs:
        for end in pair:
            end.close()


def test_run_serves_until_stopped_and_says_why_it_cannot(
    config: Make, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Exit code 0 once stopped; 2 with one line for a taken address or a bad web file."""
    stop = threading.Event()
    stop.set()
    assert run(config(), stop) == 0
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert run(config(listen=address), stop) == 2
    file = tmp_path / "web.yml"
    assert run(config(web_config_file=str(file)), stop) == 2
    said = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(said) == 2
    assert address in said[0]
    assert "--listen" in said[0]
    assert said[1] == f"{file}: No such file or directory"


def test_it_is_ready_by_itself(config: Make, get: Get, free_port: int) -> None:
    """`run` looks for servers before anybody asks for the page."""
    stop = threading.Event()
    address = f"127.0.0.1:{free_port}"
    thread = threading.Thread(target=run, args=(config(listen=address, discover=True), stop))
    thread.start()
    deadline = time.monotonic() + PATIENCE
    try:
        while True:
            with contextlib.suppress(OSError):
                if status(get, f"http://{address}/readyz")[0] == 200:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        stop.set()
        thread.join()
