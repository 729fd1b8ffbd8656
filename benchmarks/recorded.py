"""Lead time and false alarms of the recorded run on real vLLM: `python -m benchmarks recorded`.

The run was made by `make live`; its record is replayed by the tests.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

FACTS = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "live" / "facts.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Print when it fired and paged, and what was left then until the extrapolated breach."""
    del argv
    facts = json.loads(FACTS.read_text())
    began, breach = facts["leak"]["began"], facts["breach"]
    print(
        f"leak {facts['rate'] * 60 / 1e6:.1f} MB/min, {(breach - began) / 60:.1f} min to the limit"
    )
    for word in ("fired", "paged"):
        at = facts[f"{word}_at"]
        left = breach - at
        print(
            f"{word:6} {(at - began) / 60:5.1f} min after the leak began, "
            f"{left / 60:.1f} min before the breach ({left / (breach - began):.0%} of the way left)"
        )
    print(f"false alarms: {len(facts['false_alarms'])}, others accused: {len(facts['accused'])}")
    return 0
