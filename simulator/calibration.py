"""The event simulation beside S3's tables: fitted at c32 and c128, predicted at c64 and elsewhere.

Fitted are the costs below, on the limited-input runs of 1P1D at 32 and 128 clients with and
without drafts, and on 3P1D with full inputs at 128. All else is predicted with the same costs.
What can't be told from S3 and was fitted too: how long answers are, how many turns conversations
have in its stages, and a time per request that differs between its two sweeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from simulator.clients import Clients, Work
from simulator.events import Cluster, Costs, Outcome, Setup

COSTS: Final = Costs(
    base=0.12, fixed=0.745, speed=10_000.0, crowd=0.053, step=0.0232, each=2.6e-5, context=0.0012,
    draft=0.0031, draft_each=2.0e-5, hand=1.05,
)  # fmt: skip
FULL: Final = replace(COSTS, fixed=1.25)
"""Costs of the sweep with full inputs."""

_GROWTH: Final = ((0.0, 0.5, 0.9, 0.99, 1.0), (50.0, 632.0, 3735.0, 30_000.0, 148_000.0))
_LIMITED: Final = Work((31_000.0, 0.8), 142_000.0, 13.0, _GROWTH, (510.0, 1.2))
_FULL: Final = Work((34_000.0, 0.8), 1_000_000.0, 13.0, _GROWTH, (510.0, 1.2))

READ: Final = {
    "ttft": "TTFT p50, s",
    "tpot": "TPOT p50, ms",
    "output": "output, tok/s",
    "speed": "tok/s/user",
    "e2e": "E2E p50, s",
}


@dataclass(frozen=True)
class Case:
    """One row of S3's tables.

    Attributes:
        name: Layout and clients.
        setup: The layout.
        clients: Clients that keep one request active each.
        limited: Whether inputs are limited to 142K tokens.
        fitted: Whether the costs were fitted on it.
        told: What S3 has, by the names of `READ`.
    """

    name: str
    setup: Setup
    clients: int
    limited: bool
    fitted: bool
    told: Mapping[str, float]


def _narrow(drafts: int, clients: int, *told: float) -> Case:
    name = f"1P1D {'MTP' if drafts else 'offload'} c{clients}"
    numbers = dict(zip(("ttft", "tpot", "output", "speed"), told, strict=True))
    return Case(name, Setup(drafts=drafts), clients, True, clients != 64, numbers)


def _wide(prefill: int, decode: int, clients: int, fitted: bool, **told: float) -> Case:
    name = f"{prefill}P{decode}D c{clients}"
    return Case(name, Setup(prefill, decode), clients, False, fitted, told)


CASES: Final = (
    _narrow(0, 32, 1.1, 28.6, 1145, 28.7),
    _narrow(0, 64, 1.3, 30.7, 2178, 25.9),
    _narrow(0, 128, 1.6, 35.1, 3505, 21.6),
    _narrow(3, 32, 1.3, 13.5, 2159, 51.5),
    _narrow(3, 64, 1.6, 14.7, 3788, 45.1),
    _narrow(3, 128, 2.4, 17.1, 5647, 35.0),
    _wide(3, 1, 64, False, ttft=1.71, tpot=15.5, output=3679, e2e=9.6),
    _wide(3, 1, 128, True, ttft=2.18, tpot=19.1, output=6281, speed=36.6, e2e=14.0),
    _wide(2, 2, 128, False, ttft=2.70, tpot=15.4, output=6781, speed=40.9),
    _wide(3, 2, 128, False, ttft=2.12, tpot=15.5, output=7598, speed=44.2, e2e=11.5),
)


def play(case: Case, *, seed: int = 3, count: int = 4000) -> Outcome:
    """Return what becomes of a case's requests."""
    costs, work = (COSTS, _LIMITED) if case.limited else (FULL, _FULL)
    clients = Clients(work, case.clients, seed)
    cluster = Cluster(case.setup, costs)
    return cluster.run(clients.begin, clients.after, count=count, warm=8 * case.clients)


def read(outcome: Outcome) -> dict[str, float]:
    """Return what S3's tables have, by the names of `READ`."""
    return {
        "ttft": float(np.median(outcome.ttft)),
        "tpot": float(np.median(outcome.tpot)) * 1000.0,
        "output": outcome.output_rate,
        "speed": outcome.speed,
        "e2e": float(np.median(outcome.e2e)),
    }


def side_by_side(cases: tuple[Case, ...] = CASES, *, seed: int = 3) -> Iterator[tuple[str, ...]]:
    """Yield a line for each number: case, fitted or predicted, what, S3's, ours, error."""
    for case in cases:
        ours = read(play(case, seed=seed))
        for what, told in case.told.items():
            error = ours[what] / told - 1.0
            kind = "fitted" if case.fitted else "predicted"
            yield (case.name, kind, READ[what], f"{told:g}", f"{ours[what]:.4g}", f"{error:+.1%}")
