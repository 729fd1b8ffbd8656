"""Model competition: does a window look like growth that goes on, or like something that ends?

For every noise family the shapes are whitened and made orthogonal to the base once; each series
then costs one matrix product (generalised least squares, as in Harvey 1989, section 3.4). The
noise of a shape is the one that serves it best, so a straight line has to beat a random walk, a
smooth wander and every shape that ends, each at its own best, by a margin in log-likelihood after
the Bayesian information criterion (Schwarz, Ann. Stat. 6, 1978).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from catalog.panel import FloatArray
from detectors.drift.noise import covariances
from detectors.drift.shapes import HINGE_AT, columns, season

IntArray = npt.NDArray[np.intp]

GROWING = ("hinge", "hinge+step", "hinge+fill")
ENDING = ("flat", "step", "step+step", "warm_up", "warm_up+step", "fill+fill", "ramp", "ramp+step")
ENDING_PAIRS = ("step+step", "warm_up+step", "fill+fill", "ramp+step")
PAIR_MEMBER = {"step": "pair_step"}  # in pairs, steps are tried at fewer places
WORTH_PAIRS = 6.0  # margin of a hinge over a flat series that makes pairs worth their cost
# Free parameters of each family beside the base: place and size of a step, onset and slope, ...
PARAMETERS = {"flat": 0.0, "hinge": 1.5, "step": 2.0, "warm_up": 2.0, "fill": 2.0, "ramp": 2.0}
PAIR_STEPS = 21  # step places tried in pairs: a third of the buckets is enough there
QUANTUM = 2e-3  # smallest noise assumed, as a share of the range: data is never exact


@dataclass(frozen=True)
class _Whitened:
    """The shapes under one noise family."""

    whiten: FloatArray  # (K, K)
    base: FloatArray  # (K, b) orthonormal
    unit: dict[str, FloatArray]  # family -> (members, K), orthonormal to the base, unit length
    length: dict[str, FloatArray]  # family -> (members,) their length before
    gram: dict[str, FloatArray]  # "a+b" -> (members of a, members of b)
    half_log_det: float
    spread: float  # trace of the inverse covariance: what white noise of size 1 adds


@dataclass(frozen=True)
class Competition:
    """The outcome for S series.

    Attributes:
        score: Family -> (S,) penalised log-likelihood.
        slope: (S,) growth per bucket of the growing families, averaged over noise families.
        slope_se: (S,) its standard error, noise families included.
        onset: (S,) share of the window at which growth began.
        walk: (S,) standard deviation of a step of the wander about the line, per root bucket.
    """

    score: dict[str, FloatArray]
    slope: FloatArray
    slope_se: FloatArray
    onset: FloatArray

    def best(self, families: tuple[str, ...]) -> FloatArray:
        """Return the best score among *families* for each series."""
        best: FloatArray = np.max([self.score[name] for name in families], axis=0)
        return best

    def winner(self, families: tuple[str, ...]) -> list[str]:
        """Return the name of the best of *families* for each series."""
        order = np.argmax([self.score[name] for name in families], axis=0)
        return [families[i] for i in order]


@lru_cache(maxsize=16)
def _whitening(size: int) -> tuple[tuple[FloatArray, float], ...]:
    """Return the whitening matrix of every noise family and half its log determinant."""
    out = []
    for covariance in covariances(size):
        factor = np.linalg.cholesky(covariance)
        out.append((np.linalg.inv(factor), float(np.log(np.diag(factor)).sum())))
    return tuple(out)


@lru_cache(maxsize=256)
def _designs(size: int, day: float | None) -> tuple[_Whitened, ...]:
    """Return the whitened shapes under every noise family; made once for each window size."""
    shapes = columns(size)
    shapes = {**shapes, "pair_step": shapes["step"][:: max(1, (size - 1) // PAIR_STEPS)]}
    rows = [np.ones(size)] if day is None else [np.ones(size), *season(size, day)]
    out = []
    for whiten, half_log_det in _whitening(size):
        base, _ = np.linalg.qr(whiten @ np.array(rows).T)
        unit, length = {}, {}
        for name, family in shapes.items():
            white = family @ whiten.T
            white = white - (white @ base) @ base.T
            length[name] = np.linalg.norm(white, axis=1)
            usable = length[name] > 1e-9
            unit[name] = np.where(
                usable[:, None], white / np.where(usable, length[name], 1.0)[:, None], 0.0
            )
        gram = {}
        for name in (*GROWING[1:], *ENDING_PAIRS):
            a, b = (PAIR_MEMBER.get(part, part) for part in name.split("+"))
            gram[name] = unit[a] @ unit[b].T
        out.append(
            _Whitened(
                whiten,
                base,
                unit,
                length,
                gram,
                half_log_det,
                float((whiten**2).sum()),
            )
        )
    return tuple(out)


def compete(values: FloatArray, day: float | None = None) -> Competition:
    """Let the shapes compete for each series of *values*.

    Pairs of shapes compete only where a line or hinge alone beats a flat series: without that there
    is no growth to explain.

    Args:
        values: Shape (S, K), no NaN.
        day: Buckets a day, where the window is long enough to show a daily season; else None.

    Returns:
        The scores of the families and the slope of the growing ones.
    """
    centred = values - values.mean(axis=1, keepdims=True)
    span = np.ptp(values, axis=1)
    scale = np.where(span > 0, span, 1.0)
    y = centred / scale[:, None]
    bases: list[float | None] = [None] if day is None else [None, day]
    singles = _over_bases(y, bases, pairs=False)
    raised = np.flatnonzero(singles.score["hinge"] - singles.score["flat"] >= WORTH_PAIRS)
    if len(raised):
        singles = _replaced(singles, raised, _over_bases(y[raised], bases, pairs=True))
    return Competition(
        singles.score, singles.slope * scale, singles.slope_se * scale, singles.onset
    )


def _over_bases(y: FloatArray, bases: list[float | None], *, pairs: bool) -> Competition:
    """Compete with and without a season and keep the better."""
    results = [_compete(y, day, pairs=pairs) for day in bases]
    return results[0] if len(results) == 1 else _better(*results)


def season_score(values: FloatArray, day: float) -> FloatArray:
    """Return (S,) the score of a daily season and nothing else, comparable with `compete`'s.

    A window of less than two days can't show a season, but the rising half of one may lie in it.

    Args:
        values: Shape (S, K), no NaN.
        day: Buckets a day.
    """
    size = values.shape[1]
    span = np.ptp(values, axis=1)
    y = (values - values.mean(axis=1, keepdims=True)) / np.where(span > 0, span, 1.0)[:, None]
    rows = np.array([np.ones(size), *season(size, day)[:2]])
    best = np.full(len(values), -np.inf)
    for whiten, half_log_det in _whitening(size):
        base, _ = np.linalg.qr(whiten @ rows.T)
        z = y @ whiten.T
        z = z - (z @ base) @ base.T
        noise = float((whiten**2).sum()) * QUANTUM**2 + size * np.finfo(float).eps
        rest = (z**2).sum(axis=1) + noise
        best = np.maximum(best, -0.5 * size * np.log(rest / size) - half_log_det - np.log(size))
    return best


def _replaced(old: Competition, rows: IntArray, new: Competition) -> Competition:
    """Return *old* with the series at *rows* taken from *new*."""
    for name in old.score:
        old.score[name][rows] = new.score[name]
    for name in ("slope", "slope_se", "onset"):
        getattr(old, name)[rows] = getattr(new, name)
    return old


def _better(plain: Competition, seasonal: Competition) -> Competition:
    """Return for each series and family the better of the two bases."""
    score = {name: np.maximum(plain.score[name], seasonal.score[name]) for name in plain.score}
    chosen = seasonal.best(GROWING) > plain.best(GROWING)
    pick = [
        np.where(chosen, getattr(seasonal, name), getattr(plain, name))
        for name in ("slope", "slope_se", "onset")
    ]
    return Competition(score, *pick)


def _compete(y: FloatArray, day: float | None, *, pairs: bool) -> Competition:
    """Compete with one base; *y* is centred and scaled to a range of one."""
    count, size = y.shape
    penalty = 0.5 * np.log(size)
    base_cost = penalty * (0 if day is None else 4)
    floor = size * np.finfo(float).eps
    score = {name: np.full(count, -np.inf) for name in (*GROWING, *ENDING)}
    slopes: list[FloatArray] = []
    errors: list[FloatArray] = []
    onsets: list[FloatArray] = []
    weights: list[FloatArray] = []
    for white in _designs(size, day):
        z = y @ white.whiten.T
        z = z - (z @ white.base) @ white.base.T
        total = (z**2).sum(axis=1)
        fit = {name: z @ unit.T for name, unit in white.unit.items()}
        gain = {"flat": np.zeros(count), "step": (fit["step"] ** 2).max(axis=1)}
        for name in ("warm_up", "ramp"):
            gain[name] = (fit[name] ** 2).max(axis=1)
        if pairs:
            for name in ENDING_PAIRS:
                gain[name] = _pair(fit, white, name)
        growth = _growth(fit, white, pairs=pairs)
        gain.update({name: got[0] for name, got in growth.items()})
        noise = white.spread * QUANTUM**2 + floor
        best = np.full(count, -np.inf)
        local = [np.zeros(count) for _ in range(3)]
        for name, value in gain.items():
            rest = np.maximum(total - value, 0.0) + noise
            cost = penalty * sum(PARAMETERS[part] for part in name.split("+")) + base_cost
            got = -0.5 * size * np.log(rest / size) - white.half_log_det - cost
            score[name] = np.maximum(score[name], got)
            if name in growth:
                _, slope, inverse, onset = growth[name]
                error = np.sqrt(rest / (size - 4)) * inverse
                better = got > best
                best = np.where(better, got, best)
                local = [
                    np.where(better, new, old)
                    for new, old in zip((slope, error, onset), local, strict=True)
                ]
        weights.append(best)
        for store, value in zip((slopes, errors, onsets), local, strict=True):
            store.append(value)
    return Competition(score, *_average(weights, slopes, errors, onsets, size))


def _pair(fit: dict[str, FloatArray], white: _Whitened, name: str) -> FloatArray:
    """Return the largest drop in the sum of squares by one member of each of two families."""
    a, b = (fit[PAIR_MEMBER.get(part, part)] for part in name.split("+"))
    gram = white.gram[name]
    free = 1 - gram**2
    usable = free > 1e-6
    inverse = np.where(usable, 1 / np.where(usable, free, 1.0), 0.0)
    first, second = a[:, :, None], b[:, None, :]
    gain = (first**2 + second**2 - 2 * gram * first * second) * inverse
    if name == "fill+fill":  # both upwards, or their difference could draw any growth
        gain = np.where((first > gram * second) & (second > gram * first), gain, 0.0)
    flat: FloatArray = gain.reshape(len(a), -1).max(axis=1)
    return flat


def _growth(
    fit: dict[str, FloatArray], white: _Whitened, *, pairs: bool
) -> dict[str, tuple[FloatArray, FloatArray, FloatArray, FloatArray]]:
    """Return gain, slope, its error for unit noise, and onset of the growing families.

    Only growth counts: members whose slope is not upwards are left out.
    """
    a, length = fit["hinge"], white.length["hinge"]
    at = np.array(HINGE_AT)
    rows = np.arange(len(a))
    gain = np.where(a > 0, a**2, 0.0)
    k = gain.argmax(axis=1)
    out = {"hinge": (gain[rows, k], a[rows, k] / length[k], 1 / length[k], at[k])}
    for name in GROWING[1:] if pairs else ():
        other = name.split("+")[1]
        b, gram = fit[PAIR_MEMBER.get(other, other)], white.gram[name]
        free = 1 - gram**2
        usable = free > 1e-4
        inverse = np.where(usable, 1 / np.where(usable, free, 1.0), 0.0)
        slope = (a[:, :, None] - gram * b[:, None, :]) * inverse
        both = (
            a[:, :, None] ** 2 + b[:, None, :] ** 2 - 2 * gram * a[:, :, None] * b[:, None, :]
        ) * inverse
        both = np.where(slope > 0, both, 0.0)
        if other == "fill":  # one that falls bends the line upwards: a rate that was never seen
            both = np.where(b[:, None, :] >= gram * a[:, :, None], both, 0.0)
        best = both.reshape(len(a), -1).argmax(axis=1)
        i, j = np.unravel_index(best, gram.shape)
        out[name] = (
            both[rows, i, j],
            slope[rows, i, j] / length[i],
            np.sqrt(inverse[i, j]) / length[i],
            at[i],
        )
    return out


def _average(
    weights: list[FloatArray],
    slopes: list[FloatArray],
    errors: list[FloatArray],
    onsets: list[FloatArray],
    size: int,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Average the slope over noise families by likelihood, so that its error knows their doubt."""
    weight = np.array(weights)
    weight = np.exp(weight - weight.max(axis=0))
    weight /= weight.sum(axis=0)
    slope = np.array(slopes)
    mean = (weight * slope).sum(axis=0)
    variance = (weight * (np.array(errors) ** 2 + (slope - mean) ** 2)).sum(axis=0)
    onset = (weight * np.array(onsets)).sum(axis=0)
    return mean / (size - 1), np.sqrt(variance) / (size - 1), onset
