"""The places where a request is worked on: prefill ranks, decode batches, and caches of prefixes.

Work is counted in virtual time: all that is served at one place at once advances alike, so that a
change of speed touches one number and not every request.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Generic, TypeVar

_End = TypeVar("_End", bound=tuple[Any, ...])

BATCH: Final = 8192.0
"""Tokens that a prefill rank computes together (`--max-num-batched-tokens`)."""


@dataclass
class Request:
    """One request on its way; instants are seconds from the start of the run.

    Attributes:
        session: The conversation that it belongs to.
        prompt: Tokens of the prompt.
        reused: Of them, those that an earlier turn of the session had.
        output: Tokens of the answer.
        arrived: When the router had it.
    """

    session: int
    prompt: float
    reused: float
    output: float
    arrived: float
    cached: float = 0.0
    restored: float = 0.0
    computed: float = 0.0
    begun: float = 0.0
    prefilled: float = 0.0
    first: float = 0.0
    done: float = 0.0
    where: int = 0


@dataclass
class Cache:
    """Prefixes on a rank's GPU, the least recently used leave first; below it a CPU tier.

    Attributes:
        room: Tokens of the GPU's cache.
        tier: Tokens of the CPU tier; 0 for none.
    """

    room: float
    tier: float
    held: OrderedDict[int, float] = field(default_factory=OrderedDict)
    below: OrderedDict[int, float] = field(default_factory=OrderedDict)
    used: float = 0.0
    stored: float = 0.0

    def find(self, session: int, reused: float) -> tuple[float, float]:
        """Return the tokens found on the GPU, and those that the tier must restore."""
        here = min(self.held.get(session, 0.0), reused)
        if here > 0.0:
            self.held.move_to_end(session)
        return here, max(min(self.below.get(session, 0.0), reused) - here, 0.0)

    def keep(self, session: int, tokens: float) -> None:
        """Hold a session's prefix; what no longer fits goes to the tier or is lost."""
        self.used += tokens - self.held.pop(session, 0.0)
        self.held[session] = tokens
        while self.used > self.room and len(self.held) > 1:
            other, size = self.held.popitem(last=False)
            self.used -= size
            if self.tier > 0.0:
                self._store(other, size)

    def _store(self, session: int, tokens: float) -> None:
        self.stored += tokens - self.below.pop(session, 0.0)
        self.below[session] = tokens
        while self.stored > self.tier and len(self.below) > 1:
            _, size = self.below.popitem(last=False)
            self.stored -= size


@dataclass
class Rank:
    """A prefill rank: what it works on, what waits, and its cache.

    Attributes:
        cache: Prefixes on its GPU.
        batch: Requests that it computes together.
        queue: Requests that wait for the next batch.
    """

    cache: Cache
    batch: list[Request] = field(default_factory=list)
    queue: deque[Request] = field(default_factory=deque)

    @property
    def work(self) -> float:
        """Return the tokens to be computed that are here."""
        return sum(request.computed for request in (*self.batch, *self.queue))


class _Shared(ABC, Generic[_End]):
    """Work that goes on at a rate which changes with what is there.

    The clock runs at that rate, so that the reading at which a piece is done never changes;
    `_ends` is a heap of pieces by that reading.
    """

    def __init__(self) -> None:
        self._clock = 0.0
        self._at = 0.0
        self._ends: list[_End] = []

    @abstractmethod
    def _rate(self) -> float:
        """Return how fast the clock runs now."""

    def advance(self, now: float) -> None:
        """Let the work go on until *now*."""
        self._clock += (now - self._at) * self._rate()
        self._at = now

    def next(self) -> float:
        """Return when the next piece is done, if nothing changes."""
        if not self._ends:
            return inf
        soonest: float = self._ends[0][0]
        return self._at + max(soonest - self._clock, 0.0) / self._rate()


class Prefill(_Shared[tuple[float, int]]):
    """An instance whose ranks compute batch after batch; the more are busy, the slower is each.

    Args:
        ranks: Ranks.
        speed: Tokens a second of a rank that is alone.
        fixed: Seconds that a batch takes beside its tokens.
        crowd: Share of time that each other busy rank adds (they exchange tokens of experts).
        cache: Makes the cache of a rank.
    """

    def __init__(
        self, ranks: int, speed: float, fixed: float, crowd: float, cache: Callable[[], Cache]
    ) -> None:
        super().__init__()
        self.ranks = [Rank(cache()) for _ in range(ranks)]
        self._speed = speed
        self._fixed = fixed
        self._crowd = crowd

    @property
    def waiting(self) -> int:
        """Return requests that wait for a batch."""
        return sum(len(rank.queue) for rank in self.ranks)

    @property
    def busy(self) -> int:
        """Return ranks that work."""
        return len(self._ends)

    def _rate(self) -> float:
        busy = len(self._ends)
        return 1.0 / (1.0 + self._crowd * (busy - 1)) if busy else 0.0

    def add(self, number: int, request: Request, now: float) -> None:
        """Queue a request on the rank called *number*."""
        self.advance(now)
        self.ranks[number].queue.append(request)
        if not self.ranks[number].batch:
            self._begin(number, now)

    def _begin(self, number: int, now: float) -> None:
        """Take what fits into a batch, at least one request."""
        rank = self.ranks[number]
        tokens = 0.0
        while rank.queue and (not rank.batch or tokens + rank.queue[0].computed <= BATCH):
            request = rank.queue.popleft()
            request.begun = now
            tokens += request.computed
            rank.batch.append(request)
        work = tokens / self._speed + self._fixed
        heapq.heappush(self._ends, (self._clock + work, number))

    def pop(self, now: float) -> list[Request]:
        """Return the batch that is done at *now*, and begin the next one of its rank."""
        self.advance(now)
        _, number = heapq.heappop(self._ends)
        rank = self.ranks[number]
        done, rank.batch = rank.batch, []
        if rank.queue:
            self._begin(number, now)
        return done


class Decode(_Shared[tuple[float, int, Request]]):
    """An instance whose ranks step together over one batch.

    Args:
        step: Seconds of a step by requests and context tokens in the batch.
        length: Tokens that a step gives each request.
        most: Requests that the batch may have; others wait.
        room: Tokens that its KV blocks hold; who finds none waits.
    """

    def __init__(
        self, step: Callable[[int, float], float], length: float, most: int, room: float
    ) -> None:
        super().__init__()
        self._step = step
        self._length = length
        self._most = most
        self._room = room
        self._context = 0.0
        self._count = 0
        self.queue: deque[Request] = deque()

    @property
    def active(self) -> int:
        """Return requests that are in the batch or wait for it."""
        return len(self._ends) + len(self.queue)

    def _rate(self) -> float:
        return self._length / self._step(len(self._ends), self._context) if self._ends else 0.0

    def add(self, request: Request, now: float) -> None:
        """Take a request into the batch, or let it wait."""
        self.advance(now)
        self.queue.append(request)
        self._fill(now)

    def _fill(self, now: float) -> None:
        while self.queue and len(self._ends) < self._most:
            wanted = self._context + self.queue[0].prompt + self.queue[0].output / 2.0
            if self._ends and wanted > self._room:
                break
            request = self.queue.popleft()
            self._count += 1
            self._context += request.prompt + request.output / 2.0
            request.first = request.first or now + self._step(len(self._ends) + 1, self._context)
            heapq.heappush(self._ends, (self._clock + request.output, self._count, request))

    def pop(self, now: float) -> Request:
        """Return the request that is done at *now*."""
        self.advance(now)
        _, _, request = heapq.heappop(self._ends)
        self._context -= request.prompt + request.output / 2.0
        self._fill(now)
        return request
