"""What judging for leaks costs, beside what it may cost: screen, full fit, replay, cycle, state.

    python -m benchmarks detect-cost
    python -m benchmarks detect-cost -- --series 200 --days 2      # a glance

CPU time of one thread (`time.process_time`), of a quiet fleet of which one in a hundred leaks.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.detect_cost_live import cycle
from benchmarks.detect_series import DAY, GIB, MIB, noise
from benchmarks.detect_series import panel as simulated
from catalog.panel import Panel
from detectors.drift.judge import Limits
from detectors.drift.leak import find_leaks
from detectors.drift.leak_windows import grow
from detectors.drift.live import LeakReplay

LIMITS = Limits({"host_anon_swap": 64 * GIB})
CYCLE = 5  # points
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line a figure: what was measured, and the target."""
    parser = argparse.ArgumentParser(prog="benchmarks detect-cost", description=__doc__)
    parser.add_argument("--series", type=int, default=1000, help="of the replay")
    parser.add_argument("--days", type=float, default=7.0, help="of the replay")
    parser.add_argument("--fleet", type=int, default=100_000, help="series of the live cycle")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if any(os.environ.get(name) != "1" for name in ONE_THREAD):
        # What is read when numpy is imported can't be set afterwards.
        words = [
            sys.executable,
            "-m",
            "benchmarks.detect_cost",
            *(sys.argv[1:] if argv is None else argv),
        ]
        return subprocess.run(words, env={**os.environ, **ONE_THREAD}, check=False).returncode
    fleet = _fleet(args.series, round(args.days * DAY), args.seed)
    _replay(fleet)
    _screen(fleet)
    _fit(fleet)
    _batch(fleet)
    _live(fleet, args.fleet)
    return 0


def _fleet(series: int, points: int, seed: int) -> Panel:
    """Return a quiet fleet of which one series in a hundred leaks for its last three sevenths."""
    values = noise(np.random.default_rng(seed), series, points)
    values[::100] += 50 * MIB * np.maximum(np.arange(points) - points * 4 // 7, 0) / 60
    return simulated(values)


def _say(what: str, measured: float, unit: str, target: str) -> None:
    print(f"{what:58} {measured:9.3g} {unit:8} target {target}", flush=True)


def _replay(fleet: Panel) -> None:
    series, points = fleet.values.shape
    before = time.process_time()
    replay = LeakReplay(fleet)
    for end in range(CYCLE, points + 1, CYCLE):
        found = replay.at(end, {}, LIMITS)
    spent = time.process_time() - before
    firing = sum(finding.state == "firing" for finding in found)
    what = f"replay, {series} series x {points / DAY:g} days by five minutes"
    _say(what, spent, "CPU s", "20 (of 1,000 x 7)")
    print(f"  {firing} of {len(fleet.values[::100])} leaks firing at its end")


def _screen(fleet: Panel) -> None:
    """Cycles of what is quiet, on full buckets: nothing but the screen is paid."""
    quiet = fleet.rows([row for row in range(len(fleet.labels)) if row % 100])
    points = len(quiet.times)
    replay = LeakReplay(quiet)
    replay.grow(points - DAY)
    before = time.process_time()
    ends = range(points - DAY + CYCLE, points + 1, CYCLE)
    for end in ends:
        replay.grow(end)
    spent = time.process_time() - before
    _say("screen, a series and cycle", 1e6 * spent / len(ends) / len(quiet.labels), "CPU us", "5")


def _fit(fleet: Panel) -> None:
    """All windows of the series that leak, each for the first time."""
    leaks = fleet.rows(range(0, len(fleet.labels), 100))
    grow(leaks)  # what depends on the window alone is made once
    count, before = 0, time.process_time()
    for back in range(0, 200, CYCLE):
        known = leaks.until(float(leaks.times[-1 - back]))
        count += sum(1 + (g.ago is not None) for found in grow(known).values() for g in found)
    _say("full fit of a window", 1e3 * (time.process_time() - before) / count, "CPU ms", "0.3")


def _batch(fleet: Panel) -> None:
    """A cycle that starts from nothing but the history."""
    before = time.process_time()
    find_leaks({fleet.signal: fleet}, LIMITS, float(fleet.times[-1]))
    spent = time.process_time() - before
    what = "first cycle, from the history alone, as of 100,000"
    _say(what, 1e5 * spent / len(fleet.labels), "CPU s", "none")
    size = fleet.values.nbytes / len(fleet.labels) / 1000
    _say("the history, a series", size, "kB", "none")


def _live(fleet: Panel, series: int) -> None:
    """Cycles of the whole service by the minute, with a leak in none, and in one of a thousand."""
    quiet = fleet.rows([row for row in range(len(fleet.labels)) if row % 100]).values
    spent, size, _ = cycle(quiet, series, 0)
    _say(f"live cycle of {series:,} quiet series, beside queries", spent, "CPU s", "2")
    _say("its arrays, a series", size / 1000, "kB", "4")
    leaks = series // 1000
    more, _, firing = cycle(quiet, series, leaks)
    what = f"the same with {leaks} leaks: fit, evidence and pages"
    _say(what, more, "CPU s", "2")
    print(f"  {firing} firing")


if __name__ == "__main__":
    sys.exit(main())
