"""`python -m benchmarks [name ...]`: measure what collecting and judging cost, and how well.

Without names, all that need nothing but this machine run, one after the other; arguments after
`--` go to the one that is named.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

# name -> module with `main(argv) -> int | None`, and what it measures
BENCHES: dict[str, tuple[str, str]] = {
    "exporter": ("benchmarks.exporter", "cost of a scrape of one node with 8 engines"),
    "gpu-node": ("benchmarks.gpu_node", "the same with real GPUs and their driver (minutes)"),
    "processes": ("benchmarks.processes", "cost of a host with 2,000 processes, beside a peer"),
    "table": ("benchmarks.table", "cost of reading a week of 1,000 series from a file"),
    "detect": ("benchmarks.detect", "cost of judging 1,000 series x 7 days; quality with --data"),
    "detect-cost": ("benchmarks.detect_cost", "cost of screen, fit, replay and cycle"),
    "detect-compare": ("benchmarks.detect_compare", "how early and how quiet, beside peers"),
    "detect-fleet": (
        "benchmarks.detect_fleet",
        "false pages and leads of a simulated fleet (an hour)",
    ),
    "detect-drifts": ("benchmarks.detect_drifts", "falling, creep and forecast over many seeds"),
    "calibrate": ("benchmarks.calibrate", "the event simulation beside published tables"),
    "simulate": ("benchmarks.simulate", "cost of simulating a week of 24 GPUs as tables"),
    "demo": ("benchmarks.demo", "time from the demo's start to its page"),
    "overhead": ("benchmarks.live.overhead", "what scraping costs a real vLLM server (minutes)"),
    "recorded": ("benchmarks.recorded", "lead time and false alarms of the live run on record"),
}
ALONE = ("exporter", "processes", "detect", "recorded", "demo")
"""Run when no name is given: minutes at most."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benches named in *argv* and return the worst exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    names, rest = (
        (words[: words.index("--")], words[words.index("--") + 1 :])
        if ("--" in words)
        else (words, [])
    )
    unknown = [name for name in names if name not in BENCHES]
    if unknown or "-h" in words or "--help" in words:
        for name, (_, text) in BENCHES.items():
            print(f"{name:14} {text}")
        if unknown:
            print(f"no bench is called {unknown[0]!r}", file=sys.stderr)
        return 2 if unknown else 0
    status = 0
    for name in names or ALONE:
        print(f"== {name}: {BENCHES[name][1]}", flush=True)
        status = max(status, importlib.import_module(BENCHES[name][0]).main(rest) or 0)
    return status


if __name__ == "__main__":
    sys.exit(main())
