"""The web configuration file: TLS, passwords and headers.

The format is that of Prometheus' exporter toolkit, so that one file serves every exporter of a
host. Errors are one line that names file, key and remedy, and never a value: values here are
secrets. Two things of the format can't be had with Python's ssl, and are refused by name rather
than ignored: client certificates that are asked for but not verified, and TLS before 1.2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from catalog import yaml_text
from catalog.address import printable
from catalog.config import ConfigError
from catalog.section import Section
from catalog.signals import unknown
from catalog.units import duration

MAX_BYTES: Final = 1 << 20
MAX_COST: Final = 14  # a second of CPU a password; the toolkit's own advice is 10
_HASH = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}")
_VERSIONS: Final = ("TLS12", "TLS13")
_CLIENT_AUTH: Final = ("NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
_UNVERIFIED: Final = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
_HEADERS: Final[dict[str, tuple[str, ...]]] = {
    "Content-Security-Policy": (),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-Content-Type-Options": ("nosniff",),
    "X-XSS-Protection": (),
    "Strict-Transport-Security": (),
}
"""The headers that may be added, and what they may say where that is fixed."""


class _Strict(Section):
    """A section whose errors show no value: it may be a password."""

    model_config = ConfigDict(hide_input_in_errors=True)


class Tls(_Strict):
    """`tls_server_config`; relative paths are relative to the file's folder."""

    cert: str = ""
    key: str = ""
    client_ca: str = ""
    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""
    client_auth_type: str = ""
    client_allowed_sans: tuple[str, ...] | None = None
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    prefer_server_cipher_suites: bool = True
    curve_preferences: tuple[str, ...] = ()

    @property
    def enabled(self) -> bool:
        """Whether TLS is asked for at all."""
        certificate = self.cert or self.key or self.cert_file or self.key_file
        return bool(certificate or self.client_ca or self.client_ca_file or self.client_auth_type)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it names."""
        return tuple(f for f in (self.cert_file, self.key_file, self.client_ca_file) if f)

    @field_validator("min_version", "max_version")
    @classmethod
    def _offered(cls, value: str) -> str:
        if value not in _VERSIONS:
            raise ValueError("not offered (RFC 8996): write TLS12 or TLS13")
        return value

    @field_validator("client_auth_type")
    @classmethod
    def _verified(cls, value: str) -> str:
        if value in _UNVERIFIED:
            raise ValueError("a certificate that nobody verifies: write RequireAndVerifyClientCert")
        if value and value not in _CLIENT_AUTH:
            raise ValueError(unknown("type", value, _CLIENT_AUTH))
        return value

    @model_validator(mode="after")
    def _whole(self) -> Tls:
        required = self.client_auth_type == "RequireAndVerifyClientCert"
        verified = required or self.client_auth_type == "VerifyClientCertIfGiven"
        authorities = bool(self.client_ca or self.client_ca_file)
        for told, wrong in (
            (self.enabled and not (self.cert or self.cert_file), "needs cert_file"),
            (self.enabled and not (self.key or self.key_file), "needs key_file"),
            (verified and not authorities, "client_auth_type needs client_ca_file"),
            (authorities and not verified, "client_ca_file needs a client_auth_type that verifies"),
            (
                self.client_allowed_sans is not None and not required,
                "client_allowed_sans needs client_auth_type RequireAndVerifyClientCert",
            ),
            (self.min_version > self.max_version, "min_version is above max_version"),
        ):
            if told:
                raise ValueError(wrong)
        return self


class Http(_Strict):
    """`http_server_config`; HTTP/2 is not spoken, which a client finds out by itself."""

    http2: bool = True
    headers: dict[str, str] = Field({})

    @field_validator("headers")
    @classmethod
    def _known(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if name not in _HEADERS:
                raise ValueError(unknown("header", name, _HEADERS))
            if not text.isascii() or not text.isprintable():
                raise ValueError(f"{name}: only printable ASCII characters can be sent")
            if text and _HEADERS[name] and text.lower() not in _HEADERS[name]:
                raise ValueError(f"{name}: may be {' or '.join(_HEADERS[name])}")
        return {name: text for name, text in value.items() if text}


class RateLimit(_Strict):
    """`rate_limit`: a request every `interval` seconds, and `burst` at once; 0: no limit."""

    interval: float = 0.0
    burst: int = Field(0, ge=0)

    @field_validator("interval", mode="before")
    @classmethod
    def _seconds(cls, value: object) -> object:
        return duration(value) if isinstance(value, str) else value


class WebConfig(_Strict):
    """The whole file."""

    tls_server_config: Tls = Tls()
    http_server_config: Http = Http()
    basic_auth_users: dict[str, str] = Field({})
    rate_limit: RateLimit = RateLimit()

    @field_validator("basic_auth_users")
    @classmethod
    def _hashed(cls, value: dict[str, str]) -> dict[str, str]:
        for user, hashed in value.items():
            match = _HASH.fullmatch(hashed)
            if match is None:
                raise ValueError(
                    f"{printable(user, 40)}: no bcrypt hash; htpasswd -nBC 10 '' makes one"
                )
            if not 4 <= int(match[1]) <= MAX_COST:
                raise ValueError(
                    f"{printable(user, 40)}: a cost from 4 to {MAX_COST}, not {match[1]}"
                )
        return value


def read(path: Path) -> WebConfig:
    """Return what the file at *path* says.

    Raises:
        ConfigError: One line with the file, the key and the remedy.
    """
    raw = _mapping(path)
    try:
        return WebConfig.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(f"{path}: {_one_line(error.errors(include_input=False)[0])}") from None


def _mapping(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path}: larger than 1 MiB, no web configuration")
    try:
        raw = yaml_text.read(content)
    except yaml_text.YamlError as error:
        where = f" (line {error.line})" if error.line else ""
        raise ConfigError(f"{path}: no valid YAML{where}") from None
    if raw is not None and not isinstance(raw, Mapping):
        raise ConfigError(f"{path}: must be a mapping of keys, not {type(raw).__name__}")
    return raw or {}


_SECTIONS: Final[dict[str, type[_Strict]]] = {
    "tls_server_config": Tls, "http_server_config": Http, "rate_limit": RateLimit,
}  # fmt: skip


def _one_line(first: ErrorDetails) -> str:
    location = [str(part) for part in first["loc"]]
    where = printable(".".join(location), 100)
    if first["type"] == "extra_forbidden":
        model = _SECTIONS.get(location[0], WebConfig) if len(location) > 1 else WebConfig
        return f"{printable(unknown('key', location[-1], model.model_fields))} (at {where})"
    return f"{where}: {printable(first['msg'].removeprefix('Value error, '))}"
