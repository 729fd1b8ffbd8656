"""What every detector is given beside the arrays: limits, the moment, and how to name places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from catalog.panel import Labels, Panel
from detectors.finding import Finding

PAGE_BELOW = 12 * 3600.0  # seconds to the breach
TICKET_BELOW = 30 * 86_400.0
Z90 = 1.645  # two-sided 90 %


class LimitsLike(Protocol):
    """Anything that knows limits, SLAs and floors; `catalog.config.Config` does."""

    def limit(self, signal: str, labels: Labels) -> float | None:
        """Return the limit of *signal* at *labels* in its base unit, or None."""


@dataclass(frozen=True)
class Limits:
    """Limits by signal, the same at every place; the simplest `LimitsLike`."""

    by_signal: Mapping[str, float] = field(default_factory=dict)

    def limit(self, signal: str, labels: Labels) -> float | None:  # noqa: ARG002
        """Return the limit of *signal*, wherever it is."""
        return self.by_signal.get(signal)


Detector = Callable[[Mapping[str, Panel], LimitsLike, float], list[Finding]]


def without(labels: Labels, *names: str) -> tuple[tuple[str, str], ...]:
    """Return *labels* as a sorted key, without *names* and without empty ones."""
    return tuple(sorted((k, v) for k, v in labels.items() if v and k not in names))


def where(labels: Labels) -> str:
    """Return the place of *labels* for a sentence: "worker 0 of decode server n7:8000"."""
    process = " ".join(labels[k] for k in ("process", "rank") if labels.get(k))
    pool = " ".join(labels[k] for k in ("deployment", "pool") if labels.get(k))
    server = f"server {labels['server']}" if labels.get("server") else ""
    place = " ".join(part for part in (pool, server) if part)
    if process and place:
        return f"{process} of {place}"
    rest = ", ".join(f"{k}={v}" for k, v in sorted(labels.items()) if v)
    return process or place or rest or "the series"
