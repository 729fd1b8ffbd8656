"""Reads a page over HTTP within a time and a size, whatever the other side does.

The time holds for the whole exchange: a server that sends one byte a second is cut off by it too.
Redirects are not followed, so that a target can't send us elsewhere.

FetchError
    The page could not be had; the message says why, without address or credentials.
    TooLargeError
        It is larger than it may be.
"""

from __future__ import annotations

import base64
import http.client
import io
import ipaddress
import re
import ssl
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from catalog.address import printable

CHUNK: Final = 1 << 16
_GZIP: Final = 31
_HEAD_BYTES: Final = 1 << 17
_METADATA: Final = ("fd00:ec2::254", "100.100.100.200")  # of clouds, and not link-local


class FetchError(Exception):
    """A page could not be had; the message is one short line.

    Attributes:
        late: Whether time ran out.
    """

    def __init__(self, reason: str, *, late: bool = False) -> None:
        super().__init__(reason)
        self.late = late


class TooLargeError(FetchError):
    """A page is larger than it may be; the message is one short line."""


Take = Callable[[int], None]
"""Told of more bytes before they are kept; raises FetchError where they are too many."""


def _freely(_: int) -> None:
    """Let any number of bytes be kept."""


class Fetch(Protocol):
    """What reads a page: (URL, seconds, bytes at most) -> its body."""

    def __call__(self, url: str, timeout: float, limit: int, *, take: Take = ...) -> bytes:
        """Return the body; raise FetchError otherwise. *take* is told of its bytes first."""


class TooMuchError(http.client.HTTPException):
    """What was sent has no end."""


class DeadlineReader(io.RawIOBase):
    """A socket to read from until a deadline, however slowly it drips, and up to a size."""

    def __init__(self, sock: Any, deadline: float, clock: Callable[[], float], most: int) -> None:
        super().__init__()
        self._left = most
        self._sock = sock
        self._raw = sock.makefile("rb", 0)
        self._deadline = deadline
        self._clock = clock

    def readable(self) -> bool:
        """Return true: it is for reading."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what is there; raise TimeoutError past the deadline, TooMuchError past the size."""
        left = self._deadline - self._clock()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        count: int | None = self._raw.readinto(buffer)
        self._left -= count or 0
        if self._left < 0:
            raise TooMuchError
        return count

    def close(self) -> None:
        """Let go of the socket."""
        self._raw.close()
        super().close()


def fetch(
    url: str,
    timeout: float,
    limit: int,
    clock: Callable[[], float] = time.monotonic,
    *,
    take: Take = _freely,
    headers: Mapping[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> bytes:
    """Return the body at *url*, at most *limit* bytes of it, within *timeout* seconds.

    Args:
        url: Of http or https.
        timeout: Seconds for the whole exchange.
        limit: Most bytes, unpacked.
        clock: Monotonic seconds.
        take: Told of each piece of the body, unpacked, before it is kept.
        headers: To send beside, or in place of, those of a scrape.
        context: Whom to trust, in place of the system's certificates.

    Raises:
        FetchError: There is none in time, it is too large (also for *take*), or the answer isn't
            200.
    """
    deadline = clock() + timeout
    try:
        parts = urlsplit(url)
        connection = _connection(parts.scheme, parts.hostname or "", parts.port, timeout, context)
    except (ValueError, http.client.HTTPException):
        raise FetchError("its address is no http://host:port/path") from None
    connection.response_class = response_until(  # type: ignore[assignment]
        deadline, clock, limit
    )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        sent = _headers(parts.username, parts.password) | dict(headers or {})
        connection.connect()
        _check_place(connection.sock.getpeername()[0], parts.hostname or "")
        connection.request("GET", path, headers=sent)
        with connection.getresponse() as response:
            if response.status != http.client.OK:
                reason = printable(response.reason, 100)
                raise FetchError(f"answered {response.status} {reason}".rstrip())
            return _body(response, limit, take)
    except TimeoutError:
        raise FetchError(f"no whole answer within {timeout:.3g} s", late=True) from None
    except ssl.SSLCertVerificationError as error:
        raise FetchError(f"its certificate is not trusted ({error.verify_message})") from None
    except TooMuchError:
        raise _too_large(limit) from None
    except http.client.IncompleteRead:
        raise FetchError("the answer ended early") from None
    except (http.client.HTTPException, zlib.error, ValueError) as error:
        raise FetchError(f"no proper answer ({type(error).__name__})") from None
    except OSError as error:
        raise FetchError((error.strerror or type(error).__name__).lower()) from None
    finally:
        connection.close()


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"larger than {limit / 2**20:.3g} MiB")


def _check_place(address: str, host: str) -> None:
    """Refuse to say a word where a name leads to a cloud's metadata or another link-local address.

    Whoever holds a name's record could else have us ask there. An address in figures is meant.

    Raises:
        FetchError: It does.
    """
    at = ipaddress.ip_address(address.partition("%")[0])
    at = getattr(at, "ipv4_mapped", None) or at
    named = not re.fullmatch(r"[0-9.]+|.*:.*", host)
    if named and (at.is_link_local or str(at) in _METADATA):
        raise FetchError("its name leads to a link-local address: not asked")


def _connection(
    scheme: str, host: str, port: int | None, timeout: float, context: ssl.SSLContext | None
) -> http.client.HTTPConnection:
    if scheme == "https":
        context = context or ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
    return http.client.HTTPConnection(host, port, timeout=timeout)


def response_until(
    deadline: float, clock: Callable[[], float], limit: int
) -> Callable[..., http.client.HTTPResponse]:
    """Return a maker of responses that read until *deadline*.

    What frames a body of *limit* bytes may be as large again: chunks of one byte with a page of
    words beside each, or answers that only say that more will come, would keep us busy till then.
    """
    most = 2 * limit + _HEAD_BYTES

    class Readable:
        """All that a response wants of a socket."""

        def __init__(self, sock: Any) -> None:
            self._sock = sock

        def makefile(self, *_: Any) -> io.BufferedReader:
            return io.BufferedReader(DeadlineReader(self._sock, deadline, clock, most), CHUNK)

    def make(sock: Any, *args: Any, **kwargs: Any) -> http.client.HTTPResponse:
        return http.client.HTTPResponse(Readable(sock), *args, **kwargs)  # type: ignore[arg-type]

    return make


def _headers(user: str | None, password: str | None) -> dict[str, str]:
    headers = {
        "Accept": "text/plain;version=0.0.4,*/*;q=0.1",
        "Accept-Encoding": "gzip",
        "User-Agent": "leadline-exporter",
        "Connection": "close",
    }
    if user:
        pair = f"{unquote(user)}:{unquote(password or '')}".encode()
        headers["Authorization"] = "Basic " + base64.b64encode(pair).decode("ascii")
    return headers


def _unpacked(unpacker: Any, chunk: bytes) -> Iterator[bytes]:
    """Yield what a chunk holds, a little at a time: a gzip bomb gets no more of it to unpack.

    What follows the end is left: zlib would keep whatever it is.
    """
    while chunk and not unpacker.eof:
        yield unpacker.decompress(chunk, CHUNK)
        chunk = unpacker.unconsumed_tail


def _body(response: http.client.HTTPResponse, limit: int, take: Take) -> bytes:
    # An error held by a name here would hold this frame, and with it what was read, until the
    # collector of circles comes by.
    if (response.length or 0) > limit:
        raise _too_large(limit)
    packed = response.getheader("Content-Encoding", "").lower() == "gzip"
    unpacker = zlib.decompressobj(_GZIP)
    body = io.BytesIO()
    taken = 0
    while not unpacker.eof and (chunk := response.read1(CHUNK)):
        taken += len(chunk)
        for piece in _unpacked(unpacker, chunk) if packed else (chunk,):
            if max(body.tell() + len(piece), taken) > limit:
                raise _too_large(limit)
            take(len(piece))
            body.write(piece)
    if not unpacker.eof and (response.length or packed):
        raise FetchError("the answer ended early")
    return body.getvalue()
