"""What probes come to: histograms of those that were answered, counters of all."""

from __future__ import annotations

import bisect
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from catalog.own_probe import RECENT_ANSWERS
from exporters.families import Families
from exporters.probe.round import Outcome

# With the default service levels, 2.5 s and 20 ms, as bounds.
_BOUNDS: Final = {
    "ttft": (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10, 15, 20, 30, 60, 120),
    "tpot": (0.0025, 0.005, 0.0075, 0.01, 0.0125, 0.015, 0.0175, 0.02, 0.025, 0.03, 0.04, 0.05,
             0.075, 0.1, 0.15, 0.25, 0.5, 1),
    "itl": (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2,
            0.3, 0.5, 1, 2.5, 5, 10),
    "duration": (0.25, 0.5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 90, 120, 300),
}  # fmt: skip


class _Histogram:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sum += value

    def write(self, families: Families, name: str, labels: Mapping[str, str]) -> None:
        below = 0
        for bound, count in zip((*map(float, self._bounds), None), self._counts, strict=True):
            below += count
            le = "+Inf" if bound is None else repr(bound)
            families.add(f"{name}_bucket", {**labels, "le": le}, below)
        families.add(f"{name}_sum", labels, self._sum)
        families.add(f"{name}_count", labels, below)


class Counts:
    """Everything that one prober has to say; safe for two threads.

    Args:
        answers: Whether questions are asked.
        wall: Unix seconds.
    """

    def __init__(self, *, answers: bool, wall: Callable[[], float] = time.time) -> None:
        self._lock = threading.Lock()
        self._wall = wall
        self._histograms = {name: _Histogram(bounds) for name, bounds in _BOUNDS.items()}
        self._recent: deque[bool] = deque(maxlen=RECENT_ANSWERS)
        self._answers = answers
        self._success: dict[str, float] = {}
        # At zero from the start, so that the first one is seen.
        self._counters: dict[tuple[str, tuple[str, ...]], float] = {}
        for probe in ("latency", "answer") if answers else ("latency",):
            for result in ("ok", "failed"):
                self._counters["requests", (probe, result)] = 0.0
        for kind in ("prompt", "completion"):
            self._counters["tokens", (kind,)] = 0.0
        for result in ("right", "wrong") if answers else ():
            self._counters["answers", (result,)] = 0.0

    def take(self, outcome: Outcome) -> None:
        """Add one outcome: a failed one is counted, and is no latency."""
        with self._lock:
            failed = bool(outcome.reason)
            self._add("requests", outcome.probe, "failed" if failed else "ok")
            self._add("responses", outcome.probe, outcome.code)
            if failed:
                self._add("errors", outcome.probe, outcome.reason)
                return
            self._success[outcome.probe] = self._wall()
            for kind, count in zip(("prompt", "completion"), outcome.usage or (), strict=False):
                self._counters["tokens", (kind,)] += count
            if outcome.probe == "latency":
                self._observe(outcome)
            if outcome.right is not None:
                self._recent.append(outcome.right)
                self._add("answers", "right" if outcome.right else "wrong")

    def families(self, labels: Mapping[str, str]) -> Families:
        """Return all of it, with the deployment's labels."""
        families = Families()
        with self._lock:
            for name, histogram in self._histograms.items():
                histogram.write(families, f"leadline_probe_{name}_seconds", labels)
            for (name, values), count in self._counters.items():
                beside = dict(zip(_LABELS[name], values, strict=True))
                families.add(f"leadline_probe_{name}_total", {**labels, **beside}, count)
            for probe, at in self._success.items():
                name = "leadline_probe_last_success_timestamp_seconds"
                families.add(name, {**labels, "probe": probe}, at)
            for result, wanted in (("right", True), ("wrong", False)) if self._answers else ():
                count = self._recent.count(wanted)
                families.add("leadline_probe_answers_recent", {**labels, "result": result}, count)
        return families

    def _add(self, name: str, *values: str) -> None:
        self._counters[name, values] = self._counters.get((name, values), 0.0) + 1

    def _observe(self, outcome: Outcome) -> None:
        for name, value in (("ttft", outcome.ttft), ("tpot", outcome.tpot)):
            if value is not None:
                self._histograms[name].observe(value)
        for gap in outcome.gaps:
            self._histograms["itl"].observe(gap)
        self._histograms["duration"].observe(outcome.duration)


_LABELS: Final = {
    "requests": ("probe", "result"),
    "responses": ("probe", "code"),
    "errors": ("probe", "reason"),
    "tokens": ("kind",),
    "answers": ("result",),
}
