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


def value(number: float, unit: Unit | str) -> str:
    """Return a value as `units.human` does, without the unit where the signal's name says it."""
    return human(number, unit).removesuffix(" count")


def rate(per_second: float, unit: Unit | str) -> str:
    """Return a speed in the span that reads best: bytes by hour, all else by day."""
    if not math.isfinite(per_second):
        return "unknown"
    sign = "+" if per_second > 0 else "−" if per_second < 0 else "±"
    return sign + _speed(abs(per_second), unit)


def interval(low: float, high: float, unit: Unit | str) -> str:
    """Return two speeds, their unit once where it is the same."""
    first, last = rate(low, unit), rate(high, unit)
    number, _, name = first.partition(" ")
    return f"{number if name and last.endswith(' ' + name) else first} to {last}"


def _speed(size: float, unit: Unit | str) -> str:
    if unit == "bytes":
        return f"{human(size * 3600, 'bytes')}/h"
    day = size * 86400
    if unit == "ratio":
        return f"{day * 100:.2g} points/d"
    if unit == "seconds":
        return f"{_short(day)}/d"
    if unit.startswith("bytes"):
        return f"{human(day, unit)} a day"
    name = unit.replace("_per_second", "/s").replace("per_second", "/s")
    if name == "count":
        return f"{day:.3g} a day"
    return f"{day:.3g} {name} a day" if "/" in name else f"{day:.3g} {name}/d"


def _short(seconds: float) -> str:
    """Return a small span in the unit that fits it: `12 µs`, `1.3 ms`, `2.1 s`."""
    for size, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{seconds / size:.3g} {name}"
    return f"{seconds * 1e6:.1g} µs"


def spans(low: float | None, high: float | None) -> str:
    """Return an interval of time; without a latest end it may never come."""
    first = "unknown" if low is None or not math.isfinite(low) else span(low)
    return f"{first} to {'never' if high is None or not math.isfinite(high) else span(high)}"


def left(seconds: float | None) -> str:
    """Return the time to a breach."""
    if seconds is None or math.isnan(seconds):
        return "unknown"
    if math.isinf(seconds):
        return "not at this rate"
    return "now" if seconds <= 0 else span(seconds)


def span(seconds: float) -> str:
    """Return a span to three digits, so that both ends of an interval can be told apart."""
    if math.isfinite(seconds) and 10 <= abs(seconds) / 86400 < 100:
        return f"{seconds / 86400:.1f} d"
    return human_duration(seconds)


def change(by: float, relative: float, unit: Unit | str) -> str:
    """Return the change between two spans: `+12 %`, of shares `−1.3 points`."""
    if not math.isfinite(by):
        return "unknown"
    if unit != "ratio" and not math.isfinite(relative):
        return "±0" if by == 0 else f"{'+' if by > 0 else '−'}{value(abs(by), unit)}"
    number, name = (by * 100, "points") if unit == "ratio" else (relative * 100, "%")
    text = f"{abs(number):.0f}" if abs(number) >= 100 else f"{abs(number):.1f}"
    sign = "±" if float(text) == 0 else "+" if number > 0 else "−"
    return f"{sign}{text} {name}"


def span_name(seconds: float) -> str:
    """Return what people call a span of that length: `week`, `day`, else `span`."""
    days = round(seconds / 86400, 3)
    return "week" if days == 7 else "day" if days == 1 else "span"


def share(part: float) -> str:
    """Return a share: `12 %`, `0.4 %`, `under 0.1 %`."""
    if 0 < part < 1e-3:
        return "under 0.1 %"
    return f"{part:.1%}".replace("%", " %") if part < 0.095 else f"{part:.0%}".replace("%", " %")
