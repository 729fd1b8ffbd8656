"""What watching costs a real vLLM server: its throughput with the exporter scraped, and without.

    python -m benchmarks overhead -- --pairs 12

The server decodes the same number of long answers all the time, so that its throughput is steady:
a pair's swings with what waits for what, far more than what is to be seen. Windows with a scrape
every five seconds and windows without alternate, the order within each two drawn anew, so that what
drifts on the machine falls on both alike; the exporter itself runs all the time. The figure is the
mean of the logarithms of the ratios with its 95 % interval (Student's t). A busy machine widens it.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
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
from catalog.units import duration
from stack.programs import Stack

SCRAPE_SECONDS = 5.0
SETTLE_SECONDS = 20.0
STREAMS = 4
ANSWER_SECONDS = 600.0
AT_MOST = 3.0
"""Percent by which the interval may lie off zero."""
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
    check_ports(args.port)
    with contextlib.ExitStack() as block:
        folder = Path(block.enter_context(TemporaryDirectory()))
        stack = block.enter_context(Stack(folder / "logs"))
        plan = plans(args.port)[1]
        stack.start(program(plan, cache, environment(plan, None, None)))
        eyes = Eyes.on_free_ports(folder)
        eyes.start_exporter(stack)
        block.enter_context(_decoding(plan.url))
        time.sleep(SETTLE_SECONDS)
        ratios = _ratios(plan.url, eyes, args.pairs, args.window, random.Random(args.seed))
    return _conclude(ratios)


@contextlib.contextmanager
def _decoding(url: str) -> Iterator[None]:
    """Keep `STREAMS` long answers going as long as the block runs."""
    enough = threading.Event()
    body = {"model": MODEL_NAME, "prompt": "Once", "max_tokens": 1900, "ignore_eos": True}

    def stream() -> None:
        while not enough.is_set():
            # What is cut off at the end of the block is no answer, and nobody waits for it.
            with contextlib.suppress(httpx.HTTPError):
                httpx.post(f"{url}/v1/completions", json=body, timeout=ANSWER_SECONDS)

    for _ in range(STREAMS):
        threading.Thread(target=stream, daemon=True).start()
    try:
        yield
    finally:
        enough.set()


def _ratios(url: str, eyes: Eyes, pairs: int, window: float, source: random.Random) -> list[float]:
    """Return for each two windows the throughput when scraped over that when not."""
    ratios = []
    for number in range(pairs):
        rate: dict[bool, float] = {}
        for watched in source.sample((True, False), 2):
            with _scraped(eyes.page) if watched else contextlib.nullcontext():
                rate[watched] = _throughput(url, window)
        ratios.append(rate[True] / rate[False])
        print(f"{number + 1}: {rate[True]:.1f} tokens/s scraped, {rate[False]:.1f} not", flush=True)
    return ratios


def _scraped(page: Callable[[], str]) -> contextlib.AbstractContextManager[None]:
    def scrape() -> None:
        page()

    return every(SCRAPE_SECONDS, scrape)


def _throughput(url: str, seconds: float) -> float:
    begun, before = time.monotonic(), _generated(url)
    time.sleep(seconds)
    return (_generated(url) - before) / (time.monotonic() - begun)


def _generated(url: str) -> float:
    answer = httpx.get(f"{url}/metrics", timeout=30.0)
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
