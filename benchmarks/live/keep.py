"""Make fixtures of a run's record: ``python -m benchmarks.live.keep RUN FOLDER|TABLE.csv.gz``.

A folder gets the facts and every third scrape, as a 15 s interval would have got it; a table gets
the private memory of all processes. Names of the machine that it ran on are replaced.
"""

from __future__ import annotations

import gzip
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


def keep_table(run: Path, path: Path, host: str) -> None:
    """Write the private memory of one run in the form that `leadline detect --input` reads."""
    head, *rows = (run / "processes.csv").read_text(encoding="utf-8").splitlines()
    kept = [row.replace(f",{host}:", ",node:") for row in rows if ",host_anon_swap," in row]
    text = "\n".join([head, *kept]) + "\n"
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def anonymous(page: str, host: str) -> str:
    """Replace the node's name and its control groups in a page."""
    named = page.replace(f'node="{host}"', 'node="node"').replace(
        f'server="{host}:', 'server="node:'
    )
    return CGROUP.sub('cgroup="live"', named)


if __name__ == "__main__":
    what = keep_table if sys.argv[2].endswith(".csv.gz") else keep
    what(Path(sys.argv[1]), Path(sys.argv[2]), socket.gethostname())
