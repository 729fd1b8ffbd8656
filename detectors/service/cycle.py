"""One cycle: read what is new, judge, follow, group, write down, publish."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from traceback import walk_tb
from typing import Final, Protocol

from catalog.config import Config
from catalog.panel import Panel
from catalog.plain import plain
from catalog.units import human_duration
from detectors.drift import judge as drift
from detectors.finding import Finding
from detectors.service.incident import Incident, advance
from detectors.service.ledger import Event, Ledger
from detectors.service.lives import LEAK, Source
from detectors.service.memory import Memory
from detectors.service.refuse import Instant, Twice, refuse, seen_twice
from detectors.service.snapshot import Snapshot, statuses
from detectors.service.track import CALM, Presences, Tracked, follow
from store.errors import StoreError

log = logging.getLogger("leadline.service")

DETECTED: Final = tuple(
    dict.fromkeys(
        one
        for name, names in drift.SIGNALS.items()
        if name not in drift.TOWARDS_LIMIT
        for one in (names if name in drift.EACH else names[:1])
    )
)
"""Signals that a detector judges, with or without a limit."""
JOINED: Final = tuple(
    name for name in drift.NEEDED if not any(name in names for names in drift.SIGNALS.values())
)
"""Signals that say how far the limit is."""
MAX_EVENTS: Final = 2000

Judge = Callable[[Mapping[str, Panel], Config], Sequence[Finding]]
"""What judges panels; `detectors.drift.judge.judge` does."""


class Store(Source, Instant, Protocol):
    """What a cycle reads from."""


def watched(config: Config) -> tuple[str, ...]:
    """Return the signals that a cycle reads: those judged, those joined, those with a bound."""
    scopes = [config, *config.deployments.values()]
    scopes += [model for d in config.deployments.values() for model in d.models.values()]
    bound = [name for scope in scopes for name in (*scope.sla, *scope.limits)]
    return tuple(dict.fromkeys((*DETECTED, *JOINED, *sorted(bound))))


class Cycle:
    """Runs cycles and holds what the last one found.

    Attributes:
        snapshot: The state after the last cycle; replaced as a whole.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        ledger: Ledger,
        judge: Judge | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._store = store
        self._ledger = ledger
        self._clock = clock
        self._names = watched(config)
        self._memory = Memory(
            store, config.service.history, config.prometheus.step, Path(config.service.state)
        )
        live = {**drift.DETECTORS, "leak": self._memory.lives.find}
        self._judge: Judge = judge or partial(drift.judge, detectors=live)
        self._twice: list[Twice] = []
        self._unsaved: list[Event] = []
        self._waited = 0
        self._delivered: deque[str] = deque()
        self._refused: list[Finding] = []
        self._unknown: list[Finding] = []
        self._broken = ""
        self._blind = ""
        # What was known before a restart is shown, and kept alive, before anything is read.
        self.snapshot = Snapshot(
            tracked=ledger.findings(),
            incidents=tuple(ledger.incidents()),
            events=tuple(ledger.events()[-MAX_EVENTS:]),
        )

    def run_once(self) -> Snapshot:
        """Run one cycle and return (and publish) what is known after it.

        A cycle that fails leaves what was found as it was, and says so until judging succeeds.
        """
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - of whatever kind, it must be told
            self._fail(error)
            self.snapshot = replace(
                self.snapshot, broken=self._broken, away=self._memory.away,
                failures=dict(self._memory.failures),
            )  # fmt: skip
        return self.snapshot

    def _run(self) -> None:
        begun, now = time.monotonic(), self._clock()
        before = self.snapshot
        fresh = self._memory.refresh(self._names, now)
        tracked, incidents = dict(before.tracked), list(before.incidents)
        broken = self._broken
        if fresh and self._complete():
            try:
                tracked, incidents = self._judged(before, fresh, now)
                broken = ""
            except Exception as error:  # noqa: BLE001 - what is known stays
                self._fail(error)
                broken = self._broken
        incidents = self._with_deliveries(incidents)
        events = tuple(_events(before, tracked, incidents, now))
        self._save(before, tracked, incidents, events, now)
        limits = {name: self._config.limit(name, {}) for name in self._names}
        self.snapshot = Snapshot(
            at=before.at if broken else self._clock(),
            seconds=time.monotonic() - begun,
            tracked=tracked,
            incidents=tuple(incidents),
            unknown=tuple(self._unknown),
            signals=statuses(self._names, self._detected(), self._memory, self._refused, limits),
            panels=dict(self._memory.panels),
            past=self._memory.lives.past(one.finding for one in tracked.values()),
            events=(*before.events, *events)[-MAX_EVENTS:],
            away=self._memory.away,
            ledger_error=self._ledger.error,
            failures=dict(self._memory.failures),
            broken=broken,
        )
        if self._broken and not broken:
            log.warning("judging succeeds again")
        self._broken = broken

    def _fail(self, error: Exception) -> None:
        """Note why judging fails; one line when it begins or changes."""
        reason = _reason(error)
        if reason != self._broken:
            log.error("judging failed, findings stay as they were: %s", reason)
        self._broken = reason

    def _detected(self) -> tuple[str, ...]:
        """Return the signals that a detector judges: always, or as they are there with a limit."""
        bounded = [
            panel.signal
            for name in drift.TOWARDS_LIMIT
            for panel in drift.read(name, self._memory.panels, self._config)
        ]
        return (*DETECTED, *bounded)

    def _complete(self) -> bool:
        """Return whether every signal was read once, or has been waited for long enough.

        Without its limits a leak would be published once without, and once with, its time left.
        """
        missing = self._memory.errors.keys() - self._memory.panels.keys()
        self._waited += bool(missing)
        return not missing or self._waited > CALM

    def deliver(self, incidents: Iterable[str]) -> None:
        """Note that an Alertmanager took the alerts of *incidents* (ids); from any thread."""
        self._delivered.extend(incidents)

    def _with_deliveries(self, incidents: Iterable[Incident]) -> list[Incident]:
        taken = set()
        while self._delivered:
            taken.add(self._delivered.popleft())
        return [
            replace(i, delivered=True) if i.id in taken and not i.delivered else i
            for i in incidents
        ]

    def _judged(
        self, before: Snapshot, fresh: set[str], now: float
    ) -> tuple[dict[str, Tracked], list[Incident]]:
        self._look_twice(now)
        panels, refused = refuse(self._memory.panels, self._twice, now)
        findings = list(self._judge(panels, self._config))
        if error := self._memory.lives.error:  # nothing was learnt of leaks, so none ends
            self._memory.errors[LEAK] = error
            fresh = fresh - {LEAK}
        self._refused = refused
        self._unknown = refused + [f for f in findings if f.kind == "unknown"]
        found = [f for f in findings if f.kind != "unknown"]
        tracked = follow(before.tracked, found, fresh, now, Presences(self._memory.panels))
        return tracked, advance(before.incidents, tracked.values(), now)

    def _look_twice(self, now: float) -> None:
        try:
            self._twice = seen_twice(self._store, now)
            self._blind = ""
        except StoreError as error:
            if self._blind != str(error):
                log.warning("cannot tell whether servers are scraped twice: %s", error)
            self._blind = str(error)

    def _save(
        self,
        before: Snapshot,
        tracked: Mapping[str, Tracked],
        incidents: Sequence[Incident],
        events: Sequence[Event],
        now: float,
    ) -> None:
        """Write what changed; everything, once writing succeeds again after a failure."""
        self._unsaved += events
        whole = bool(self._ledger.error)
        old = {i.id: i for i in before.incidents}
        changed = [t for key, t in tracked.items() if whole or before.tracked.get(key) is not t]
        moved = [i for i in incidents if whole or old.get(i.id) != i]
        if not (changed or moved or self._unsaved):
            return
        if self._ledger.save(changed, moved, self._unsaved, now):
            self._unsaved = []
        del self._unsaved[:-MAX_EVENTS]


def _reason(error: Exception) -> str:
    """Return what failed and where, in one line, with the signal that was being judged if any."""
    signal = where = ""
    for frame, line in walk_tb(error.__traceback__):  # the innermost one counts
        where = f"{frame.f_globals.get('__name__', '?')}:{line}"
        held = [one.signal for one in frame.f_locals.values() if isinstance(one, Panel)]
        signal = held[-1] if held else signal
    what = f"{type(error).__name__}: {error}"[:300]
    return plain((f"{signal}: " if signal else "") + f"{what} (in {where})")


def _events(
    before: Snapshot, tracked: Mapping[str, Tracked], incidents: Sequence[Incident], now: float
) -> list[Event]:
    """Return what happened in this cycle, one line each."""
    events: list[Event] = []
    old = {i.id: i for i in before.incidents}
    for incident in incidents:
        events += [Event(now, incident.id, incident.lead, w) for w in _news(old, incident)]
    homes = {key: i.id for i in (*before.incidents, *incidents) for key in i.findings}
    for key, one in tracked.items():
        was = before.tracked.get(key)
        state = one.finding.state
        if was is None or was.finding.state != state:
            rank = one.finding.labels.get("rank", "")
            who = " ".join(x for x in (one.finding.labels.get("process", ""), rank) if x)
            what = f"{who or one.finding.signal}: {state}" + (f" ({one.why})" if one.why else "")
            events.append(Event(now, homes.get(key, ""), key, what))
    return events


def _news(old: Mapping[str, Incident], incident: Incident) -> list[str]:
    was = old.get(incident.id)
    news: list[str] = []
    if was is None or was.state != incident.state:
        news.append(incident.state + (f": {incident.why}" if incident.why else ""))
    if was is not None and was.severity != incident.severity:
        news.append(f"severity {was.severity} -> {incident.severity}")
    forecast = incident.forecast
    held = was.forecast if was is not None else None
    if forecast is not None and (held is None or held.breach != forecast.breach):
        news.append(f"breach predicted in {human_duration(forecast.breach - now_of(incident))}")
    return news


def now_of(incident: Incident) -> float:
    """Return the instant that an incident's durations count from: that of its data."""
    return incident.forecast.as_of if incident.forecast else incident.as_of
