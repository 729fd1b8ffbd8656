"""What a signal was over a span, with the span before beside it: never invented, else unknown."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from catalog.panel import Panel
from reports import words

LEAST_SEEN: Final = 0.5
"""Share of a span in which a signal must have been seen for a value to stand for the span."""
NOTABLE: Final = 0.1
NOTABLE_RATIO: Final = 0.02
"""Change against the span before that is worth a reader's time: a tenth, of shares two points."""


@dataclass(frozen=True)
class Level:
    """What one signal was over one span in one place; `why` says why a value is unknown."""

    value: float = math.nan
    seen: float = 0.0
    why: str = "no data"


@dataclass(frozen=True)
class Beside:
    """One span and the span before it, of equal length."""

    now: Level = field(default_factory=Level)
    before: Level = field(default_factory=Level)

    @property
    def change(self) -> float:
        """Return the change in the signal's unit; NaN where either span is unknown."""
        return self.now.value - self.before.value

    @property
    def relative(self) -> float:
        """Return the change as a share of the span before; NaN from nothing or the unknown."""
        return self.change / self.before.value if self.before.value > 0 else math.nan

    @property
    def why(self) -> str:
        """Return why there is no change to tell, or an empty text."""
        return self.before.why or self.now.why

    def notable(self, unit: str) -> bool:
        """Whether the change is worth a reader's time."""
        if unit == "ratio":
            return abs(self.change) >= NOTABLE_RATIO
        grown = self.before.value == 0 and self.now.value != 0
        return abs(self.relative) >= NOTABLE or (grown and math.isfinite(self.now.value))


def level(panel: Panel, span: float, top: float | None = None) -> Level:
    """Return what the series of *panel*, all of one place, were over a span of that many seconds.

    Of counts it is the ratio of sums, else the median of all samples of all series.

    Args:
        panel: Cut to the span.
        span: Seconds; a panel that covers less of it was not seen in the rest.
        top: Highest finite bucket bound, for quantiles: what lies there is above it.
    """
    known = np.isfinite(panel.values)
    if panel.trials is not None:
        known &= panel.trials > 0
    if not known.any():
        return Level()
    # Both ends of a span may lie on the grid: the share is then just above one.
    seen = min(1.0, float(known.any(axis=0).sum()) * panel.step / span)
    if seen < LEAST_SEEN:
        return Level(seen=seen, why=f"seen in only {words.share(seen)} of it")
    if panel.trials is not None:
        value = float(panel.values[known].sum() / panel.trials[known].sum())
    else:
        value = float(np.median(panel.values[known]))
    if top is not None and value >= top * (1 - 1e-9):
        return Level(seen=seen, why="above the highest bucket")
    return Level(value, seen, "")
