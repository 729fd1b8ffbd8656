"""What judging costs, and how early and how quiet the leak detector is in real noise.

    python -m benchmarks detect                                      # cost only
    python -m benchmarks detect -- --data FOLDER --hosts even        # and quality

Thresholds were chosen on seeds and on even hosts; figures to quote are those of the odd ones.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks.detect_cases import LEAKS, LONG, NEGATIVES, Case
from benchmarks.detect_real import Hosts, load
from benchmarks.detect_score import Told, caught, collect, false_alarms, intervals, panel_of, steady
from benchmarks.detect_series import DAY, GIB, MIB, noise
from benchmarks.detect_series import panel as simulated
from catalog.panel import FloatArray
from detectors.drift.judge import Limits, judge
from detectors.drift.live import LeakReplay

FIVE_MINUTES = 300.0
LIMITS = Limits({"host_anon_swap": 64 * GIB})
# Set -> (cases beside the untouched series, seconds of history that a judgement looks back on).
PLAN: dict[str, tuple[tuple[Case, ...], float]] = {
    "alibaba": ((*NEGATIVES[1:], *LEAKS), 7 * 86_400.0),
    "asd": (LONG, 28 * 86_400.0),
    "smd": (LONG, 28 * 86_400.0),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Print the cost, and the quality where data is given."""
    parser = argparse.ArgumentParser(prog="benchmarks detect", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with the real series")
    parser.add_argument("--hosts", choices=("even", "odd", "all"), default="odd")
    parser.add_argument("--sets", nargs="*", default=list(PLAN), choices=list(PLAN))
    parser.add_argument("--cases", default="", help="only cases whose name contains this")
    parser.add_argument("--most", type=int, default=0, help="series of each set; 0 is all")
    parser.add_argument("--every", type=float, default=2.0, help="hours between judgements")
    parser.add_argument("--series", type=int, default=1000, help="series of the cost; 0 is none")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if args.series:
        cost(args.series, args.seed)
    if args.data is None:
        print("quality: not measured, no --data given")
        return 0
    for hosts in load(args.data, args.hosts):
        if hosts.name in args.sets:
            some = replace(hosts, values=hosts.values[: args.most or None])
            quality(some, args.cases, args.every, args.seed)
    return 0


def cost(series: int, seed: int) -> None:
    """Print CPU time for a week at one minute: a quiet fleet of which one in a hundred leaks."""
    rng = np.random.default_rng(seed)
    values = noise(rng, series, 7 * DAY)
    values[::100] += 50 * MIB * np.maximum(np.arange(7 * DAY) - 4 * DAY, 0) / 60
    panel = simulated(values)
    before = time.process_time()
    found = judge({panel.signal: panel}, LIMITS)
    spent = time.process_time() - before
    firing = sum(finding.state == "firing" for finding in found)
    leaks = len(values[::100])
    print(
        f"cost: {series} series x 7 days at one minute: {spent:.2f} CPU s, "
        f"{1e3 * spent / series:.2f} ms a series; {firing} of {leaks} leaks firing"
    )
    before = time.process_time()
    replay = LeakReplay(panel)
    cycles = range(5, 7 * DAY + 1, 5)
    for end in cycles:
        found = replay.at(end, {}, LIMITS)
    spent = time.process_time() - before
    firing = sum(finding.state == "firing" for finding in found)
    print(
        f"replay: the same in cycles of five minutes: {spent:.1f} CPU s, "
        f"{1e6 * spent / series / len(cycles):.1f} us a series and cycle; "
        f"{firing} of {leaks} leaks firing",
        flush=True,
    )


def quality(hosts: Hosts, only: str, every: float, seed: int) -> None:
    """Print false alarms, recall, lead and intervals of every case in the noise of one set."""
    cases, history = PLAN[hosts.name]
    chosen = [case for case in (NEGATIVES[0], *cases) if only in case.name]
    coarse = _at_five_minutes(hosts) if hosts.name == "smd" else hosts
    before = time.process_time()
    panel, told, first = panel_of(coarse, chosen, seed)
    collect(panel, told, first, every, history)
    spent = time.process_time() - before
    print(f"{hosts.name}: {len(hosts.values)} series, judged every {every:g} h, {spent:.0f} CPU s")
    for one in told:
        print(line(one))
    leaks = intervals([one for one in told if one.case.leak])
    print(
        f"  intervals of all leaks: {leaks.count} judgements, cover {leaks.cover:.2f}, "
        f"median width {leaks.width:.0%}, median error {leaks.error:.0%}",
        flush=True,
    )


def line(told: Told) -> str:
    """Return one line about a case: false alarms, and for leaks recall, lead and intervals."""
    rate = false_alarms(told)
    text = (
        f"  {told.case.name:26} {rate.episodes:3d} false alarms ({rate.pages} pages) in "
        f"{rate.weeks:5.1f} series-weeks = {rate.episodes / rate.weeks:.3f} (<= {rate.bound:.3f})"
    )
    if not told.case.leak:
        return text
    found = caught(told)
    got = int(np.isfinite(found.lead).sum())
    low, high = stats.binomtest(got, len(found.lead)).proportion_ci()
    lead, share = (np.nan_to_num(values) for values in (found.lead, found.share))
    sure = intervals([told])
    return (
        f"{text}; recall {found.recall:.2f} [{low:.2f}, {high:.2f}], lead median "
        f"{np.median(lead):.1f} h ({np.median(share):.0%}), one in ten below "
        f"{np.quantile(share, 0.1):.0%}; interval covers {sure.cover:.2f}, width {sure.width:.0%}, "
        f"error {sure.error:.0%}; steady {steady(told):.2f}"
    )


def _at_five_minutes(hosts: Hosts) -> Hosts:
    """Return medians of five minutes: a month at one minute tells no more."""
    width = round(FIVE_MINUTES / hosts.step)
    points = hosts.values.shape[1] // width * width
    parts: FloatArray = hosts.values[:, :points].reshape(len(hosts.values), -1, width)
    return Hosts(hosts.name, FIVE_MINUTES, np.nanmedian(parts, axis=2))
