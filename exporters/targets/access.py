"""How a page is asked for that is not open to all: a token, and whose certificates are trusted.

A token is short-lived and its file is read each time. It goes to the address that it was named
for and to no other: pages are never redirected.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, Literal, cast

from exporters.fetch import Fetch, FetchError

MAX_TOKEN: Final = 1 << 16
Check = Literal["all", "chain", "nothing"]


@dataclass(frozen=True)
class Access:
    """What a target wants to be asked with.

    Attributes:
        token_file: File of the token that it is sent, or empty.
        ca_file: File of the certificates that its own must be signed by; empty: the system's.
        check: Of its certificate: all; the chain, where it is asked by an address that its name
            doesn't say; or nothing.
    """

    token_file: str = ""
    ca_file: str = ""
    check: Check = "all"

    def through(self, fetch: Fetch) -> Fetch:
        """Return *fetch* as this target wants to be asked."""
        return fetch if self == OPEN else cast("Fetch", partial(_ask, fetch, self))


OPEN: Final = Access()
"""As whoever asks."""


def _ask(fetch: Fetch, access: Access, url: str, *more: Any, **told: Any) -> bytes:
    if access.token_file:
        told["headers"] = {"Authorization": f"Bearer {_token(access.token_file)}"}
    if url.startswith("https://"):
        told["context"] = _context(access)
    body: bytes = cast("Any", fetch)(url, *more, **told)
    return body


def _token(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            token = file.read(MAX_TOKEN).decode("ascii", "replace").strip()
    except OSError as error:
        raise FetchError(f"token file {path}: {error.strerror}") from None
    if not token or not token.isprintable() or not token.isascii():
        raise FetchError(f"token file {path} holds no token")
    return token


def _context(access: Access) -> ssl.SSLContext:
    try:
        stamp = Path(access.ca_file).stat().st_mtime_ns if access.ca_file else 0
        return _made(access.ca_file, stamp, access.check)
    except (OSError, ssl.SSLError) as error:  # also a file that holds no certificates
        raise FetchError(f"ca file {access.ca_file}: {error.strerror or error}") from None


@lru_cache(maxsize=64)  # the system's certificates take milliseconds to read
def _made(ca_file: str, _: int, check: Check) -> ssl.SSLContext:
    if check == "nothing":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    else:
        context = ssl.create_default_context(cafile=ca_file or None)
    context.check_hostname = check == "all"
    context.verify_mode = ssl.CERT_NONE if check == "nothing" else ssl.CERT_REQUIRED
    return context
