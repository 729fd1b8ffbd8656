"""What judging costs, and how early and how quiet the leak detector is on real host noise.

    python -m benchmarks detect                                  # cost only
    python -m benchmarks detect -- --data FOLDER --hosts odd     # and quality

Thresholds were chosen on seeds and on even hosts; figures to quote are those of the odd ones.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks.detect_real import LIMIT, START, Hosts, load, panel
from benchmarks.detect_series import DAY, GIB, MIB, noise
from benchmarks.detect_series import panel as simulated
from catalog.panel import FloatArray
from detectors.drift.judge import Limits, judge
from detectors.finding import Finding

WEEK = 7 * 86400.0
COOL_DOWN = 86400.0  # one episode a day and series, as in the pilot
WARM_UP = 2 * 86400.0  # nothing is counted before this
LEAKS = (12.0, 48.0, 120.0)  # hours to the limit
LIMITS = Limits({"host_anon_swap": LIMIT})


def main(argv: Sequence[str] | None = None) -> int:
    """Print the cost, and the quality where data is given."""
    parser = argparse.ArgumentParser(prog="benchmarks detect", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with the real series")
    parser.add_argument("--hosts", choices=("even", "odd", "all"), default="odd")
    parser.add_argument("--most", type=int, default=0, help="series of each set; 0 is all")
    parser.add_argument("--every", type=float, default=6.0, help="hours between evaluations")
    parser.add_argument("--series", type=int, default=1000, help="series of the cost")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    cost(args.series, args.seed)
    if args.data is None:
        print("quality: not measured, no --data given")
        return 0
    for hosts in load(args.data, args.hosts):
        some = Hosts(hosts.name, hosts.step, hosts.values[: args.most or None])
        quiet(some, args.every)
        if some.name == "alibaba":
            for hours in LEAKS:
                leaking(some, hours, np.random.default_rng(args.seed))
    return 0


def cost(series: int, seed: int) -> None:
    """Print CPU time for a week at one minute: a quiet fleet of which one in a hundred leaks."""
    rng = np.random.default_rng(seed)
    values = noise(rng, series, 7 * DAY)
    values[::100] += 50 * MIB * np.maximum(np.arange(7 * DAY) - 4 * DAY, 0) / 60
    panels = {"host_anon_swap": simulated(values)}
    before = time.process_time()
    found = judge(panels, Limits({"host_anon_swap": 64 * GIB}))
    spent = time.process_time() - before
    firing = sum(finding.state == "firing" for finding in found)
    print(
        f"cost: {series} series x 7 days at one minute: {spent:.2f} CPU s, "
        f"{1e3 * spent / series:.2f} ms a series; {firing} of {len(values[::100])} leaks firing"
    )


def quiet(hosts: Hosts, every: float) -> None:
    """Print false-alarm episodes per series-week on untouched series, with the 95 % bounds."""
    last = np.full(len(hosts.values), -np.inf)
    episodes = pages = looks = 0
    before = time.process_time()
    for end in _ends(hosts, every):
        looks += 1
        for finding in _firing(hosts, hosts.values, end):
            row, now = _row(finding), end * hosts.step
            if now - last[row] >= COOL_DOWN:
                episodes += 1
                pages += finding.severity == "page"
                last[row] = now
    spent = time.process_time() - before
    points = hosts.values.shape[1]
    weeks = len(hosts.values) * (points * hosts.step - WARM_UP) / WEEK
    bound = stats.chi2.ppf(0.95, 2 * (episodes + 1)) / 2 / weeks
    print(
        f"quiet {hosts.name}: {len(hosts.values)} series, {weeks:.0f} series-weeks, {episodes} "
        f"false alarms ({pages} pages) = {episodes / weeks:.3f} a series-week "
        f"(95 % bound {bound:.3f}); {1e3 * spent / looks / len(hosts.values):.1f} ms a series",
        flush=True,
    )


def leaking(hosts: Hosts, hours: float, rng: np.random.Generator) -> None:
    """Print recall and lead for leaks that take *hours* to the limit, one in every series."""
    points = hosts.values.shape[1]
    length = hours * 3600 / hosts.step
    latest = max(points - length, WARM_UP / hosts.step + 0.3 * (points - WARM_UP / hosts.step))
    onset = rng.uniform(1.1 * WARM_UP / hosts.step, latest, len(hosts.values))
    rise = np.maximum(np.arange(points) - onset[:, None], 0) / length
    values = hosts.values + (LIMIT - START * GIB) * rise
    breach = onset + length
    first = np.full(len(values), np.inf)
    every = max(0.25, hours / 48)
    for end in _ends(hosts, every):
        live = np.flatnonzero((end > onset) & (end < breach) & np.isinf(first))
        if len(live):
            for finding in _firing(hosts, values[live], end):
                first[live[_row(finding)]] = end
    caught = first < breach
    lead = (breach - first)[caught] * hosts.step / 3600
    middle, low = (np.quantile(lead, q) if len(lead) else 0.0 for q in (0.5, 0.1))
    interval = stats.binomtest(int(caught.sum()), len(caught)).proportion_ci()
    print(
        f"leak of {hours:.0f} h: recall {caught.mean():.2f} [{interval.low:.2f}, "
        f"{interval.high:.2f}], median lead {middle:.1f} h ({middle / hours:.0%}), "
        f"one in ten below {low:.1f} h",
        flush=True,
    )


def _ends(hosts: Hosts, every: float) -> range:
    """Return the points at which to judge, from the second day on."""
    stride = max(1, round(every * 3600 / hosts.step))
    return range(round(WARM_UP / hosts.step), hosts.values.shape[1] + 1, stride)


def _firing(hosts: Hosts, values: FloatArray, end: int) -> list[Finding]:
    found = judge({"host_anon_swap": panel(hosts, values, end)}, LIMITS)
    return [finding for finding in found if finding.state == "firing"]


def _row(finding: Finding) -> int:
    return int(finding.labels["server"].removeprefix("host"))
