"""Coding agents: sessions of turns with real gaps, growing prompts, sub-agents and resets.

Figures are those of 219 production sessions that S3 describes (docs/scenarios.md). Sessions begin
in blocks of six hours, each block with a seed of its own, so that any cell can be asked for alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from simulator.change import HOUR, FloatArray

BLOCK: Final = 6 * HOUR
CELL: Final = 20.0
CELLS: Final = round(BLOCK / CELL)
REACH: Final = 3
"""Blocks that a session may last; what is left of it then is dropped."""

STARTS: Final = 160.0
"""Sessions that begin in a block, in the mean of a day."""

TURNS: Final = (107.0, 0.93)  # median and sigma of its logarithm: p90 354
GAP: Final = ((0.0, 0.5, 0.9, 0.99, 1.0), (0.3, 2.0, 24.0, 684.0, 3600.0))
WORK: Final = 9.0  # seconds that a turn itself takes
GROWTH: Final = ((0.0, 0.5, 0.9, 0.99, 1.0), (50.0, 632.0, 3735.0, 60_000.0, 148_000.0))
FIRST: Final = (15_000.0, 0.5)
RESET: Final = 0.028
COMPACTED: Final = 0.0003
ADMITTED: Final = 142_000.0  # tokens; a longer prompt begins anew
GROUP: Final = (0.046, 7.0, 1.55)  # chance a turn, median and sigma of sub-agent requests: p90 51
SUB_PROMPT: Final = (20_000.0, 0.7)
SUB_REUSE: Final = 0.92


@dataclass(frozen=True)
class Work:
    """What arrives in cells: requests, their prompt tokens, and those of them seen before."""

    requests: FloatArray
    tokens: FloatArray
    seen: FloatArray


def by_quantile(table: tuple[tuple[float, ...], tuple[float, ...]], u: FloatArray) -> FloatArray:
    """Return draws of a distribution known by some quantiles, joined in the logarithm."""
    draws: FloatArray = np.exp(np.interp(u, table[0], np.log(table[1])))
    return draws


class Sessions:
    """The sessions of one run."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._begun = lru_cache(maxsize=8)(self._begin)
        self._blocks = lru_cache(maxsize=64)(self._add_up)

    def cells(self, number: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Work:
        """Return what arrives in the cells called *number*; cell 0 begins at the end of history."""
        block, place = np.divmod(number, CELLS)
        found = np.zeros((3, len(number)))
        for one in np.unique(block):
            here = block == one
            work = self._blocks(int(one))
            found[:, here] = np.stack([work.requests, work.tokens, work.seen])[:, place[here]]
        return Work(*found)

    def _add_up(self, block: int) -> Work:
        """Return what arrives in a block, from the sessions that began in it and before."""
        total = np.zeros((3, CELLS))
        for back in range(REACH):
            total += self._begun(block - back)[back]
        return Work(*total)

    def _begin(self, block: int) -> list[FloatArray]:
        """Return what the sessions that begin in *block* bring, block after block."""
        rng = np.random.default_rng([self._seed, block & 0xFFFFFFFF, 0x5E55])
        middle = (block + 0.5) * BLOCK / HOUR
        season = 1.0 + 0.6 * np.cos(2.0 * np.pi * (middle + 1.5) / 24.0)
        n = rng.poisson(STARTS * season)
        turns = np.minimum(rng.lognormal(np.log(TURNS[0]), TURNS[1], n), 1500.0).astype(np.int64)
        longest = int(turns.max(initial=1))
        alive = np.arange(longest)[None, :] < turns[:, None]
        gaps = WORK + by_quantile(GAP, rng.random((n, longest)))
        at = rng.random(n)[:, None] * BLOCK + np.cumsum(gaps, axis=1)
        prompt, seen = self._prompts(rng, n, longest)
        size = np.where(rng.random((n, longest)) < GROUP[0], 1.0, 0.0)
        size *= np.minimum(np.ceil(rng.lognormal(np.log(GROUP[1]), GROUP[2], (n, longest))), 400.0)
        row, turn = np.nonzero(alive & (size > 0))
        who = np.repeat(np.arange(len(row)), size[row, turn].astype(np.int64))
        sub_at = at[row, turn][who] + rng.exponential(90.0, len(who))
        sub = rng.lognormal(np.log(SUB_PROMPT[0]), SUB_PROMPT[1], len(who))
        when = np.concatenate([at[alive], sub_at])
        tokens = np.concatenate([prompt[alive], sub])
        known = np.concatenate([seen[alive], sub * SUB_REUSE])
        cell = (when // CELL).astype(np.int64)
        inside = cell < REACH * CELLS
        parts = [
            np.bincount(cell[inside], weight[inside], REACH * CELLS).reshape(REACH, CELLS)
            for weight in (np.ones_like(when), tokens, known)
        ]
        return [np.stack([part[i] for part in parts]) for i in range(REACH)]

    def _prompts(
        self, rng: np.random.Generator, n: int, longest: int
    ) -> tuple[FloatArray, FloatArray]:
        """Return the prompt of each turn and what of it an earlier turn had, (sessions, turns)."""
        growth = by_quantile(GROWTH, rng.random((n, longest)))
        fresh = rng.random((n, longest)) < RESET
        prompt, seen = np.zeros((2, n, longest))
        held = rng.lognormal(np.log(FIRST[0]), FIRST[1], n)
        known = np.zeros(n)
        for i in range(longest):
            too_long = held > ADMITTED
            held = np.where(too_long, 0.2 * ADMITTED, held)
            known = np.where(too_long | fresh[:, i], 0.3 * np.minimum(held, known), known)
            prompt[:, i], seen[:, i] = held, np.minimum(known, held)
            known = held
            held = held + growth[:, i]
        return prompt, seen
