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
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from catalog.address import bare_url, printable
from catalog.config import Config
from catalog.pages import combine
from exporters.announce import Announcer
from exporters.budget import Budget
from exporters.families import Families
from exporters.fetch import Fetch, fetch
from exporters.gpu.collector import Gpu
from exporters.info import Info
from exporters.lanes import Key, Lanes, Outcome, Runner, reason
from exporters.logs.collector import Logs
from exporters.look import Collector, Look, Result, Task
from exporters.node import container, host, infiniband, numa
from exporters.node.network import Network
from exporters.node.pcie import Pcie
from exporters.node.pressure import Pressure
from exporters.node.process import Process
from exporters.node.pss import Pss
from exporters.peers import Peers
from exporters.probe.collector import Probe
from exporters.targets.discovery import Discovery, Found
from exporters.targets.instances import instances, node_name, own_addresses
from exporters.targets.seen import Seen
from exporters.targets.sources import Sources
from exporters.targets.wanted import Wanted
from exporters.vllm import Vllm
from exporters.web.answer import Answer

FAR: Final = frozenset({"vllm", "peers", "info", "kubernetes"})
"""Collectors that ask over the network: a target that hangs may hang them."""
MAX_LOG_LINES: Final = 40
"""Changes that one scrape tells one by one."""
DISCOVERY: Final = "discovery"
log = logging.getLogger("leadline.exporters")


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


class Exporter:
    """Collects this node's page.

    Args:
        config: As loaded.
        proc: Where /proc is mounted; None: as configured.
        cgroup: Where cgroups are mounted; None: below `sys`.
        sys: Where /sys is mounted; None: as configured.
        fetcher: Reads pages.
        clock: Monotonic seconds.
        only: The collectors that run; None: all.
        lanes: To run them in, shared with others and closed by them; None: its own.
        budget: Of the memory of pages, shared with others; None: its own.

    Attributes:
        ready: Whether it has looked for servers without a problem.
        closed: Connections that its server gave up, by reason.
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
        lanes: Lanes | None = None,
        budget: Budget | None = None,
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
        self._own_lanes = Lanes() if lanes is None else None
        self._runner = Runner(lanes or self._own_lanes or Lanes(), clock, FAR)
        self._budget = budget or Budget(int(config.exporter.page_budget))
        self._dropped: dict[str, Counter[str]] = {}
        self._said: dict[Key, str] = {}
        self._announcer = Announcer()
        self._lock = threading.Lock()
        self._flight: Future[Answer] | None = None
        self._known_addresses: frozenset[str] = frozenset()
        self.ready = False
        self.closed: Mapping[str, int] = {}

    def close(self) -> None:
        """Let the threads end."""
        self._budget.forget(id(self))
        if self._own_lanes is not None:
            self._own_lanes.close()

    @property
    def most_answers(self) -> int:
        """Bytes that answers on their way may be together."""
        return int(self._config.exporter.page_budget) // 4

    def page(self, seconds: float | None = None) -> bytes:
        """Return the node's page in the text format, collected now."""
        return self.scrape(seconds).text

    def scrape(self, seconds: float | None = None, opened: bool = False) -> Answer:
        """Return the node's page, collected now.

        Requests that come while a scrape runs get that scrape's page: two Prometheus replicas
        don't double the work, nor wait for each other's slow targets.

        Args:
            seconds: When it must be there; the configured deadline if that is sooner.
            opened: Whether OpenMetrics will be asked of it: written within the budget.
        """
        with self._lock:
            flight, lead = self._flight, self._flight is None
            if flight is None:
                flight = self._flight = Future()
        if lead:
            try:
                flight.set_result(self._scrape(seconds, opened))
            except BaseException as error:
                flight.set_exception(error)
                raise
            finally:
                self._flight = None
        return flight.result()

    def _scrape(self, seconds: float | None, opened: bool) -> Answer:
        limit = self._config.exporter.deadline
        deadline = self._clock() + (limit if seconds is None else min(limit, seconds))
        # A source that hangs leaves time for the rest, with what it said last.
        found, outcomes = self._discover((self._clock() + deadline) / 2)
        looked = not outcomes[DISCOVERY, ""].problem
        self.ready = self.ready or looked
        named = self._sources.wanted()
        listed, problems = instances(self._config, found, self._addresses(named), named)
        # Who looks for no server has nothing to say of none.
        if looked and (listed or self._config.exporter.discover):
            self._announcer.tell(listed)
        if problems:
            outcomes[DISCOVERY, ""] = outcomes[DISCOVERY, ""]._replace(problem="; ".join(problems))
        with self._budget.scrape(id(self), sum(1 for i in listed if i.url)) as pages:
            look = Look(
                self._config,
                node_name(self._config),
                [i for i in listed if i.kind == "vllm"],
                self._proc,
                self._cgroup,
                max(0.0, deadline - self._clock()),
                self._sys,
                [i for i in listed if i.kind != "vllm"],
                pages,
            )
            outcomes |= self._collect(look, deadline)
            self._runner.keep(outcomes)
            passed = combine([o.result.page for o in outcomes.values() if o.result.page])
            outcomes = {key: self._judge(key, outcome) for key, outcome in outcomes.items()}
            self._tell(outcomes, {i.server: i.url for i in listed})
            answer = Answer(self._own(outcomes), passed)
            answer.written(opened)
            return answer

    def _addresses(self, named: Sequence[Wanted]) -> frozenset[str]:
        if not self._config.exporter.targets and not named:
            return frozenset()
        try:
            self._known_addresses = own_addresses()
        except OSError as error:  # no descriptor left
            log.debug("addresses of this node: %s", error)
        return self._known_addresses

    def _discover(self, deadline: float) -> tuple[Sequence[Found], dict[Key, Outcome]]:
        found: list[Found] = []

        def run() -> Result:
            found.extend(self._discovery.find())
            return Result()

        wanted = {(DISCOVERY, ""): Task(run)} if self._config.exporter.discover else {}
        outcomes = self._runner.run({**wanted, **self._sources.due()}, deadline)
        if not wanted:
            outcomes[DISCOVERY, ""] = Outcome(Result(), "", 0.0)
        return ([] if outcomes[DISCOVERY, ""].problem else found), outcomes

    def _collect(self, look: Look, deadline: float) -> dict[Key, Outcome]:
        wanted: dict[Key, Task] = {}
        broken: dict[Key, Outcome] = {}
        for name, collector in self._collectors.items():
            try:
                wanted |= {(name, server): task for server, task in collector(look).items()}
            except Exception as error:  # noqa: BLE001 - one collector never empties the page
                broken[name, ""] = Outcome(Result(), reason(error), 0.0)
        return broken | self._runner.run(wanted, deadline)

    def _judge(self, key: Key, outcome: Outcome) -> Outcome:
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

    def _own(self, outcomes: Mapping[Key, Outcome]) -> Families:
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
            for why, count in total.items():
                labels = {"server": server, "reason": why}
                families.add("leadline_dropped_lines_total", labels, count)
        for server in servers & self._budget.dropped.keys():
            labels = {"server": server}
            families.add("leadline_dropped_pages_total", labels, self._budget.dropped[server])
        for why, count in self.closed.items():
            families.add("leadline_closed_connections_total", {"reason": why}, count)
        return families

    def _tell(self, outcomes: Mapping[Key, Outcome], urls: Mapping[str, str]) -> None:
        """Log one line for each outcome that differs in kind from the last, up to a number."""
        kinds = {key: _kind(outcome) for key, outcome in outcomes.items()}
        changed = [key for key, kind in kinds.items() if kind != self._said.get(key, "")]
        for key in changed[:MAX_LOG_LINES]:
            name, server = key
            paged = name in ("vllm", "peers") and urls.get(server)
            url = f" ({bare_url(urls[server])})" if paged else ""
            about = printable(f"{name} of {server}{url}" if server else name)
            if kinds[key]:
                log.warning("collector %s: %s", about, printable(outcomes[key].problem))
            else:
                log.info("collector %s works again", about)
        if (more := len(changed) - MAX_LOG_LINES) > 0:
            log.warning("%d more collectors changed: see leadline_collector_success", more)
        self._said = {key: kind for key, kind in kinds.items() if kind}


def _kind(outcome: Outcome) -> str:
    """Return what a problem comes to without its numbers: how a thing is late is one kind."""
    return "late" if outcome.late else re.sub(r"[0-9.]+", "#", outcome.problem)


def _without_asked(config: Config) -> Config:
    """Return *config* without the targets whose pages are got one by one."""
    kept = tuple(t for t in config.exporter.targets if not t.on_request)
    exporter = config.exporter.model_copy(update={"targets": kept})
    return config.model_copy(update={"exporter": exporter})


def _version() -> str:
    try:
        return importlib.metadata.version("leadline")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
