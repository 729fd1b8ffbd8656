"""What every detector is given beside the arrays: limits, the moment, and how to name places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from catalog.panel import FloatArray, Labels, Panel
from detectors.finding import Finding

PAGE_BELOW = 12 * 3600.0  # seconds to the breach
TICKET_BELOW = 30 * 86_400.0
Z90 = 1.645  # two-sided 90 %
LARGEST = 1e18  # no count of bytes, seconds or tokens is an exabyte's worth


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


def believable(panel: Panel) -> Panel:
    """Return *panel* with values that no signal can have as missing: they are unknown, not data.

    A single one would overflow the arithmetic of all series that are judged together.
    """
    if not any(_absurd(a).any() for a in (panel.values, panel.load, panel.trials, panel.starts)):
        return panel
    return replace(
        panel,
        values=_cut(panel.values),
        load=None if panel.load is None else _cut(panel.load),
        trials=None if panel.trials is None else _cut(panel.trials),
        starts=None if panel.starts is None else _cut(panel.starts),
    )


def _absurd(values: FloatArray | None) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = np.abs(np.zeros(0) if values is None else values) > LARGEST
    return found


def _cut(values: FloatArray) -> FloatArray:
    return np.where(_absurd(values), np.nan, values)
