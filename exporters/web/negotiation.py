"""What a client asks for by its headers Accept and Accept-Encoding, quality values and all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_OPEN: Final = "application/openmetrics-text"
_OPEN_VERSIONS: Final = ("", "1.0.0", "0.0.1")
_TEXT: Final = ("text/plain", "text/*", "*/*")
_QUALITY = re.compile(r"(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")
_MAX_RANGES: Final = 64


class _Range(NamedTuple):
    """One thing that a client would take, and how gladly."""

    name: str
    version: str
    quality: float


def wants_openmetrics(accept: str) -> bool:
    """Whether a client asks for OpenMetrics rather than for the text format.

    It must be asked for by name: `*/*` gives the text format. Of two that a client likes equally
    the first one named is taken.
    """
    best = _Range("", "", 0.0)
    for one in _ranges(accept):
        is_open = one.name == _OPEN and one.version in _OPEN_VERSIONS
        if (is_open or one.name in _TEXT) and one.quality > best.quality:
            best = one
    return best.name == _OPEN


def takes_gzip(accept_encoding: str) -> bool:
    """Whether a client takes a packed answer."""
    told = {one.name: one.quality for one in _ranges(accept_encoding)}
    return told.get("gzip", told.get("*", 0.0)) > 0


def _ranges(header: str) -> Iterator[_Range]:
    """Yield what *header* lists; a quality that is none counts as 0: nobody is sent a guess."""
    for part in header.split(",", _MAX_RANGES)[:_MAX_RANGES]:
        name, *parameters = part.split(";")
        told = {"version": "", "q": "1"}
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            told[key.strip().lower()] = value.strip().strip('"')
        quality = float(told["q"]) if _QUALITY.fullmatch(told["q"]) else 0.0
        yield _Range(name.strip().lower(), told["version"], quality)
