"""Leadline beside other people's detectors, on the same series, in one run.

    python -m benchmarks detect-compare -- --data FOLDER        # writes benchmarks/RESULTS.md
    python -m benchmarks detect-compare -- --quick              # minutes, printed
    python -m benchmarks detect-compare -- --tiny               # seconds, printed

FOLDER holds the real series; without it events are put into seeded noise alone, and the text says
so. Peers from the `[bench]` extra that are not installed are listed as skipped.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks import detect_scenarios
from benchmarks.detect_arena import OURS, SETS, Heard, ours, sampled, seeded, theirs
from benchmarks.detect_cases import LEAKS, NEGATIVES, Case, Injected
from benchmarks.detect_prometheus import check
from benchmarks.detect_real import Hosts, load
from benchmarks.detect_report import Run, report
from benchmarks.peers.peer import Peer
from benchmarks.peers.registry import PEERS

RESULTS = Path(__file__).parent / "RESULTS.md"
HISTORY = 7 * 86_400.0


@dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes:
        name: As it is called.
        hosts: Series of a set at most.
        every: Hours between moments.
        checked: Whether the peers in PromQL are held to a real Prometheus.
        peers: Share of the series that a dear peer is asked about in the full run.
        cases: Names of the cases.
    """

    name: str
    hosts: int
    every: float
    checked: bool
    peers: float
    cases: tuple[str, ...]


MOST = 18  # series of a set
ALL = tuple(case.name for case in (*NEGATIVES, *LEAKS))
TINY = ("untouched", "warm-up", "leak of 48 h")
SIZES = {
    "full": Size("full", MOST, 2.0, True, 1.0, ALL),
    "quick": Size("quick", 4, 6.0, True, 0.05, ALL),
    "tiny": Size("tiny", 2, 12.0, False, 0.05, TINY),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run every detector and write or print the results."""
    parser = argparse.ArgumentParser(
        prog="benchmarks detect-compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, help="folder with the real series")
    parser.add_argument("--hosts", choices=("even", "odd", "all"), default="odd")
    parser.add_argument("--quick", action="store_true", help="few series and moments")
    parser.add_argument("--tiny", action="store_true", help="the least that shows it works")
    parser.add_argument("--series", type=int, help="hosts of each set at most")
    parser.add_argument("--every", type=float, help="hours between moments")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--scenarios", nargs="*", help="simulated days; none for none")
    parser.add_argument("--peers", nargs="*", help="only peers whose name contains one of these")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, help="file to write; the full run's is RESULTS.md")
    args = parser.parse_args(argv)
    name = "tiny" if args.tiny else "quick" if args.quick else "full"
    size = SIZES[name]
    if args.series:
        size = replace(size, hosts=args.series, peers=args.series / MOST)
    if args.every:
        size = replace(size, every=args.every)
    task = Task(args.data, args.hosts, size, args.seed)
    chosen = [p for p in PEERS if not args.peers or any(word in p.name for word in args.peers)]
    run = compare(task, chosen, args.jobs)
    out = args.out or (RESULTS if name == "full" and not args.peers else None)
    days = detect_scenarios.names(name) if args.scenarios is None else args.scenarios
    if days and out is not None:
        out.write_text(report(run, out))  # what there is, should the days not come to their end
    with _pool(args.jobs) as pool:
        of = [peer.name for peer in run.peers]
        rows = list(pool.map(detect_scenarios.day, days, [of] * len(days), [args.seed] * len(days)))
    run.scenarios += detect_scenarios.report(days, of, rows, args.seed)
    run.cpu += sum(row.cpu for row in rows)
    text = report(run, out)
    if out is None:
        print(text)
    else:
        out.write_text(text)
        print(f"written: {out}")
    return 0


@dataclass(frozen=True)
class Task:
    """What every detector is asked about; each makes the series anew from it."""

    data: Path | None
    parity: str
    size: Size
    seed: int


@lru_cache
def sets_of(task: Task) -> list[tuple[Hosts, tuple[Case, ...]]]:
    """Return the sets with their cases: events in the first, the others as they are."""
    found = [] if task.data is None else load(task.data, task.parity)
    cases = tuple(case for case in (*NEGATIVES, *LEAKS) if case.name in task.size.cases)
    every = [sampled(hosts, task.size.hosts) for hosts in found if hosts.name in SETS]
    # Seeded noise stands in for the hosts where there is no data.
    main_set, *others = every or [seeded(task.size.hosts, task.seed)]
    return [(main_set, cases), *((hosts, (_as_is(hosts),)) for hosts in others)]


def compare(task: Task, peers: Sequence[Peer], jobs: int) -> Run:
    """Return what every detector said."""
    size = task.size
    if task.data is not None and sets_of(task)[0][0].name not in SETS:
        print(f"--data {task.data}: no series known here; using seeded noise", file=sys.stderr)
    run = Run(size=size.name, seed=task.seed, parity=task.parity, every=size.every,
              data=sets_of(task)[0][0].name in SETS)  # fmt: skip
    run.sets += [(hosts.name, len(hosts.values), hosts.values.shape[1] * hosts.step / 86_400,
                  len(cases)) for hosts, cases in sets_of(task)]  # fmt: skip
    run.skipped += [peer for peer in peers if not peer.there]
    run.peers += [peer for peer in peers if peer.there]
    names = [OURS, *(peer.name for peer in run.peers)]
    with _pool(jobs) as pool:
        checked = pool.submit(check, sets_of(task)[0][0], task.seed) if size.checked else None
        asked = {name: [pool.submit(ask, task, name, part) for part in _parts(task)]
                 for name in names}  # fmt: skip
        for name, answers in asked.items():
            run.heard[name] = [heard for answer in answers for heard in answer.result()]
            _said(name, run.heard[name])
        run.checks += checked.result() if checked else []
    run.cpu = sum(h.cpu for heard in run.heard.values() for h in heard)
    return run


Part = tuple[int, int, int]  # number of the set, first case of it, and which is the last no more
TOGETHER = 8  # cases that are judged in one go


def _parts(task: Task) -> list[Part]:
    """Return the parts into which the question is cut."""
    return [
        (number, first, min(first + TOGETHER, len(cases)))
        for number, (_, cases) in enumerate(sets_of(task))
        for first in range(0, len(cases), TOGETHER)
    ]


def ask(task: Task, name: str, part: Part) -> list[Heard]:
    """Return the answers of one detector about one part."""
    number, first, last = part
    hosts, cases = sets_of(task)[number]
    peer = next((p for p in PEERS if p.name == name), None)
    if peer is None:
        out = ours(hosts, cases[first:last], task.seed, task.size.every, HISTORY)
    else:
        most = math.ceil(peer.most * task.size.peers)
        out = theirs(peer, hosts, cases[first:last], task.seed, task.size.every, most)
    # What makes a case cannot travel between processes.
    return [replace(heard, case=replace(heard.case, make=_made)) for heard in out]


def _made(hosts: Hosts, rng: np.random.Generator) -> Injected:
    raise RuntimeError(f"{hosts.name}: its series were made already ({rng})")


@contextmanager
def _pool(jobs: int) -> Iterator[Executor]:
    """Run so many at a time; each in a process of its own, one after the other in a thread."""
    if jobs == 1:
        with ThreadPoolExecutor(1) as threads:
            yield threads
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as processes:
        yield processes


def _as_is(hosts: Hosts) -> Case:
    """Return the case of a set as it is."""
    untouched = NEGATIVES[0]
    return Case(f"untouched, {hosts.name}", untouched.leak, untouched.verdict, untouched.make)


def _said(name: str, heard: Sequence[Heard]) -> None:
    cpu, judged = sum(h.cpu for h in heard), sum(h.judged for h in heard)
    print(f"{name}: {cpu:.0f} CPU s, {1e3 * cpu / max(judged, 1):.2f} ms a series and judgement",
          file=sys.stderr, flush=True)  # fmt: skip
