"""What watching costs a real vLLM pair: its throughput with the exporter scraped, and without.

    python -m benchmarks overhead -- --pairs 12

The pair is kept busy with as many requests as it takes at once. Windows with a scrape every five
seconds and windows without alternate, the order within each two drawn anew, so that what drifts on
the machine falls on both alike; the exporter itself runs all the time. The figure is the mean of
the logarithms of the ratios with its 95 % interval (Student's t). A busy machine widens it.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import numpy as np
from scipy import stats

from benchmarks.live import rig
from benchmarks.live.eyes import Eyes
from benchmarks.live.install import cache_folder
from benchmarks.live.regular import every
from benchmarks.live.rig import Pair
from catalog.units import duration
from stack.programs import Stack

SCRAPE_SECONDS = 5.0
SETTLE_SECONDS = 60.0
AT_MOST = 3.0
"""Percent by which the interval may lie off zero."""
BUSY_RATE = 50.0
"""Requests a second that are wanted: more than the pair can serve, so it is never idle."""
GENERATED = re.compile(r"^vllm:generation_tokens_total\{.*\} (\S+)$", re.MULTILINE)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure it, print it, and return 0 only if the interval lies within 3 %."""
    parser = argparse.ArgumentParser(prog="benchmarks overhead", description=__doc__)
    parser.add_argument("--pairs", type=int, default=12, help="windows of each kind")
    parser.add_argument("--window", type=duration, default=duration("20s"))
    parser.add_argument("--port", type=int, default=8100, help="first of four ports")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    cache = cache_folder()
    rig.prepare(cache, print)
    with contextlib.ExitStack() as block:
        folder = Path(block.enter_context(TemporaryDirectory()))
        stack = block.enter_context(Stack(folder / "logs"))
        pair = block.enter_context(rig.recorded_pair(stack, cache, folder, args.port))
        eyes = Eyes.on_free_ports(folder)
        eyes.start_exporter(stack)
        rig.await_ready(stack, pair)
        block.enter_context(rig.traffic(pair, rate=BUSY_RATE, seed=args.seed))
        time.sleep(SETTLE_SECONDS)
        ratios = _ratios(pair, eyes, args.pairs, args.window, random.Random(args.seed))
        print(f"{pair.tally.done} requests done, {pair.tally.failed} failed")
    return _conclude(ratios)


def _ratios(
    pair: Pair, eyes: Eyes, pairs: int, window: float, source: random.Random
) -> list[float]:
    """Return for each two windows the throughput when scraped over that when not."""
    ratios = []
    for number in range(pairs):
        rate: dict[bool, float] = {}
        for watched in source.sample((True, False), 2):
            with _scraped(eyes.page) if watched else contextlib.nullcontext():
                rate[watched] = _throughput(pair, window)
        ratios.append(rate[True] / rate[False])
        print(f"{number + 1}: {rate[True]:.1f} tokens/s scraped, {rate[False]:.1f} not", flush=True)
    return ratios


def _scraped(page: Callable[[], str]) -> contextlib.AbstractContextManager[None]:
    def scrape() -> None:
        page()

    return every(SCRAPE_SECONDS, scrape)


def _throughput(pair: Pair, seconds: float) -> float:
    begun, before = time.monotonic(), _generated(pair)
    time.sleep(seconds)
    return (_generated(pair) - before) / (time.monotonic() - begun)


def _generated(pair: Pair) -> float:
    answer = httpx.get(f"{pair.decode_url}/metrics", timeout=30.0)
    answer.raise_for_status()
    return sum(float(value) for value in GENERATED.findall(answer.text))


def _conclude(ratios: Sequence[float]) -> int:
    logs = np.log(ratios)
    mean, error = float(logs.mean()), float(stats.sem(logs))
    low, high = stats.t.interval(0.95, len(logs) - 1, mean, error)
    percent = [100 * float(np.expm1(value)) for value in (mean, low, high)]
    print("throughput when scraped: {:+.2f} % (95 %: {:+.2f} to {:+.2f})".format(*percent))
    within = max(abs(percent[1]), abs(percent[2])) <= AT_MOST
    print(f"within {AT_MOST:g} %: {'yes' if within else 'no'}")
    return 0 if within else 1
