"""What detectors eat: many series of one signal on one even time grid.

A panel is made by `store/` (from PromQL or from a table) and read by detectors and reports; it lies
here because it belongs below both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Labels = Mapping[str, str]


@dataclass(frozen=True)
class Panel:
    """Many series of one signal on one even time grid.

    Attributes:
        signal: Name in the catalogue.
        times: Shape (n,), unix seconds, ascending, evenly spaced.
        values: Shape (s, n), base units; NaN where there was no sample.
        labels: One mapping per series, length s.
        load: Shape (s, n) or None: the load that the signal depends on.
        trials: Shape (s, n) or None: trials per step; then `values` counts successes per step,
            disjoint and already corrected for counter resets.
        starts: Shape (s, n) or None: start time of the incarnation (unix seconds); a change is a
            restart.
    """

    signal: str
    times: FloatArray
    values: FloatArray
    labels: tuple[Labels, ...]
    load: FloatArray | None = None
    trials: FloatArray | None = None
    starts: FloatArray | None = None

    def __post_init__(self) -> None:
        shape = (len(self.labels), len(self.times))
        for name in ("values", "load", "trials", "starts"):
            array = getattr(self, name)
            if array is not None and array.shape != shape:
                raise ValueError(
                    f"panel {self.signal}: {name} has shape {array.shape}, not {shape} "
                    "(series, times)"
                )

    @property
    def step(self) -> float:
        """Seconds between two grid points; NaN with fewer than two points."""
        return float(self.times[1] - self.times[0]) if len(self.times) > 1 else float("nan")

    def rows(self, index: Sequence[int]) -> Panel:
        """Return the panel of the series at the positions of *index*."""
        chosen = list(index)
        return replace(
            self,
            values=self.values[chosen],
            labels=tuple(self.labels[i] for i in chosen),
            load=None if self.load is None else self.load[chosen],
            trials=None if self.trials is None else self.trials[chosen],
            starts=None if self.starts is None else self.starts[chosen],
        )

    def until(self, as_of: float) -> Panel:
        """Return the panel as it was known at *as_of* (unix seconds, inclusive)."""
        n = int(np.searchsorted(self.times, as_of, side="right"))
        return replace(
            self,
            times=self.times[:n],
            values=self.values[:, :n],
            load=None if self.load is None else self.load[:, :n],
            trials=None if self.trials is None else self.trials[:, :n],
            starts=None if self.starts is None else self.starts[:, :n],
        )
