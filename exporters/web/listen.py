"""The web configuration while the exporter runs: read anew when a file of it changes.

Each connection asks for it, as with Prometheus' exporter toolkit, so that a new certificate is
served at once. A file that can't be used leaves the last good one in force: one line in the log,
and `/readyz` says so. So does one that takes protection away (TLS, client certificates, all
passwords): a file caught half written would else open the page to everybody.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from catalog.config import ConfigError
from exporters.web.auth import Logins, bcrypt_check
from exporters.web.config import RateLimit, WebConfig, read
from exporters.web.tls import context

log = logging.getLogger("leadline.exporters")


@dataclass(frozen=True)
class Settings:
    """What holds for one connection.

    Attributes:
        context: TLS; None: without.
        sans: Names of which a client's certificate needs one; None: any will do.
        users: Password hashes by user; empty: no login.
        headers: Added to each answer.
        limit: How many requests are answered.
    """

    context: ssl.SSLContext | None = None
    sans: frozenset[str] | None = None
    users: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    limit: RateLimit = field(default_factory=RateLimit)


class _Stamp(NamedTuple):
    """What tells one state of a file from another."""

    modified: int
    size: int
    inode: int


class Web:
    """The settings of the moment, for any number of threads.

    Args:
        path: The file; empty: plain HTTP for everybody.
        clock: Monotonic seconds.

    Raises:
        ConfigError: It can't be used.
    """

    def __init__(self, path: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self.logins = Logins()
        self.problem = ""
        self._path = Path(path) if path else None
        self._clock = clock
        self._lock = threading.Lock()
        self._files: Sequence[Path] = ()
        self._stamps: list[_Stamp | None] = []
        self._settings = Settings()
        self._tokens, self._filled = 0.0, clock()
        if self._path:
            self._settings = self._load(self._path)
            self._tokens = float(self._settings.limit.burst)

    def settings(self) -> Settings:
        """Return what holds now."""
        if self._path is None:
            return self._settings
        with self._lock:
            if self._now() != self._stamps:
                self._reload(self._path)
            return self._settings

    def within_limit(self, limit: RateLimit) -> bool:
        """Whether one more request may be answered now; counts it if so."""
        if not limit.interval:
            return True
        with self._lock:
            now = self._clock()
            gained = (now - self._filled) / limit.interval
            self._tokens, self._filled = min(float(limit.burst), self._tokens + gained), now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

    def _reload(self, path: Path) -> None:
        try:
            settings = self._load(path)
            _check_kept(path, self._settings, settings)
        except ConfigError as error:
            if str(error) != self.problem:
                log.error("%s; what was read before stays in force", error)
            self.problem = str(error)
            return
        self._settings, self.problem = settings, ""
        log.info("%s was read anew", path)

    def _load(self, path: Path) -> Settings:
        """Read the file and all that it names; remember what they were like before."""
        self._files = (path,)
        self._stamps = self._now()
        config = read(path)
        self._files = (path, *(path.parent / name for name in config.tls_server_config.files))
        self._stamps += [_stamp(file) for file in self._files[1:]]
        try:
            return _settings(config, path)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    def _now(self) -> list[_Stamp | None]:
        return [_stamp(file) for file in self._files]


def _settings(config: WebConfig, path: Path) -> Settings:
    tls = config.tls_server_config
    if config.basic_auth_users:
        bcrypt_check()
    sans = tls.client_allowed_sans
    return Settings(
        context(tls, path.parent) if tls.enabled else None,
        None if sans is None else frozenset(sans),
        config.basic_auth_users,
        config.http_server_config.headers,
        config.rate_limit,
    )


def _check_kept(path: Path, old: Settings, new: Settings) -> None:
    """Refuse to go on with less protection than at the start.

    Raises:
        ConfigError: Something is gone that a restart alone may take away.
    """
    modes = [s.context.verify_mode if s.context else ssl.CERT_NONE for s in (old, new)]
    for name, lost in (
        ("TLS", bool(old.context) and not new.context),
        ("client_auth_type", modes[1] < modes[0]),
        ("client_allowed_sans", old.sans is not None and new.sans is None),
        ("basic_auth_users", bool(old.users) and not new.users),
    ):
        if lost:
            raise ConfigError(
                f"{path}: {name} is gone: a restart takes protection away, not a file"
            )


def _stamp(path: Path) -> _Stamp | None:
    try:
        told = path.stat()
    except OSError:
        return None
    return _Stamp(told.st_mtime_ns, told.st_size, told.st_ino)
