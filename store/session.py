"""The HTTP session under the query client: one deadline, one bound on size, no retries.

prometheus-api-client takes any requests session. Its own retries each failed call three times with
pauses, and reads whatever comes: a dead Prometheus would hold a cycle for seconds per query, a
broken one would fill the memory.
"""

from __future__ import annotations

import ipaddress
import json
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

import requests
from requests.auth import AuthBase, HTTPBasicAuth

from catalog.plain import plain
from store.errors import BadAnswerError, BadQueryError, StoreError, UnreachableError

MAX_ANSWER: Final = 256 * 2**20
MAX_TOKEN: Final = 64 * 2**10
_REFUSED: Final = (400, 422)
_CHUNK: Final = 2**18
SMALL: Final = 2**16
"""Bytes of an answer that is looked through before it is used."""
_INSTANT: Final = ("vector", "scalar", "matrix", "string")


class BearerFile(AuthBase):
    """Sends the token of a file, read for each request: tokens of service accounts rotate."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Put the header on *request*."""
        try:
            with self._path.open(encoding="ascii") as file:
                token = file.read(MAX_TOKEN).strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "is no ASCII text"
            raise BadAnswerError(f"bearer token file {self._path}: {reason}") from None
        request.headers["Authorization"] = f"Bearer {token}"
        return request


class BoundedSession(requests.Session):
    """A session whose every answer comes within the timeout and under the bound, or not at all."""

    def __init__(self, url: str, timeout: float, max_answer: int = MAX_ANSWER) -> None:
        super().__init__()
        self.shown = url
        self._timeout = timeout
        self._max = max_answer
        self.max_redirects = 3
        # A proxy from the environment has no business between us and our own machine.
        self.trust_env = not _is_loopback(urlsplit(url).hostname or "")

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **kwargs: Any) -> Any:
        """Send queries as a form: expressions of some kB in an address are cut off by proxies."""
        if method == "POST":
            kwargs["data"] = kwargs.pop("params", None)
        return super().request(method, url, *args, **kwargs)

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Return the whole answer; raise `StoreError` for none, a refusal, or too much of it."""
        deadline = time.monotonic() + self._timeout
        kwargs.update(stream=True, timeout=self._timeout)
        try:
            response = super().send(request, **kwargs)
            body = self._read(response, deadline)
        except requests.Timeout:
            raise self._too_slow() from None
        except requests.RequestException as error:
            raise UnreachableError(
                f"{self.shown}: {_reason(error)}; is it running, and is the address right?"
            ) from None
        response._content = body  # what requests itself sets once it has read all
        if response.status_code != 200 and not response.is_redirect:
            raise self._refusal(response)
        if len(body) <= SMALL:
            self._check(response)
        return response

    def _check(self, response: requests.Response) -> None:
        """Raise for an answer that calls itself an error, or is of another kind than asked for.

        The client looks at neither, and an empty result of the wrong kind would pass for "no
        series". Large ones are not parsed twice: they hold a result, and show by it what they are.
        """
        try:
            answer = response.json()
        except (ValueError, RecursionError):
            return  # the client trips over it as well, and that is one line
        if not isinstance(answer, dict):
            return
        if answer.get("status") != "success":
            raise BadAnswerError(
                f"{self.shown}: answers with an error: {_said(response)}"
                if answer.get("status") == "error"
                else f"{self.shown}: answer is not the query API's (no status); "
                "is this the base address of a Prometheus?"
            )
        data = answer.get("data")
        kind = data.get("resultType") if isinstance(data, dict) else None
        asked = urlsplit(response.request.url or "").path
        if kind not in (("matrix",) if asked.endswith("/query_range") else _INSTANT):
            raise BadAnswerError(
                f"{self.shown}: answer is not the query API's (resultType {str(kind)[:40]!r}); "
                "is this the base address of a Prometheus?"
            )

    def _read(self, response: requests.Response, deadline: float) -> bytes:
        parts: list[bytes] = []
        size = 0
        for part in response.iter_content(_CHUNK):
            size += len(part)
            if size > self._max:
                response.close()
                raise BadAnswerError(
                    f"{self.shown}: answer of more than {self._max >> 20} MiB; ask for less: "
                    "a shorter span, a longer step or fewer series"
                )
            if time.monotonic() > deadline:
                response.close()
                raise self._too_slow()
            parts.append(part)
        return b"".join(parts)

    def _too_slow(self) -> UnreachableError:
        return UnreachableError(
            f"{self.shown}: no answer within {self._timeout:g} s; "
            "raise prometheus.timeout, or ask for less"
        )

    def _refusal(self, response: requests.Response) -> StoreError:
        status, said = response.status_code, _said(response)
        if status in _REFUSED:
            return BadQueryError(f"{self.shown}: refuses the query: {said}")
        if status in (401, 403):
            return BadAnswerError(
                f"{self.shown}: not allowed ({status}); set prometheus.bearer_token_file, "
                "or user and password in the address"
            )
        if status == 429 or status >= 500:
            return UnreachableError(f"{self.shown}: cannot answer now ({status}): {said}")
        return BadAnswerError(
            f"{self.shown}: HTTP {status} for a query; is this the base address of a Prometheus?"
        )


def split_credentials(url: str) -> tuple[str, AuthBase | None]:
    """Return *url* without user and password, and what they authenticate.

    Raises:
        BadAnswerError: It is no http address.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise BadAnswerError(
            f"{url.rpartition('@')[2]!r} is no address of a Prometheus (http://host:9090)"
        )
    place = f"[{host}]" if ":" in host else host
    bare = urlunsplit(
        (parts.scheme, place if port is None else f"{place}:{port}", parts.path.rstrip("/"), "", "")
    )
    if parts.username is None:
        return bare, None
    return bare, HTTPBasicAuth(unquote(parts.username), unquote(parts.password or ""))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reason(error: requests.RequestException) -> str:
    """Return the innermost cause of a failed request in a few words."""
    inner: BaseException = error
    while (deeper := inner.__cause__ or inner.__context__) is not None:
        inner = deeper
    words = getattr(inner, "strerror", None) or str(inner) or type(inner).__name__
    return plain(" ".join(str(words).split())[:200])


def _said(response: requests.Response) -> str:
    """Return what the API says of an error, or the first words of the body."""
    try:
        text = str(response.json()["error"])
    except (ValueError, KeyError, TypeError, json.JSONDecodeError):
        text = response.content[:300].decode("utf-8", "replace")
    return plain(" ".join(text.split())[:300]) or "no reason given"
