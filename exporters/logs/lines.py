"""One line of a vLLM log without its wrapping: what Kubernetes, Docker, colours and JSON add."""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

MAX_LINE: Final = 1 << 14
"""Bytes of a line that are read; the forms below are far shorter."""

_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,32}[A-Za-z]")
_CRI = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]{8,18}(?:Z|[+-]\d\d:\d\d) std(?:out|err) [FP](?::\w+)? ")
_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_HEAD = re.compile(
    rf"(?P<level>{'|'.join(_LEVELS)}) +"
    r"\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})? (?:\[[^\]\s]{1,200}\] ?)?"
)
# `(EngineCore_DP0 pid=123) ` and VLLM_LOGGING_PREFIX stand before it, in either order.
_BEFORE = re.compile(r"[^\"'\t]{0,160}")


class Line(NamedTuple):
    """A line without its wrapping.

    Attributes:
        prefix: vLLM's own, the same on each line of one message; empty for lines of others.
        level: Lower case; empty for lines of others.
        message: The rest.
    """

    prefix: str
    level: str
    message: str


def read_line(raw: bytes) -> Line:
    """Take a line apart; whatever the bytes are, there is one."""
    text = raw[:MAX_LINE].decode("utf-8", "replace").rstrip("\r\n")
    text = _COLOUR.sub("", text) if "\x1b" in text else text
    wrapped = _CRI.match(text)
    text = text[wrapped.end() :] if wrapped else text
    if text.startswith("{"):
        unwrapped = _from_json(text)
        if isinstance(unwrapped, Line):
            return unwrapped
        text = unwrapped
    match = _HEAD.search(text, 0, 400)
    if match is None or not _BEFORE.fullmatch(text, 0, match.start()):
        return Line("", "", text)
    return Line(text[: match.end()], match["level"].lower(), text[match.end() :])


def _from_json(text: str) -> Line | str:
    """Return what a JSON line holds: vLLM's own record, or the text that Docker wrapped."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(record, dict):
        return text
    message, level, log = record.get("message"), record.get("levelname"), record.get("log")
    if isinstance(message, str) and isinstance(level, str) and level.upper() in _LEVELS:
        who = f"{record.get('processName')} {record.get('process')} {record.get('asctime')}"
        return Line(f"{who[:200]} {level}", level.lower(), message)
    if isinstance(log, str):
        plain = log.rstrip("\r\n")
        return _COLOUR.sub("", plain) if "\x1b" in plain else plain
    return text
