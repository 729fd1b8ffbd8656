"""Collector `logs`: what vLLM says in its log only, as counters and readings; off unless told.

Reading starts at the end of what is there: a restart of the exporter counts nothing twice, and
what was written while it was down is not counted. A file that appears later is read from its start.
Text of a log never leaves: labels come from fixed lists, but for the peers of failed transfers.
"""

from __future__ import annotations

import glob
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from catalog.config_words import Log
from exporters import proc
from exporters.instances import Instance
from exporters.logs_count import FRESH_SECONDS, Said
from exporters.logs_journal import Journal, JournalError
from exporters.logs_tail import Piece, Tail
from exporters.look import Look, Result, Task

MAX_FILES: Final = 256
LONGEST_GAP: Final = 15.0
"""Seconds of reading that a scrape may catch up on, however long ago the last one was."""

_PACKED: Final = (".gz", ".zst", ".xz", ".bz2", ".lz4", ".zip")

# Beside `vllm.log`, `vllm.log.1` is its past: copied there, it would be counted again.
_ROTATED = re.compile(r"(.+?)[.-](?:[0-9]{1,3}|[0-9]{8}[0-9T.-]{0,12}|old)", re.DOTALL)

Inode = tuple[int, int]


@dataclass(frozen=True)
class _Place:
    """Where one log is, and the server it is of: a file with its inode, or a unit."""

    server: str
    key: str
    path: Path | None = None
    inode: Inode | None = None
    unit: str = ""
    opened: bool = False


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
        places = list(_places(look, owners, matched, problems))
        wanted = {i.server: i for i in look.instances}
        self._drop(places, wanted)
        result = Result()
        for server, instance in wanted.items():
            mine = [place for place in places if place.server == server]
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

    def _drop(self, places: list[_Place], wanted: Mapping[str, Instance]) -> None:
        """Let go of logs that are no longer there: their series end."""
        keys = {(place.server, place.key) for place in places}
        for server, known in list(self._servers.items()):
            for key in [k for k in known.tails if (server, k) not in keys]:
                known.tails.pop(key).close()
            for key in [k for k in known.journals if (server, k) not in keys]:
                del known.journals[key]
            if server not in wanted:
                del self._servers[server]

    def _read(self, known: _Server, places: list[_Place], rate: int, until: float) -> Iterator[str]:
        now = self._clock()
        gap = LONGEST_GAP if known.last is None else min(now - known.last, LONGEST_GAP)
        budget = int(rate * max(gap, 1.0))
        # Lines carry no year and no zone: after a pause nobody knows how old a reading is.
        stale = known.last is not None and now - known.last > FRESH_SECONDS
        known.last = now
        take = partial(_take, known.said, now)
        # Who comes first changes: one flood must not starve the others.
        known.turn = (known.turn + 1) % len(places)
        for place in (*places[known.turn :], *places[: known.turn]):
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
        place: _Place,
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


def _places(
    look: Look, owners: Mapping[str, str], matched: set[Inode], problems: list[str]
) -> Iterator[_Place]:
    """Yield every log to read, each file once; what can't be placed is a problem.

    A file that is being replaced is held by nobody for a while: it stays with its last owner.

    Args:
        look: This scrape's.
        owners: Server by path, of the files read so far.
        matched: Gets all files that are there, placed or not: they are history from now on.
        problems: Gets a line for each that can't be placed.
    """
    held = _held(look)
    taken: set[Inode] = set()
    for number, log in enumerate(look.config.exporter.logs):
        found = 0
        for place in _of_entry(look, log, held, owners):
            found += 1
            matched |= {place.inode} if place.inode else set()
            if not place.server:
                problems.append(f"exporter.logs.{number}: {_nobodys(log, place)}")
            elif place.inode is None or place.inode not in taken:
                taken |= {place.inode} if place.inode else set()
                yield place
        if not found:
            problems.append(f"exporter.logs.{number}: {_nothing(log)}")


def _nothing(log: Log) -> str:
    if log.opened:
        return "no server found here writes to a file: its output is a pipe, or not ours to see"
    return "no file there" if log.path else "no server runs in that unit"


def _nobodys(log: Log, place: _Place) -> str:
    if log.port or log.server:
        return f"no server here has {f'port {log.port}' if log.port else f'name {log.server}'}"
    return f"no server writes to {place.path or place.unit}: name its port"


def _of_entry(
    look: Look, log: Log, held: Mapping[Inode | None, tuple[str, Path]], owners: Mapping[str, str]
) -> Iterator[_Place]:
    server = _named(look, log)
    if log.unit:
        yield _Place(server or _in_unit(look, log.unit), f"unit {log.unit}", unit=log.unit)
    elif log.opened:
        for inode, (owner, path) in held.items():
            yield _Place(owner, f"inode {inode}", path, inode, opened=True)
    else:
        for path in _files(log.path):
            at = _inode(path)
            owner = held[at][0] if at in held else owners.get(str(path), "")
            named = log.port or log.server
            yield _Place(server if named else owner, str(path), path, at)


def _files(pattern: str) -> Iterator[Path]:
    """Yield the files of a pattern that aren't packed; a plain path even if nothing is there."""
    if not glob.has_magic(pattern):
        yield Path(pattern)
        return
    names = set(islice(glob.iglob(pattern), MAX_FILES))  # noqa: PTH207 - as people write patterns
    for name in sorted(names):
        old = _ROTATED.fullmatch(name)
        if not name.endswith(_PACKED) and not (old and old[1] in names):
            yield Path(name)


def _inode(path: Path) -> Inode | None:
    try:
        there = path.stat()
    except OSError:
        return None
    return there.st_dev, there.st_ino


def _named(look: Look, log: Log) -> str:
    """Return the server that an entry names, if it is there."""
    for instance in look.instances:
        if log.server and instance.server == log.server:
            return instance.server
        if log.port and not log.server and _port(instance) == log.port:
            return instance.server
    return ""


def _port(instance: Instance) -> int:
    if instance.found is not None:
        return instance.found.launch.port
    try:
        return urlsplit(instance.url).port or 0
    except ValueError:
        return 0


def _held(look: Look) -> dict[Inode | None, tuple[str, Path]]:
    """Return the files that servers' output goes to, by inode."""
    held: dict[Inode | None, tuple[str, Path]] = {}
    for instance in look.instances:
        for member in instance.found.members if instance.found else ():
            for number in (1, 2):
                path = look.proc / str(member.pid) / "fd" / str(number)
                try:
                    there = path.stat()
                except OSError:
                    continue
                if stat.S_ISREG(there.st_mode):
                    held.setdefault((there.st_dev, there.st_ino), (instance.server, path))
    return held


def _in_unit(look: Look, unit: str) -> str:
    """Return the server whose cgroup is that unit's."""
    inside = re.compile(rf"/{re.escape(unit)}(?:/|$)".encode(), re.MULTILINE)
    for instance in look.instances:
        if instance.found is not None:
            try:
                groups = proc.read(look.proc / str(instance.found.pid) / "cgroup")
            except OSError:
                continue
            if inside.search(groups):
                return instance.server
    return ""
