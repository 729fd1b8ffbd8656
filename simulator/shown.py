"""The scenarios of the demo."""

from __future__ import annotations

from typing import Final

from simulator.change import GIB, HOUR, Change, Loss
from simulator.truth import Scenario, leak

SHOWN: Final[tuple[Scenario, ...]] = (
    # Block ids that are kept for ever at each allocation: growth follows traffic, not time.
    leak(
        "leak", "with a host-memory leak in its decode pool",
        Loss("decode", "engine_core", 7.2 * GIB, "tokens", -7 * HOUR),
        breach=7.0 * HOUR, limit=800 * GIB, group="demo", source="S1",
    ),
    # Mean acceptance length 3.0 -> 2.4 within the five hours up to now; no error anywhere.
    Scenario(
        "acceptance", "whose draft acceptance falls", "demo", "falling", "drift",
        "acceptance_ratio", "decode", start=-5 * HOUR, rate=-0.042, breach=1.4 * HOUR, limit=0.020,
        source="S1",
        changes=(Change("accepted", -0.126, -5 * HOUR, shape="ramp", pool="decode"),),
    ),
    Scenario("none", "with nothing wrong", "demo", negative=True),
)  # fmt: skip
