"""The live run: a real leak in a real pair, watched by Leadline until its page arrives."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.live import rig
from benchmarks.live.alerts import read_alerts
from benchmarks.live.eyes import Eyes, find_binaries
from benchmarks.live.install import cache_folder
from benchmarks.live.measure import table
from benchmarks.live.options import Options
from benchmarks.live.outcome import MB, Leak, facts
from benchmarks.live.pace import Pacer
from benchmarks.live.regular import every
from benchmarks.live.rig import Pair
from benchmarks.live.scrapes import ScrapeWriter
from benchmarks.live.servers import check_ports
from benchmarks.live.watch import Said, listen, read_findings
from stack.programs import Stack

SCRAPE_SECONDS = 5.0
PACE_SECONDS = 45.0
ADJUST_SECONDS = 30.0
# Long enough that a few late samples of a busy machine don't make the rate.
MEASURE_SECONDS = 120.0
# Bytes a second: with less, or no leak at all, the limit would lie within the noise.
LEAST = 10 * MB / 60


def run(options: Options) -> int:
    """Run it and return 0 only if the page came and nothing false did."""
    cache = cache_folder()
    check_ports(options.port)
    find_binaries()
    rig.prepare(cache, _say)
    folder = _fresh(options.folder or cache / "runs" / "last")
    eyes = Eyes.on_free_ports(folder)
    with Stack(folder / "logs") as stack, contextlib.ExitStack() as block:
        pair = block.enter_context(rig.recorded_pair(stack, cache, folder, options.port))
        prometheus = eyes.start(stack)
        block.enter_context(_scraping(eyes, folder))
        _say(f"starting prefill and decode; Prometheus on http://{eyes.prometheus}")
        rig.await_ready(stack, pair)
        block.enter_context(rig.traffic(pair, rate=options.rate, seed=options.seed))
        leak = _begin_leak(block, pair, options)
        eyes.judge(stack, prometheus, leak.limit)
        _say(f"the board is on http://{eyes.service}; waiting for the page")
        said = listen(
            lambda: (
                read_alerts(f"http://{eyes.alertmanager}"),
                read_findings(f"http://{eyes.service}"),
            ),
            stack.check,
            deadline=options.deadline,
            hold=options.hold,
        )
        return _conclude(said, pair, leak, folder)


def _begin_leak(block: contextlib.ExitStack, pair: Pair, options: Options) -> Leak:
    """Pace the leak by the steps counted, measure its rate, and choose the limit by it."""
    pacer = Pacer(pair, options.leak / 60)
    if options.leak:
        _say(f"traffic runs; counting steps for {PACE_SECONDS:.0f} s")
        pacer.begin(PACE_SECONDS)
        block.enter_context(every(ADJUST_SECONDS, pacer.adjust))
    began = time.time()
    _say(f"decode's EngineCore now leaks {pacer.kept} bytes a step; measuring its growth")
    time.sleep(MEASURE_SECONDS)
    history = pair.recorder.history
    rate = history.growth("decode", "engine_core", began)
    limit = options.limit or history.level("decode") + max(rate, LEAST) * options.horizon
    _say(f"it grows by {rate * 60 / MB:.1f} MB/min; the limit is {limit / MB:.0f} MB")
    return Leak(began, pacer.kept, limit)


def _conclude(said: Said, pair: Pair, leak: Leak, folder: Path) -> int:
    """Print and keep what came of it, and return the exit code."""
    history = pair.recorder.history
    came = facts(said, history, leak, time.time())
    came.write(folder / "facts.json")
    print(table(history, leak.began))
    print(f"traffic: {pair.tally.done} requests done, {pair.tally.failed} failed")
    print(*came.lines(), sep="\n")
    print(f"live: {'as it should be' if came.good else 'failed'} (record: {folder})")
    return 0 if came.good else 1


@contextlib.contextmanager
def _scraping(eyes: Eyes, folder: Path) -> Iterator[None]:
    """Keep the exporter's pages as Prometheus gets them."""
    writer = ScrapeWriter(folder / "scrapes.xz")
    keep = every(SCRAPE_SECONDS, lambda: writer.add(time.time(), eyes.page()))
    with contextlib.closing(writer), keep:
        yield


def _fresh(folder: Path) -> Path:
    """An empty folder; one that holds something other than an earlier run is left alone."""
    if (folder / "processes.csv").exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)
