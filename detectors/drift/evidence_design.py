"""What a whole life is compared with: shapes, noises and bases on a grid that is finest of late.

The grid has at most 152 points for a week: fine where a leak that began this morning must be seen,
coarse where only the level matters. A point stands for units of one width, and the noise is
averaged alike, so that none is trusted more than its units allow. A unit is the low envelope of a
quarter of an hour or, of a young life, of less.

The noises were chosen one after the other on untouched series of even development hosts, each as
the one that added most to the likelihood of all of them; the last two, a walk and a smooth wander,
are there for processes that no host showed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from catalog.panel import FloatArray

PLAN = ((24, 1), (36, 2), (48, 4), (44, 8))  # points and the units of each, from now backwards
MOST_UNITS = sum(count * width for count, width in PLAN)
LEAST_UNITS = 32
EIGHT = 8  # points by which grids differ: few sizes, so that designs are made once
DAY = 24.0
SEASON_FROM = 6.0  # hours of life that may be part of a season: of its first harmonic,
HARMONICS_FROM = 2 * DAY  # and of two once it can be seen to come again
OTHER_BASE = -1.0  # nats that a season, or a start that fills, has to be worth

# White noise of a unit of 16 minutes is 1; beside it (hours, variance) of Ornstein-Uhlenbeck noise,
UNIT = 16 / 60
AROUND = (None, (1, 30), (1, 0.5), (2, 30), (72, 0.5), (0.5, 2), (1, 2), (8, 2))
WALK, WITH_WALK = 0.1, (1, 4)  # the variance an hour of a walk, with more such noise,
SMOOTH = (24.0, 100.0)  # and hours and variance of a smooth wander (Matern 5/2).
LEVEL = 200.0  # hours of a walk before the first point: its start may be anywhere

# Hours before now at which a shape begins.
LINES = np.exp(np.linspace(np.log(1.0), np.log(150.0), 72))
FILLINGS = (1, 1.5, 2, 3, 4, 6, 8, 11, 14, 18, 24, 30, 36, 48, 60, 72, 96, 120, 144)
STEPS = np.concatenate([np.arange(0.5, 8, 0.5), np.arange(8, 24, 1), np.arange(24, 72, 3),
                        np.arange(72, 160, 6)])  # fmt: skip
TAUS = (0.5, 1, 2, 4, 8)  # hours of a filling that slows down,
LENGTHS = (1, 2, 3, 4, 6, 8, 10, 12)  # of one at an even rate,
LOGS = (0.1, 0.3, 1)  # of one that never quite ends,
ENDED = (14, 16, 18, 21, 24, 30, 36, 48, 60, 72, 96)  # of growth that is over,
SINCE = (4, 5, 6, 7, 8, 10, 12, 16, 24, 36, 48, 72, 96)  # and for how long it may be.
INSIDE = 1e-4  # share of a shape's length that digits can tell from none
REST = 0.25  # of its length, at least: what stopped just now can't be told from what goes on
START = (1.0, 6.0)  # hours of what fills after a start that was seen

IntArray = npt.NDArray[np.intp]
Singles = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Base:
    """What every model has, under one noise.

    Attributes:
        columns: (n, b) orthonormal.
        constant: Nats of the noise, the base and its prior.
        free: n - b.
        length: (members,) lengths of the whitened shapes apart from it.
        per: (members,) one over them, zero of a shape that the base has as well.
    """

    columns: FloatArray
    constant: float
    free: int
    length: FloatArray
    per: Singles


@dataclass(frozen=True)
class Noise:
    """The shapes under one noise.

    Attributes:
        whiten: (n, n) turns the noise into white noise.
        shapes: (members, n), whitened, in single precision: they are compared, not subtracted.
        spread: Trace of the inverse covariance: what white noise of size one adds.
        bases: Those under it.
    """

    whiten: FloatArray
    shapes: Singles
    spread: float
    bases: tuple[Base, ...]


@dataclass(frozen=True)
class Design:
    """All that a life of one length is compared with.

    Attributes:
        widths: (n,) units of each point, oldest first.
        before: (n,) hours before the end, of their middles.
        classes: Class -> its members, in order.
        ages: (members,) hours before the end at which each begins.
        noises: All of them.
    """

    widths: IntArray
    before: FloatArray
    classes: dict[str, slice]
    ages: FloatArray
    noises: tuple[Noise, ...]

    @property
    def units(self) -> int:
        """Units of all points."""
        return int(self.widths.sum())

    def points(self, units: FloatArray) -> FloatArray:
        """Return (s, n): the median of the units (s, u) of each point."""
        out = np.empty((len(units), len(self.widths)))
        edges = np.concatenate([[0], np.cumsum(self.widths)])
        for width in np.unique(self.widths):
            of = np.flatnonzero(self.widths == width)
            block = units[:, edges[of[0]] : edges[of[-1] + 1]]
            out[:, of] = np.median(block.reshape(len(units), len(of), width), axis=2)
        return out


def grid(units: int) -> IntArray:
    """Return the units of each point, oldest first, of a life that has *units*."""
    widths = np.repeat([width for _, width in PLAN], [count for count, _ in PLAN])
    fits = int(np.searchsorted(np.cumsum(widths), units, side="right"))
    return np.asarray(widths[: fits // EIGHT * EIGHT][::-1], dtype=np.intp)


@lru_cache(maxsize=32)
def design(points: int, unit: float, started: bool) -> Design:
    """Return what a life is compared with.

    Args:
        points: Points of its grid.
        unit: Hours a unit.
        started: Whether its beginning was seen, so that it may have filled since.
    """
    widths = grid(MOST_UNITS)[-points:]
    total = int(widths.sum())
    middles = (np.arange(total) + 0.5) * unit
    mean = np.zeros((points, total))
    mean[np.repeat(np.arange(points), widths), np.arange(total)] = np.repeat(1 / widths, widths)
    life = total * unit
    at: FloatArray = mean @ middles
    shapes = _shapes(at - life, life)
    bases = [(np.ones((1, points)), 0.0)]
    if life >= SEASON_FROM:
        bases.append((_season(at, 2 if life >= HARMONICS_FROM else 1), OTHER_BASE))
    if started:
        filled = [np.exp(-at / tau) for tau in START]
        bases.append((np.array([np.ones(points), *filled]), OTHER_BASE))
    ends = np.cumsum([len(rows) for rows, _ in shapes.values()]).tolist()
    classes = dict(zip(shapes, map(slice, [0, *ends], ends), strict=False))
    members = np.concatenate([rows for rows, _ in shapes.values()])
    noises = []
    for covariance in _covariances(middles.astype(np.float64), unit):
        factor = np.linalg.cholesky(mean @ covariance @ mean.T)
        whiten = np.linalg.inv(factor)
        determinant = float(np.log(np.diag(factor)).sum())
        white = members @ whiten.T
        noises.append(
            Noise(
                whiten,
                white.astype(np.float32),
                float((whiten**2).sum()),
                tuple(_base(whiten, prior - determinant, rows, white) for rows, prior in bases),
            )
        )
    ages = np.concatenate([begun for _, begun in shapes.values()])
    return Design(widths, life - at, classes, ages, tuple(noises))


def stepped(model: Design, point: int, nats: float) -> tuple[Noise, ...]:
    """Return the noises of a design with a step in every base as well, somewhere in one point.

    Args:
        model: The design.
        point: Where the step is.
        nats: What it takes to assume it.
    """
    after = np.zeros((2, len(model.widths)))
    after[0, point:] = after[1, point] = 1.0
    noises = []
    for noise in model.noises:
        white = noise.shapes.astype(np.float64)
        step = noise.whiten @ after.T
        bases = []
        for base in noise.bases:
            apart = step - base.columns @ (base.columns.T @ step)
            columns, triangle = np.linalg.qr(apart)
            size = np.abs(np.diag(triangle))
            if (size <= INSIDE * np.linalg.norm(step, axis=0)).any():
                continue
            constant = base.constant + nats - float(np.log(size).sum())
            bases.append(_on(np.column_stack([base.columns, columns]), constant, white))
        noises.append(replace(noise, bases=tuple(bases)))
    return tuple(noises)


def _base(whiten: FloatArray, constant: float, rows: FloatArray, white: FloatArray) -> Base:
    """Return a base of *rows* (b, n).

    Its own size is integrated out (restricted likelihood: Harville, Biometrika 61, 1974).
    """
    columns, triangle = np.linalg.qr(whiten @ rows.T)
    return _on(columns, constant - float(np.log(np.abs(np.diag(triangle))).sum()), white)


def _on(columns: FloatArray, constant: float, white: FloatArray) -> Base:
    """Return a base of orthonormal *columns* for the whitened shapes (members, n)."""
    apart = white - (white @ columns) @ columns.T
    least = INSIDE * np.linalg.norm(white, axis=1)
    length = np.linalg.norm(apart, axis=1)
    per = np.divide(1.0, length, out=np.zeros(len(length)), where=length > least)
    length = np.where(per > 0, length, INSIDE * least)
    free = len(columns) - columns.shape[1]
    return Base(columns, constant, free, length, per.astype(np.float32))


def _shapes(now: FloatArray, life: float) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Return class -> members (m, n) of size one, and the hours before the end that each begins.

    Args:
        now: (n,) hours of the points, zero at the end.
        life: Hours of all.
    """
    lines = [*LINES[0.95 * life > LINES], life]
    fills = [*(a for a in FILLINGS if a < 0.98 * life), life]
    steps = STEPS[life - 0.25 > STEPS]
    over = [(rest + long, long) for long in ENDED for rest in SINCE
            if rest >= REST * long and rest + long < life]  # fmt: skip

    def since(age: float) -> FloatArray:
        return np.maximum(now + age, 0.0)

    members = {
        "line": [(a, since(a)) for a in lines],
        "step": [(a, (now + a > 0).astype(np.float64)) for a in steps],
        "slowing": [(a, 1 - np.exp(-since(a) / tau)) for a in fills for tau in TAUS],
        "even": [(a, np.minimum(since(a) / long, 1.0)) for a in fills for long in LENGTHS],
        "log": [(a, np.log1p(since(a) / tau)) for a in fills for tau in LOGS],
        "ended": [(a, np.minimum(since(a), long)) for a, long in over],
    }
    return {
        name: (np.array([row for _, row in some]), np.array([age for age, _ in some], dtype=float))
        for name, some in members.items()
        if some
    }


def _season(at: FloatArray, harmonics: int) -> FloatArray:
    waves = [
        wave(2 * np.pi * k * at / DAY) for k in range(1, harmonics + 1) for wave in (np.sin, np.cos)
    ]
    return np.array([np.ones(len(at)), *waves])


def _covariances(hours: FloatArray, unit: float) -> Iterator[FloatArray]:
    """Yield the covariance of the units under every noise."""
    lag = np.abs(np.subtract.outer(hours, hours))
    white = UNIT / unit * np.eye(len(hours))
    for around in AROUND:
        yield white if around is None else white + around[1] * np.exp(-lag / around[0])
    walk = WALK * (np.minimum.outer(hours, hours) + LEVEL)
    yield white + walk + WITH_WALK[1] * np.exp(-lag / WITH_WALK[0])
    x = np.sqrt(5.0) * lag / SMOOTH[0]
    yield white + SMOOTH[1] * (1 + x + x**2 / 3) * np.exp(-x)
