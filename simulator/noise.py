"""Noise that is a function of seed, name and place, so that any instant can be asked for alone."""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Keys = npt.NDArray[np.uint64]

# Multipliers of splitmix64 (Steele, Lea and Flood 2014), https://doi.org/10.1145/2714064.2660195
_GAMMA: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX2: Final = np.uint64(0x94D049BB133111EB)


def keys(seed: int, *names: str) -> Keys:
    """Return one key per name as a column, so that it broadcasts over a row of places."""
    digests = [hashlib.blake2b(f"{seed}/{n}".encode(), digest_size=8).digest() for n in names]
    return np.array([[int.from_bytes(d, "little")] for d in digests], dtype=np.uint64)


def uniform(key: Keys, index: npt.NDArray[np.int64]) -> FloatArray:
    """Return draws in (0, 1), one per key and index."""
    x = key + index.astype(np.uint64) * _GAMMA
    x = (x ^ (x >> np.uint64(30))) * _MIX1
    x = (x ^ (x >> np.uint64(27))) * _MIX2
    bits = (x ^ (x >> np.uint64(31))) >> np.uint64(11)
    share: FloatArray = (bits.astype(np.float64) + 0.5) * 2.0**-53
    return share


def normal(key: Keys, index: npt.NDArray[np.int64]) -> FloatArray:
    """Return standard normal draws, one per key and index (Box-Muller)."""
    radius = np.sqrt(-2.0 * np.log(uniform(key, 2 * index)))
    angle: FloatArray = np.cos(2.0 * np.pi * uniform(key, 2 * index + 1))
    return radius * angle


def smooth(key: Keys, at: FloatArray, period: float) -> FloatArray:
    """Return a smooth wander of about unit size that forgets itself within *period* seconds.

    Normal draws on a lattice, joined by weights whose squares sum to one: the variance is the same
    everywhere.
    """
    place = at / period
    left = np.floor(place).astype(np.int64)
    share = place - left
    turn = 0.5 * np.pi * share * share * (3.0 - 2.0 * share)
    here: FloatArray = np.cos(turn) * normal(key, left)
    return here + np.sin(turn) * normal(key, left + 1)
