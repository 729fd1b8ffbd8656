"""What a week of 24 GPUs, all signals at one minute, costs to simulate; with every kind of traffic.

`python -m benchmarks simulate -- [--days 7] [--trace PATH ...]`: each trace is replayed too.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Final

from simulator.change import DAY
from simulator.scenario import SCENARIOS
from simulator.table import panels
from simulator.truth import Scenario
from simulator.world import World

BAR: Final = 60.0
"""Seconds of CPU that a week may cost."""

_SHOWN: Final = ("none", "leak", "poisson", "bursts", "monday", "agents")


def main(argv: Sequence[str]) -> int:
    """Print one line for each scenario and trace; return 1 if one costs more than the bar."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks simulate --")
    parser.add_argument("--days", type=float, default=7.0, help="span (default: 7)")
    parser.add_argument("--trace", action="append", default=[], help="a trace to replay")
    args = parser.parse_args(argv)
    runs = [SCENARIOS[name] for name in _SHOWN]
    runs += [Scenario(path.rpartition("/")[2], traffic=f"replay:{path}") for path in args.trace]
    worst = max(_one(run, args.days * DAY) for run in runs)
    print(f"dearest {worst:.1f} s CPU, bar {BAR:.0f} s for 7 days")
    return int(worst * 7.0 / args.days > BAR)


def _one(run: Scenario, span: float) -> float:
    """Return the CPU seconds of one table."""
    begin = time.process_time()
    found = panels(World(run, 1, span), since=-span)
    cost = time.process_time() - begin
    series = sum(len(panel.labels) for panel in found.values())
    points = sum(panel.values.size for panel in found.values())
    print(
        f"{run.name:40.40} {len(found)} signals, {series} series, {points / 1e6:.1f} M points: "
        f"{cost:.1f} s CPU",
        file=sys.stdout,
        flush=True,
    )
    return cost
