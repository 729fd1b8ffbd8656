"""Runs the tasks of a scrape in three lanes, so that what hangs holds up nothing but its like.

The node's own tasks have threads of their own: a name server that is down may hang hundreds of
targets, and must not take the host's memory off the page. A target that was slow to fail goes into
the slow lane until it answers again, and each of those gets its turn; the others never wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from functools import partial
from typing import Final, NamedTuple

from exporters.fetch import FetchError
from exporters.look import Result, Task
from exporters.threads import Threads

NEAR_THREADS: Final = 64
FAR_THREADS: Final = 128
SLOW_THREADS: Final = 64
SLOW_SECONDS: Final = 1.0
"""A failure that took longer than this costs its target the place among the others."""

Key = tuple[str, str]


class Outcome(NamedTuple):
    """How a task went: its result, or the fallback with the reason; `late` if time ran out."""

    result: Result
    problem: str
    seconds: float
    late: bool = False


class Lanes:
    """The threads, shared by all exporters of a process that ask the same targets."""

    def __init__(self) -> None:
        self.near: Threads[Outcome] = Threads(NEAR_THREADS)
        self.far: Threads[Outcome] = Threads(FAR_THREADS)
        self.slow: Threads[Outcome] = Threads(SLOW_THREADS)

    def close(self) -> None:
        """Let each thread end with what it does now."""
        for threads in (self.near, self.far, self.slow):
            threads.close()


class Runner:
    """Runs tasks at once, each at most once at a time. Not safe for two threads at once.

    Args:
        lanes: To run them in.
        clock: Monotonic seconds.
        far: Collectors that ask over the network.
    """

    def __init__(self, lanes: Lanes, clock: Callable[[], float], far: frozenset[str]) -> None:
        self._lanes = lanes
        self._clock = clock
        self._far = far
        self._running: dict[Key, Future[Outcome]] = {}
        self._slow: dict[Key, float] = {}  # and when it was begun last

    def run(self, tasks: Mapping[Key, Task], deadline: float) -> dict[Key, Outcome]:
        """Run all tasks; those that are not done by the deadline have failed."""
        for key, future in list(self._running.items()):
            if future.done():
                del self._running[key]
        begun = self._clock()
        # Who waited longest comes first: all get their turn, however many there are.
        for_now = [k for k in tasks if k not in self._running]
        for_now.sort(key=lambda key: self._slow.get(key, float("-inf")))
        lanes = {key: self._lane(key) for key in for_now}
        started = {k: lane.submit(partial(self._one, k, tasks[k])) for k, lane in lanes.items()}
        outcomes = {k: _late(tasks[k], "still busy with an earlier scrape", 0.0) for k in tasks}
        wait(started.values(), timeout=max(0.0, deadline - self._clock()))
        for key, future in started.items():
            outcomes[key] = self._outcome(key, tasks[key], future, begun)
            if key in self._running and lanes[key] is not self._lanes.slow:
                lanes[key].replace(future)
        return outcomes

    def keep(self, keys: Mapping[Key, object]) -> None:
        """Forget who was slow, but for these."""
        self._slow = {key: at for key, at in self._slow.copy().items() if key in keys}

    def _lane(self, key: Key) -> Threads[Outcome]:
        name, server = key
        if name not in self._far:
            return self._lanes.near
        slow = any((other, server) in self._slow for other in self._far)
        return self._lanes.slow if slow else self._lanes.far

    def _outcome(self, key: Key, task: Task, future: Future[Outcome], begun: float) -> Outcome:
        """Return how it went, and remember whether its target is slow."""
        if future.done():
            outcome = future.result()
            slow = outcome.problem and outcome.seconds > SLOW_SECONDS
        elif future.cancel():
            took = self._clock() - begun
            return _late(task, f"no thread to ask within {took:.3g} s: too many others hang", took)
        else:
            self._running[key] = future
            took = self._clock() - begun
            outcome, slow = _late(task, f"not done within {took:.3g} s", took), True
        if not slow:
            self._slow.pop(key, None)
        elif key[0] in self._far:
            self._slow.setdefault(key, begun)
        return outcome

    def _one(self, key: Key, task: Task) -> Outcome:
        begun = self._clock()
        if key in self._slow:
            self._slow[key] = begun
        try:
            result = task.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the rest of the page stays
            seconds = self._clock() - begun
            late = isinstance(error, FetchError) and error.late
            return Outcome(Result(task.otherwise), reason(error), seconds, late)
        return Outcome(result, result.problem, self._clock() - begun)


def _late(task: Task, problem: str, seconds: float) -> Outcome:
    return Outcome(Result(task.otherwise), problem, seconds, late=True)


def reason(error: Exception) -> str:
    """Return one line for an error; unexpected ones by type, since their text may hold anything."""
    if isinstance(error, FetchError | ValueError):
        return " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return type(error).__name__
