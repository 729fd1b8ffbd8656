"""The event simulation beside the tables that an operator published (S3 in docs/scenarios.md)."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.calibration import CASES, side_by_side


def main(_argv: Sequence[str]) -> int:
    """Print one line for each number: theirs, ours, the error; always return 0."""
    head = ("case", "how", "number", "S3", "ours", "error")
    for line in (head, *side_by_side(CASES)):
        print("{:20} {:10} {:15} {:>8} {:>8} {:>8}".format(*line), flush=True)
    return 0
