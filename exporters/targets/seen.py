"""What the servers' pages said of themselves, from the collector that reads them to `info`.

A page is read once a scrape, and what it says of settings and start is looked for seldom.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from exporters.targets import settings

KEEP_SECONDS: Final = 900.0
_CACHE_CONFIG = re.compile(rb"^vllm:cache_config_info\{([^\n]{0,8192})\} ", re.MULTILINE)
_STARTED: Final = b"\nprocess_start_time_seconds "
_LABEL = re.compile(rb'([a-z_]+)="([^"\\]*)"')

_IN_FORCE: Final = {
    "block_size": ("block_size", settings.number),
    "cache_dtype": ("kv_cache_dtype", settings.word),
    "gpu_memory_utilization": ("gpu_memory_utilization", settings.number),
    "enable_prefix_caching": ("enable_prefix_caching", lambda v: settings.word(str(v).lower())),
}
"""Labels of vLLM's cache_config_info -> ours, and how they are cleaned."""


@dataclass(frozen=True)
class Told:
    """What a page says: the settings in force, and when its server was started."""

    in_force: Mapping[str, str] = field(default_factory=dict)
    started: float | None = None


class Seen:
    """Holds what each server's page said last; one collector tells, another waits for it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._told: dict[tuple[str, int], tuple[Told, float]] = {}

    def tell(self, key: tuple[str, int], page: bytes) -> None:
        """Look at a page unless its server was looked at since it began; empty: there was none."""
        started = _began(page)
        with self._changed:
            before, until = self._told.get(key, (Told(), 0.0))
            if self._clock() < until and started in (None, before.started):
                return
            # Without an answer the next scrape looks again.
            wait = KEEP_SECONDS if page else 0.0
            self._told[key] = (read(page) if page else before), self._clock() + wait
            self._changed.notify_all()

    def wait(self, key: tuple[str, int], seconds: float) -> Told:
        """Return what a server's page said; of a new one wait so long for its first page."""
        with self._changed:
            self._changed.wait_for(lambda: key in self._told, seconds)
            return self.last(key)

    def last(self, key: tuple[str, int]) -> Told:
        """Return what a server's page said last, nothing if it said nothing."""
        return self._told.get(key, (Told(), 0.0))[0]

    def keep(self, keys: Collection[tuple[str, int]]) -> None:
        """Forget all other servers."""
        with self._changed:
            self._told = {key: told for key, told in self._told.items() if key in keys}


def read(page: bytes) -> Told:
    """Return what a page says of its server, by its first engine."""
    match = _CACHE_CONFIG.search(page)
    found: dict[str, str] = {}
    for name, value in _LABEL.findall(match[1]) if match else ():
        ours = _IN_FORCE.get(name.decode("ascii"))
        text = value.decode("utf-8", "replace")
        if ours and text not in ("", "None"):
            found[ours[0]] = ours[1](text)
    return Told(found, _began(page))


def _began(page: bytes) -> float | None:
    """Return when the process that serves a page was started; None where it doesn't say."""
    at = page.find(_STARTED)
    if at < 0:
        return None
    try:
        return float(page[at + len(_STARTED) : at + len(_STARTED) + 32].split(b"\n")[0])
    except ValueError:
        return None
