"""One streaming request, within a time and a size, whatever the other side does.

Nothing is followed and nothing is unpacked: a redirect, a packed answer and one that is no stream
are failures. The time holds for the whole exchange, however slowly it drips.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from exporters.fetch import TooMuchError, response_until
from exporters.probe.sse import ProbeError

MAX_ANSWER: Final = 4 << 20
_CHUNK: Final = 1 << 14
MARK: Final = "X-Leadline-Probe"
"""Header of every request of ours: gateways and logs can tell them from a user's."""


class Exchange:
    """A request and its answer; `code` is the class of its `status`, `none` before there is one.

    Args:
        url: Base of the API.
        seconds: For all of it.
        context: Whom to trust, for https.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        url: str,
        seconds: float,
        context: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(url)
        self.code = "none"
        self.status = 0
        self._path = f"{parts.path.rstrip('/')}/completions"
        self._clock = clock
        self._deadline = clock() + seconds
        host, port = parts.hostname or "", parts.port
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            self._connection = http.client.HTTPSConnection(
                host, port, timeout=seconds, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=seconds)
        self._connection.response_class = response_until(  # type: ignore[assignment]
            self._deadline, clock, MAX_ANSWER
        )

    def stream(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Iterator[bytes]:
        """Send *body* and yield the answer as it comes.

        Raises:
            ProbeError: With the reason, from a short list.
        """
        try:
            yield from self._stream(body, headers)
        except ProbeError:
            raise
        except TimeoutError:
            raise ProbeError("timeout") from None
        except TooMuchError:
            raise ProbeError("too_large") from None
        except socket.gaierror:
            raise ProbeError("dns") from None
        except ssl.SSLError:
            raise ProbeError("tls") from None
        except (http.client.IncompleteRead, http.client.RemoteDisconnected, ConnectionError):
            raise ProbeError("connection" if self.code == "none" else "ended_early") from None
        except (http.client.HTTPException, ValueError):
            raise ProbeError("bad_http") from None
        except OSError:
            raise ProbeError("connection") from None
        finally:
            self._connection.close()

    def _stream(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Iterator[bytes]:
        sent = {
            "Content-Type": "application/json", "Accept": "text/event-stream",
            "Accept-Encoding": "identity", "User-Agent": "leadline-probe", "Connection": "close",
            **headers,
        }  # fmt: skip
        self._connection.request("POST", self._path, json.dumps(body).encode(), sent)
        response = self._connection.getresponse()
        self.status = response.status
        self.code = f"{response.status // 100}xx" if 100 <= response.status < 600 else "other"
        if response.status != http.client.OK:
            raise ProbeError("redirect" if self.code == "3xx" else f"http_{self.code}")
        if response.getheader("Content-Encoding", "identity").lower() != "identity":
            raise ProbeError("packed")
        if not response.getheader("Content-Type", "").lower().startswith("text/event-stream"):
            raise ProbeError("no_stream")
        size = 0
        while data := response.read1(_CHUNK):
            size += len(data)
            if size > MAX_ANSWER:
                raise ProbeError("too_large")
            yield data
