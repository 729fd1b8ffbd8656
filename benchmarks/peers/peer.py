"""What a peer is given and what it answers.

A peer is asked about all series of one case at the same moments as Leadline, and answers for each
of its settings whether it fires then: its published setting, and those of the sweep to equal
false-alarm budgets. It sees nothing later than the moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt
import pandas as pd

from catalog.panel import FloatArray

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
HOUR = 3600.0
DAY = 86_400.0


@dataclass(frozen=True)
class View:
    """Series of one case, and the moments at which they are judged.

    Attributes:
        values: (s, n); NaN where there was no sample.
        step: Seconds between points.
        looks: (m,) number of points known at each moment, ascending.
        limit: What must not be reached, in the unit of the values; NaN where there is none.
    """

    values: FloatArray
    step: float
    looks: IntArray
    limit: float

    def points(self, seconds: float) -> int:
        """Return how many steps *seconds* are, at least one."""
        return max(1, round(seconds / self.step))

    @cached_property
    def hourly(self) -> FloatArray:
        """Medians of whole hours since the first point, as a share of the limit; gaps are held."""
        width = self.points(HOUR)
        hours = self.values.shape[1] // width
        whole = self.values[:, : hours * width].reshape(len(self.values), hours, width)
        frame = pd.DataFrame(whole.reshape(-1, width)).median(axis=1).to_numpy()
        held = pd.DataFrame(frame.reshape(len(self.values), hours)).ffill(axis=1).bfill(axis=1)
        scale = self.limit if np.isfinite(self.limit) else float(np.nanmedian(self.values)) * 2
        shares: FloatArray = held.to_numpy() / scale
        return shares

    @cached_property
    def hours(self) -> IntArray:
        """(m,) number of whole hours known at each moment."""
        return self.looks // self.points(HOUR)


@dataclass(frozen=True)
class Answer:
    """What a peer says.

    Attributes:
        fires: (settings, s, m).
        interval: (3, s, m) or None: seconds to the limit, with the ends of its 90 % interval, at
            the published setting; NaN where it says nothing.
    """

    fires: BoolArray
    interval: FloatArray | None = None


@dataclass(frozen=True)
class Peer:
    """One detector of somebody else.

    Attributes:
        name: As the results call it.
        source: Whose it is and where its settings are from.
        settings: These settings, in words.
        swept: What the sweep varies, in words.
        grid: The settings of the sweep, the published one among them.
        default: The published one.
        run: Answers a view for every setting.
        package: Module that must be there; empty for none.
        most: Series of a case that it is asked about at most, because it is dear; 0 for all.
        one_pass: Whether one pass serves every setting; else each is a run of its own.
    """

    name: str
    source: str
    settings: str
    swept: str
    grid: tuple[float, ...]
    default: float
    run: Callable[[View, Sequence[float]], Answer]
    package: str = ""
    most: int = 0
    one_pass: bool = True

    @property
    def there(self) -> bool:
        """Return whether what it needs is installed."""
        return not self.package or find_spec(self.package) is not None


def at_looks(fires: BoolArray, view: View) -> BoolArray:
    """Return the columns of *fires* (..., n) at the moments of *view*."""
    return fires[..., view.looks - 1]


def since_last(events: BoolArray, view: View) -> BoolArray:
    """Return whether one of the *events* (s, hours) fell in the time since the moment before."""
    ends = np.minimum(view.hours, events.shape[1])
    total = np.concatenate([np.zeros((len(events), 1), int), events.cumsum(axis=1)], axis=1)
    before = np.concatenate([ends[:1] - max(1, int(np.diff(ends[:2]).sum())), ends[:-1]])
    fresh: BoolArray = total[:, ends] > total[:, np.maximum(before, 0)]
    return fresh


def over(score: FloatArray, grid: Sequence[float]) -> BoolArray:
    """Return where *score* reaches each setting of *grid*; NaN never does."""
    reached: BoolArray = np.nan_to_num(score, nan=-np.inf)[None] >= np.array(grid).reshape(
        -1, *(1,) * score.ndim
    )
    return reached
