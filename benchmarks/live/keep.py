"""Make a fixture of a run's record: ``python -m benchmarks.live.keep RUN FOLDER``.

Every third scrape is kept, as a 15 s interval would have got it, and names of the machine it ran
on are replaced: the replay needs neither.
"""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path

from benchmarks.live.scrapes import ScrapeWriter, read_scrapes

EVERY = 3
CGROUP = re.compile(r'cgroup="[^"]*"')


def keep(run: Path, folder: Path, host: str) -> None:
    """Write the fixture of one run."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = (run / "facts.json").read_text(encoding="utf-8")
    facts = facts.replace(f" {host}:", " node:")
    (folder / "facts.json").write_text(facts, encoding="utf-8")
    writer = ScrapeWriter(folder / "scrapes.xz")
    for number, (at, page) in enumerate(read_scrapes(run / "scrapes.xz")):
        if number % EVERY == 0:
            writer.add(at, anonymous(page, host))
    writer.close()


def anonymous(page: str, host: str) -> str:
    """Replace the node's name and its control groups in a page."""
    named = page.replace(f'node="{host}"', 'node="node"').replace(
        f'server="{host}:', 'server="node:'
    )
    return CGROUP.sub('cgroup="live"', named)


if __name__ == "__main__":
    keep(Path(sys.argv[1]), Path(sys.argv[2]), socket.gethostname())
