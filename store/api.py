"""`Api`: the JSON of Prometheus' and Alertmanager's own pages: rules, targets, status, alerts."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final

import requests

from store.errors import BadAnswerError, StoreError, UnreachableError
from store.session import BearerFile, BoundedSession, split_credentials

MAX_STATUS: Final = 64 * 2**20
"""Bytes of the largest answer: ten thousand targets have some 10 MB."""


class _Session(BoundedSession):
    """The bounds of the query client for answers of other kinds."""

    def _check(self, response: requests.Response) -> None:
        """Leave it to whoever asked what the answer must look like."""

    def _too_slow(self) -> UnreachableError:
        return UnreachableError(f"{self.shown}: no answer within {self._timeout:g} s")

    def _refusal(self, response: requests.Response) -> StoreError:
        status = response.status_code
        if status in (401, 403):
            return BadAnswerError(
                f"{self.shown}: not allowed ({status}); put user and password in the address, "
                "or for Prometheus set prometheus.bearer_token_file"
            )
        return BadAnswerError(f"{self.shown}: HTTP {status}; is this the right base address?")


class Api:
    """Reads one server's API.

    Attributes:
        url: Its base address without credentials.
        date: Unix seconds that the last answer was dated with, to the second; None if it was not.
    """

    def __init__(self, url: str, *, timeout: float, bearer_token_file: str = "") -> None:
        """Make a client; nothing is sent yet.

        Raises:
            BadAnswerError: The address is none.
        """
        self.url, auth = split_credentials(url)
        self.date: float | None = None
        self._session = _Session(self.url, timeout, MAX_STATUS)
        self._session.auth = BearerFile(Path(bearer_token_file)) if bearer_token_file else auth

    def get(self, path: str, **parameters: str) -> Any:
        """Return the JSON at *path* below the base address.

        Raises:
            StoreError: There is none; one line.
        """
        response = self._session.get(f"{self.url}{path}", params=parameters)
        try:
            self.date = parsedate_to_datetime(response.headers["Date"]).timestamp()
        except (KeyError, ValueError):
            self.date = None
        try:
            return response.json()
        except (ValueError, RecursionError):
            raise BadAnswerError(f"{self.url}{path}: the answer is no JSON") from None
