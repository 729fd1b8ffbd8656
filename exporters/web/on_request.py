"""Multi-target: `/probe?target=` gives the page of one configured target, and of no other address.

A target is asked for by its name (label `server`) or its URL as configured, and looked up by that
text alone: nothing that a client sends is ever parsed as an address or connected to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from catalog.address import bare_url, shown
from catalog.config import Config
from catalog.config_targets import Target
from exporters.budget import Budget
from exporters.fetch import Fetch, fetch
from exporters.lanes import Lanes
from exporters.scrape import Exporter
from exporters.targets.instances import instances, own_addresses
from exporters.web.answer import Answer

COLLECTORS: Final = ("info", "vllm", "peers")
IDLE_SECONDS: Final = 600.0


class UnknownTargetError(Exception):
    """No target of that name is configured; the message is one line."""


class OnRequest:
    """The configured targets, each scraped when it is asked for.

    Args:
        config: As loaded.
        fetcher: Reads pages.
        budget: Of the memory of pages, shared with others; None: its own.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        config: Config,
        fetcher: Fetch = fetch,
        budget: Budget | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._fetch = fetcher
        self._lanes = Lanes()
        self._budget = budget or Budget(int(config.exporter.page_budget))
        self._names = _names(config)
        self._clock = clock
        self._exporters: dict[int, Exporter] = {}
        self._asked: dict[int, float] = {}  # when each was last
        self._lock = threading.Lock()

    def scrape(self, name: str, seconds: float | None = None, opened: bool = False) -> Answer:
        """Return the page of one target with its identity, `leadline_target_up` and the like.

        Args:
            name: Of the target.
            seconds: As for an exporter.
            opened: As for an exporter.

        Raises:
            UnknownTargetError: There is none of that name.
        """
        number = self._names.get(name)
        if number is None:
            raise UnknownTargetError(
                f"{shown(name)} is no target of this exporter: only what exporter.targets names, "
                "by its server or its url, is probed"
            )
        with self._lock:
            self._asked[number] = self._clock()
            exporter = self._exporters.get(number)
            if exporter is None:
                config = _alone(self._config, self._config.exporter.targets[number])
                exporter = self._exporters[number] = Exporter(
                    config, fetcher=self._fetch, only=COLLECTORS, lanes=self._lanes,
                    budget=self._budget,
                )  # fmt: skip
        return exporter.scrape(seconds, opened)

    def sweep(self) -> None:
        """Forget what is known of targets that were not asked for in a while, and their share."""
        now = self._clock()
        with self._lock:
            idle = [number for number, at in self._asked.items() if now - at > IDLE_SECONDS]
            for number in idle:
                del self._asked[number]
                self._exporters.pop(number).close()

    def close(self) -> None:
        """Let the threads end."""
        self._lanes.close()


def _names(config: Config) -> Mapping[str, int]:
    """Return the number of each target by all that it may be asked for by; the first one wins."""
    addresses = own_addresses() if config.exporter.targets else frozenset()
    names: dict[str, int] = {}
    for number, target in enumerate(config.exporter.targets):
        listed, _ = instances(_alone(config, target), [], addresses)
        for name in (*(one.server for one in listed), target.url, bare_url(target.url)):
            names.setdefault(name, number)
    return names


def _alone(config: Config, target: Target) -> Config:
    """Return the configuration of an exporter that has this target and looks for no other."""
    told = config.exporter
    exporter = type(told).model_construct(
        node=told.node,
        deadline=told.deadline,
        target_timeout=told.target_timeout,
        max_page=told.max_page,
        page_budget=told.page_budget,
        discover=False,
        targets=(target.model_copy(update={"on_request": False}),),
    )
    return Config.model_construct(
        cluster=config.cluster,
        namespace=config.namespace,
        deployment=config.deployment,
        deployments=config.deployments,
        exporter=exporter,
    )
