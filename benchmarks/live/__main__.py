"""Run it: ``python -m benchmarks.live``."""

from __future__ import annotations

import sys

from benchmarks.live.errors import LiveError
from benchmarks.live.live import run
from benchmarks.live.options import Options
from stack.errors import StackError


def main(arguments: list[str]) -> int:
    """Run live and return its exit code: 0 paged rightly, 1 not so, 2 could not run."""
    try:
        return run(Options.parse(arguments))
    except (LiveError, StackError) as error:
        print(f"live: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
