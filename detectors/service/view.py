"""What API, board and metrics may look at, and the warnings that all of them show."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from catalog.address import bare_url
from catalog.config import Config
from catalog.units import human_duration
from detectors.finding import Finding
from detectors.service.alertmanager import LAPSES_AFTER, Alertmanagers
from detectors.service.chart import Series
from detectors.service.links import Links
from detectors.service.memory import ratio_of
from detectors.service.message import clock
from detectors.service.metrics import registry
from detectors.service.snapshot import Snapshot
from detectors.service.track import row_of, rows_of


@dataclass(frozen=True)
class View:
    """Read access to the running service.

    Attributes:
        config: The configuration.
        snapshot: Gives the state after the last cycle.
        alertmanagers: Where alerts go, with what failed.
        links: Base addresses.
        registry: The service's own metrics.
        clock: Gives unix seconds.
        started: Unix seconds.
    """

    config: Config
    snapshot: Callable[[], Snapshot]
    alertmanagers: Alertmanagers
    links: Links
    registry: CollectorRegistry
    clock: Callable[[], float]
    started: float

    @classmethod
    def of(
        cls,
        config: Config,
        snapshot: Callable[[], Snapshot],
        alertmanagers: Alertmanagers,
        clock: Callable[[], float] = time.time,
    ) -> View:
        """Return the view of a service that starts now."""
        made = registry(snapshot, alertmanagers)
        return cls(config, snapshot, alertmanagers, Links.of(config), made, clock, clock())

    def warnings(self) -> list[str]:
        """Return what a reader must know before believing the board, the worst first."""
        snapshot = self.snapshot()
        found: list[str] = []
        if snapshot.broken:
            found.append(
                f"Judging fails, findings are as of {_newest(snapshot)} and nothing new is seen: "
                f"{snapshot.broken}"
            )
        if snapshot.away:
            found.append(
                f"Prometheus is away, findings are as of {_newest(snapshot)} and their alerts are "
                f"kept alive: {snapshot.away}"
            )
        found += [f"{s.name} can't be read: {s.error}" for s in snapshot.signals
                  if s.error and s.error != snapshot.away]  # fmt: skip
        age = self.clock() - (snapshot.at or self.started)
        late = LAPSES_AFTER * self.config.service.every + snapshot.seconds
        if snapshot.at and age > late:
            found.append(f"The last cycle ended {human_duration(age)} ago.")
        for url, error in dict(self.alertmanagers.errors).items():
            found.append(
                f"Alertmanager {bare_url(url)} takes no alerts, they are tried again each cycle: "
                f"{error}"
            )
        if not self.alertmanagers.urls:
            found.append("No Alertmanager is configured: nobody is paged.")
        if snapshot.ledger_error:
            found.append(
                f"The ledger can't be written, a restart would forget: {snapshot.ledger_error}"
            )
        return found

    def series(self, finding: Finding) -> Series | None:
        """Return the series of *finding* that is in memory (the first of several), or None."""
        snapshot = self.snapshot()
        panel, past = snapshot.panels.get(finding.signal), snapshot.past
        if (
            past is not None
            and past.signal == finding.signal
            and row_of(past, finding.labels) is not None
        ):
            panel = past
        row = row_of(panel, finding.labels)
        if panel is None:
            return None
        if row is None:
            row = next(iter(rows_of(panel, finding.labels)), None)
        if row is None:
            return None
        return Series(panel.times, ratio_of(panel.rows([row]))[0])


def _newest(snapshot: Snapshot) -> str:
    known = [s.as_of for s in snapshot.signals if s.as_of is not None]
    known += [i.as_of for i in snapshot.running()]
    return clock(max(known)) if known else "never"
