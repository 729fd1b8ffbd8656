"""Record a run of the pair without judging it: ``python -m benchmarks.live.record``."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from benchmarks.live import rig
from benchmarks.live.errors import LiveError
from benchmarks.live.install import cache_folder
from benchmarks.live.pace import bytes_for, measure_steps
from benchmarks.live.recorder import server_label

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


async def _record(options: argparse.Namespace) -> None:
    cache = cache_folder()
    rig.prepare(cache, print)
    seconds = options.minutes * 60
    pair = rig.running(cache, options.folder, options.port, rate=options.rate, seed=options.seed)
    async with pair as live:
        began = time.time()
        print(f"traffic from {began:.0f} on {[server_label(s.plan.port) for s in live.servers]}")
        if options.leak:
            steps = await measure_steps(live.servers[1].url, 45.0)
            kept = bytes_for(options.leak * MEGABYTE / 60, steps, 45.0)
            live.leak(kept)
            print(
                f"leak from {time.time():.0f}: {kept} bytes a step, {steps / 45:.1f} steps a second"
            )
        while time.time() < began + seconds:
            await asyncio.sleep(30.0)
            live.check()
            print(f"{time.time():.0f} {live.tally}", flush=True)


def main(arguments: list[str]) -> int:
    """Record and return an exit code."""
    try:
        asyncio.run(_record(_parse(arguments)))
    except LiveError as error:
        print(f"live: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
