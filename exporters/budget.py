"""How much memory pages take at once, over all targets: what grows without end is dropped.

Half of the budget is shared out evenly, so that what a target takes within its share is never
refused for another's sake; the other half is for targets that take more, first come first served.
A page is charged for its bytes as they are read, then for what it takes to take it apart and write
it out, until the scrape that it was read for has its answer (of one that came too late: until its
task ends). What is remembered of its series is charged as long as it is remembered.

OverBudgetError
    A page would need more than is left.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from exporters.fetch import Fetch, TooLargeError

_MIB: Final = 2**20


class OverBudgetError(TooLargeError):
    """A page would need more than is left for it; the message is one short line."""


class Budget:
    """The memory that pages of all targets may take at once, for any number of threads.

    Args:
        limit: Bytes.

    Attributes:
        dropped: Pages that were dropped, for it or being too large by themselves, by server.
    """

    def __init__(self, limit: int) -> None:
        self.dropped: Counter[str] = Counter()
        self._limit = limit
        # What is remembered may be let go of by the collector of circles, in the middle of a sum.
        self._lock = threading.RLock()
        self._held: dict[tuple[int, str], int] = {}  # by whose scrape it is, and the server
        self._targets: dict[int, int] = {}

    @contextmanager
    def scrape(self, whose: int, targets: int) -> Iterator[Pages]:
        """Hold what the pages of one scrape take.

        Args:
            whose: Tells apart the exporters that share the budget.
            targets: How many pages it reads at most.
        """
        with self._lock:
            self._targets[whose] = targets
        pages = Pages(self, whose)
        try:
            yield pages
        finally:
            with self._lock:
                pages.over = True
            for room in pages.rooms:
                room.leave()

    def forget(self, whose: int) -> None:
        """Share out no more to an exporter that is closed."""
        with self._lock:
            self._targets.pop(whose, None)

    def take(self, room: Room, count: int) -> None:
        """Let a room grow by *count* bytes.

        Raises:
            OverBudgetError: Too many are held; what the room had is given back.
        """
        with self._lock:
            size = self._add(room, count)
            targets = max(1, sum(self._targets.values()))
            share = self._limit // 2 // targets
            larger = sum(max(0, held - share) for held in list(self._held.values()))
            if count <= 0 or size <= share or larger <= self._limit - share * targets:
                return
            needed = room.size
            room.leave()
        raise OverBudgetError(
            f"dropped for this scrape, it would take {needed / _MIB:.3g} MiB of memory: the pages "
            f"of {targets} targets may take {self._limit / _MIB:.3g} MiB at once "
            "(exporter.page_budget): raise it, or have the target say less"
        )

    def drop(self, room: Room) -> None:
        """Count a page that is too large, and take back what it held."""
        with self._lock:
            self.dropped[room.key[1]] += 1
        room.leave()

    def leave(self, room: Room) -> None:
        """Take back what a room held."""
        with self._lock:
            if not self._add(room, -room.size):
                self._held.pop(room.key, None)

    def keep(self, pages: Pages, room: Room) -> None:
        """Hold what a page took until its scrape is over, if that isn't."""
        with self._lock:
            if not pages.over:
                pages.rooms.append(room)
                return
        room.leave()

    def _add(self, room: Room, count: int) -> int:
        room.size += count
        held = self._held[room.key] = self._held.get(room.key, 0) + count
        return held


class Room:
    """What one page takes of the budget, or what is remembered of it."""

    def __init__(self, budget: Budget, key: tuple[int, str]) -> None:
        self.key = key
        self.size = 0
        self._budget = budget

    def take(self, count: int) -> None:
        """Grow by *count* bytes; raise OverBudgetError where that is too much."""
        self._budget.take(self, count)

    def hold(self, size: int) -> None:
        """Be so large, as `take` lets it."""
        self.take(size - self.size)

    def leave(self) -> None:
        """Give all of it back."""
        self._budget.leave(self)

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

    def __init__(self, budget: Budget, whose: int = 0) -> None:
        self.rooms: list[Room] = []
        self.over = False
        self._budget = budget
        self._whose = whose

    @contextmanager
    def room(self, server: str) -> Iterator[Room]:
        """Hold what one page takes, until the scrape is over unless the page fails."""
        room = Room(self._budget, (self._whose, server))
        try:
            yield room
        except TooLargeError:
            self._budget.drop(room)
            raise
        except BaseException:
            room.leave()
            raise
        self._budget.keep(self, room)

    def memory(self, server: str, what: object) -> Room:
        """Return a room that is held as long as there is *what*: it remembers a page's series."""
        room = Room(self._budget, (self._whose, server))
        weakref.finalize(what, room.leave).atexit = False
        return room
