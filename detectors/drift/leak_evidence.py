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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from catalog.panel import FloatArray, Panel
from detectors.drift.buckets import envelope, fill
from detectors.drift.evidence_design import (
    EIGHT,
    LEAST_UNITS,
    MOST_UNITS,
    Design,
    Whitened,
    design,
    grid,
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
TINY = 1e-12


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
        slope: Units per second of the line.
        error: Its standard error, over onsets, noises and bases.
        age: Seconds since it began.
    """

    odds: float
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
        told = _compare(values, np.maximum(room, np.abs(level) * QUANTUM + TINY), model)
        for (place, _), odds, slope, error, age in zip(some, *told, strict=True):
            out[place] = Evidence(
                float(odds), float(slope) / 3600, float(error) / 3600, float(age) * 3600
            )
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


def _compare(
    values: FloatArray, room: FloatArray, model: Design
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return odds, slope an hour, its error, and hours since the onset, (s,) each.

    Args:
        values: (s, n) points.
        room: (s,) what there was to the limit at first.
        model: What they are compared with.
    """
    scale = np.maximum(np.ptp(values, axis=1), 1e-6 * room)
    y = (values - values.mean(axis=1, keepdims=True)) / scale[:, None]
    share = (room / scale)[:, None]
    line, other, sizes, errors = [], [], [], []
    for part in model.parts:
        z = y @ part.whiten.T
        z = z - (z @ part.base) @ part.base.T
        rest = ((z**2).sum(axis=1) + part.spread * QUANTUM**2)[:, None]
        other.append(part.constant - part.free / 2 * np.log(rest[:, 0]))
        for name, unit in part.unit.items():
            fit = z @ unit.T
            likely, size, error = _integrated(fit, rest, part, name, share)
            if name == "step":  # a level falls as well as it rises
                down, _, _ = _integrated(-fit, rest, part, name, share)
                likely = np.logaddexp(likely, down) - np.log(2)
            likely += part.constant - np.log(likely.shape[1]) + PRIOR.get(name, 0.0)
            if name == "line":
                line.append(likely)
                sizes.append(size)
                errors.append(error)
            else:
                other.append(_log_sum(likely, 1))
    lines, size, error = np.array(line), np.array(sizes), np.array(errors)
    total = _log_sum(_log_sum(lines, 2), 0)
    weight = np.exp(lines - total[None, :, None])
    slope = (weight * size).sum(axis=(0, 2))
    doubt = np.minimum(error, size) ** 2 + (size - slope[None, :, None]) ** 2
    deviation = np.sqrt((weight * doubt).sum(axis=(0, 2)))
    age = (weight * model.ages["line"]).sum(axis=(0, 2))
    return total - _log_sum(np.array(other), 0), slope * scale, deviation * scale, age


def _integrated(
    fit: FloatArray, rest: FloatArray, part: Whitened, name: str, share: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return (s, m) log likelihood over all sizes of a shape, mean size, and its error.

    The likelihood of a size is taken for normal about its best, cut to the sizes that may be, and
    their density (one over the size) for that at its mean.
    """
    lowest, highest = (share * end for end in SIZES[name])
    left = np.maximum(rest - fit**2, 1e-9 * rest)
    error = np.sqrt(left / part.free) / part.length[name]
    best = fit / part.length[name]
    a, b = (lowest - best) / error, (highest - best) / error
    above = a > 0  # told from the tail in which both ends lie, where digits are
    far, near = log_ndtr(np.where(above, -a, b)), log_ndtr(np.where(above, -b, a))
    mass = far + np.log1p(-np.exp(np.minimum(near - far, -TINY)))
    moved = np.exp(-0.5 * a**2 - mass) - np.exp(-0.5 * b**2 - mass)
    size = np.clip(best + error * moved * np.exp(-LOG_ROOT_2PI), lowest, highest)
    width = np.log(SIZES[name][1] / SIZES[name][0])
    likely: FloatArray = (
        -part.free / 2 * np.log(left) + mass + np.log(error / size / width) + LOG_ROOT_2PI
    )
    return likely, size, error


def _log_sum(values: FloatArray, axis: int) -> FloatArray:
    top = values.max(axis=axis, keepdims=True)
    out: FloatArray = np.squeeze(top, axis) + np.log(np.exp(values - top).sum(axis=axis))
    return out
