"""Adds up the series of a page over labels that have no bound, before it is passed on.

A router labels by tenant, a cache by salt: thousands of values that no signal reads. Such a label
is left out and its series are added up (of a gauge that is no amount the largest is kept); of a
label that has a sensible few values at most so many are kept, later ones are called `other`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from catalog.exposition import BadLine, head, parse_line, series

MAX_VALUES: Final = 100
MAX_LINES: Final = 400_000
OTHER: Final = "other"
_LINE_BYTES: Final = 240


@dataclass(frozen=True)
class Bounds:
    """What is done about the labels of a kind of page.

    Attributes:
        dropped: Labels that are left out.
        capped: Labels of which `MAX_VALUES` values are kept, the first that were seen.
        amounts: Families of gauges that may be added up, by a part of their names.
    """

    dropped: frozenset[str] = frozenset()
    capped: frozenset[str] = frozenset()
    amounts: tuple[str, ...] = ()


@dataclass
class Folder:
    """Folds the pages of one target, each the same way as the last: counters must not fall.

    Attributes:
        bounds: As its kind of page needs.
        folded: Series of the last page that were changed, by label.
        beyond: Lines of the last page that were more than it may have, and were not read.
    """

    bounds: Bounds
    folded: Counter[str] = field(default_factory=Counter)
    beyond: int = 0
    _kept: dict[str, set[str]] = field(default_factory=dict)

    def fold(self, page: bytes) -> bytes:
        """Return the page with bounded labels."""
        self.folded, self.beyond = Counter(), 0
        if not self._concerns(page):
            return page
        page, self.beyond = head(page, MAX_LINES)
        kinds: dict[str, str] = {}
        lines: list[str] = []
        sums: dict[str, tuple[int, float]] = {}
        for line in page.decode("utf-8", "surrogateescape").split("\n"):
            if line[:7] == "# TYPE ":
                name, _, kind = line[7:].partition(" ")
                kinds[name] = kind.strip()
            if not line or line[0] == "#" or '="' not in line:
                lines.append(line)
                continue
            self._add(line, kinds, lines, sums)
        for at, value in sums.values():
            lines[at] = f"{lines[at]} {_written(value)}"
        return "\n".join(lines).encode("utf-8", "surrogateescape")

    def weigh(self, page: bytes) -> int:
        """Return the bytes of memory that folding *page* takes, as measured."""
        if not self._concerns(page):
            return 0
        page, _ = head(page, MAX_LINES)
        return 4 * len(page) + _LINE_BYTES * page.count(b"\n")

    def _concerns(self, page: bytes) -> bool:
        marks = [f'{name}="'.encode() for name in self.bounds.dropped | self.bounds.capped]
        return any(mark in page for mark in marks)

    def _add(
        self,
        line: str,
        kinds: Mapping[str, str],
        lines: list[str],
        sums: dict[str, tuple[int, float]],
    ) -> None:
        """Add a line to what it comes to without the labels that have no bound."""
        try:
            sample = parse_line(line)
        except BadLine:
            lines.append(line)  # the splicer drops and counts it
            return
        labels = self._labels(sample.labels)
        value = float(sample.value)
        if labels == sample.labels:
            lines.append(line)
            return
        key = series(sample.name, labels)
        if key not in sums:
            sums[key] = len(lines), value
            lines.append(key)
            return
        at, before = sums[key]
        sums[key] = at, before + value if self._amount(sample.name, kinds) else max(before, value)

    def _labels(self, labels: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        bounded: list[tuple[str, str]] = []
        for name, value in labels:
            if name in self.bounds.dropped:
                self.folded[name] += 1
                continue
            if name in self.bounds.capped:
                kept = self._kept.setdefault(name, set())
                if value not in kept and len(kept) >= MAX_VALUES:
                    self.folded[name] += 1
                    bounded.append((name, OTHER))
                    continue
                kept.add(value)
            bounded.append((name, value))
        return tuple(bounded)

    def _amount(self, name: str, kinds: Mapping[str, str]) -> bool:
        return kinds.get(name) != "gauge" or any(part in name for part in self.bounds.amounts)


def _written(value: float) -> str:
    if math.isfinite(value) and value == int(value) and abs(value) < 2**53:
        return str(int(value))
    return repr(value)
