"""Time from `leadline demo` to the page in Alertmanager: `python -m benchmarks demo`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

DEADLINE = 900.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo until Alertmanager has the page; its own lines say when each phase was done."""
    command = [sys.executable, "-m", "leadline", "--log-level", "warning", "demo", "--check"]
    begun = time.monotonic()
    done = subprocess.run([*command, *(argv or ())], check=False, timeout=DEADLINE)
    print(f"start to end, everything stopped again: {time.monotonic() - begun:.1f} s")
    return done.returncode
