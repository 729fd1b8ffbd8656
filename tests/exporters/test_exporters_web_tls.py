"""TLS, client certificates and passwords on a real connection, and by a real Prometheus."""

import base64
import contextlib
import logging
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple

import bcrypt
import pytest
import trustme

from catalog.config import Config
from exporters.scrape import Exporter
from exporters.server import MAX_CONNECTIONS
from exporters.web.auth import LONGEST_PASSWORD, WAITING, Login, Logins
from exporters.web.listen import Web

Make = Callable[..., Config]
Serve = Callable[..., str]
PATIENCE = 60.0
PASSWORD = "hunter2-never-shown"  # noqa: S105 - made up
COST = 4  # bcrypt's least: these tests are not about its strength


def hashed(password: str, cost: int = COST) -> str:
    """Return a password's hash."""
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


class Secured(NamedTuple):
    """An exporter with TLS: where it serves, its files, and the authority of its certificate."""

    url: str
    folder: Path
    authority: trustme.CA

    @property
    def address(self) -> tuple[str, int]:
        """Return host and port."""
        host, _, port = self.url.split("/")[2].rpartition(":")
        return host, int(port)

    def trust(self) -> ssl.SSLContext:
        """Return a client's context that trusts it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.authority.configure_trust(context)
        return context

    def get(
        self, path: str = "/metrics", context: ssl.SSLContext | None = None, login: str = ""
    ) -> tuple[int, bytes]:
        """Return status and body of a page."""
        sent = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n"
        if login:
            sent += f"Authorization: Basic {base64.b64encode(login.encode()).decode()}\r\n"
        with (
            socket.create_connection(self.address, PATIENCE) as plain,
            (context or self.trust()).wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            secure.sendall(f"{sent}\r\n".encode())
            response = HTTPResponse(secure)
            response.begin()
            return response.status, response.read()


def plant(folder: Path, authority: trustme.CA, *names: str) -> None:
    """Write a certificate for *names* with its key."""
    issued = authority.issue_cert(*names)
    issued.private_key_pem.write_to_path(folder / "server.key")
    for number, pem in enumerate(issued.cert_chain_pems):
        pem.write_to_path(folder / "server.pem", append=number > 0)
    authority.cert_pem.write_to_path(folder / "ca.pem")


@pytest.fixture
def secured(tmp_path: Path, config: Make, serve: Serve) -> Callable[..., Secured]:
    """Serves an exporter with TLS and more of the web configuration."""

    def start(more: str = "", rest: str = "", **exporter: Any) -> Secured:
        authority = trustme.CA()
        plant(tmp_path, authority, "localhost", "127.0.0.1")
        (tmp_path / "web.yml").write_text(
            f"tls_server_config: {{cert_file: server.pem, key_file: server.key{more}}}\n{rest}"
        )
        web = Web(str(tmp_path / "web.yml"))
        url = serve(Exporter(config(**exporter)), web=web)
        assert url.startswith("https://")
        return Secured(url, tmp_path, authority)

    return start


MUTUAL = ", client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.pem"


def test_the_page_over_tls(secured: Callable[..., Secured]) -> None:
    """To those who trust its authority and speak TLS 1.2 at least; others get a plain line."""
    server = secured()
    status, page = server.get()
    assert status == 200
    assert b"leadline_build_info" in page
    with pytest.raises(ssl.SSLCertVerificationError):
        server.get(context=ssl.create_default_context())
    with socket.create_connection(server.address, PATIENCE) as plain:
        plain.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        whole = b"".join(iter(lambda: plain.recv(1000), b""))
    assert whole.startswith(b"HTTP/1.0 400 ")
    assert b"served over https" in whole
    assert server.get()[0] == 200


def test_versions_and_suites_hold(secured: Callable[..., Secured]) -> None:
    """A client that can't do what is asked for gets no page."""
    server = secured(", min_version: TLS13")
    old = server.trust()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        server.get(context=old)
    assert server.get()[0] == 200
    (server.folder / "web.yml").write_text(
        "tls_server_config: {cert_file: server.pem, key_file: server.key, max_version: TLS12, "
        "cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]}"
    )
    chosen = server.trust()
    chosen.maximum_version = ssl.TLSVersion.TLSv1_2
    chosen.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        server.get(context=chosen)
    chosen.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    assert server.get(context=chosen)[0] == 200


def test_only_known_clients_are_served(secured: Callable[..., Secured]) -> None:
    """With a certificate of the authority that is named; with names, of one of them."""
    server = secured(MUTUAL)

    def client(authority: trustme.CA, *names: str) -> ssl.SSLContext:
        context = server.trust()
        authority.issue_cert(*names).configure_cert(context)
        return context

    known = client(server.authority, "prometheus.example")
    assert server.get(context=known)[0] == 200
    for stranger in (server.trust(), client(trustme.CA(), "prometheus.example")):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            server.get(context=stranger)
    text = (server.folder / "web.yml").read_text()
    names = "client_allowed_sans: [prometheus.example, 10.0.0.7]"
    (server.folder / "web.yml").write_text(text.replace("ca.pem", f"ca.pem, {names}"))
    assert server.get(context=known)[0] == 200
    assert server.get(context=client(server.authority, "10.0.0.7"))[0] == 200
    with pytest.raises((ssl.SSLError, ConnectionError)):
        server.get(context=client(server.authority, "grafana.example"))


def test_a_new_certificate_is_served_at_once(secured: Callable[..., Secured]) -> None:
    """The next connection gets it; a half of it changes nothing."""
    server = secured()
    new = trustme.CA()
    (server.folder / "new").mkdir()
    plant(server.folder / "new", new, "localhost")
    shutil.copy(server.folder / "new" / "server.pem", server.folder / "server.pem")
    assert server.get()[0] == 200
    shutil.copy(server.folder / "new" / "server.key", server.folder / "server.key")
    with pytest.raises(ssl.SSLCertVerificationError):
        server.get()
    assert server._replace(authority=new).get()[0] == 200


def test_a_handshake_that_is_never_finished_holds_up_nobody(
    secured: Callable[..., Secured],
) -> None:
    """Nor do more of them than there are places; each in another state of it."""
    server = secured()
    hello = ssl.MemoryBIO()
    client = server.trust().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    first = hello.read()
    with contextlib.ExitStack() as stack:
        for number in range(MAX_CONNECTIONS + 4):
            silent = stack.enter_context(socket.create_connection(server.address, PATIENCE))
            with contextlib.suppress(OSError):
                silent.sendall((b"", first[:3], first, first + b"rubbish")[number % 4])
        for _ in range(3):
            assert server.get("/healthz") == (200, b"ok\n")


def test_a_password_is_asked_for(
    secured: Callable[..., Secured], caplog: pytest.LogCaptureFixture
) -> None:
    """401 without, and for a wrong one; health needs none; nothing of it is logged."""
    caplog.set_level(logging.DEBUG)
    users = f"basic_auth_users: {{alice: '{hashed(PASSWORD)}', bob: '{hashed('other')}'}}"
    server = secured(rest=users)
    wrong = (
        "", "alice:", f"alice:{PASSWORD}x", f"bob:{PASSWORD}", f"carol:{PASSWORD}",
        f":{PASSWORD}", PASSWORD, f"alice:{PASSWORD}\0", "alice:" + "x" * 5000,
    )  # fmt: skip
    for login in wrong:
        status, body = server.get(login=login)
        assert (status, body) == (401, b"Unauthorized\n")
    for path in ("/", "/nothing", "/probe?target=x"):
        assert server.get(path)[0] == 401
    for _ in range(2):
        status, page = server.get(login=f"alice:{PASSWORD}")
        assert status == 200
        assert b"leadline_build_info" in page
    assert server.get("/healthz") == (200, b"ok\n")
    assert server.get("/readyz")[0] == 200
    assert PASSWORD not in caplog.text
    assert "carol" not in caplog.text
    said = [m for m in caplog.messages if "wrong user or password" in m]
    assert len(said) == 1
    assert "from 127.0.0.1" in said[0]
    (server.folder / "web.yml").write_text(
        (server.folder / "web.yml").read_text().replace("alice", "dora")
    )
    assert server.get(login=f"alice:{PASSWORD}")[0] == 401
    assert server.get(login=f"dora:{PASSWORD}")[0] == 200


def basic(user: str, password: str) -> str:
    """Return the header of a login."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Checks:
    """A check that counts, and takes a second by the test's own clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.asked: list[bytes] = []

    def __call__(self, password: bytes, against: bytes) -> bool:
        self.asked.append(against)
        self.now += 0.1
        return password == PASSWORD.encode() and b"." * 53 not in against

    def logins(self) -> Logins:
        """Return logins that use it."""
        return Logins(self, lambda: self.now, self.slept.append)


def test_a_right_password_is_dear_once() -> None:
    """Then it is known; a changed hash, another user and a wrong one are dear again."""
    checks = Checks()
    logins = checks.logins()
    users = {"alice": hashed("a"), "bob": hashed("b")}
    for _ in range(5):
        assert logins.login(users, basic("alice", PASSWORD), "::1") is Login.RIGHT
    assert len(checks.asked) == 1
    assert logins.login(users, basic("bob", PASSWORD), "::1") is Login.RIGHT
    assert logins.login(users, basic("alice", "wrong"), "::1") is Login.WRONG
    assert logins.login(users, basic("alice", PASSWORD), "::1") is Login.RIGHT
    assert len(checks.asked) == 3
    users["alice"] = hashed("a")
    assert logins.login(users, basic("alice", PASSWORD), "::1") is Login.RIGHT
    assert len(checks.asked) == 4
    for number in range(100):
        some = {**users, f"user{number}": hashed("c")}
        assert logins.login(some, basic(f"user{number}", PASSWORD), "::1") is Login.RIGHT
    assert len(logins._known) <= 3
    assert PASSWORD not in repr(vars(logins))


def test_unknown_users_cost_what_known_ones_do() -> None:
    """The dearest hash's cost, and the same pause: time tells nobody who exists."""
    checks = Checks()
    logins = checks.logins()
    users = {"alice": hashed("a", 4), "bob": hashed("b", 5)}
    for user in ("bob", "nobody"):
        assert logins.login(users, basic(user, "wrong"), "::1") is Login.WRONG
    assert [against[4:6] for against in checks.asked] == [b"05", b"05"]
    assert checks.slept[0] == checks.slept[1] == pytest.approx(0.3)
    assert logins.login({}, basic("nobody", PASSWORD), "::1") is Login.WRONG
    for hash_ in (b"$2b$05$" + b"." * 53, b"$2b$10$" + b"." * 53):
        assert not bcrypt.checkpw(b"", hash_)


def test_a_long_password_counts_as_far_as_bcrypt_reads() -> None:
    """As everywhere with bcrypt; newer versions of it would raise."""
    long = "x" * LONGEST_PASSWORD
    users = {"alice": hashed(long)}
    assert Logins().login(users, basic("alice", f"{long}more"), "::1") is Login.RIGHT
    assert Logins().login(users, basic("alice", long[1:]), "::1") is Login.WRONG


def test_guessing_is_bounded_and_keeps_no_known_user_out() -> None:
    """One check at a time, few who wait, the others sent away; who is known never waits."""
    release, away = threading.Event(), threading.Semaphore(0)
    at_once, most = 0, 0

    def check(password: bytes, against: bytes) -> bool:
        nonlocal at_once, most
        if password == b"wrong":
            at_once += 1
            most = max(most, at_once)
            release.wait(PATIENCE)
            at_once -= 1
        return password != b"wrong"

    logins = Logins(check, sleep=lambda _: None)
    users = {"alice": hashed("a")}
    assert logins.login(users, basic("alice", "right"), "::1") is Login.RIGHT
    outcomes: list[Login] = []

    def guess() -> None:
        outcomes.append(logins.login(users, basic("alice", "wrong"), "::1"))
        away.release()

    threads = [threading.Thread(target=guess) for _ in range(WAITING + 6)]
    for thread in threads:
        thread.start()
    for _ in range(6):
        assert away.acquire(timeout=PATIENCE)
    assert outcomes == [Login.BUSY] * 6
    assert logins.login(users, basic("alice", "right"), "::1") is Login.RIGHT
    release.set()
    for thread in threads:
        thread.join()
    assert outcomes[6:] == [Login.WRONG] * WAITING
    assert most == 1


@pytest.fixture
def prometheus_files(tmp_path: Path) -> Callable[[trustme.CA], dict[str, Any]]:
    """Writes a client's certificate and password for Prometheus."""

    def write(authority: trustme.CA) -> dict[str, Any]:
        issued = authority.issue_cert("prometheus.example")
        issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
        (tmp_path / "password").write_text(PASSWORD)
        return {
            "tls_config": {
                "ca_file": str(tmp_path / "ca.pem"), "cert_file": str(tmp_path / "client.pem"),
                "key_file": str(tmp_path / "client.pem"), "server_name": "localhost",
            },
            "basic_auth": {"username": "alice", "password_file": str(tmp_path / "password")},
        }  # fmt: skip

    return write


def test_a_real_prometheus_logs_in_over_mutual_tls(
    secured: Callable[..., Secured], prometheus: Any, decode_page: bytes, fakes: Any,
    prometheus_files: Callable[[trustme.CA], dict[str, Any]],
) -> None:  # fmt: skip
    """With certificate and password it is up, with one of the two it is down."""
    fakes.pages = {"a": decode_page}
    server = secured(
        MUTUAL, f"basic_auth_users: {{alice: '{hashed(PASSWORD)}'}}",
        targets=[{"url": fakes.url("a"), "server": "s"}],
    )  # fmt: skip
    access = prometheus_files(server.authority)
    scrape = {
        "scheme": "https",
        "static_configs": [{"targets": [server.url.split("/")[2]]}],
    }
    tls = access["tls_config"]
    bare = {key: tls[key] for key in ("ca_file", "server_name")}
    watcher = prometheus(
        scrapes=[
            {"job_name": "both", **scrape, **access},
            {"job_name": "no_password", **scrape, "tls_config": tls},
            {"job_name": "no_certificate", **scrape, **access, "tls_config": bare},
        ]
    )
    deadline = time.monotonic() + PATIENCE
    while len(watcher.query("up")) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    up = {row["metric"]["job"]: row["value"][1] for row in watcher.query("up")}
    assert up == {"both": "1", "no_password": "0", "no_certificate": "0"}
    (count,) = watcher.query('count({__name__=~"vllm:.*",server="s"})')
    assert int(count["value"][1]) > 250
