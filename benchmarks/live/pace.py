"""Keep the leak at a wanted rate: how much to keep at each step follows from the steps counted.

A leak by step grows with the number of steps, and a shared CPU makes many or few from one minute
to the next. Left alone, a machine that gets busier bends the leak into the curve of a warm-up.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import httpx

from benchmarks.live.errors import LiveError
from benchmarks.live.rig import Pair

STEPS = "vllm:iteration_tokens_total_count"
SMALLEST, LARGEST = 1 << 10, 4 << 20
# How far one correction may go: a minute without a step must not be followed by a jump.
MOST_CHANGE = 1.5


def counted(page: str, name: str) -> float:
    """The sum of a counter over the series of a page."""
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in page.splitlines()
        if line.startswith((f"{name} ", f"{name}{{"))
    )


def bytes_for(rate_per_second: float, steps: float, seconds: float) -> int:
    """Bytes to keep at each step for a rate in bytes a second, within what is sane."""
    if steps <= 0 or seconds <= 0:
        raise LiveError("decode made no step under traffic: see decode.log, or raise --rate")
    return int(min(max(rate_per_second * seconds / steps, SMALLEST), LARGEST))


def corrected(before: int, wanted: int) -> int:
    """The next number of bytes a step: towards the wanted one, never by a jump."""
    return int(min(max(wanted, before / MOST_CHANGE), before * MOST_CHANGE))


def read_steps(url: str) -> float:
    """How many steps the engine has made."""
    answer = httpx.get(f"{url}/metrics", timeout=15.0)
    answer.raise_for_status()
    return counted(answer.text, STEPS)


@dataclass
class Pacer:
    """Sets decode's bytes a step for a wanted rate in bytes a second."""

    pair: Pair
    rate: float
    steps: float = 0.0
    at: float = 0.0
    kept: int = 0

    def begin(self, seconds: float) -> None:
        """Count steps for some seconds, then begin to leak."""
        self.steps, self.at = read_steps(self.pair.decode_url), time.time()
        time.sleep(seconds)
        self._set(first=True)

    def adjust(self) -> None:
        """Correct the bytes a step by the steps made since the last time."""
        self._set(first=False)

    def _set(self, *, first: bool) -> None:
        steps, now = read_steps(self.pair.decode_url), time.time()
        if steps <= self.steps and not first:
            return  # it stood still: there is nothing to learn from that
        wanted = bytes_for(self.rate, steps - self.steps, now - self.at)
        self.kept = wanted if first else corrected(self.kept, wanted)
        self.steps, self.at = steps, now
        self.pair.leak(self.kept)
