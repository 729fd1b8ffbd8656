"""One scrape: every collector at once, one deadline, and a page whatever fails.

To add a collector: write its file and its test, and add its line to `collectors`.
"""

from __future__ import annotations

import importlib.metadata
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from catalog.address import bare_url, printable
from catalog.config import Config
from catalog.pages import combine
from exporters import container, host, infiniband, numa
from exporters.announce import Announcer
from exporters.answer import Answer
from exporters.discovery import Discovery, Found
from exporters.families import Families
from exporters.fetch import Fetch, FetchError, fetch
from exporters.gpu import Gpu
from exporters.info import Info
from exporters.instances import instances, node_name, own_addresses
from exporters.logs import Logs
from exporters.look import Collector, Look, Result, Task
from exporters.network import Network
from exporters.pcie import Pcie
from exporters.peers import Peers
from exporters.pressure import Pressure
from exporters.probe import Probe
from exporters.process import Process
from exporters.pss import Pss
from exporters.seen import Seen
from exporters.sources import Sources
from exporters.threads import Threads
from exporters.vllm import Vllm
from exporters.wanted import Wanted

MAX_THREADS: Final = 128
DISCOVERY: Final = "discovery"
log = logging.getLogger("leadline.exporters")

Key = tuple[str, str]


def collectors(fetcher: Fetch, clock: Callable[[], float]) -> dict[str, Collector]:
    """Return all collectors by name: the one place where they are registered."""
    seen = Seen(clock)
    return {
        "host": host.tasks,
        "numa": numa.tasks,
        "pressure": Pressure().tasks,
        "network": Network().tasks,
        "infiniband": infiniband.tasks,
        "pcie": Pcie().tasks,
        "process": Process().tasks,
        "pss": Pss().tasks,
        "container": container.tasks,
        "gpu": Gpu().tasks,
        "vllm": Vllm(fetcher, seen).tasks,
        "info": Info(fetcher, seen, clock).tasks,  # waits for what the pages of new servers say
        "logs": Logs(clock).tasks,
        "probe": Probe(clock).tasks,
        "peers": Peers(fetcher).tasks,
    }


class _Outcome(NamedTuple):
    """How a task went: its result, or the fallback with the reason."""

    result: Result
    problem: str
    seconds: float


class Exporter:
    """Collects this node's page; `ready` once it has looked for servers without a problem.

    Args:
        config: As loaded.
        proc: Where /proc is mounted; None: as configured.
        cgroup: Where cgroups are mounted; None: below `sys`.
        sys: Where /sys is mounted; None: as configured.
        fetcher: Reads pages.
        clock: Monotonic seconds.
        only: The collectors that run; None: all.
        threads: To run them in, shared with others and closed by them; None: its own.
    """

    def __init__(
        self,
        config: Config,
        *,
        proc: Path | None = None,
        cgroup: Path | None = None,
        sys: Path | None = None,
        fetcher: Fetch = fetch,
        clock: Callable[[], float] = time.monotonic,
        only: Collection[str] | None = None,
        threads: Threads[Any] | None = None,
    ) -> None:
        self._config = _without_asked(config)
        self._proc = proc or Path(config.exporter.proc)
        self._sys = sys or Path(config.exporter.sys)
        self._cgroup = cgroup or self._sys / "fs" / "cgroup"
        self._clock = clock
        self._discovery = Discovery(self._proc, clock)
        self._sources = Sources(config, clock)
        self._collectors = {
            name: collector
            for name, collector in collectors(fetcher, clock).items()
            if only is None or name in only
        }
        self._shared = threads
        self._threads: Threads[_Outcome] = threads or Threads(MAX_THREADS)
        self._running: dict[Key, Future[_Outcome]] = {}
        self._dropped: dict[str, Counter[str]] = {}
        self._said: dict[Key, str] = {}
        self._announcer = Announcer()
        self._lock = threading.Lock()
        self._flight: Future[Answer] | None = None
        self.ready = False

    def close(self) -> None:
        """Let the threads end."""
        if self._shared is None:
            self._threads.close()

    def page(self, seconds: float | None = None) -> bytes:
        """Return the node's page in the text format, collected now."""
        return self.scrape(seconds).text

    def scrape(self, seconds: float | None = None) -> Answer:
        """Return the node's page, collected now.

        Requests that come while a scrape runs get that scrape's page: two Prometheus replicas
        don't double the work, nor wait for each other's slow targets.

        Args:
            seconds: When it must be there; the configured deadline if that is sooner.
        """
        with self._lock:
            flight, lead = self._flight, self._flight is None
            if flight is None:
                flight = self._flight = Future()
        if lead:
            try:
                flight.set_result(self._scrape(seconds))
            except BaseException as error:
                flight.set_exception(error)
                raise
            finally:
                self._flight = None
        return flight.result()

    def _scrape(self, seconds: float | None) -> Answer:
        limit = self._config.exporter.deadline
        deadline = self._clock() + (limit if seconds is None else min(limit, seconds))
        found, outcomes = self._discover(deadline)
        looked = not outcomes[DISCOVERY, ""].problem
        self.ready = self.ready or looked
        named = self._sources.wanted()
        listed, problems = instances(self._config, found, self._addresses(named), named)
        # Who looks for no server has nothing to say of none.
        if looked and (listed or self._config.exporter.discover):
            self._announcer.tell(listed)
        if problems:
            outcomes[DISCOVERY, ""] = outcomes[DISCOVERY, ""]._replace(problem="; ".join(problems))
        look = Look(
            self._config,
            node_name(self._config),
            [i for i in listed if i.kind == "vllm"],
            self._proc,
            self._cgroup,
            max(0.0, deadline - self._clock()),
            self._sys,
            [i for i in listed if i.kind != "vllm"],
        )
        outcomes |= self._collect(look, deadline)
        pages = [o.result.page for o in outcomes.values() if o.result.page is not None]
        passed = combine(pages)
        outcomes = {key: self._judge(key, outcome) for key, outcome in outcomes.items()}
        self._tell(outcomes, {i.server: i.url for i in listed})
        return Answer(self._own(outcomes), passed)

    def _addresses(self, named: Sequence[Wanted]) -> frozenset[str]:
        return own_addresses() if self._config.exporter.targets or named else frozenset()

    def _discover(self, deadline: float) -> tuple[Sequence[Found], dict[Key, _Outcome]]:
        found: list[Found] = []

        def run() -> Result:
            found.extend(self._discovery.find())
            return Result()

        wanted = {(DISCOVERY, ""): Task(run)} if self._config.exporter.discover else {}
        outcomes = self._run({**wanted, **self._sources.due()}, deadline)
        if not wanted:
            outcomes[DISCOVERY, ""] = _Outcome(Result(), "", 0.0)
        return ([] if outcomes[DISCOVERY, ""].problem else found), outcomes

    def _collect(self, look: Look, deadline: float) -> dict[Key, _Outcome]:
        wanted: dict[Key, Task] = {}
        broken: dict[Key, _Outcome] = {}
        for name, collector in self._collectors.items():
            try:
                wanted |= {(name, server): task for server, task in collector(look).items()}
            except Exception as error:  # noqa: BLE001 - one collector never empties the page
                broken[name, ""] = _Outcome(Result(), _reason(error), 0.0)
        return broken | self._run(wanted, deadline)

    def _run(self, tasks: Mapping[Key, Task], deadline: float) -> dict[Key, _Outcome]:
        """Run all tasks at once; those that are not done by the deadline have failed."""
        self._running = {key: f for key, f in self._running.items() if not f.done()}
        started: dict[Key, Future[_Outcome]] = {}
        outcomes: dict[Key, _Outcome] = {}
        begun = self._clock()
        for key, task in tasks.items():
            if key in self._running:
                problem = "still busy with an earlier scrape"
                outcomes[key] = _Outcome(Result(task.otherwise), problem, 0.0)
            else:
                started[key] = self._threads.submit(partial(self._one, task))
        self._running |= started
        wait(started.values(), timeout=max(0.0, deadline - self._clock()))
        for key, future in started.items():
            if future.done():
                outcomes[key] = future.result()
            else:
                future.cancel()
                took = self._clock() - begun
                late = f"not done within {took:.3g} s"
                outcomes[key] = _Outcome(Result(tasks[key].otherwise), late, took)
        return {key: outcomes[key] for key in tasks}

    def _one(self, task: Task) -> _Outcome:
        begun = self._clock()
        try:
            result = task.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the rest of the page stays
            return _Outcome(Result(task.otherwise), _reason(error), self._clock() - begun)
        return _Outcome(result, result.problem, self._clock() - begun)

    def _judge(self, key: Key, outcome: _Outcome) -> _Outcome:
        """Count what was dropped of a page; a page that lost lines is no success."""
        page = outcome.result.page
        if page is None:
            return outcome
        total = self._dropped.setdefault(key[1], Counter())
        total.update(page.dropped)
        if not page.dropped:
            if page.samples:
                return outcome
            return outcome._replace(problem="the page has no samples")
        lost = ", ".join(f"{count} {reason}" for reason, count in sorted(page.dropped.items()))
        return outcome._replace(
            problem=f"{sum(page.dropped.values())} lines dropped ({lost}), {page.samples} passed on"
        )

    def _own(self, outcomes: Mapping[Key, _Outcome]) -> Families:
        families = Families()
        version = {"version": _version()}
        families.add("leadline_build_info", version, 1)
        for (name, server), outcome in outcomes.items():
            labels = {"collector": name, "server": server}
            families.take(outcome.result.families)
            families.add("leadline_collector_success", labels, float(not outcome.problem))
            families.add("leadline_collector_duration_seconds", labels, outcome.seconds)
        servers = {server for _, server in outcomes}
        self._dropped = {s: total for s, total in self._dropped.items() if s in servers}
        for server, total in self._dropped.items():
            for reason, count in total.items():
                labels = {"server": server, "reason": reason}
                families.add("leadline_dropped_lines_total", labels, count)
        return families

    def _tell(self, outcomes: Mapping[Key, _Outcome], urls: Mapping[str, str]) -> None:
        """Log one line for each outcome that differs in kind from the last."""
        for key, outcome in outcomes.items():
            kind = re.sub(r"[0-9.]+", "#", outcome.problem)
            if kind == self._said.get(key, ""):
                continue
            name, server = key
            paged = name in ("vllm", "peers") and urls.get(server)
            url = f" ({bare_url(urls[server])})" if paged else ""
            about = printable(f"{name} of {server}{url}" if server else name)
            if kind:
                log.warning("collector %s: %s", about, printable(outcome.problem))
            else:
                log.info("collector %s works again", about)
        self._said = {
            key: re.sub(r"[0-9.]+", "#", o.problem) for key, o in outcomes.items() if o.problem
        }


def _without_asked(config: Config) -> Config:
    """Return *config* without the targets whose pages are got one by one."""
    kept = tuple(t for t in config.exporter.targets if not t.on_request)
    exporter = config.exporter.model_copy(update={"targets": kept})
    return config.model_copy(update={"exporter": exporter})


def _reason(error: Exception) -> str:
    """Return one line for an error; unexpected ones by type, since their text may hold anything."""
    if isinstance(error, FetchError | ValueError):
        return " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return type(error).__name__


def _version() -> str:
    try:
        return importlib.metadata.version("leadline")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
