"""Pages that a scrape returned, kept one after another in a compressed file.

Successive pages are nearly alike, so one xz stream holds hundreds of them in a few hundred
kilobytes. The record can be given to ``promtool`` as OpenMetrics, with the instants of the
scrapes, so that a real Prometheus holds the run's history again.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

MARK = "#@ "
# A sample without a timestamp of its own: a name, perhaps labels, a value.
SAMPLE = re.compile(r"^[a-zA-Z_:][\w:]*(?:\{.*\})? \S+$")


class ScrapeWriter:
    """Appends pages with their instants to one compressed file."""

    def __init__(self, path: Path) -> None:
        """Start an empty record at ``path``."""
        self._file = lzma.open(path, "wt", encoding="utf-8", preset=6)  # noqa: SIM115 - as long as the run

    def add(self, at: float, page: str) -> None:
        """Keep one page."""
        self._file.write(f"{MARK}{at:.3f}\n{page.rstrip()}\n")

    def close(self) -> None:
        """Finish the stream; without this the record can't be read."""
        self._file.close()


def read_scrapes(path: Path) -> Iterator[tuple[float, str]]:
    """Yield every kept page with its instant, in the order of the run."""
    at, lines = 0.0, list[str]()
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            if line.startswith(MARK):
                if lines:
                    yield at, "".join(lines)
                at, lines = float(line[len(MARK) :]), []
            else:
                lines.append(line)
    if lines:
        yield at, "".join(lines)


def openmetrics(scrapes: Iterable[tuple[float, str]], target: dict[str, str]) -> Iterator[str]:
    """Turn scrapes into lines that ``promtool tsdb create-blocks-from openmetrics`` reads.

    ``target`` is what Prometheus adds to every series of a target, its job and instance.
    """
    added = ",".join(f'{name}="{value}"' for name, value in sorted(target.items()))
    for at, page in scrapes:
        for line in page.splitlines():
            if SAMPLE.match(line):
                yield f"{_with_labels(line, added)} {at:.3f}\n"
    yield "# EOF\n"


def _with_labels(line: str, added: str) -> str:
    if not added:
        return line
    name, value = line.rsplit(" ", 1)
    if name.endswith("}"):
        inner = name[:-1]
        comma = "" if inner.endswith(("{", ",")) else ","
        return f"{inner}{comma}{added}}} {value}"
    return f"{name}{{{added}}} {value}"
