"""Clients of the event simulation: conversations whose prompts grow from turn to turn."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from simulator.sessions import GAP, by_quantile
from simulator.station import Request


@dataclass(frozen=True)
class Work:
    """What conversations are like.

    Attributes:
        first: Prompt tokens of a first turn: median and sigma of its logarithm.
        longest: Prompt tokens that are admitted; a longer conversation ends.
        turns: Mean turns of a conversation.
        growth: New tokens of a turn: quantiles and values.
        output: Tokens of an answer: median and sigma of its logarithm.
        pauses: Whether a client waits between turns as real ones do.
    """

    first: tuple[float, float]
    longest: float
    turns: float
    growth: tuple[tuple[float, ...], tuple[float, ...]]
    output: tuple[float, float]
    pauses: bool = False


class Clients:
    """Clients that each keep one request active.

    Args:
        work: What they ask.
        number: How many.
        seed: Seed of all chance.
    """

    def __init__(self, work: Work, number: int, seed: int) -> None:
        self._work = work
        self._rng = np.random.default_rng(seed)
        self._numbers = itertools.count()
        self._draws = self._draw()
        self.begin = [self._new(0.5 * i / number) for i in range(number)]

    def after(self, request: Request, now: float) -> Request:
        """Return what the client of *request* asks next: its next turn, or a new conversation."""
        ends, growth, output, pause = next(self._draws)
        at = now + (pause if self._work.pauses else 0.0)
        prompt = request.prompt + request.output + growth
        if ends < 1.0 / self._work.turns or prompt > self._work.longest:
            return self._new(at)
        return Request(request.session, prompt, request.prompt + request.output, output, at)

    def _new(self, at: float) -> Request:
        median, sigma = self._work.first
        prompt = min(median * float(np.exp(sigma * self._rng.standard_normal())),
                     0.9 * self._work.longest)  # fmt: skip
        _, _, output, _ = next(self._draws)
        return Request(next(self._numbers), prompt, 0.0, output, at)

    def _draw(self) -> itertools.chain[tuple[float, float, float, float]]:
        """Return an endless row of draws: drawn by the thousand, handed out one by one."""
        return itertools.chain.from_iterable(self._some() for _ in itertools.count())

    def _some(self) -> list[tuple[float, float, float, float]]:
        n = 1024
        u = self._rng.random((3, n))
        median, sigma = self._work.output
        written = np.clip(median * np.exp(sigma * self._rng.standard_normal(n)), 2.0, 60_000.0)
        rows = np.stack([u[0], by_quantile(self._work.growth, u[1]), written,
                         by_quantile(GAP, u[2])])  # fmt: skip
        return [(a, b, c, d) for a, b, c, d in rows.T.tolist()]
