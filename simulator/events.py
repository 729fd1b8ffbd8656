"""An event simulation of an xPyD deployment: each request, from the router to its last token.

Router by cached prefixes and queues, prefill by tokens on ranks that slow each other down, KV over
a link, decode with continuous batching and drafts, prefixes in GPU memory with a CPU tier below.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from simulator.change import FloatArray
from simulator.station import Cache, Decode, Prefill, Request

KV_BYTES: Final = 44_928.0  # a token: 78 layers x (512 + 64), FP8
TIER: Final = 100 * 2.0**30 / KV_BYTES  # tokens in 100 GiB a rank
DECODE_ROOM: Final = 1_078_000.0
"""KV tokens of a decode rank."""

LOYALTY: Final = 5.0
"""Weight of computing a prefix anew against waiting: it makes everybody wait, not one."""

ACCEPTED: Final = (0.80, 0.65, 0.52, 0.40, 0.30)  # by position


@dataclass(frozen=True)
class Setup:
    """An xPyD layout.

    Attributes:
        prefill: Prefill instances.
        decode: Decode instances.
        prefill_ranks: Ranks of each, one GPU each.
        decode_ranks: Likewise.
        drafts: Tokens drafted a step.
        offload: Whether there is a CPU tier.
        room: KV tokens of a prefill rank.
    """

    prefill: int = 1
    decode: int = 1
    prefill_ranks: int = 16
    decode_ranks: int = 16
    drafts: int = 3
    offload: bool = True
    room: float = 990_000.0

    @property
    def length(self) -> float:
        """Return the tokens of a step: its own and the accepted drafts."""
        return 1.0 + sum(ACCEPTED[: self.drafts])


@dataclass(frozen=True)
class Costs:
    """What work costs, in seconds unless said otherwise.

    Attributes:
        base: Router and tokenizer.
        fixed: A prefill batch of no tokens, on an instance that has no other.
        speed: Prompt tokens a second of a prefill rank alone.
        crowd: Share of time that each other busy rank of the instance adds.
        step: A decode step of an empty batch.
        each: More for each request in the batch, of 16 ranks.
        context: More for each million tokens of context in the batch.
        draft: More for each token drafted.
        draft_each: More for each token drafted of each request.
        hand: From the first token to the batch: what the hand-over costs.
        link: Bytes a second between the pools.
        restore: Seconds a byte from the CPU tier.
    """

    base: float
    fixed: float
    speed: float
    crowd: float
    step: float
    each: float
    context: float
    draft: float
    draft_each: float
    hand: float
    link: float = 25e9
    restore: float = 26e-12

    def step_time(self, setup: Setup) -> Callable[[int, float], float]:
        """Return the time of a decode step by batch and context tokens of an instance."""
        width = setup.decode_ranks / 16.0
        fixed = self.step + setup.drafts * self.draft
        each = (self.each + setup.drafts * self.draft_each) / width
        context = self.context / 1e6 / width
        return lambda batch, tokens: fixed + each * batch + context * tokens


@dataclass(frozen=True)
class Outcome:
    """What became of the requests of a run.

    Attributes:
        requests: Those that were done after the warm-up, in the order of their ends.
        span: Seconds in which they were done.
        waiting: Mean number of requests queued for prefill.
    """

    requests: tuple[Request, ...]
    span: float
    waiting: float

    def of(self, what: Callable[[Request], float]) -> FloatArray:
        """Return a number of each request."""
        return np.array([what(request) for request in self.requests])

    @property
    def ttft(self) -> FloatArray:
        """Return times to first token."""
        return self.of(lambda r: r.first - r.arrived)

    @property
    def tpot(self) -> FloatArray:
        """Return times per output token after the first."""
        return self.of(lambda r: (r.done - r.first) / max(r.output - 1.0, 1.0))

    @property
    def e2e(self) -> FloatArray:
        """Return times from arrival to the last token."""
        return self.of(lambda r: r.done - r.arrived)

    @property
    def output_rate(self) -> float:
        """Return output tokens a second."""
        return float(self.of(lambda r: r.output).sum()) / self.span

    @property
    def speed(self) -> float:
        """Return tok/s/user as S3 has it: the mean of output over end-to-end time."""
        return float((self.of(lambda r: r.output) / self.e2e).mean())

    @property
    def hit_ratio(self) -> float:
        """Return the share of prompt tokens that prefill found on its GPUs."""
        prompts = float(self.of(lambda r: r.prompt).sum())
        return float(self.of(lambda r: r.cached).sum()) / prompts

    @property
    def restored(self) -> float:
        """Return bytes a second from the CPU tier."""
        return float(self.of(lambda r: r.restored).sum()) * KV_BYTES / self.span


Next = Callable[[Request, float], Request | None]
"""Says what a client asks next when its request is done at an instant; None for nothing."""


class Cluster:
    """One run.

    Args:
        setup: The layout.
        costs: What work costs.
    """

    def __init__(self, setup: Setup, costs: Costs) -> None:
        tier = TIER if setup.offload else 0.0
        self._costs = costs
        self._prefill = [
            Prefill(
                setup.prefill_ranks,
                costs.speed,
                costs.fixed,
                costs.crowd,
                lambda: Cache(setup.room, tier),
            )
            for _ in range(setup.prefill)
        ]
        step = costs.step_time(setup)
        most = 64 * setup.decode_ranks
        room = DECODE_ROOM * setup.decode_ranks
        self._decode = [Decode(step, setup.length, most, room) for _ in range(setup.decode)]
        self._homes: dict[int, tuple[int, int]] = {}
        self._due: list[tuple[float, int, str, Request]] = []
        self._count = 0

    def run(self, first: list[Request], after: Next, *, count: int, warm: int) -> Outcome:
        """Serve requests until *count* are done after the first *warm*.

        Args:
            first: Requests to begin with; each may lie in the future.
            after: What follows each one.
            count: Requests to be counted.
            warm: Requests done before counting begins.
        """
        for request in first:
            self._later(request.arrived, "arrive", request)
        done: list[Request] = []
        begin, waited, last = 0.0, 0.0, 0.0
        while len(done) < warm + count:
            now, kind, place = self._earliest()
            if kind == "none":
                break
            if len(done) >= warm:
                waited += (now - last) * sum(instance.waiting for instance in self._prefill)
            last = now
            finished = self._happen(now, kind, place)
            if finished is not None:
                done.append(finished)
                begin = now if len(done) == warm else begin
                if (more := after(finished, now)) is not None:
                    self._later(max(more.arrived, now), "arrive", more)
        span = max(last - begin, 1e-9)
        return Outcome(tuple(done[warm:]), span, waited / span)

    def _later(self, at: float, kind: str, request: Request) -> None:
        self._count += 1
        heapq.heappush(self._due, (at, self._count, kind, request))

    def _earliest(self) -> tuple[float, str, int]:
        found = [(self._due[0][0], "due", 0)] if self._due else []
        found += [(p.next(), "prefilled", i) for i, p in enumerate(self._prefill)]
        found += [(d.next(), "decoded", i) for i, d in enumerate(self._decode)]
        at, kind, place = min(found)
        return (at, kind, place) if at < np.inf else (at, "none", 0)

    def _happen(self, now: float, kind: str, place: int) -> Request | None:
        """Do what is next; return the request that is done by it."""
        if kind == "decoded":
            request = self._decode[place].pop(now)
            request.done = now
            return request
        if kind == "prefilled":
            for request in self._prefill[place].pop(now):
                self._prefilled(now, request)
            return None
        _, _, due, request = heapq.heappop(self._due)
        self._due_now(now, due, request)
        return None

    def _prefilled(self, now: float, request: Request) -> None:
        request.prefilled = now
        instance, rank = self._homes[request.session]
        cache = self._prefill[instance].ranks[rank].cache
        cache.keep(request.session, request.prompt + request.output)
        self._later(now + request.prompt * KV_BYTES / self._costs.link, "moved", request)

    def _due_now(self, now: float, due: str, request: Request) -> None:
        if due == "arrive":
            wait = self._route(request)
            self._later(now + self._costs.base + wait, "ready", request)
        elif due == "ready":
            instance, rank = self._homes[request.session]
            self._prefill[instance].add(rank, request, now)
        elif due == "moved":
            request.first = now
            self._later(now + self._costs.hand, "handed", request)
        else:
            least = min(self._decode, key=lambda instance: instance.active)
            least.add(request, now)

    def _route(self, request: Request) -> float:
        """Choose a prefill rank: the one with the prefix, unless computing it anew is quicker.

        Returns:
            Seconds that restoring the prefix takes.
        """
        home = self._homes.get(request.session)
        least = min(
            (rank.work, instance.busy, rank.cache.used, i, number)
            for i, instance in enumerate(self._prefill)
            for number, rank in enumerate(instance.ranks)
        )
        anew = least[0] + LOYALTY * request.reused
        if home is None or self._prefill[home[0]].ranks[home[1]].work > anew:
            home = self._homes[request.session] = (least[3], least[4])
        cache = self._prefill[home[0]].ranks[home[1]].cache
        request.cached, request.restored = cache.find(request.session, request.reused)
        request.computed = max(request.prompt - request.cached - request.restored, 64.0)
        return request.restored * KV_BYTES * self._costs.restore
