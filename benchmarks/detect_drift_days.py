"""Simulated days as the detectors of ratios and latencies see them, and what they said."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from catalog.panel import FloatArray, Panel
from detectors.drift.judge import MEMORY, NEEDED, SIGNALS, Limits, judge
from detectors.finding import Finding
from simulator.change import HOUR
from simulator.scenario import SCENARIOS
from simulator.table import EPOCH, KNOWN, panels
from simulator.truth import Scenario
from simulator.world import World

KINDS: Final = ("falling", "creep", "forecast", "rollout", "straggler")
JUDGED: Final = tuple(set(NEEDED) & set(KNOWN) - {*SIGNALS["leak"], *MEMORY})
DECAYS: Final = tuple(n for n, s in SCENARIOS.items() if not s.negative and s.kind in KINDS)
SLA: Final = {"tpot_mean": 0.020, "ttft_mean": 2.5}
HISTORY: Final = 60 * HOUR
AHEAD: Final = 60 * HOUR
SUSTAINED: Final = 900.0  # seconds for which a level is met before it is broken


@dataclass(frozen=True)
class Day:
    """One day and what was said on it.

    Attributes:
        scenario: Its truth.
        at: (m,) moments asked, seconds from the end of history.
        said: Findings at each moment that are not `unknown`, without their evidence.
        series: How many series were judged.
    """

    scenario: Scenario
    at: FloatArray
    said: tuple[tuple[Finding, ...], ...]
    series: int


def played(name: str, seed: int, at: FloatArray, *, until_found: bool = False) -> Day:
    """Return what was said of a scenario at the moments *at*.

    Args:
        name: Of the scenario.
        seed: Of all chance.
        at: Seconds from the end of history, ascending.
        until_found: Whether to stop asking once the right kind fires after the start.
    """
    scenario = SCENARIOS[name]
    made = panels(name, seed=seed, span=max(HISTORY, -float(at[0]) + 36 * HOUR),
                  until=max(0.0, float(at[-1])), signals=JUDGED)  # fmt: skip
    said: list[tuple[Finding, ...]] = []
    for moment in at.tolist():
        said.append(_asked(made, moment, SLA))
        right = any(f.kind == scenario.kind and f.state == "firing" for f in said[-1])
        if until_found and right and moment > scenario.start:
            break
    judged = {name for kind in KINDS for name in SIGNALS[kind]}
    series = sum(len(panel.labels) for name, panel in made.items() if name in judged)
    return Day(scenario, at[: len(said)], tuple(said), series)


def _asked(made: dict[str, Panel], moment: float, sla: dict[str, float]) -> tuple[Finding, ...]:
    known = {name: panel.until(EPOCH + moment) for name, panel in made.items()}
    found = judge(known, Limits(sla), as_of=EPOCH + moment)
    return tuple(replace(f, evidence={}) for f in found if f.kind != "unknown")


@dataclass(frozen=True)
class Breach:
    """A time to breach that was told, and the truth of it; seconds."""

    kind: str
    told: float
    low: float
    high: float
    truth: float


def breaches(seed: int) -> list[Breach]:
    """Return what was told of decays at drawn rates, and when the level was truly met."""
    rng = np.random.default_rng([seed, 17])
    creep = SCENARIOS["tpot_creep"]
    rate = float(rng.uniform(0.006, 0.02))
    start = float(rng.uniform(-30, -12)) * HOUR
    dearer = replace(creep.changes[0], size=rate, start=start)
    fall = replace(SCENARIOS["acceptance"].changes[0], size=-float(rng.uniform(0.06, 0.3)))
    return [
        *_told(replace(creep, start=start, changes=(dearer,)), seed, "tpot_mean", 0.020, 1.0),
        *_told(replace(SCENARIOS["acceptance"], changes=(fall,)), seed, "acceptance_ratio",
               float(rng.uniform(0.30, 0.45)), -1.0),
    ]  # fmt: skip


def _told(scenario: Scenario, seed: int, signal: str, limit: float, sign: float) -> list[Breach]:
    """Return the times to breach of one run, from its end of history two hours each back."""
    world = World(scenario, seed, 72 * HOUR + 300.0)
    made = panels(world, span=72 * HOUR, until=AHEAD, signals=JUDGED)
    panel = made[signal]
    row = [one.get("pool") for one in panel.labels].index("decode")
    level = panel.values[row]
    if panel.trials is not None:
        level = np.divide(level, panel.trials[row], out=np.full(level.shape, np.nan),
                          where=panel.trials[row] > 0)  # fmt: skip
    width = round(SUSTAINED / panel.step)
    parts = level[: len(level) // width * width].reshape(-1, width)
    middle = panel.times[: len(level) // width * width].reshape(-1, width)[:, 0] - EPOCH
    met = sign * (np.median(parts, axis=1) - limit) >= 0
    met &= middle > scenario.start
    out = []
    for moment in (-4 * HOUR, -2 * HOUR, 0.0):
        if not met.any() or middle[met.argmax()] <= moment:
            continue
        truth = float(middle[met.argmax()]) - moment
        for f in _asked(made, moment, {signal: limit}):
            if f.signal != signal or f.time_to_breach is None or f.state != "firing":
                continue
            high = np.inf if f.time_to_breach_high is None else f.time_to_breach_high
            low = 0.0 if f.time_to_breach_low is None else f.time_to_breach_low
            out.append(Breach(f.kind, f.time_to_breach, low, high, truth))
    return out
