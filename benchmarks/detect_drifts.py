"""How early, how sure and how quiet falling, creep and forecast are, over many seeds.

    python -m benchmarks detect-drifts                              # test seeds, to DRIFTS.md
    python -m benchmarks detect-drifts -- --seeds train --count 8   # printed

Days of the simulator, each with its truth, asked through the front door without the memory signals,
whose detector has a bench of its own. Even seeds are for tuning, figures to quote are of odd ones.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.detect_drift_days import DECAYS, Day, breaches, played
from benchmarks.detect_drift_figures import confusion, forecasts, found, quiet, table
from simulator.change import HOUR
from simulator.scenario import SCENARIOS

RESULTS: Final = Path(__file__).parent / "DRIFTS.md"
MINUTE: Final = 60.0


@dataclass(frozen=True)
class Bar:
    """One decay that must be found in time.

    Attributes:
        scenario: Its name.
        within: Seconds from its start by which it must be found.
        every: Seconds between looks.
        words: What the bar says.
    """

    scenario: str
    within: float
    every: float
    words: str


BARS: Final = (
    Bar("acceptance_collapse", 15 * MINUTE, MINUTE, "length 3.33 -> 1.90 in 2.2 h within 15 min"),
    Bar("acceptance_slow", (3.07 - 2.85) / (3.07 - 2.8) * 8 * HOUR, 10 * MINUTE,
        "length 3.07 -> 2.8 in 8 h before 2.85"),
    Bar("tpot_creep", math.log(1.08) / math.log(1.01) * HOUR, 10 * MINUTE,
        "TPOT +1 % an hour before +8 %"),
)  # fmt: skip
BEFORE: Final = -HOUR * np.array([12.0, 9.0, 6.0, 3.0, 0.0])
DAY: Final = np.arange(-24 * HOUR, 1.0, 2 * HOUR)


def main(argv: Sequence[str] | None = None) -> int:
    """Play the days and write or print the figures."""
    parser = argparse.ArgumentParser(
        prog="benchmarks detect-drifts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", choices=("train", "test"), default="test")
    parser.add_argument("--count", type=int, default=50, help="seeds of each bar")
    parser.add_argument("--days", type=int, default=5, help="seeds of each scenario beside them")
    parser.add_argument("--quiet", nargs="*", help="quiet scenarios; all by default")
    parser.add_argument("--out", type=Path, help="file to write; DRIFTS.md for the test seeds")
    args = parser.parse_args(argv)
    text = report(args.seeds, args.count, args.days, args.quiet)
    print(text)
    out = args.out or (RESULTS if args.seeds == "test" and args.quiet is None else None)
    if out is not None:
        out.write_text(text)
    return 0


def seeds_of(split: str, count: int) -> list[int]:
    """Return *count* seeds of a split: even ones to tune on, odd ones to judge by."""
    return [2 * i + (split == "test") for i in range(count)]


def report(split: str, count: int, days: int, chosen: Sequence[str] | None = None) -> str:
    """Return all figures as Markdown.

    Args:
        split: `train` or `test`.
        count: Seeds of each bar and of the intervals.
        days: Seeds of each other scenario.
        chosen: Names of the quiet scenarios; None for all.
    """
    bars = [(bar, [_bar(bar, seed) for seed in seeds_of(split, count)]) for bar in BARS]
    names = [n for n, s in SCENARIOS.items() if s.negative] if chosen is None else chosen
    calm = {name: [played(name, seed, DAY) for seed in seeds_of(split, days)] for name in names}
    told = {name: [_whole(name, seed) for seed in seeds_of(split, days)] for name in DECAYS}
    known = [one for seed in seeds_of(split, count) for one in breaches(seed)]
    sections = [
        _HEAD.format(split=split, count=count, days=days),
        "## Found in time\n\n"
        + table(
            ("bar", "found in time", "median", "p90", "fired before"),
            [(bar.words, *found(days_, bar.within)) for bar, days_ in bars],
        ),
        "## 90 % intervals of the time to breach\n\n"
        + table(("kind", "judgements", "held the truth", "median width", "error"),
                forecasts(known)),
        "## Quiet days\n\nEpisodes of what fires: one a day and series at most.\n\n"
        + table(("scenario", "episodes", "series-weeks", "rate", "what"), quiet(calm)),
        "## Verdicts\n\n" + confusion({**told, **calm}),
    ]  # fmt: skip
    return "\n\n".join(sections) + "\n"


_HEAD: Final = (
    "# How early, how sure and how quiet: falling, creep, forecast, rollout, straggler\n\n"
    "Written by `python -m benchmarks detect-drifts`; not edited by hand. Simulated days of the "
    "{split} seeds: {count} of each bar, {days} of each other scenario. Intervals in brackets are "
    "exact ones of 95 %."
)


def _bar(bar: Bar, seed: int) -> Day:
    """Return the day of one bar, looked at from long before until well after it."""
    start = SCENARIOS[bar.scenario].start
    after = np.arange(bar.every, 1.6 * bar.within, bar.every)
    return played(bar.scenario, seed, start + np.concatenate([BEFORE, after]), until_found=True)


def _whole(name: str, seed: int) -> Day:
    return played(name, seed, np.array([0.0]))
