"""The shapes of a competition, whitened by each noise and made orthogonal to the base: made once.

What depends on the window's size alone is kept, so that a series costs matrix products only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from catalog.panel import FloatArray
from detectors.drift.noise import covariances
from detectors.drift.shapes import columns, season

GROWING = ("hinge", "hinge+step", "hinge+fill")
ENDING = ("flat", "step", "step+step", "warm_up", "warm_up+step", "fill+fill", "ramp", "ramp+step")
WARMING = ("warm_up", "warm_up+step", "fill+fill", "ramp", "ramp+step")
STANDING = tuple(name for name in ENDING if name not in WARMING)
ENDING_PAIRS = ("step+step", "warm_up+step", "fill+fill", "ramp+step")
PAIR_MEMBER = {"step": "pair_step"}  # in pairs, steps are tried at fewer places
PAIR_STEPS = 21  # step places tried in pairs: a third of the buckets is enough there
LEAST_FREE = 1e-4  # two members more alike than this are one


@dataclass(frozen=True)
class Whitened:
    """The shapes under one noise family.

    Attributes:
        whiten: (K, K), turns the noise into white noise.
        base: (K, b), orthonormal columns of what every model has.
        unit: Family -> (members, K), orthogonal to the base, of length one.
        length: Family -> (members,), their lengths before.
        gram: "a+b" -> (members of a, members of b), their inner products.
        inverse: "a+b" -> 1 / (1 - gram^2), 0 where the two are one.
        half_log_det: Half the log determinant of the covariance.
        spread: Trace of the inverse covariance: what white noise of size 1 adds.
    """

    whiten: FloatArray
    base: FloatArray
    unit: dict[str, FloatArray]
    length: dict[str, FloatArray]
    gram: dict[str, FloatArray]
    inverse: dict[str, FloatArray]
    half_log_det: float
    spread: float


@lru_cache(maxsize=32)
def whitening(size: int) -> tuple[tuple[FloatArray, float], ...]:
    """Return the whitening matrix of every noise family and half its log determinant."""
    out = []
    for covariance in covariances(size):
        factor = np.linalg.cholesky(covariance)
        out.append((np.linalg.inv(factor), float(np.log(np.diag(factor)).sum())))
    return tuple(out)


@lru_cache(maxsize=64)
def designs(size: int, day: float | None) -> tuple[Whitened, ...]:
    """Return the whitened shapes under every noise family.

    Args:
        size: Buckets of the window.
        day: Buckets a day where the base has a daily season, else None.
    """
    shapes = columns(size)
    shapes = {**shapes, "pair_step": shapes["step"][:: max(1, (size - 1) // PAIR_STEPS)]}
    rows = [np.ones(size)] if day is None else [np.ones(size), *season(size, day)]
    base_rows = np.array(rows)
    return tuple(_design(shapes, base_rows, *white) for white in whitening(size))


def _design(
    shapes: dict[str, FloatArray], rows: FloatArray, whiten: FloatArray, half_log_det: float
) -> Whitened:
    """Return the shapes under one noise family."""
    base, _ = np.linalg.qr(whiten @ rows.T)
    unit, length = {}, {}
    for name, family in shapes.items():
        white = family @ whiten.T
        white = white - (white @ base) @ base.T
        length[name] = np.linalg.norm(white, axis=1)
        usable = length[name] > 1e-9
        inverse = np.where(usable, 1 / np.where(usable, length[name], 1.0), 0.0)
        unit[name] = white * inverse[:, None]
    gram, inverses = {}, {}
    for name in (*GROWING[1:], *ENDING_PAIRS):
        a, b = (PAIR_MEMBER.get(part, part) for part in name.split("+"))
        gram[name] = unit[a] @ unit[b].T
        free = 1 - gram[name] ** 2
        apart = free > LEAST_FREE
        inverses[name] = np.where(apart, 1 / np.where(apart, free, 1.0), 0.0)
    spread = float((whiten**2).sum())
    return Whitened(whiten, base, unit, length, gram, inverses, half_log_det, spread)
