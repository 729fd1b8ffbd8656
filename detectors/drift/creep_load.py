"""The same load: bins of a latency, its loads beside it, and what of it the loads explain.

A partially linear model (Robinson, "Root-N-consistent semiparametric regression", Econometrica 56,
1988): log latency = f(loads) + g(time) + noise. f is a linear spline in the logarithm of the main
load and a parabola in each further one; g is a line from day to day, there so that growth that
merely comes at the same time as load isn't put down to it, and the daily swing of the load tells
f. The fit is robust (Huber, "Robust Estimation of a Location Parameter", 1964, by reweighting).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from catalog.panel import FloatArray, Panel
from detectors.drift.context import without
from detectors.drift.coverage import POOL_LABELS

BoolArray = npt.NDArray[np.bool_]

BIN = 900.0  # seconds: the median of a quarter of an hour is deaf to a spike
DAY = 86_400.0
LONGEST = 7 * DAY
KNOTS = (0.25, 0.5, 0.75)  # quantiles of the log load at which the spline may bend
HUBER = 1.5  # scales at which a residual begins to count less
ROUNDS = 4
RIDGE = 1e-3  # keeps what the data says nothing of at nothing
LEARN = 6 * 3600.0  # a load is learned once it was seen this long ago
MARGIN = 0.15  # beyond the learned range, in logarithm: a little is no other traffic
FIRST = DAY  # of a history that everything is learned from
COVERED = 0.8  # of the bins: a load that is known for less is not used


@dataclass(frozen=True)
class Bins:
    """One series in bins that end now.

    Attributes:
        times: Middle of each bin, unix seconds.
        raw: Its median, in the unit of the signal; NaN where there is none.
        log: Logarithm of it, told from the acceptance length where that is known.
        loads: Shape (m, bins), logarithms; the main load first.
        names: What the loads are.
        learned: Whether the loads of a bin lie within what was seen before it.
        step: Seconds of a bin.
    """

    times: FloatArray
    raw: FloatArray
    log: FloatArray
    loads: FloatArray
    names: tuple[str, ...]
    learned: BoolArray
    step: float


def medians(values: FloatArray, width: int) -> FloatArray:
    """Return medians (s, bins) of bins of *width* points that end at the last; NaN where empty.

    A bin of which less than a third is known is empty.
    """
    size = values.shape[1] // width
    tail = values[:, values.shape[1] - size * width :]
    if width == 1:
        return tail.copy()
    parts = np.sort(tail.reshape(len(values), size, width), axis=2)  # NaN go last
    count = np.isfinite(parts).sum(axis=2)
    place = (np.maximum(count, 1) - 1) / 2
    ends = [
        np.take_along_axis(parts, side(place).astype(np.intp)[:, :, None], axis=2)[:, :, 0]
        for side in (np.floor, np.ceil)
    ]
    middle: FloatArray = np.where(count * 3 >= width, (ends[0] + ends[1]) / 2, np.nan)
    return middle


def logarithm(values: FloatArray) -> FloatArray:
    """Return the logarithm; what is not above zero is not known."""
    above = values > 0
    return np.where(above, np.log(np.where(above, values, 1.0)), np.nan)


def beside(panel: Panel, row: int, other: Panel | None, *, add: bool) -> FloatArray | None:
    """Return what *other* says on the grid of *panel* at the place of one of its series.

    The place is the narrowest that both name: the server, else the pool, else the deployment.

    Args:
        panel: With the series.
        row: Of the series.
        other: Another signal, or None.
        add: Whether its series add up (requests a second) or are averaged (tokens a step).
    """
    if other is None or not other.labels or not len(other.times):
        return None
    mine = panel.labels[row]
    place = {k: v for k, v in mine.items() if v and k in (*POOL_LABELS, "server")}
    rows = [i for i, one in enumerate(other.labels) if _here(one, place)]
    if not rows:  # what prefill counts is the load of decode too
        place = {k: v for k, v in place.items() if k not in ("pool", "server")}
        rows = [i for i, one in enumerate(other.labels) if _here(one, place)]
    if not rows:
        return None
    values = other.values[rows]
    if other.trials is not None:
        values = np.where(other.trials[rows] > 0, values, np.nan)
    known = np.isfinite(values)
    total = np.where(known, values, 0.0).sum(axis=0)
    count = known.sum(axis=0)
    both = np.where(count > 0, total if add else total / np.maximum(count, 1), np.nan)
    return _on_grid(both, other.times, panel.times)


def _here(labels: Mapping[str, str], place: Mapping[str, str]) -> bool:
    return all(labels.get(name) in (value, None, "") for name, value in place.items())


def _on_grid(values: FloatArray, times: FloatArray, grid: FloatArray) -> FloatArray | None:
    """Return *values* at the instants of *grid*; None where the two have no common step."""
    if len(times) == len(grid) and times[0] == grid[0]:
        return values
    at = np.searchsorted(times, grid)
    near = at < len(times)
    at = np.minimum(at, len(times) - 1)
    near &= np.abs(times[at] - grid) < 1.0
    return np.where(near, values[at], np.nan) if near.any() else None


def binned(
    panel: Panel, row: int, loads: Sequence[tuple[str, FloatArray]], offset: FloatArray | None
) -> Bins | None:
    """Return one series in bins, or None where there are too few points.

    Args:
        panel: With the series.
        row: Of the series.
        loads: Names and values of what it depends on, the main one first.
        offset: What is added to the logarithm, such as that of the acceptance length.
    """
    width = max(1, round(BIN / panel.step))
    most = round(LONGEST / (width * panel.step)) * width
    stack = [panel.values[row], *(values for _, values in loads)]
    parts = medians(np.array([one[-most:] for one in stack]), width)
    raw = parts[0]
    if not np.isfinite(raw).any():
        return None
    seconds = width * panel.step
    end = float(panel.times[-1]) + panel.step / 2
    times = end - seconds * (np.arange(len(raw), dtype=np.float64)[::-1] + 0.5)
    log = logarithm(raw)
    if offset is not None:
        log = log + medians(offset[None, -most:], width)[0]
    known = np.isfinite(log)
    logs = logarithm(parts[1:])
    keep = [
        i
        for i, one in enumerate(logs)
        if (np.isfinite(one) & known).sum() >= COVERED * known.sum() > 0
        and np.ptp(one[np.isfinite(one)]) > 1e-6
    ]
    first = int(known.argmax()) if known.any() else 0
    cut = slice(first, None)
    used = logs[keep]
    return Bins(
        times[cut],
        raw[cut],
        log[cut],
        used[:, cut],
        tuple(loads[i][0] for i in keep),
        _learned(used[:, cut], seconds),
        seconds,
    )


def _learned(loads: FloatArray, seconds: float) -> BoolArray:
    """Return for each bin whether every load lies within what was seen a while before it."""
    inside = np.ones(loads.shape[1], dtype=bool)
    back, first = round(LEARN / seconds), round(FIRST / seconds)
    for one in loads:
        known = np.isfinite(one)
        high = np.maximum.accumulate(np.where(known, one, -np.inf))
        low = np.minimum.accumulate(np.where(known, one, np.inf))
        at = np.maximum(np.arange(len(one)) - back, min(first, len(one)) - 1)
        inside &= known & (one <= high[at] + MARGIN) & (one >= low[at] - MARGIN)
    return inside


def explained(bins: Bins, apart: FloatArray | None = None) -> FloatArray:
    """Return what the loads explain of the logarithm of each bin, about its usual level.

    Args:
        bins: The series.
        apart: Shape (bins, k): further columns that are fitted beside and not explained away.
    """
    columns = _columns(bins)
    if not columns.shape[1]:
        return np.zeros(len(bins.log))
    days = (bins.times - bins.times[0]) / DAY
    knots = np.arange(1.0, max(days[-1] - 0.5, 0.0))
    free = [np.ones_like(days), days, *(np.maximum(days - knot, 0.0) for knot in knots)]
    design = np.column_stack([columns, *free, *([] if apart is None else [apart])])
    used = np.isfinite(bins.log) & np.isfinite(design).all(axis=1)
    weights = fit(design[used], bins.log[used], columns.shape[1])
    level = columns @ weights[: columns.shape[1]]
    return np.asarray(level - np.median(level[used]) if used.any() else level)


def fit(design: FloatArray, y: FloatArray, damped: int) -> FloatArray:
    """Return robust weights of the columns; the first *damped* ones are held near zero."""
    size = design.shape[1]
    if len(y) <= size:
        return np.zeros(size)
    ridge = np.zeros(size)
    ridge[:damped] = RIDGE * len(y)
    ridge[damped:] = 1e-9 * len(y)
    weight = np.ones(len(y))
    answer: FloatArray = np.zeros(size)
    for _ in range(ROUNDS):
        lifted = design * weight[:, None]
        answer = np.asarray(np.linalg.solve(design.T @ lifted + np.diag(ridge), lifted.T @ y))
        rest = np.abs(y - design @ answer)
        scale = 1.483 * float(np.median(rest)) + 1e-12
        weight = np.minimum(1.0, HUBER * scale / np.maximum(rest, 1e-12))
    return answer


def _columns(bins: Bins) -> FloatArray:
    """Return the columns of f: a spline of the main load, parabolas of the others."""
    out: list[FloatArray] = []
    for i, one in enumerate(bins.loads):
        known = one[np.isfinite(one)]
        spread = max(float(np.std(known)), 1e-6)
        x = (one - known.mean()) / spread
        out.append(x)
        if i:
            out.append(x**2 - 1)
        else:
            out += [
                np.maximum(x - (q - known.mean()) / spread, 0.0) for q in np.quantile(known, KNOTS)
            ]
    return np.column_stack(out) if out else np.zeros((len(bins.log), 0))


def pool_key(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the pool of *labels* as a key."""
    return without({name: labels.get(name, "") for name in POOL_LABELS})
