"""One recording rule for every signal of the catalogue."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

from catalog.signals import SIGNALS

INTERVAL: Final = "30s"


def groups() -> list[dict[str, Any]]:
    """Return the groups of recording rules, one a level: Prometheus evaluates them side by side."""
    by_level = sorted(SIGNALS.values(), key=lambda signal: signal.level)
    return [
        {
            "name": f"leadline-signals-{level}",
            "interval": INTERVAL,
            "rules": [{"record": signal.record, "expr": signal.expr} for signal in signals],
        }
        for level, signals in groupby(by_level, key=lambda signal: signal.level)
    ]
