"""How many bytes of pages are held at once, over all targets: what grows without end is dropped.

Half of the budget is shared out evenly, so that a page within its target's share is never dropped
for another's sake; the other half is for pages that are larger than that, first come first served.
What a page takes is held until the scrape that it was read for has its answer, since the spliced
text lives as long; of one that came too late, until its task ends.

OverBudgetError
    A page would need more than is left.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from exporters.fetch import Fetch, FetchError

_MIB: Final = 2**20


class OverBudgetError(FetchError):
    """A page would need more than is left for it; the message is one short line."""


class Budget:
    """The bytes that pages of all targets may take at once, for any number of threads.

    Args:
        limit: Bytes, unpacked as they were read.

    Attributes:
        dropped: Pages that were dropped for it, by server.
    """

    def __init__(self, limit: int) -> None:
        self.dropped: Counter[str] = Counter()
        self._limit = limit
        self._lock = threading.Lock()
        self._rooms: set[Room] = set()
        self._targets: dict[int, int] = {}  # by whose scrape it is

    @contextmanager
    def scrape(self, whose: int, targets: int) -> Iterator[Pages]:
        """Hold what the pages of one scrape take.

        Args:
            whose: Tells apart the exporters that share the budget.
            targets: How many pages it reads at most.
        """
        with self._lock:
            self._targets[whose] = targets
        pages = Pages(self)
        try:
            yield pages
        finally:
            with self._lock:
                pages.over = True
                self._rooms.difference_update(pages.rooms)

    def take(self, room: Room, count: int) -> None:
        """Let a page grow by *count* bytes.

        Raises:
            OverBudgetError: Too many are held; what the page had is given back.
        """
        with self._lock:
            room.size += count
            self._rooms.add(room)
            targets = max(1, sum(self._targets.values()))
            share = self._limit // 2 // targets
            larger = sum(max(0, each.size - share) for each in self._rooms)
            if room.size <= share or larger <= self._limit - share * targets:
                return
            self._rooms.discard(room)
            self.dropped[room.server] += 1
        raise OverBudgetError(
            f"dropped for this scrape at {room.size / _MIB:.3g} MiB: the pages of {targets} "
            f"targets may take {self._limit / _MIB:.3g} MiB at once (exporter.page_budget): "
            "raise it, or have the target say less"
        )

    def leave(self, room: Room) -> None:
        """Give back what a page took."""
        with self._lock:
            self._rooms.discard(room)

    def keep(self, pages: Pages, room: Room) -> None:
        """Hold what a page took until its scrape is over, if that isn't."""
        with self._lock:
            if pages.over:
                self._rooms.discard(room)
            else:
                pages.rooms.append(room)


class Room:
    """What one page takes of the budget."""

    def __init__(self, budget: Budget, server: str) -> None:
        self.server = server
        self.size = 0
        self._budget = budget

    def take(self, count: int) -> None:
        """Grow by *count* bytes; raise OverBudgetError where that is too much."""
        self._budget.take(self, count)

    def fetch(self, fetch: Fetch, url: str, timeout: float, limit: int) -> bytes:
        """Return a page that is counted while it is read.

        Raises:
            FetchError: There is none, or too little is left for it.
        """
        page = fetch(url, timeout, limit, take=self.take)
        if (uncounted := len(page) - self.size) > 0:
            self.take(uncounted)
        return page


class Pages:
    """What the pages of one scrape take; not made but by `Budget.scrape`."""

    def __init__(self, budget: Budget) -> None:
        self.rooms: list[Room] = []
        self.over = False
        self._budget = budget

    @contextmanager
    def room(self, server: str) -> Iterator[Room]:
        """Hold what one page takes, until the scrape is over unless the page fails."""
        room = Room(self._budget, server)
        try:
            yield room
        except BaseException:
            self._budget.leave(room)
            raise
        self._budget.keep(self, room)
