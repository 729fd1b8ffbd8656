"""Passwords of the page: checked against bcrypt hashes, without a way to wear the node out.

- bcrypt is dear on purpose, and a scrape comes every few seconds: a user's last right password is
  known by a keyed digest, whose key lives and dies with the process.
- An unknown user costs what a wrong password costs, so that time tells nobody who exists.
- One check at a time, with a pause thrice as long after a wrong one (a second at most): guessing
  gets a quarter of one core. More than a few who wait for their turn are sent away, and those who
  are known already never wait.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from catalog.config import ConfigError

WAITING: Final = 4
LONGEST_PASSWORD: Final = 72  # of which bcrypt takes notice
_LONGEST_HEADER: Final = 4096
_PAUSE: Final = 3.0
_LONGEST_PAUSE: Final = 1.0
_SAY_AGAIN_SECONDS: Final = 60.0
log = logging.getLogger("leadline.exporters")

Check = Callable[[bytes, bytes], bool]


class Login(Enum):
    """What became of a login."""

    RIGHT = "right"
    WRONG = "wrong"
    BUSY = "busy"


def bcrypt_check() -> Check:
    """Return bcrypt's check of a password against a hash.

    Raises:
        ConfigError: It isn't installed; one line that says how to.
    """
    try:
        import bcrypt  # noqa: PLC0415 - an extra, needed for passwords alone
    except ImportError:
        raise ConfigError(
            "basic_auth_users: bcrypt is not installed: pip install 'leadline[auth]'"
        ) from None
    return bcrypt.checkpw


class Logins:
    """Checks logins of any number of threads, in memory bounded by the number of users."""

    def __init__(
        self,
        check: Check | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._check = check
        self._clock = clock
        self._sleep = sleep
        self._secret = secrets.token_bytes(32)
        self._known: dict[str, bytes] = {}
        self._one = threading.Lock()
        self._places = threading.BoundedSemaphore(WAITING)
        self._wrong = 0
        self._said = -_SAY_AGAIN_SECONDS

    def login(self, users: Mapping[str, str], authorization: str, client: str) -> Login:
        """Return whether *authorization* is a right one; *users* are hashes by name."""
        told = _pair(authorization)
        if told is None:
            return Login.WRONG
        user, password = told
        hashed = users.get(user)
        digest = self._digest(user, hashed or "", password)
        if hashed and hmac.compare_digest(self._known.get(user, b""), digest):
            return Login.RIGHT
        if not self._places.acquire(blocking=False):
            return Login.BUSY
        try:
            right = self._dearly(password, hashed, users)
        finally:
            self._places.release()
        if not right:
            self._tell(client)
            return Login.WRONG
        self._known = {name: one for name, one in self._known.items() if name in users}
        self._known[user] = digest
        return Login.RIGHT

    def _dearly(self, password: bytes, hashed: str | None, users: Mapping[str, str]) -> bool:
        check = self._check or bcrypt_check()
        with self._one:
            begun = self._clock()
            try:
                same = check(password[:LONGEST_PASSWORD], (hashed or _nobody(users)).encode())
            except ValueError:  # a NUL in the password, which older versions refuse
                same = False
            right = same and hashed is not None
            if not right:
                self._sleep(min(_PAUSE * (self._clock() - begun), _LONGEST_PAUSE))
        return right

    def _digest(self, user: str, hashed: str, password: bytes) -> bytes:
        parts = (user.encode(), hashed.encode(), password)
        told = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._secret, told, "sha256")

    def _tell(self, client: str) -> None:
        """Log failures, a line a minute at most, without the name: some type passwords there."""
        self._wrong += 1
        now = self._clock()
        if now - self._said >= _SAY_AGAIN_SECONDS:
            log.warning("wrong user or password: %d of them, the last from %s", self._wrong, client)
            self._wrong, self._said = 0, now


def _nobody(users: Mapping[str, str]) -> str:
    """Return a hash that no password has, as dear as the dearest of *users*."""
    cost = max((hashed[4:6] for hashed in users.values()), default="10")
    return f"$2b${cost}${'.' * 53}"


def _pair(authorization: str) -> tuple[str, bytes] | None:
    scheme, _, encoded = authorization.strip().partition(" ")
    if scheme.lower() != "basic" or len(encoded) > _LONGEST_HEADER:
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None
