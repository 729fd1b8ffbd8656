"""TLS of the page: a context from the web configuration, and who may connect.

Raises ConfigError, one line, for what can't be used: nothing of a key is ever in it.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from catalog.config import ConfigError
from catalog.signals import unknown
from exporters.web.config import Tls

_VERSIONS: Final = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_SUITES: Final = {
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    # Suites of TLS 1.3 may be named and can't be chosen, in Go as in Python.
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
}
"""Go's names of cipher suites, as the format has them, and OpenSSL's."""
_CURVES: Final = {
    "CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1",
    "X25519": "X25519",
}  # fmt: skip
_MODES: Final = {
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}


def context(tls: Tls, folder: Path) -> ssl.SSLContext:
    """Return a server's context; relative paths are below *folder*.

    Raises:
        ConfigError: One line that says which key can't be used, and why.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = _VERSIONS[tls.min_version]
    made.maximum_version = _VERSIONS[tls.max_version]
    made.options |= ssl.OP_NO_RENEGOTIATION
    made.set_alpn_protocols(["http/1.1"])
    if tls.prefer_server_cipher_suites:
        made.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        made.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    _ciphers(made, tls.cipher_suites)
    _curve(made, tls.curve_preferences)
    _certificate(made, tls, folder)
    _clients(made, tls, folder)
    return made


def may_connect(certificate: Any, allowed: Collection[str]) -> bool:
    """Whether a verified certificate, as ssl tells it, names one of the *allowed*."""
    names = (certificate or {}).get("subjectAltName", ())
    return any(_normal(kind, name) in allowed for kind, name in names)


def _normal(kind: str, name: str) -> str:
    if kind != "IP Address":
        return name
    try:
        return str(ipaddress.ip_address(name.strip()))
    except ValueError:
        return ""


def _ciphers(made: ssl.SSLContext, suites: Collection[str]) -> None:
    for name in suites:
        if name not in _SUITES:
            raise ConfigError(f"tls_server_config.cipher_suites: {unknown('suite', name, _SUITES)}")
    chosen = [_SUITES[name] for name in suites if _SUITES[name]]
    if chosen:
        _use("cipher_suites", lambda: made.set_ciphers(":".join(chosen)))


def _curve(made: ssl.SSLContext, curves: Collection[str]) -> None:
    for name in curves:
        if name not in _CURVES:
            told = unknown("curve", name, _CURVES)
            raise ConfigError(f"tls_server_config.curve_preferences: {told}")
    if len(curves) > 1:
        raise ConfigError("tls_server_config.curve_preferences: one at most, or none for all")
    if curves:
        (curve,) = (_CURVES[name] for name in curves)
        _use("curve_preferences", lambda: made.set_ecdh_curve(curve))


def _certificate(made: ssl.SSLContext, tls: Tls, folder: Path) -> None:
    def refuse() -> bytes:
        # Asked for the pass phrase of a key, OpenSSL would wait for somebody at a terminal.
        raise ValueError("the key has a pass phrase: take it off")

    for key, path in (("cert_file", tls.cert_file), ("key_file", tls.key_file)):
        if path:
            _readable(key, folder / path)
    with _file(tls.cert, tls.cert_file, folder) as cert, _file(tls.key, tls.key_file, folder) as k:
        _use("cert_file and key_file", lambda: made.load_cert_chain(cert, k, refuse))


def _clients(made: ssl.SSLContext, tls: Tls, folder: Path) -> None:
    made.verify_mode = _MODES.get(tls.client_auth_type, ssl.CERT_NONE)
    if tls.client_ca_file:
        _readable("client_ca_file", folder / tls.client_ca_file)
        _use("client_ca_file", lambda: made.load_verify_locations(folder / tls.client_ca_file))
    elif tls.client_ca:
        _use("client_ca", lambda: made.load_verify_locations(cadata=tls.client_ca))


@contextmanager
def _file(text: str, path: str, folder: Path) -> Iterator[str]:
    """Give the path of a PEM file, or of one in memory alone that holds *text*."""
    if path:
        yield str(folder / path)
        return
    number = os.memfd_create("leadline")
    try:
        os.write(number, text.encode())
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)


def _readable(key: str, path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise ConfigError(f"tls_server_config.{key}: {path}: {error.strerror}") from None


def _use(key: str, do: Callable[[], object]) -> None:
    try:
        do()
    except ssl.SSLError as error:
        why = (error.reason or "no such PEM").replace("_", " ").lower()
    except (ValueError, OSError) as error:
        why = str(error) if isinstance(error, ValueError) else (error.strerror or "no such PEM")
    else:
        return
    raise ConfigError(f"tls_server_config.{key}: {why}")
