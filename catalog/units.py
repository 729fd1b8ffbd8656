"""Sizes, durations and shares as people write them, and back."""

from __future__ import annotations

import math
import re
from typing import Final, Literal

Unit = Literal[
    "seconds", "bytes", "ratio", "tokens", "requests", "count",
    "watts", "joules", "hertz", "celsius", "per_second", "bytes_per_second", "tokens_per_second",
]  # fmt: skip

_SIZES: Final = {
    "B": 1.0,
    "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40,
    "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40,
}  # fmt: skip
_DURATIONS: Final = {
    "ms": 1e-3, "us": 1e-6, "s": 1.0, "m": 60.0, "min": 60.0,
    "h": 3600.0, "d": 86400.0, "w": 604800.0,
}  # fmt: skip
_TABLES: Final[dict[Unit, dict[str, float]]] = {"bytes": _SIZES, "seconds": _DURATIONS}
_SHORTHAND: Final = frozenset({"us", "min", "kB", "KB", "MB", "GB", "TB", "Ki", "Mi", "Gi", "Ti"})
_MEANT: Final[dict[Unit, tuple[str, ...]]] = {
    "seconds": ("ms", "s", "m", "d"), "bytes": ("B", "MiB", "GiB"),
}  # fmt: skip
FEW: Final = 1e5
"""A bare number below this may be of any unit; a larger one is of the base unit."""
_SHORT: Final = {
    "watts": (1.0, "W"), "joules": (1.0, "J"), "hertz": (1e6, "MHz"), "celsius": (1.0, "°C"),
}  # fmt: skip
LONGEST: Final = 3.2e8
"""Seconds of the longest span that anybody means: ten years."""
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z%]*)\s*")


def parse(text: str, unit: Unit) -> float:
    """Return *text* in base units: `64GiB` for bytes, `20ms` for seconds, `45%` or `0.45` else.

    Raises:
        ValueError: One line that says what was read and what is understood.
    """
    table = _TABLES.get(unit, {"": 1.0, "%": 0.01})
    match = _NUMBER.fullmatch(text)
    if match is not None and not match.group(2):
        with_unit(float(match.group(1)), unit)
        table = {**table, "": 1.0}  # nothing needs no unit
    if match is None or match.group(2) not in table:
        known = " ".join(name for name in table if name)
        raise ValueError(f"{_short(text)} is no number of {unit} (a number, then one of: {known})")
    number = float(match.group(1)) * table[match.group(2)]
    if not math.isfinite(number):
        raise ValueError(f"{_short(text)} is too large a number of {unit}")
    return number


def with_unit(number: float, unit: Unit) -> None:
    """Refuse a bare number of what has many units: who writes 20 may mean 20 ms.

    Raises:
        ValueError: One line that says how it may be meant.
    """
    if unit in _TABLES and 0 < number < math.inf:
        either = [f"{number:.15g}{name}" for name in _MEANT[unit]]
        small = 1 <= number < FEW
        meant = f"{', '.join(either[:-1])} or {either[-1]}" if small else spelled(number, unit)
        raise ValueError(f"{number:.15g} has no unit: write {meant}")


def spelled(value: float, unit: Unit) -> str:
    """Return *value* as people write it and `parse` reads it back exactly, the shortest way."""
    if unit not in _TABLES:
        return repr(value)
    texts = [f"{value / size:.15g}{name}" for name, size in _TABLES[unit].items()
             if name not in _SHORTHAND]  # fmt: skip
    exact = [text for text in texts if parse(text, unit) == value]
    # Of two as short, the larger unit.
    return min(reversed(exact), key=len, default=f"{value!r}{'s' if unit == 'seconds' else 'B'}")


def duration(text: str) -> float:
    """Return seconds for `30s`, `5m`, `7d`, ten years at most.

    Raises:
        ValueError: One line that says what was read and what is understood.
    """
    seconds = parse(text, "seconds")
    if seconds > LONGEST:
        raise ValueError(f"{_short(text)} is longer than 10 years (3650d)")
    return seconds


def _short(text: str) -> str:
    whole = repr(text)
    return whole if len(whole) <= 60 else f"{whole[:60]}…"


def human_duration(seconds: float) -> str:
    """Return a span as people say it: `45 s`, `12 min`, `9.4 h`, `25 d`; `unknown` for NaN."""
    if not math.isfinite(seconds):
        return "unknown" if math.isnan(seconds) else "never"
    for limit, size, name in ((90, 1, "s"), (5400, 60, "min"), (172800, 3600, "h")):
        if abs(seconds) < limit:
            value = seconds / size
            return f"{value:.0f} {name}" if abs(value) >= 10 else f"{value:.1f} {name}"
    days = seconds / 86400
    return f"{days:.0f} d" if abs(days) >= 10 else f"{days:.1f} d"


def human(value: float, unit: Unit | str) -> str:
    """Return *value* of *unit* for a person: `3.2 GiB`, `18.4 ms`, `71.2 %`."""
    if not math.isfinite(value):
        return "unknown"
    if unit.startswith("bytes"):
        suffix = unit.removeprefix("bytes").replace("_per_", "/").replace("second", "s")
        for size, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
            if abs(value) >= size:
                return f"{value / size:.1f} {name}{suffix}"
        return f"{value:.0f} B{suffix}"
    if unit == "seconds":
        return f"{value * 1000:.1f} ms" if abs(value) < 1 else f"{value:.2f} s"
    if unit == "ratio":
        return f"{value:.1%}".replace("%", " %")
    bare = unit.replace("_per_second", "/s").replace("per_second", "/s")
    scale, name = _SHORT.get(unit, (1.0, bare))
    value /= scale
    number = f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:,.4g}"
    return f"{number} {name}".strip()
