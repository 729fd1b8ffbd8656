"""Record a run of the pair without judging it: ``python -m benchmarks.live.record``."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from benchmarks.live import rig
from benchmarks.live.errors import LiveError
from benchmarks.live.install import cache_folder
from benchmarks.live.measure import table
from benchmarks.live.pace import Pacer
from stack.errors import StackError
from stack.programs import Stack

MEGABYTE = 1e6


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live.record", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the record is written")
    parser.add_argument("--minutes", type=float, default=15.0, help="under traffic")
    parser.add_argument(
        "--leak", type=float, default=0.0, help="MB a minute in decode's EngineCore"
    )
    parser.add_argument("--port", type=int, default=8100, help="first of four ports")
    parser.add_argument("--rate", type=float, default=1.0, help="requests a second")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


def _record(options: argparse.Namespace) -> None:
    cache, folder = cache_folder(), options.folder
    rig.prepare(cache, print)
    with Stack(folder) as stack, rig.recorded_pair(stack, cache, folder, options.port) as pair:
        rig.await_ready(stack, pair)
        with rig.traffic(pair, rate=options.rate, seed=options.seed):
            end = time.time() + options.minutes * 60
            print(f"traffic from {time.time():.0f} on")
            if options.leak:
                pacer = Pacer(pair, options.leak * MEGABYTE / 60)
                pacer.begin(45.0)
                print(f"leak from {time.time():.0f} on: {pacer.kept} bytes a step")
            while time.time() < end:
                time.sleep(15.0)
                stack.check()
            print(f"{pair.tally}\n{table(pair.recorder.history, end - 300)}")


def main(arguments: list[str]) -> int:
    """Record and return an exit code."""
    try:
        _record(_parse(arguments))
    except (LiveError, StackError) as error:
        print(f"live: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
