"""The web configuration file: the toolkit's format, and one line for what is wrong with it."""

import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

import leadline
from catalog.config import ConfigError
from exporters.web.auth import bcrypt_check
from exporters.web.config import WebConfig, read
from exporters.web.listen import Web

SECRET = "hunter2-never-shown"  # noqa: S105 - made up
HASH = "$2y$04$6chr.lfXQ7XuzFOTCOH/xejKN9hm3sGeFvL/UmVlca3cR5FwjYIZK"  # of "secret"
WHOLE = f"""\
tls_server_config:
  cert_file: server.pem
  key_file: server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.pem
  client_allowed_sans: [prometheus.example]
  min_version: TLS12
  max_version: TLS13
  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]
  prefer_server_cipher_suites: true
  curve_preferences: [CurveP256]
http_server_config:
  http2: true
  headers: {{X-Frame-Options: deny}}
basic_auth_users: {{alice: {HASH}}}
rate_limit: {{interval: 1s, burst: 20}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a certificate of an authority made for this test."""
    authority = trustme.CA()
    server = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    server.private_key_pem.write_to_path(tmp_path / "server.key")
    for number, pem in enumerate(server.cert_chain_pems):
        pem.write_to_path(tmp_path / "server.pem", append=number > 0)
    return tmp_path


@pytest.fixture
def write(folder: Path) -> Callable[[str], str]:
    """Writes the file and returns its path."""

    def path(text: str) -> str:
        (folder / "web.yml").write_text(text)
        return str(folder / "web.yml")

    return path


def test_everything_that_the_format_has_is_taken(write: Callable[[str], str]) -> None:
    """A file of every key, with paths relative to its own folder."""
    found = Web(write(WHOLE)).settings()
    assert found.context is not None
    assert found.sans == {"prometheus.example"}
    assert found.users == {"alice": HASH}
    assert found.headers == {"X-Frame-Options": "deny"}
    assert found.limit.interval == 1.0
    assert found.limit.burst == 20
    suites = [c["name"] for c in found.context.get_ciphers() if c["protocol"] == "TLSv1.2"]
    assert suites == ["ECDHE-ECDSA-AES128-GCM-SHA256"]


def test_check_config_checks_it_too(
    folder: Path, write: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a restart finds out, with one line and exit code 2; a good one is fine."""
    file = folder / "leadline.yaml"
    file.write_text(f"exporter: {{web_config_file: {write(WHOLE)}}}")
    assert leadline.main(["check-config", "--config", str(file)]) == 0
    write(WHOLE.replace("server.key", "gone.key"))
    capsys.readouterr()
    assert leadline.main(["check-config", "--config", str(file)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert "gone.key: No such file" in told.err


@pytest.mark.parametrize("text", ["", "tls_server_config:\nbasic_auth_users:\n", "{}"])
def test_an_empty_file_asks_for_nothing(text: str, write: Callable[[str], str]) -> None:
    """Plain HTTP for everybody, as without the file."""
    found = Web(write(text)).settings()
    assert found.context is None
    assert not found.users


def test_certificates_may_stand_in_the_file(folder: Path, write: Callable[[str], str]) -> None:
    """Inline, as the format allows; the key is on no disk but the file's."""

    def inline(name: str) -> str:
        return "|\n" + "".join(f"    {line}\n" for line in (folder / name).read_text().split("\n"))

    text = (
        f"tls_server_config:\n  cert: {inline('server.pem')}\n  key: {inline('server.key')}\n"
        f"  client_ca: {inline('ca.pem')}\n  client_auth_type: VerifyClientCertIfGiven\n"
    )
    assert Web(write(text)).settings().context is not None


TLS = "cert_file: server.pem, key_file: server.key"
WRONG = {
    "tls_server_confg: {}": "unknown key 'tls_server_confg': did you mean 'tls_server_config'?",
    "tls_server_config: {cert_fil: x}": "did you mean 'cert_file'? (at tls_server_config.cert_fil)",
    "http_server_config: {header: {}}": "did you mean 'headers'?",
    "rate_limit: {burts: 1}": "did you mean 'burst'?",
    "rate_limit: {burst: -1}": "rate_limit.burst: ",
    "rate_limit: {interval: soon}": "rate_limit.interval: ",
    "tls_server_config: {cert_file: x}": "tls_server_config: needs key_file",
    "tls_server_config: {key_file: x}": "tls_server_config: needs cert_file",
    "tls_server_config: {client_auth_type: RequireAndVerifyClientCert}": "needs cert_file",
    f"tls_server_config: {{{TLS}, client_auth_type: RequireAndVerifyClientCert}}":
        "client_auth_type needs client_ca_file",
    f"tls_server_config: {{{TLS}, client_ca_file: ca.pem}}": "needs a client_auth_type",
    f"tls_server_config: {{{TLS}, client_auth_type: RequireAnyClientCert}}":
        "write RequireAndVerifyClientCert",
    f"tls_server_config: {{{TLS}, client_auth_type: RequireAndVerify}}":
        "did you mean 'RequireAndVerifyClientCert'?",
    f"tls_server_config: {{{TLS}, client_allowed_sans: [a]}}": "client_allowed_sans needs",
    f"tls_server_config: {{{TLS}, min_version: TLS11}}": "write TLS12 or TLS13",
    f"tls_server_config: {{{TLS}, min_version: TLS13, max_version: TLS12}}": "above max_version",
    f"tls_server_config: {{{TLS}, cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]}}": "unknown suite",
    f"tls_server_config: {{{TLS}, curve_preferences: [CurveP257]}}": "did you mean 'CurveP256'?",
    f"tls_server_config: {{{TLS}, curve_preferences: [CurveP256, X25519]}}": "one at most",
    "tls_server_config: {cert_file: gone.pem, key_file: server.key}": "gone.pem: No such file",
    "tls_server_config: {cert_file: ca.pem, key_file: server.key}": "key values mismatch",
    "tls_server_config: {cert_file: web.yml, key_file: server.key}": "cert_file and key_file: ",
    f"tls_server_config: {{{TLS}, client_auth_type: VerifyClientCertIfGiven, "
    "client_ca_file: web.yml}": "tls_server_config.client_ca_file: ",
    f"tls_server_config: {{key: {SECRET}, cert: {SECRET}}}": "cert_file and key_file: ",
    f"basic_auth_users: {{alice: {SECRET}}}": "no bcrypt hash; htpasswd -nBC 10 '' makes one",
    f"basic_auth_users: {{alice: {HASH.replace('$04$', '$31$')}}}": "a cost from 4 to 14, not 31",
    f"basic_auth_users: [{SECRET}]": "basic_auth_users: ",
    f"basic_auth_users: {{alice: [{SECRET}]}}": "basic_auth_users.alice: ",
    f"basic_auth_users: {{alice: *{SECRET}}}": "no valid YAML (line 1)",
    f"basic_auth_users: {{alice: !{SECRET} x}}": "no valid YAML (line 1)",
    f"a: b\n{SECRET}: {{": "no valid YAML (line 2)",
    f"{SECRET}\tx: [": "no valid YAML",
    "- a": "must be a mapping of keys, not list",
    "http_server_config: {headers: {X-Powered-By: us}}": "unknown header 'X-Powered-By'",
    "http_server_config: {headers: {X-Frame-Options: allow}}": "may be deny or sameorigin",
    'http_server_config: {headers: {X-XSS-Protection: "a\\r\\nB: c"}}': "printable ASCII",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_said_in_one_line(text: str, write: Callable[[str], str]) -> None:
    """With the file, the key and the remedy; a value, which may be a secret, never."""
    path = write(text)
    with pytest.raises(ConfigError) as refused:
        Web(path)
    line = str(refused.value)
    assert line.startswith(f"{path}: ")
    assert WRONG[text] in line
    assert "\n" not in line
    assert SECRET not in line
    assert HASH not in line


def test_a_key_with_a_pass_phrase_is_refused_not_asked_for(
    folder: Path, write: Callable[[str], str]
) -> None:
    """OpenSSL would wait at the terminal for somebody to type it."""
    from cryptography.hazmat.primitives import serialization as pem  # noqa: PLC0415

    key = pem.load_pem_private_key((folder / "server.key").read_bytes(), None)
    (folder / "server.key").write_bytes(
        key.private_bytes(
            pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.BestAvailableEncryption(SECRET.encode())
        )
    )
    with pytest.raises(ConfigError, match="pass phrase: take it off"):
        Web(write(f"tls_server_config: {{{TLS}}}"))


def test_without_bcrypt_passwords_are_refused_with_the_remedy(
    write: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start, not when the first one comes; all else does without it."""
    monkeypatch.setitem(__import__("sys").modules, "bcrypt", None)
    with pytest.raises(ConfigError, match=r"pip install 'leadline\[auth\]'"):
        Web(write(f"basic_auth_users: {{alice: {HASH}}}"))
    assert Web(write(f"tls_server_config: {{{TLS}}}")).settings().context
    with pytest.raises(ConfigError):
        bcrypt_check()


@pytest.fixture
def later() -> Iterator[Callable[[Path], None]]:
    """Makes a file's time differ from what it was, however coarse the clock of the disk is."""
    count = iter(range(1, 1000))

    def touch(path: Path) -> None:
        at = time.time() + next(count)
        os.utime(path, (at, at))

    return touch  # type: ignore[return-value]


def test_a_change_is_read_and_a_bad_one_leaves_the_last_good_one(
    folder: Path, write: Callable[[str], str], later: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """One line in the log for each kind of failure; what the file says again is read again."""
    caplog.set_level(logging.INFO)
    web = Web(write(WHOLE))
    first = web.settings()
    assert web.settings() is first
    write(WHOLE.replace("alice", "bob"))
    second = web.settings()
    assert second.users.keys() == {"bob"}
    key = (folder / "server.key").read_text()
    (folder / "server.key").write_text("rubbish")
    for _ in range(3):
        later(folder / "server.key")
        assert web.settings() is second
    assert "cert_file and key_file" in web.problem
    (folder / "server.key").write_text(key)
    later(folder / "server.key")
    assert web.settings().users.keys() == {"bob"}
    assert web.problem == ""
    said = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(said) == 1
    assert "what was read before stays in force" in said[0]


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("", "TLS"), ("{}", "TLS"),
        (WHOLE.replace("basic_auth_users", "#"), "basic_auth_users"),
        (WHOLE.replace("RequireAndVerify", "VerifyIfGiven").replace("  client_allowed", "  #")
         .replace("VerifyIfGivenClientCert", "VerifyClientCertIfGiven"), "client_auth_type"),
        (WHOLE.replace("  client_allowed_sans", "  #"), "client_allowed_sans"),
    ],
)  # fmt: skip
def test_no_file_takes_protection_away_from_a_running_exporter(
    text: str, lost: str, write: Callable[[str], str]
) -> None:
    """One that is caught half written would open the page to everybody."""
    web = Web(write(WHOLE))
    before = web.settings()
    write(text)
    assert web.settings() is before
    assert f"{lost} is gone" in web.problem


WORDS = st.sampled_from([*WebConfig.model_fields, "cert_file", "headers", "burst", "alice", HASH])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.binary(max_size=100) | VALUES.map(lambda v: repr(v).encode()))
def test_any_file_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    """Whatever the bytes are."""
    path = tmp_path_factory.getbasetemp() / "any.yml"
    path.write_bytes(content)
    line = ""
    try:
        assert isinstance(read(path), WebConfig)
    except ConfigError as error:
        line = str(error)
    assert line == "" or line.startswith(f"{path}: ")
    assert line.isprintable()
