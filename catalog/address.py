"""Addresses as people write them: where to listen, and what to ask over HTTP."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

from catalog.plain import plain

_CREDENTIALS = re.compile(r"://.*@", re.DOTALL)
_LONGEST = 100


def printable(text: str, longest: int = 300) -> str:
    r"""Return *text* cut to *longest*, with what a terminal would act on escaped (`\x1b`)."""
    cut = text if len(text) <= longest else f"{text[:longest]}…"
    return plain(cut)


def shown(value: object) -> str:
    """Return a wrong value for a message: one short line, without the credentials of a URL."""
    text = _CREDENTIALS.sub("://", value) if isinstance(value, str) else value
    try:
        return printable(repr(text), _LONGEST)
    except (ValueError, RecursionError):  # an integer with too many digits, or too deep
        return f"a {type(value).__name__}"


def bare_url(url: str) -> str:
    """Return a URL without credentials and query, to be shown."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "no http address"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def listen_address(text: str) -> tuple[str, int]:
    """Return host and port of `host:port`, `[::1]:port` or `:port` (every address).

    Raises:
        ValueError: One line that says what is understood.
    """
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    bracketed = host.startswith("[") and host.endswith("]")
    number = re.fullmatch(r"[0-9]{1,5}", port)
    odd = _odd(text) or any(c in "[]/@?#" for c in bare)
    if not colon or not number or int(port) >= 1 << 16 or (":" in bare) != bracketed or odd:
        raise ValueError(
            f"{shown(text)} is no address to listen on (host:port, [ipv6]:port or :port)"
        )
    return bare, int(port)


def http_address(text: str, example: str) -> str:
    """Return *text* if it is a URL with which a server can be asked.

    Args:
        text: As written.
        example: A right one, for the message.

    Raises:
        ValueError: One line that says what is wrong, without credentials.
    """
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, 0
    if _odd(text) or not text.startswith(("http://", "https://")) or not host or port == 0:
        raise ValueError(f"{shown(text)} is no http address (write {example})")
    return text


def _odd(text: str) -> bool:
    """Whether there is a blank or a control character in it."""
    return any(c.isspace() or not c.isprintable() for c in text)
