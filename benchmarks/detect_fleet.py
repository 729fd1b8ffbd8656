"""False pages of a simulated fleet in which every hard negative happens, and leads of its leaks.

    python -m benchmarks detect-fleet                            # test seeds, to FLEET.md
    python -m benchmarks detect-fleet -- --seeds train --weeks 40   # printed

Each week of a cluster has one hard negative, drawn evenly from all of them, at a time drawn evenly:
more than life brings. All detectors are asked through the front door, and what they find goes
through the service's own tracking and incidents, so that a page here is a page there. A leak is
played from long before its start to its breach. Even seeds are for tuning, odd ones to be quoted.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.detect_drift_days import SLA
from benchmarks.detect_drift_figures import share, table
from benchmarks.detect_figures import Alarms
from catalog.panel import Panel
from catalog.units import duration
from detectors.drift.judge import NEEDED, SIGNALS, Limits, judge
from detectors.service.incident import Incident, advance
from detectors.service.track import Presences, Tracked, follow
from simulator.change import HOUR
from simulator.scenario import SCENARIOS
from simulator.table import EPOCH, KNOWN, panels

RESULTS: Final = Path(__file__).parent / "FLEET.md"
FLEET: Final = 500  # signal-series
MONTH: Final = 30 * 24 * HOUR
SPAN: Final = 7 * 24 * HOUR
LEARNT: Final = 36 * HOUR  # nothing is asked before
LOOKS: Final = 200  # at a leak from start to breach, at most
READ: Final = tuple(set(NEEDED) & set(KNOWN))
JUDGED: Final = {name for names in SIGNALS.values() for name in names}
NEGATIVES: Final = tuple(name for name, one in SCENARIOS.items() if one.negative)
LEAKS: Final = tuple(
    name for name, one in SCENARIOS.items()
    if not one.negative and one.kind == "leak" and one.breach is not None
)  # fmt: skip


@dataclass(frozen=True)
class Week:
    """One run and what a person heard of it.

    Attributes:
        scenario: Its name.
        seed: Of all chance.
        series: How many were judged.
        seconds: For how long.
        heard: (severity, kind) of each incident that fired.
        lead: For a leak the share of the way from start to breach that was left; else None.
    """

    scenario: str
    seed: int
    series: int
    seconds: float
    heard: tuple[tuple[str, str], ...]
    lead: float | None = None


def main(argv: Sequence[str] | None = None) -> int:
    """Play the weeks and write or print the figures."""
    parser = argparse.ArgumentParser(
        prog="benchmarks detect-fleet",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", choices=("train", "test"), default="test")
    parser.add_argument("--weeks", type=int, default=250, help="of one cluster, most of them quiet")
    parser.add_argument("--leaks", type=int, default=3, help="runs of each leak")
    parser.add_argument("--every", type=duration, default=duration("2h"), help="between looks")
    parser.add_argument("--within", type=duration, default=duration("10h"), help="time to run")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, help="file to write; FLEET.md for the test seeds")
    args = parser.parse_args(argv)
    until = time.monotonic() + args.within
    weeks = list(_played(args, until))
    text = report(args.seeds, weeks, args.every)
    print(text)
    out = args.out or (RESULTS if args.seeds == "test" else None)
    if out is not None:
        out.write_text(text)
    return 0


def _played(args: argparse.Namespace, until: float) -> Iterator[Week]:
    """Yield the runs that are done in time."""
    odd = args.seeds == "test"
    runs = [(name, 2 * i + odd) for i in range(args.leaks) for name in LEAKS]
    rng = np.random.default_rng(7 + odd)
    runs += [(str(rng.choice(NEGATIVES)), 2 * (1000 + i) + odd) for i in range(args.weeks)]
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        asked = {pool.submit(played, name, seed, args.every) for name, seed in runs}
        try:
            for number, done in enumerate(
                as_completed(asked, timeout=max(until - time.monotonic(), 1.0)), 1
            ):
                week = done.result()
                if week.lead is not None or week.heard:
                    print(f"{number}: {week}", flush=True)
                yield week
        except TimeoutError:
            print("out of time: the rest is left out")
        finally:
            pool.shutdown(cancel_futures=True)


def played(name: str, seed: int, every: float) -> Week:
    """Return what a person heard of one run.

    Args:
        name: Of the scenario.
        seed: Of all chance, that of when it happens included.
        every: Seconds between looks.
    """
    scenario = SCENARIOS[name]
    if scenario.breach is None:
        # How much of the week lies behind the end of history: there the run goes on.
        until = float(np.random.default_rng([seed, 5]).uniform(0, SPAN / 2))
        first = until - SPAN
    else:
        until = scenario.breach
        first = min(until - SPAN, scenario.start - 2 * LEARNT)
    made = panels(name, seed=seed, since=first, until=until, signals=READ)
    tracked: dict[str, Tracked] = {}
    incidents: list[Incident] = []
    lead = None if scenario.breach is None else 0.0
    for moment in _moments(first + LEARNT, scenario.start, until, every, lead is not None):
        tracked, incidents = _looked(made, EPOCH + moment, tracked, incidents)
        fired = any(i.kind == "leak" and i.state == "firing" for i in incidents)
        if scenario.breach is not None and fired and moment > scenario.start:
            lead = (scenario.breach - moment) / (scenario.breach - scenario.start)
            break
    heard = tuple((severity, i.kind) for i in incidents for severity in i.raised[-1:])
    series = sum(len(panel.labels) for one, panel in made.items() if one in JUDGED)
    return Week(name, seed, series, until - first - LEARNT, heard, lead)


def _moments(first: float, start: float, until: float, every: float, leaks: bool) -> list[float]:
    """Return when to look: at a leak as often, for its length, as the service does."""
    if not leaks:
        return [float(at) for at in np.arange(first, until, every)]
    before = np.arange(first, start, every)
    after = np.arange(start, until, max((until - start) / LOOKS, 300.0))
    return [float(at) for at in (*before, *after)]


def _looked(
    made: dict[str, Panel], at: float, tracked: dict[str, Tracked], incidents: list[Incident]
) -> tuple[dict[str, Tracked], list[Incident]]:
    """Return findings and incidents after one more look."""
    known = {name: _between(panel, at - SPAN, at) for name, panel in made.items()}
    known = {name: panel for name, panel in known.items() if len(panel.times)}
    found = [f for f in judge(known, Limits(SLA), as_of=at) if f.kind != "unknown"]
    tracked = follow(tracked, found, set(READ), at, Presences(known))
    return tracked, advance(incidents, tracked.values(), at)


def _between(panel: Panel, since: float, at: float) -> Panel:
    """Return what the service would read: a week."""
    some = slice(*np.searchsorted(panel.times, (since, at), side="right"))
    return replace(
        panel,
        times=panel.times[some],
        values=panel.values[:, some],
        load=None if panel.load is None else panel.load[:, some],
        trials=None if panel.trials is None else panel.trials[:, some],
        starts=None if panel.starts is None else panel.starts[:, some],
    )


def report(split: str, weeks: Sequence[Week], every: float) -> str:
    """Return the figures as Markdown."""
    quiet = [week for week in weeks if week.lead is None]
    months = sum(week.series * week.seconds for week in quiet) / FLEET / MONTH
    rows = []
    for severity in ("page", "ticket", "report"):
        heard = [kind for week in quiet for said, kind in week.heard if said == severity]
        counted = Alarms(len(heard), months)
        low, high = counted.bounds
        of = ", ".join(f"{kind} {count}" for kind, count in Counter(heard).most_common())
        rows.append((severity, str(len(heard)), f"{counted.rate:.2f} [{low:.2f}, {high:.2f}]", of))
    named = Counter(
        (week.scenario, said, kind) for week in quiet for said, kind in week.heard
    ).most_common()
    said = "; ".join(f"`{name}` {severity} of {kind}: {n}" for (name, severity, kind), n in named)
    leaks = [week for week in weeks if week.lead is not None]
    leads = [week.lead for week in leaks if week.lead is not None]
    caught = sum(lead > 0 for lead in leads)
    late = "; ".join(
        f"`{name}` {', '.join(f'{week.lead:.0%}' for week in leaks if week.scenario == name)}"
        for name in LEAKS
    )
    return "\n\n".join([
        "# How quiet a fleet is, and how early its leaks are told",
        "Written by `python -m benchmarks detect-fleet`; not edited by hand. Simulated clusters of "
        f"the {split} seeds, asked every {every / HOUR:g} h by all detectors together, tracked as "
        "the service tracks. Brackets are exact 95 % intervals (Poisson, binomial).",
        "## Nothing wrong, and every hard negative",
        f"{len(quiet)} weeks of a cluster, each with one of {len(NEGATIVES)} hard negatives: "
        f"{months:.2f} months of {FLEET} signal-series. Incidents that fired, by their severity:",
        table(("heard as", "incidents", f"a month of {FLEET} series", "kinds"), rows),
        f"Heard of: {said or 'nothing'}.",
        "## Leaks",
        f"Told before the breach: {share(caught, len(leads))}; median share of the way from start "
        f"to breach that was left: {np.median(leads) if leads else 0:.0%}. By scenario: {late}.",
    ]) + "\n"  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
