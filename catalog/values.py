"""Kinds of value in `leadline.yaml`: each is checked when it is read, within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, ValidationInfo

from catalog.address import http_address, listen_address, shown
from catalog.signals import SIGNALS, unknown
from catalog.units import LONGEST, Unit, duration, parse, spelled, with_unit

_SHORTEST: Final = 0.1
_LARGEST: Final = 2.0**50
_TOO_LARGE: Final = 1e300


WRITTEN: Final = "written by a person"
"""Context of validation in which an amount of time or bytes needs its unit; code has base units."""


def _seconds(value: object, info: ValidationInfo) -> float:
    number = duration(value) if isinstance(value, str) else _number(value, "seconds", info)
    if not _SHORTEST <= number <= LONGEST:
        raise ValueError("must be from 100ms to 10 years (3650d)")
    return number


def _bytes(value: object, info: ValidationInfo) -> float:
    number = parse(value, "bytes") if isinstance(value, str) else _number(value, "bytes", info)
    if not 1 <= number <= _LARGEST:
        raise ValueError("must be from 1B to 1024TiB")
    return number


def _number(value: object, unit: Unit, info: ValidationInfo) -> float:
    """Return what YAML read as a number.

    Raises:
        ValueError: It read something else, a number that is none, or one that lacks its unit.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _TOO_LARGE:
        raise ValueError(f"{shown(value)} is no number with a unit (as 30s, 64GiB, 45%)")
    if info.context == WRITTEN:
        with_unit(value, unit)
    return float(value)


def _listen(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError(
            f"{shown(value)} is a port, no address to listen on: write 127.0.0.1:{shown(value)}, "
            f"or :{shown(value)} for every address"
        )
    if isinstance(value, str):
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


def _spelled(unit: Unit) -> PlainSerializer:
    """Return what writes an amount so that it is read back: a bare number would be refused."""
    return PlainSerializer(lambda value: spelled(value, unit), return_type=str, when_used="json")


Duration = Annotated[float, BeforeValidator(_seconds), _spelled("seconds")]
Size = Annotated[float, BeforeValidator(_bytes), _spelled("bytes")]
Listen = Annotated[str, BeforeValidator(_listen)]
PageUrl = Annotated[str, AfterValidator(_page)]
BaseUrl = Annotated[str, AfterValidator(_base)]


def _bounds(value: object, info: ValidationInfo) -> object:
    """Read `{signal: value}`, values in the signal's unit as people write them."""
    if not isinstance(value, Mapping):
        return value
    read: dict[str, float] = {}
    for name, amount in value.items():
        if name not in SIGNALS:
            raise ValueError(unknown("signal", str(name), SIGNALS))
        try:
            unit = SIGNALS[name].unit
            number = parse(amount, unit) if isinstance(amount, str) else _number(amount, unit, info)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        if not 0 < number < float("inf"):
            raise ValueError(f"{name}: {shown(amount)} must be a number above zero")
        read[name] = number
    return read


def _spelled_bounds(bounds: dict[str, float]) -> dict[str, str | float]:
    units = {name: SIGNALS[name].unit for name in bounds}
    return {
        name: spelled(value, units[name]) if units[name] in ("seconds", "bytes") else value
        for name, value in bounds.items()
    }


Bounds = Annotated[
    dict[str, float], BeforeValidator(_bounds), PlainSerializer(_spelled_bounds, when_used="json")
]
