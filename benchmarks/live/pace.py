"""Choose how much to leak at each step so that it grows at a wanted rate on this machine.

A leak by step grows with the number of steps, and how many a shared CPU makes in a minute is known
only by counting them.
"""

from __future__ import annotations

import time

import httpx

from benchmarks.live.errors import LiveError

STEPS = "vllm:iteration_tokens_total_count"
SMALLEST, LARGEST = 1 << 10, 4 << 20


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


def measure_steps(url: str, seconds: float) -> float:
    """Count the engine's steps over some seconds."""
    first = _steps(url)
    time.sleep(seconds)
    return _steps(url) - first


def _steps(url: str) -> float:
    answer = httpx.get(f"{url}/metrics", timeout=15.0)
    answer.raise_for_status()
    return counted(answer.text, STEPS)
