"""Finds vLLM servers and their processes in the process table.

A server is a process whose command line is vLLM's; EngineCore, workers and further API servers
carry bare titles and belong to it by their parents. Two thousand other processes must cost little:
a process that is none of ours is looked at again only after half the time that we have known it
(never later than five minutes: a shell may still become `vllm serve` by exec, and a child takes
its title a moment after its birth).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from catalog.labels import ProcessKind
from exporters.node import proc
from exporters.targets import settings, vllm_config
from exporters.targets.cmdline import Launch, Title, launch, title

LOOK_AGAIN_SECONDS: Final = 300.0
MAX_DEPTH: Final = 16
_OWN_ADDRESS = re.compile(r"\|-- ([0-9.]+)\n\s*/32 host LOCAL")


@dataclass(frozen=True)
class Member:
    """One process of a server."""

    pid: int
    kind: ProcessKind
    rank: str


@dataclass(frozen=True)
class Found:
    """A vLLM server of this node.

    Attributes:
        pid: Of its API server, or of the process that started them.
        launch: What its command line asks for.
        address: Its pod's address; empty if it shares the host's network.
        members: Its processes, itself among them.
        main: The process whose command line it is: that of several ranks, where one command
            starts a server for each.
        addresses: All addresses of its network, if that isn't ours.
    """

    pid: int
    launch: Launch
    address: str
    members: tuple[Member, ...]
    main: int = 0
    addresses: tuple[str, ...] = ()


@dataclass
class _Known:
    """What we know of a process id: what it is, since when, and when to look again."""

    since: float
    again: float
    said: int = 0  # hash of the command line, which itself is not kept: it may hold a key
    what: Launch | Title | None = None


class Discovery:
    """Looks through the process table. Not safe for two threads at once.

    Args:
        root: Where /proc is mounted.
        clock: Monotonic seconds.
    """

    def __init__(self, root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._known: dict[int, _Known] = {}

    def find(self) -> list[Found]:
        """Return the servers that run now, by process id.

        Raises:
            OSError: The process table can't be read.
        """
        now = self._clock()
        pids = proc.pids(self._root)
        self._known = {pid: self._look(pid, now) for pid in pids}
        launches = {p: k.what for p, k in self._known.items() if isinstance(k.what, Launch)}
        parents: dict[int, int] = {}
        # A child that has not taken its title yet still shows its parent's command line.
        servers = [
            pid
            for pid in sorted(launches)
            if self._owner(pid, launches, parents, own=False) is None
        ]
        members: dict[int, list[Member]] = {pid: [Member(pid, "api_server", "")] for pid in servers}
        for pid, known in sorted(self._known.items()):
            if isinstance(known.what, Title):
                owner = self._owner(pid, members, parents)
                if owner is not None:
                    members[owner].append(Member(pid, known.what.kind, known.what.rank))
        return [
            one for pid in servers for one in by_port(self._found(pid, launches[pid], members[pid]))
        ]

    def _look(self, pid: int, now: float) -> _Known:
        known = self._known.get(pid)
        if known is None:
            known = _Known(now, now)
        elif known.what is None and now < known.again:
            return known
        try:
            cmdline = proc.read(f"{self._root}/{pid}/cmdline")
        except OSError:
            cmdline = b""  # gone, or not ours to see
        if (said := hash(cmdline)) != known.said:
            known.said = said
            known.what = title(cmdline) or launch(
                cmdline,
                lambda path: vllm_config.words(self._root / str(pid), path),
                lambda: environ(self._root / str(pid)),
            )
        known.again = now + min((now - known.since) / 2, LOOK_AGAIN_SECONDS)
        return known

    def _owner(
        self,
        pid: int,
        servers: dict[int, Launch] | dict[int, list[Member]],
        parents: dict[int, int],
        *,
        own: bool = True,
    ) -> int | None:
        """Return the nearest of *servers* among a process' ancestors, itself included if *own*."""
        at = pid if own else self._parent(pid, parents)
        for _ in range(MAX_DEPTH):
            if at in servers:
                return at
            if at <= 1:
                return None
            at = self._parent(at, parents)
        return None

    def _parent(self, pid: int, parents: dict[int, int]) -> int:
        if pid not in parents:
            try:
                parents[pid] = proc.stat(self._root, pid).parent
            except (OSError, ValueError):
                parents[pid] = 0
        return parents[pid]

    def _found(self, pid: int, launched: Launch, members: list[Member]) -> Found:
        addresses = self._addresses(pid)
        return Found(pid, launched, next(iter(addresses), ""), tuple(members), pid, addresses)

    def _addresses(self, pid: int) -> tuple[str, ...]:
        """Return the addresses of a process in a network of its own (a pod); none in ours."""
        try:
            own = (self._root / "self" / "ns" / "net").readlink()
            if (self._root / str(pid) / "ns" / "net").readlink() == own:
                return ()
            routes = proc.read(self._root / str(pid) / "net" / "fib_trie").decode(
                "ascii", "replace"
            )
        except OSError:
            return ()
        found = (a for a in _OWN_ADDRESS.findall(routes) if not a.startswith("127."))
        return tuple(dict.fromkeys(found))


def environ(process: Path) -> dict[str, str]:
    """Return those variables of a process that say how vLLM computes; none of another user's."""
    try:
        data = proc.read(process / "environ")
    except OSError:
        return {}
    wanted = settings.ENVIRONMENT | {settings.IMAGE_VARIABLE}
    found: dict[str, str] = {}
    for entry in data.split(b"\0"):
        name, equals, value = entry[:512].decode("utf-8", "replace").partition("=")
        if equals and name in wanted:
            found[name] = value
    return found


def by_port(found: Found) -> list[Found]:
    """Return the servers of a command that starts one for each of its ranks, each with its own.

    The process that started them all goes with the first.
    """
    ranks = found.launch.ranks
    if ranks.ports == 1:
        return [found]
    whole = []
    for number in range(ranks.ports):
        rank = f"DP{ranks.start + number}"
        own = tuple(
            m for m in found.members
            if m.rank.partition("_")[0] == rank
            or (number == 0 and not m.rank.startswith("DP"))
        )  # fmt: skip
        pids = [m.pid for m in own if m.kind == "api_server" and m.rank]
        launch = replace(
            found.launch,
            port=found.launch.port + number,
            ranks=replace(ranks, start=ranks.start + number),
        )
        whole.append(replace(found, pid=pids[0] if pids else found.pid, launch=launch, members=own))
    return whole
