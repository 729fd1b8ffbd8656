"""What one server's log comes to: counters from the start on, readings while they are fresh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from exporters.families import Families
from exporters.logs.lines import Line, read_line
from exporters.logs.meaning import Event, meaning

MAX_PEERS: Final = 32
FRESH_SECONDS: Final = 60.0
"""vLLM says its statistics every ten seconds while it works."""

_MAX_OPEN: Final = 16
_LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_KEPT: Final = ("kv_cache_tokens",)
_TRACEBACK: Final = "Traceback (most recent call last)"
_BORN: Final = (
    "tracebacks_total", "leases_expired_total", "reads_after_expiry_total",
)  # fmt: skip
"""Zero once vLLM has been seen to write here: the first event must not go unseen."""

Key = tuple[str, tuple[tuple[str, str], ...]]


class Said:
    """Adds up the lines of one server."""

    def __init__(self) -> None:
        self._counters: dict[Key, float] = {}
        self._readings: dict[Key, tuple[float, float]] = {}
        self._peers: set[str] = set()
        # Messages that may go on, by prefix: whether in a traceback.
        self._open: dict[str, bool] = {}

    def take(self, raw: bytes, now: float) -> None:
        """Add one line, read at *now* (monotonic seconds)."""
        line = read_line(raw)
        if not line.level:
            if line.message.startswith(_TRACEBACK):
                self.add("tracebacks_total", 1)
            return
        if not self._counters.get(("messages_total", (("level", "info"),))):
            self._born()
        events = list(meaning(line))
        self._message(line, known=bool(events))
        for event in events:
            self._event(event, now)

    def add(self, name: str, value: float, *labels: tuple[str, str]) -> None:
        """Add to a counter."""
        self._counters[name, labels] = self._counters.get((name, labels), 0.0) + value

    def forget_readings(self) -> None:
        """Drop readings: what is read now was written long ago."""
        self._readings = {key: held for key, held in self._readings.items() if key[0] in _KEPT}

    def families(self, labels: Mapping[str, str], now: float) -> Families:
        """Return counters, and the readings that are fresh."""
        families = Families()
        for (name, more), value in self._counters.items():
            families.add(f"leadline_log_{name}", {**labels, **dict(more)}, value)
        for (name, more), (value, at) in self._readings.items():
            if name in _KEPT or now - at <= FRESH_SECONDS:
                families.add(f"leadline_log_{name}", {**labels, **dict(more)}, value)
        return families

    def _born(self) -> None:
        for name in _BORN:
            self.add(name, 0)
        for level in _LEVELS:
            self.add("messages_total", 0, ("level", level))

    def _message(self, line: Line, *, known: bool) -> None:
        """Count a message once, though each line of it carries the prefix."""
        inside = self._open.pop(line.prefix, None)
        starts = line.message.startswith(_TRACEBACK) or f"\n{_TRACEBACK}" in line.message
        goes_on = inside or starts or line.message[:1] in ("", " ", "\t")
        if inside is None or known or not goes_on:
            self.add("messages_total", 1, ("level", line.level))
            inside = False
        if starts and not inside:
            self.add("tracebacks_total", 1)
        self._open[line.prefix] = bool(inside) or starts
        if len(self._open) > _MAX_OPEN:
            del self._open[next(iter(self._open))]

    def _event(self, event: Event, now: float) -> None:
        if not event.name.endswith("_total"):
            self._readings[event.name, event.labels] = event.value, now
            return
        labels = event.labels
        if event.name == "nixl_failures_total":
            labels = tuple((name, self._peer(v) if name == "peer" else v) for name, v in labels)
        self.add(event.name, event.value, *labels)

    def _peer(self, peer: str) -> str:
        """Return a peer, or `other` once there are too many."""
        if peer not in self._peers and len(self._peers) < MAX_PEERS:
            self._peers.add(peer)
        return peer if peer in self._peers else "other"
