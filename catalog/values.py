"""Kinds of value in `leadline.yaml`: each is checked when it is read, within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator

from catalog.address import http_address, listen_address, shown
from catalog.signals import SIGNALS, unknown
from catalog.units import LONGEST, duration, parse

_SHORTEST: Final = 0.1
_LARGEST: Final = 2.0**50
_TOO_LARGE: Final = 1e300


def _seconds(value: object) -> float:
    number = duration(value) if isinstance(value, str) else _number(value)
    if not _SHORTEST <= number <= LONGEST:
        raise ValueError("must be from 100ms to 10 years (3650d)")
    return number


def _bytes(value: object) -> float:
    number = parse(value, "bytes") if isinstance(value, str) else _number(value)
    if not 1 <= number <= _LARGEST:
        raise ValueError("must be from 1B to 1024TiB")
    return number


def _number(value: object) -> float:
    """Return what YAML read as a number.

    Raises:
        ValueError: It read something else, or a number that is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _TOO_LARGE:
        raise ValueError(f"{shown(value)} is no number with a unit (as 30s, 64GiB, 45%)")
    return float(value)


def _listen(value: str) -> str:
    listen_address(value)
    return value


def _page(value: str) -> str:
    """Return the address of a page; vLLM writes other names behind a slash at its end."""
    parts = urlsplit(http_address(value, "http://host:port/metrics"))
    if parts.path.endswith("/metrics/"):
        return parts._replace(path=parts.path.rstrip("/")).geturl()
    return value


def _base(value: str) -> str:
    return http_address(value, "http://host:port")


Duration = Annotated[float, BeforeValidator(_seconds)]
Size = Annotated[float, BeforeValidator(_bytes)]
Listen = Annotated[str, AfterValidator(_listen)]
PageUrl = Annotated[str, AfterValidator(_page)]
BaseUrl = Annotated[str, AfterValidator(_base)]


def _bounds(value: object) -> object:
    """Read `{signal: value}`, values in the signal's unit as people write them."""
    if not isinstance(value, Mapping):
        return value
    read: dict[str, float] = {}
    for name, amount in value.items():
        if name not in SIGNALS:
            raise ValueError(unknown("signal", str(name), SIGNALS))
        try:
            unit = SIGNALS[name].unit
            number = parse(amount, unit) if isinstance(amount, str) else _number(amount)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        if not 0 < number < float("inf"):
            raise ValueError(f"{name}: {shown(amount)} must be a number above zero")
        read[name] = number
    return read


Bounds = Annotated[dict[str, float], BeforeValidator(_bounds)]
