"""Evidence that memory grows and goes on: a line against all that ends, over the whole life.

One Bayesian comparison (Kass and Raftery, JASA 90, 1995). The likelihood of each shape is
integrated over its size and the size of the noise, and averaged over onsets, noises and bases; the
evidence is the log of the odds of a line to everything else. What is assumed of sizes is stated in
`SIZES`, as shares of the room there was before: a filling is at most half of it, in at most some
twelve hours at an even rate or with a time constant of at most eight. What fills for longer than
that towards a plateau is a leak to this module until it slows down.

The same averages tell the rate, its error and the onset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from catalog.panel import FloatArray, Panel
from detectors.drift.buckets import envelope, fill
from detectors.drift.evidence_design import (
    EIGHT,
    LEAST_UNITS,
    MOST_UNITS,
    Base,
    Design,
    IntArray,
    Noise,
    Singles,
    design,
    grid,
    stepped,
)

UNIT = 900.0  # seconds of a unit, at least, unless life is too short for that
QUANTUM = 5e-3  # smallest noise assumed, as a share of the range: data is never exact
# What sizes may be, evenly by their logarithm, as shares of the room: of rates, by hour.
SIZES = {
    "line": (5e-5, 0.2),
    "step": (1e-3, 0.5),
    "slowing": (1e-3, 0.5),
    "even": (1e-3, 0.5),
    "log": (2e-4, 0.1),
    "ended": (5e-5, 0.2),
}
PRIOR = {"ended": -1.0}  # nats; a leak that is over is rarer than one that is not
LOG_ROOT_2PI = 0.5 * float(np.log(2 * np.pi))
TINY = 1e-300
CLOSEST = 1e-9  # what is left of a series at least, as a share of it
SUDDEN = 8.0  # times the usual change from point to point: may be a step,
JUMP = -8.0  # nats that it takes to be one: its place is one of many, its size any
NEGLIGIBLE = 14.0  # nats below the best shape at its best size that still count


@dataclass(frozen=True)
class Asked:
    """A life to be weighed: row of the panel, its points, and whether its start was seen.

    Attributes:
        row: Position in the panel.
        begin: First point of the life.
        end: Points known.
        started: Whether it began within the panel.
        room: What there is left to the limit now, in the unit of the values.
    """

    row: int
    begin: int
    end: int
    started: bool
    room: float


@dataclass(frozen=True)
class Evidence:
    """What a life says.

    Attributes:
        odds: Log of the odds of growth that goes on to all that ends, in nats.
        beside: The same where the level may have jumped once as well. It keeps growth from being
            overlooked beside a jump; it is more easily mistaken about what wanders in jumps.
        slope: Units per second of the line.
        error: Its standard error, over onsets, noises and bases.
        age: Seconds since it began.
    """

    odds: float
    beside: float
    slope: float
    error: float
    age: float


def weigh(panel: Panel, asked: Sequence[Asked]) -> list[Evidence | None]:
    """Return the evidence of each life; None where there is too little of it to tell."""
    out: list[Evidence | None] = [None] * len(asked)
    origin = round(float(panel.times[0]) / panel.step)
    together: dict[tuple[int, int, bool], list[tuple[int, FloatArray]]] = defaultdict(list)
    for place, one in enumerate(asked):
        found = _units(panel.values[one.row], one, origin, panel.step)
        if found is not None:
            width, units = found
            together[width, len(grid(len(units))), one.started].append((place, units))
    for (width, points, started), some in together.items():
        model = design(points, width * panel.step / 3600, started)
        values = model.points(np.array([units[-model.units :] for _, units in some]))
        level = np.median(values[:, : max(4, points // EIGHT)], axis=1)
        room = np.array([asked[place].room for place, _ in some]) + values[:, -1] - level
        told = _compare(values, np.maximum(room, np.abs(level) * QUANTUM + 1e-12), model)
        for (place, _), odds, beside, slope, error, age in zip(some, *told, strict=True):
            out[place] = Evidence(
                float(odds), float(beside), float(slope) / 3600, float(error) / 3600,
                float(age) * 3600,
            )  # fmt: skip
    return out


def _units(
    values: FloatArray, one: Asked, origin: int, step: float
) -> tuple[int, FloatArray] | None:
    """Return points a unit, and the units of a life that are over, on one grid for all time."""
    life = one.end - one.begin
    width = 1
    while width * step < UNIT and life >= 2 * width * 2 * LEAST_UNITS:
        width *= 2
    while width * MOST_UNITS < life:
        width *= 2
    last = one.end - (origin + one.end) % width
    count = min((last - one.begin) // width, MOST_UNITS)
    if count < LEAST_UNITS:
        return None
    units, usable = fill(envelope(values[None, :last], width, count))
    return (width, units[0]) if usable[0] else None


def _compare(values: FloatArray, room: FloatArray, model: Design) -> tuple[FloatArray, ...]:
    """Return odds, those beside a jump, slope an hour, its error, hours since the onset; (s,) each.

    Args:
        values: (s, n) points.
        room: (s,) what there was to the limit at first.
        model: What they are compared with.
    """
    scale = np.maximum(np.ptp(values, axis=1), 1e-6 * room)
    y = (values - values.mean(axis=1, keepdims=True)) / scale[:, None]
    every = np.arange(len(y))
    fits = [fit for noise in model.noises for fit in _fits(y, every, noise)]
    share = room / scale
    odds, slope, error, age = _told(fits, share, model)
    beside = odds.copy()
    jumps = _jumps(y)
    for point, rows in jumps.items():
        some = np.array(rows)
        for noise in stepped(model, point, JUMP):
            fits += _fits(y[some], some, noise)
    if jumps:
        some = np.concatenate([np.array(rows) for rows in jumps.values()])
        beside[some] = _told(fits, share, model)[0][some]
    return odds, beside, slope * scale, error * scale, age


def _told(
    fits: Sequence[_Fit], share: FloatArray, model: Design
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return odds, slope, its error and age of series whose room is *share* (s,) of their range."""
    top = np.full(len(share), -np.inf)
    for fit in fits:
        top[fit.of] = np.maximum(top[fit.of], fit.best)
    sums = _Sums(share, model)
    for fit in fits:
        sums.add(fit, top[fit.of])
    return sums.told()


def _jumps(y: FloatArray) -> dict[int, list[int]]:
    """Return the point in which a series may have a jump, and the series of each."""
    out: dict[int, list[int]] = defaultdict(list)
    if y.shape[1] >= LEAST_UNITS:
        change = np.abs(y[:, 2:] - y[:, :-2])  # one within a point is seen from its neighbours
        most = change.max(axis=1)
        for row in np.flatnonzero(most > SUDDEN * np.median(change, axis=1)).tolist():
            out[int(change[row].argmax()) + 1].append(row)
    return out


@dataclass(frozen=True)
class _Fit:
    """Series under one noise and one base.

    Attributes:
        of: (s,) which series.
        base: The base.
        length: (s, members) best size of each shape times its length.
        rest: (s,) what is left without any.
        best: (s,) log likelihood of the best shape at its best size.
    """

    of: IntArray
    base: Base
    length: Singles
    rest: FloatArray
    best: FloatArray


def _fits(y: FloatArray, of: IntArray, noise: Noise) -> Iterator[_Fit]:
    """Yield the fits of *y* (s, n), which are series *of*, under one noise."""
    white = y @ noise.whiten.T
    for base in noise.bases:
        z = white - (white @ base.columns) @ base.columns.T
        rest = (z**2).sum(axis=1) + noise.spread * QUANTUM**2
        length: Singles = (z.astype(np.float32) @ noise.shapes.T) * base.per
        left = np.maximum(rest - np.abs(length).max(axis=1, initial=0.0) ** 2, CLOSEST * rest)
        yield _Fit(of, base, length, rest, base.constant - base.free / 2 * np.log(left))


class _Sums:
    """Likelihoods of all that is assumed, relative to the best of all, added up as they come."""

    def __init__(self, share: FloatArray, model: Design) -> None:
        """Begin for series whose room is *share* (s,) of their range."""
        self._share = share
        self._ages = model.ages
        self._line, self._other, self._slope, self._square, self._age = np.zeros((5, len(share)))
        members = len(model.ages)
        self._low, self._high = np.empty((2, members))
        self._prior = np.empty(members)
        self._is_line, self._is_step = np.zeros((2, members), dtype=np.bool_)
        for name, some in model.classes.items():
            self._low[some], self._high[some] = SIZES[name]
            # Evenly by the logarithm of the size, and among the members.
            self._prior[some] = (
                PRIOR.get(name, 0.0)
                - np.log(some.stop - some.start)
                - np.log(np.log(SIZES[name][1] / SIZES[name][0]))
                + LOG_ROOT_2PI
            )
        self._is_line[model.classes.get("line", slice(0))] = True
        self._is_step[model.classes.get("step", slice(0))] = True

    def add(self, fit: _Fit, top: FloatArray) -> None:
        """Add what is likely enough, next to the best shape at its best size (s,), to count."""
        free = fit.base.free / 2
        self._other[fit.of] += np.exp(fit.base.constant - free * np.log(fit.rest) - top)
        # The likelihood at the best size is the most that all sizes together can have.
        most = np.exp((fit.base.constant - top + NEGLIGIBLE) / free)  # of what is left
        enough = np.sqrt(np.maximum(fit.rest - most, 0.0))
        close = np.abs(fit.length) >= enough[:, None]
        rows, members = np.nonzero(close)
        if not len(rows):
            return
        length = fit.length[rows, members].astype(np.float64)
        rest, series = fit.rest[rows], fit.of[rows]
        left = np.maximum(rest - length**2, CLOSEST * rest)
        error = np.sqrt(left / fit.base.free) / fit.base.length[members]
        best = length / fit.base.length[members]
        low, high = (
            self._share[series] * self._low[members],
            self._share[series] * self._high[members],
        )
        nats = fit.base.constant - free * np.log(left) + self._prior[members] - top[rows]
        likely, size = _integrated(best, error, low, high)
        both = self._is_step[members]  # a level falls as well as it rises
        if both.any():
            down, _ = _integrated(-best[both], error[both], low[both], high[both])
            likely[both] = (likely[both] + down) / 2
        weight = likely * np.exp(nats)
        line = self._is_line[members]
        count = len(self._line)
        self._other += np.bincount(series[~line], weight[~line], count)
        series, weight, size = series[line], weight[line], size[line]
        doubt = np.minimum(error[line], size) ** 2
        self._line += np.bincount(series, weight, count)
        self._slope += np.bincount(series, weight * size, count)
        self._square += np.bincount(series, weight * (size**2 + doubt), count)
        self._age += np.bincount(series, weight * self._ages[members[line]], count)

    def told(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return odds, slope, its error and age."""
        line = np.maximum(self._line, TINY)
        odds = np.log(line) - np.log(np.maximum(self._other, TINY))
        slope = self._slope / line
        error = np.sqrt(np.maximum(self._square / line - slope**2, 0.0))
        return odds, slope, error, self._age / line


def _integrated(
    best: FloatArray, error: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return (k,) likelihood over all sizes, next to that of the best, and the mean size.

    The likelihood of a size is taken for normal about its best, cut to the sizes that may be, and
    their density (one over the size) for that at its mean.
    """
    a, b = (low - best) / error, (high - best) / error
    above = a > 0  # told from the tail in which both ends lie, where digits are
    mass = np.maximum(ndtr(np.where(above, -a, b)) - ndtr(np.where(above, -b, a)), TINY)
    moved = (np.exp(-0.5 * a**2) - np.exp(-0.5 * b**2)) / mass
    size = np.clip(best + error * moved * np.exp(-LOG_ROOT_2PI), low, high)
    return mass * error / size, size
