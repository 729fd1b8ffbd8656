"""Collector `logs`: what vLLM says in its log only, as counters and readings; off unless told.

Reading starts at the end of what is there: a restart of the exporter counts nothing twice, and
what was written while it was down is not counted. A file that appears later is read from its start.
Text of a log never leaves: labels come from fixed lists, but for the peers of failed transfers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from exporters.logs.count import FRESH_SECONDS, Said
from exporters.logs.journal import Journal, JournalError
from exporters.logs.places import Inode, Place, places
from exporters.logs.tail import Piece, Tail
from exporters.look import Look, Result, Task
from exporters.targets.instances import Instance

LONGEST_GAP: Final = 15.0
"""Seconds of reading that a scrape may catch up on, however long ago the last one was."""


@dataclass
class _Server:
    """What is kept of one server."""

    said: Said = field(default_factory=Said)
    tails: dict[str, Tail] = field(default_factory=dict)
    journals: dict[str, Journal] = field(default_factory=dict)
    last: float | None = None
    turn: int = 0


class Logs:
    """Follows the logs of the servers.

    Args:
        clock: Monotonic seconds.
        journalctl: Program; looked for if empty.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, journalctl: str = "") -> None:
        self._clock = clock
        self._journalctl = journalctl
        self._servers: dict[str, _Server] = {}
        self._seen: set[Inode] | None = None

    def tasks(self, look: Look) -> Mapping[str, Task]:
        """Return one task for all logs of the node, if there are any to read."""
        return {"": Task(partial(self.collect, look))} if look.config.exporter.logs else {}

    def collect(self, look: Look) -> Result:
        """Read on in every log, and return what all have said so far."""
        until = self._clock() + 0.8 * look.seconds
        problems: list[str] = []
        owners = {key: server for server, known in self._servers.items() for key in known.tails}
        matched: set[Inode] = set()
        found = list(places(look, owners, matched, problems))
        wanted = {i.server: i for i in look.instances}
        self._drop(found, wanted)
        result = Result()
        for server, instance in wanted.items():
            mine = [place for place in found if place.server == server]
            if not mine:
                continue
            known = self._servers.setdefault(server, _Server())
            problems += self._read(known, mine, int(look.config.exporter.log_rate), until)
            result.families.take(known.said.families(instance.labels, self._clock()))
            lag = float(sum(tail.lag for tail in known.tails.values()))
            result.families.add("leadline_log_lag_bytes", instance.labels, lag)
        self._seen = matched
        result.problem = "; ".join(problems[:5])
        return result

    def _drop(self, found: list[Place], wanted: Mapping[str, Instance]) -> None:
        """Let go of logs that are no longer there: their series end."""
        keys = {(place.server, place.key) for place in found}
        for server, known in list(self._servers.items()):
            for key in [k for k in known.tails if (server, k) not in keys]:
                known.tails.pop(key).close()
            for key in [k for k in known.journals if (server, k) not in keys]:
                del known.journals[key]
            if server not in wanted:
                del self._servers[server]

    def _read(self, known: _Server, mine: list[Place], rate: int, until: float) -> Iterator[str]:
        now = self._clock()
        gap = LONGEST_GAP if known.last is None else min(now - known.last, LONGEST_GAP)
        budget = int(rate * max(gap, 1.0))
        # Lines carry no year and no zone: after a pause nobody knows how old a reading is.
        stale = known.last is not None and now - known.last > FRESH_SECONDS
        known.last = now
        take = partial(_take, known.said, now)
        # Who comes first changes: one flood must not starve the others.
        known.turn = (known.turn + 1) % len(mine)
        for place in (*mine[known.turn :], *mine[: known.turn]):
            try:
                piece = self._one(known, place, budget, until, take)
            except JournalError as error:
                yield f"{place.unit}: {error}"
            except OSError as error:
                yield f"{place.path}: {error.strerror}"
            else:
                budget = max(0, budget - piece.size)
                _account(known.said, piece)
        self._long_lines(known)
        if stale:
            known.said.forget_readings()

    def _one(
        self,
        known: _Server,
        place: Place,
        budget: int,
        until: float,
        take: Callable[[bytes], None],
    ) -> Piece:
        if place.path is None:
            journal = known.journals.get(place.key)
            if journal is None:
                journal = Journal(place.unit, self._journalctl, self._clock)
                known.journals[place.key] = journal
            return journal.read(budget, max(0.1, until - self._clock()), take)
        tail = known.tails.get(place.key)
        if tail is None:
            # What a server found later writes to may hold an earlier life of it.
            new = self._seen is not None and place.inode not in self._seen and not place.opened
            tail = known.tails[place.key] = Tail(place.path, from_start=new)
        tail.path = place.path
        return tail.read(budget, take)

    def _long_lines(self, known: _Server) -> None:
        for tail in known.tails.values():
            known.said.add("long_lines_total", tail.lines.long)
            tail.lines.long = 0


def _take(said: Said, now: float, line: bytes) -> None:
    said.take(line, now)


def _account(said: Said, piece: Piece) -> None:
    said.add("read_bytes_total", piece.size)
    said.add("skipped_bytes_total", piece.skipped)
    said.add("rotations_total", piece.rotations)
    if piece.lag or piece.skipped:
        said.forget_readings()
