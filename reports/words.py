"""Numbers as the reader of a report says them: rates, intervals, instants."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from catalog.units import Unit, human, human_duration


def instant(at: float | None) -> str:
    """Return a moment: `Sun 29 Nov 2026, 16:00 UTC`."""
    if at is None or not math.isfinite(at):
        return "unknown"
    return f"{datetime.fromtimestamp(at, UTC):%a %-d %b %Y, %H:%M} UTC"


def rate(per_second: float, unit: Unit | str, *, signed: bool = True) -> str:
    """Return a speed in the span that reads best: bytes by hour, all else by day."""
    if not math.isfinite(per_second):
        return "unknown"
    sign = ("+" if per_second > 0 else "−" if per_second < 0 else "±") if signed else ""
    size = abs(per_second)
    if unit == "bytes":
        return f"{sign}{human(size * 3600, 'bytes')}/h"
    if unit == "ratio":
        return f"{sign}{size * 86400 * 100:.2g} points/d"
    text = human(size * 86400, unit) if unit != "seconds" else _short(size * 86400)
    return f"{sign}{text} a day" if "/" in text else f"{sign}{text}/d"


def _short(seconds: float) -> str:
    """Return a small span in the unit that fits it: `12 µs`, `1.3 ms`, `2.1 s`."""
    for size, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{seconds / size:.3g} {name}"
    return f"{seconds * 1e6:.1g} µs"


def between(low: float | None, high: float | None, spell: object) -> str:
    """Return an interval; *spell* is a function that spells one end."""
    assert callable(spell)  # noqa: S101 - narrows the type
    first = "?" if low is None or not math.isfinite(low) else spell(low)
    last = "never" if high is None or not math.isfinite(high) else spell(high)
    return f"{first} to {last}"


def left(seconds: float | None) -> str:
    """Return the time to a breach."""
    if seconds is None or math.isnan(seconds):
        return "unknown"
    if math.isinf(seconds):
        return "not at this rate"
    return "now" if seconds <= 0 else human_duration(seconds)


def share(part: float) -> str:
    """Return a share: `12 %`, `0.4 %`, `under 0.1 %`."""
    if 0 < part < 1e-3:
        return "under 0.1 %"
    return f"{part:.1%}".replace("%", " %") if part < 0.1 else f"{part:.0%}".replace("%", " %")
