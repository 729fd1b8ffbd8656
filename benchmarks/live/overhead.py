"""What watching costs a real vLLM server: how long fixed work takes scraped, and not.

    python -m benchmarks overhead -- --pairs 60

The work is a few answers of fixed length, decoded together: every repetition does the same, however
the machine is, where a window of fixed time counts as much as happens to end within it. Work with a
scrape every five seconds and work without alternate, the order within each two drawn anew, so that
what drifts on the machine falls on both alike; the exporter itself runs all the time. The figure is
the mean of the logarithms of the ratios with its 95 % interval (Student's t). A busy machine widens
it.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import numpy as np
from scipy import stats

from benchmarks.live import rig
from benchmarks.live.eyes import Eyes
from benchmarks.live.install import cache_folder
from benchmarks.live.regular import every
from benchmarks.live.servers import MODEL_NAME, check_ports, environment, plans, program
from stack.programs import Stack

SCRAPE_SECONDS = 5.0
STREAMS = 4
ANSWER_SECONDS = 600.0
AT_MOST = 3.0
"""Percent by which the interval may lie off zero."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure it, print it, and return 0 only if the interval lies within 3 %."""
    parser = argparse.ArgumentParser(prog="benchmarks overhead", description=__doc__)
    parser.add_argument("--pairs", type=int, default=60, help="repetitions of each kind")
    parser.add_argument("--tokens", type=int, default=800, help="length of each answer")
    parser.add_argument("--port", type=int, default=8100, help="first of four ports")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    cache = cache_folder()
    rig.prepare(cache, print)
    check_ports(args.port)
    with contextlib.ExitStack() as block:
        folder = Path(block.enter_context(TemporaryDirectory()))
        stack = block.enter_context(Stack(folder / "logs"))
        plan = plans(args.port)[1]
        stack.start(program(plan, cache, environment(plan, None, None)))
        eyes = Eyes.on_free_ports(folder)
        eyes.start_exporter(stack)
        work = partial(_answer, plan.url, args.tokens)
        work()  # the first fills caches and compiles
        ratios = _ratios(work, eyes.page, args.pairs, random.Random(args.seed))
    return _conclude(ratios)


def _answer(url: str, tokens: int) -> float:
    """Return the seconds in which `STREAMS` answers of that length were given together."""
    body = {"model": MODEL_NAME, "prompt": "Once", "max_tokens": tokens, "ignore_eos": True}

    def one(_: int) -> None:
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=ANSWER_SECONDS)
        answer.raise_for_status()

    begun = time.monotonic()
    with ThreadPoolExecutor(STREAMS) as pool:
        list(pool.map(one, range(STREAMS)))
    return time.monotonic() - begun


def _ratios(
    work: Callable[[], float], page: Callable[[], str], pairs: int, source: random.Random
) -> list[float]:
    """Return for each two repetitions the time taken when scraped over that when not."""
    watched = threading.Event()

    def scrape() -> None:
        if watched.is_set():
            page()

    ratios = []
    # The clock of the scrapes runs through, so that short work gets no more than its share.
    with every(SCRAPE_SECONDS, scrape):
        for number in range(pairs):
            took: dict[bool, float] = {}
            for now in source.sample((True, False), 2):
                (watched.set if now else watched.clear)()
                took[now] = work()
            ratios.append(took[True] / took[False])
            print(f"{number + 1}: {took[True]:.2f} s scraped, {took[False]:.2f} s not", flush=True)
    return ratios


def _conclude(ratios: Sequence[float]) -> int:
    logs = np.log(ratios)
    mean, error = float(logs.mean()), float(stats.sem(logs))
    low, high = stats.t.interval(0.95, len(logs) - 1, mean, error)
    percent = [100 * float(np.expm1(value)) for value in (mean, low, high)]
    print("time taken when scraped: {:+.2f} % (95 %: {:+.2f} to {:+.2f})".format(*percent))
    within = max(abs(percent[1]), abs(percent[2])) <= AT_MOST
    print(f"within {AT_MOST:g} %: {'yes' if within else 'no'}")
    return 0 if within else 1
