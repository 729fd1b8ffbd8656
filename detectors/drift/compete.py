"""Model competition: does a window look like growth that goes on, or like something that ends?

For every noise family the shapes are whitened and made orthogonal to the base once; each series
then costs one matrix product (generalised least squares, as in Harvey 1989, section 3.4). The
noise of a shape is the one that serves it best, so a straight line has to beat a random walk, a
smooth wander and every shape that ends, each at its own best, by a margin in log-likelihood after
the Bayesian information criterion (Schwarz, Ann. Stat. 6, 1978).

Other shapes are tried only where a line beats a flat series (elsewhere they count as no better
than that). Pairs of shapes, which cost most, are tried only under the noise families that serve a
series best and a few that stand for all; pairs that end only where no single shape has won.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from catalog.panel import FloatArray
from detectors.drift.compete_design import (
    ENDING,
    ENDING_PAIRS,
    GROWING,
    PAIR_MEMBER,
    STANDING,
    WARMING,
    Whitened,
    designs,
    whitening,
)
from detectors.drift.noise import STAND_FOR_ALL
from detectors.drift.shapes import HINGE_AT, season

IntArray = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]

WORTH_MORE = 6.0  # margin of a hinge over a flat series that makes other shapes worth their cost
BEST_NOISES = 2  # noise families of its own that a series is given in pairs
CELLS = 1 << 16  # of one batch of pairs: what the second-level cache holds
# Free parameters of each family beside the base: place and size of a step, onset and slope, ...
PARAMETERS = {"flat": 0.0, "hinge": 1.5, "step": 2.0, "warm_up": 2.0, "fill": 2.0, "ramp": 2.0}
SINGLES = ("flat", "step", "warm_up", "ramp")
LOST = 3.0  # growth that a single shape beats by this much need not be beaten by pairs as well
QUANTUM = 2e-3  # smallest noise assumed, as a share of the range: data is never exact

Worth = Callable[["Competition"], FloatArray]

__all__ = [
    "ENDING", "GROWING", "STANDING", "WARMING", "Competition", "compete", "season_score",
]  # fmt: skip


@dataclass(frozen=True)
class Competition:
    """The outcome for S series.

    Attributes:
        score: Family -> (S,) penalised log-likelihood.
        slope: (S,) growth per bucket of the growing families, averaged over noise families.
        slope_se: (S,) its standard error, noise families included.
        onset: (S,) share of the window at which growth began.
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


def compete(
    values: FloatArray, day: float | None = None, worth: Worth | None = None
) -> Competition:
    """Let the shapes compete for each series of *values*.

    Args:
        values: Shape (S, K), no NaN.
        day: Buckets a day, where the window is long enough to show a daily season; else None.
        worth: Tells from line and flat series alone by what margin of the line each series is
            worth the other shapes; None is `WORTH_MORE` for all.

    Returns:
        The scores of the families and the slope of the growing ones.
    """
    centred = values - values.mean(axis=1, keepdims=True)
    span = np.ptp(values, axis=1)
    scale = np.where(span > 0, span, 1.0)
    y = centred / scale[:, None]
    bouts = [_Bout(y, base) for base in ([None] if day is None else [None, day])]
    least: FloatArray | float = WORTH_MORE if worth is None else worth(_joined(bouts, scale))
    raised = np.flatnonzero(_most(bouts, "hinge") - _most(bouts, "flat") >= least)
    quiet = np.setdiff1d(np.arange(len(y)), raised)
    for bout in bouts:
        bout.leave(quiet)
    if len(raised):
        for bout in bouts:
            bout.singles(raised)
            bout.pairs(raised, GROWING[1:])
        growing, ending = (
            np.max([_most(bouts, name) for name in names], axis=0)[raised]
            for names in (GROWING, SINGLES)
        )
        open_still = raised[growing >= ending - LOST]
        for bout in bouts:
            bout.pairs(open_still, ENDING_PAIRS)
    return _joined(bouts, scale)


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
    for whiten, half_log_det in whitening(size):
        base, _ = np.linalg.qr(whiten @ rows.T)
        z = y @ whiten.T
        z = z - (z @ base) @ base.T
        noise = float((whiten**2).sum()) * QUANTUM**2 + size * np.finfo(float).eps
        rest = (z**2).sum(axis=1) + noise
        best = np.maximum(best, -0.5 * size * np.log(rest / size) - half_log_det - np.log(size))
    return best


def _most(bouts: list[_Bout], name: str) -> FloatArray:
    best: FloatArray = np.max([bout.score[name] for bout in bouts], axis=0)
    return best


def _joined(bouts: list[_Bout], scale: FloatArray) -> Competition:
    """Return the outcome so far, over all bases and in the series' own unit."""
    results = [bout.result() for bout in bouts]
    best = results[0] if len(results) == 1 else _better(*results)
    return Competition(best.score, best.slope * scale, best.slope_se * scale, best.onset)


def _better(plain: Competition, seasonal: Competition) -> Competition:
    """Return for each series and family the better of the two bases."""
    score = {name: np.maximum(plain.score[name], seasonal.score[name]) for name in plain.score}
    chosen = seasonal.best(GROWING) > plain.best(GROWING)
    pick = [
        np.where(chosen, getattr(seasonal, name), getattr(plain, name))
        for name in ("slope", "slope_se", "onset")
    ]
    return Competition(score, *pick)


class _Bout:
    """One competition with one base; series are centred and scaled to a range of one."""

    def __init__(self, y: FloatArray, day: float | None) -> None:
        """Let a line or hinge compete with a flat series under every noise family."""
        count, size = y.shape
        self._y, self._size = y, size
        self._designs = designs(size, day)
        self._base_cost = 0.5 * np.log(size) * (0 if day is None else 4)
        self.score = {name: np.full(count, -np.inf) for name in (*GROWING, *ENDING)}
        noises = len(self._designs)
        self._reach = np.empty((noises, count))  # best score of any single shape
        self._best = np.full((noises, count), -np.inf)  # of any growing one, and what it says:
        self._says = np.zeros((3, noises, count))  # slope, its error, onset
        every = np.arange(count)
        for index, white in enumerate(self._designs):
            z, total = self._whitened(white, every)
            flat = self._enter("flat", np.zeros(count), total, white, every)
            hinge = self._hinge(index, white, z @ white.unit["hinge"].T, total, every)
            self._reach[index] = np.maximum(flat, hinge)

    def leave(self, rows: IntArray) -> None:
        """Take the other shapes for no better than a flat series, or a line, at *rows*."""
        for families, least in ((ENDING, "flat"), (GROWING, "hinge")):
            for name in families:
                self.score[name][rows] = self.score[least][rows]

    def singles(self, rows: IntArray) -> None:
        """Let the other single shapes compete for the series at *rows*."""
        for index, white in enumerate(self._designs):
            z, total = self._whitened(white, rows)
            for name in ("step", "warm_up", "ramp"):
                gain = ((z @ white.unit[name].T) ** 2).max(axis=1)
                got = self._enter(name, gain, total, white, rows)
                self._reach[index, rows] = np.maximum(self._reach[index, rows], got)

    def pairs(self, rows: IntArray, names: tuple[str, ...]) -> None:
        """Let the pairs of shapes *names* compete for the series at *rows*."""
        place = np.argsort(-self._reach[:, rows], axis=0)[:BEST_NOISES]
        chosen = np.zeros((len(self._designs), len(rows)), dtype=bool)
        chosen[list(STAND_FOR_ALL)] = True
        np.put_along_axis(chosen, place, True, axis=0)
        members = {PAIR_MEMBER.get(part, part) for name in names for part in name.split("+")}
        for index, white in enumerate(self._designs):
            some = rows[chosen[index]]
            if not len(some):
                continue
            z, total = self._whitened(white, some)
            fit = {name: z @ white.unit[name].T for name in members}
            for name in names:
                if name in GROWING:
                    self._growing_pair(index, white, name, fit, total, some)
                    continue
                a, b = (PAIR_MEMBER.get(part, part) for part in name.split("+"))
                gain, _ = _pair(fit[a], fit[b], white, name)
                self._enter(name, gain, total, white, some)

    def result(self) -> Competition:
        """Return the scores, and the slope averaged over noise families by likelihood.

        So its error knows their doubt.
        """
        weight = np.exp(self._best - self._best.max(axis=0))
        weight /= weight.sum(axis=0)
        slope, error, onset = self._says
        mean = (weight * slope).sum(axis=0)
        variance = (weight * (error**2 + (slope - mean) ** 2)).sum(axis=0)
        longest = self._size - 1
        return Competition(
            self.score, mean / longest, np.sqrt(variance) / longest, (weight * onset).sum(axis=0)
        )

    def _whitened(self, white: Whitened, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the whitened series without what the base explains, and their sums of squares."""
        z = self._y[rows] @ white.whiten.T
        z = z - (z @ white.base) @ white.base.T
        return z, (z**2).sum(axis=1)

    def _rest(self, gain: FloatArray, total: FloatArray, white: Whitened) -> FloatArray:
        floor = white.spread * QUANTUM**2 + self._size * np.finfo(float).eps
        rest: FloatArray = np.maximum(total - gain, 0.0) + floor
        return rest

    def _enter(
        self, name: str, gain: FloatArray, total: FloatArray, white: Whitened, rows: IntArray
    ) -> FloatArray:
        """Return the score of one family under one noise, and keep it where it is the best."""
        size = self._size
        cost = 0.5 * np.log(size) * sum(PARAMETERS[part] for part in name.split("+"))
        rest = self._rest(gain, total, white)
        got: FloatArray = (
            -0.5 * size * np.log(rest / size) - white.half_log_det - cost - self._base_cost
        )
        self.score[name][rows] = np.maximum(self.score[name][rows], got)
        return got

    def _hinge(
        self, index: int, white: Whitened, fit: FloatArray, total: FloatArray, rows: IntArray
    ) -> FloatArray:
        """Enter the line or hinge that fits best of those that go up."""
        gain = np.where(fit > 0, fit**2, 0.0)
        k = gain.argmax(axis=1)
        best, chosen = gain[rows, k], fit[rows, k]
        length = white.length["hinge"][k]
        got = self._enter("hinge", best, total, white, rows)
        error = np.sqrt(self._rest(best, total, white) / (self._size - 4)) / length
        self._says[:, index] = chosen / length, error, np.array(HINGE_AT)[k]
        self._best[index] = got
        return got

    def _growing_pair(
        self,
        index: int,
        white: Whitened,
        name: str,
        fit: dict[str, FloatArray],
        total: FloatArray,
        rows: IntArray,
    ) -> None:
        """Enter the best line or hinge with one other shape; only growth counts."""
        other = PAIR_MEMBER.get(name.split("+")[1], name.split("+")[1])
        a, b = fit["hinge"], fit[other]
        gain, (i, j) = _pair(a, b, white, name)
        got = self._enter(name, gain, total, white, rows)
        better = got > self._best[index, rows]
        if not better.any():
            return
        rows, i, j, place = rows[better], i[better], j[better], np.flatnonzero(better)
        gram, length = white.gram[name][i, j], white.length["hinge"][i]
        free = np.maximum(1 - gram**2, 1e-9)
        slope = (a[place, i] - gram * b[place, j]) / free / length
        rest = self._rest(gain[place], total[place], white)
        error = np.sqrt(rest / (self._size - 4) / free) / length
        self._best[index, rows] = got[better]
        for say, value in zip(self._says, (slope, error, np.array(HINGE_AT)[i]), strict=True):
            say[index, rows] = value


def _pair(
    a: FloatArray, b: FloatArray, white: Whitened, name: str
) -> tuple[FloatArray, tuple[IntArray, IntArray]]:
    """Return the largest drop in the sum of squares by one member of each of two families.

    Searched in single precision, told in double; also which members they are.
    """
    gram, inverse = white.gram[name], white.inverse[name]
    flat = np.empty(len(a), dtype=np.intp)
    for some, gains in _gains(a, b, gram, inverse, name):
        flat[some] = gains.reshape(len(gains), -1).argmax(axis=1)
    i, j = np.unravel_index(flat, gram.shape)
    rows = np.arange(len(a))
    first, second = a[rows, i], b[rows, j]
    left = first - gram[i, j] * second
    gain = second**2 + left**2 * inverse[i, j]
    right = second - gram[i, j] * first
    return np.where(_allowed(name, left, right), gain, 0.0), (i, j)


def _gains(
    a: FloatArray, b: FloatArray, gram: FloatArray, inverse: FloatArray, name: str
) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
    """Yield the drops of all pairs of members, a batch of series at a time."""
    batch = max(1, CELLS // gram.size)
    gram32, inverse32 = gram.astype(np.float32), inverse.astype(np.float32)
    for first in range(0, len(a), batch):
        some = slice(first, first + batch)
        one = a[some].astype(np.float32)[:, :, None]
        two = b[some].astype(np.float32)[:, None, :]
        left = one - gram32 * two
        right = two - gram32 * one if name in ("fill+fill", "hinge+fill") else None
        bound = name in ("hinge+step", "fill+fill", "hinge+fill")
        allowed = _allowed(name, left, right) if bound else None
        np.multiply(left, left, out=left)
        left *= inverse32
        left += two * two
        yield some, left if allowed is None else np.where(allowed, left, np.float32(0))


def _allowed(name: str, left: npt.ArrayLike, right: npt.ArrayLike | None) -> BoolArray:
    """Return which pairs may be told: growth goes up, and fillings fill.

    Of two fillings both go up, or their difference could draw any growth; one that falls beside a
    line would bend it upwards: a rate that was never seen.
    """
    first = np.asarray(left) > 0
    if name == "hinge+step":
        return first
    if name == "fill+fill":
        return first & (np.asarray(right) > 0)
    if name == "hinge+fill":
        return first & (np.asarray(right) >= 0)
    return np.ones_like(first)
