"""Cost of a week of 1,000 series at one minute as CSV and Parquet: CPU seconds, memory, bytes.

CPU time and not wall time: beside another job the wall time says more of the job.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from catalog.panel import Panel
from store.table import read_table, write_table

T0 = 1_700_000_040.0


def panel(series: int, points: int, seed: int) -> Panel:
    """Return private memory of *series* processes."""
    rng = np.random.default_rng(seed)
    walk = rng.normal(0, 2e5, (series, points)).cumsum(axis=1)
    values = np.rint(walk) + 8e9
    labels = tuple(
        {
            "cluster": "bench", "namespace": "llm", "deployment": f"chat-{i % 10}",
            "pool": "decode" if i % 5 else "prefill", "model_name": "some/model-name",
            "server": f"node-{i // 8:03d}:8000", "node": f"node-{i // 8:03d}",
            "process": "engine_core", "rank": f"DP{i % 8}",
        }
        for i in range(series)
    )  # fmt: skip
    return Panel("host_anon_swap", T0 + 60.0 * np.arange(points, dtype=np.float64), values, labels)


def read_cost(path: Path) -> dict[str, Any]:
    """Read *path* in a process of its own and return what that took."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.table", "--read", str(path)],
        check=True, capture_output=True, text=True, timeout=1800,
    )  # fmt: skip
    cost: dict[str, Any] = json.loads(done.stdout)
    return cost


def read(path: Path) -> dict[str, Any]:
    """Read *path* here; return CPU and wall seconds, peak memory and what was read."""
    before, began = time.process_time(), time.monotonic()
    panels = read_table(path)
    return {
        "cpu_seconds": round(time.process_time() - before, 2),
        "wall_seconds": round(time.monotonic() - began, 2),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "file_mib": round(path.stat().st_size / 2**20, 1),
        "values": int(sum(np.isfinite(one.values).sum() for one in panels.values())),
    }


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark and print one JSON line a format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=1000)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--formats", nargs="+", default=["csv", "parquet"])
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.read:
        print(json.dumps(read(options.read)))
        return 0
    whole = panel(options.series, int(options.days * 1440), options.seed)
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.formats:
            path = Path(folder) / f"week.{kind}"
            write_table(path, [whole])
            print(json.dumps({"bench": "table", "format": kind, **read_cost(path)}), flush=True)
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
