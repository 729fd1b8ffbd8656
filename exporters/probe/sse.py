"""A stream of completions as vLLM sends it: server-sent events, and what each of them says."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

MAX_EVENT: Final = 1 << 18
_MOST_TOKENS: Final = 10_000_000
_DONE: Final = "[DONE]"


class ProbeError(Exception):
    """A probe failed; `reason` is one of a short list, fit for a label."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Events:
    """Puts bytes together to events; only their data matters, comments keep a connection alive."""

    def __init__(self) -> None:
        self._rest = b""
        self._return = False
        self._data: list[bytes] = []
        self._size = 0

    def add(self, chunk: bytes) -> list[str]:
        """Return the data of the events that are whole now.

        Raises:
            ProbeError: An event is too large.
        """
        if self._return and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._return = False
        if chunk:
            self._return = chunk.endswith(b"\r")
        lines = (self._rest + chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")).split(b"\n")
        self._rest = lines.pop()
        found: list[str] = []
        for line in lines:
            if line:
                self._line(line)
            elif self._data:
                found.append(b"\n".join(self._data).decode("utf-8", "replace"))
                self._data, self._size = [], 0
        if len(self._rest) + self._size > MAX_EVENT:
            raise ProbeError("too_large")
        return found

    def _line(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(value) + 1


class Piece(NamedTuple):
    """What an event says.

    Attributes:
        text: Of the answer, often empty.
        finish: Why it ended; empty before the end.
        usage: Tokens of prompt and answer, if it tells.
        done: Whether nothing comes after it.
    """

    text: str = ""
    finish: str = ""
    usage: tuple[int, int] | None = None
    done: bool = False


def piece(data: str) -> Piece:
    """Read the data of an event.

    Raises:
        ProbeError: It is an error, or no event of a completion.
    """
    if data.strip() == _DONE:
        return Piece(done=True)
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        raise ProbeError("bad_event") from None
    if not isinstance(said, dict):
        raise ProbeError("bad_event")
    if said.get("error"):
        raise ProbeError("stream_error")
    choices = said.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    if not isinstance(first, dict):
        raise ProbeError("bad_event")
    finish = first.get("finish_reason")
    return Piece(_text(first), finish if isinstance(finish, str) else "", _usage(said.get("usage")))


def _text(choice: dict[str, Any]) -> str:
    text = choice.get("text")
    return text if isinstance(text, str) else ""


def _usage(said: object) -> tuple[int, int] | None:
    if not isinstance(said, dict):
        return None
    counts = said.get("prompt_tokens"), said.get("completion_tokens")
    read = [n for n in counts if type(n) is int and 0 <= n <= _MOST_TOKENS]
    return (read[0], read[1]) if len(read) == 2 else None
