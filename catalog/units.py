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
    "": 1.0, "B": 1.0,
    "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40,
    "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40,
}  # fmt: skip
_DURATIONS: Final = {
    "ms": 1e-3, "us": 1e-6, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0,
    "h": 3600.0, "d": 86400.0, "w": 604800.0,
}  # fmt: skip
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
    table = _SIZES if unit == "bytes" else _DURATIONS if unit == "seconds" else {"": 1.0, "%": 0.01}
    match = _NUMBER.fullmatch(text)
    if match is None or match.group(2) not in table:
        known = " ".join(name for name in table if name)
        raise ValueError(f"{_short(text)} is no number of {unit} (a number, then one of: {known})")
    number = float(match.group(1)) * table[match.group(2)]
    if not math.isfinite(number):
        raise ValueError(f"{_short(text)} is too large a number of {unit}")
    return number


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
