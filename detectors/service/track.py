"""Findings over time: one judgement that differs neither starts nor ends a page.

watch -> firing at once (the detector has its own doubts behind it); firing -> watch or ended only
once it no longer stands (`detectors.hold`) and after `CALM` judgements on new data in a row, so
that a page doesn't flicker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from catalog.panel import FloatArray, Labels, Panel
from detectors.finding import Finding
from detectors.hold import stands

CALM: Final = 3
"""Judgements on new data without the finding until it ends."""
SILENT: Final = 6 * 3600.0
"""Seconds after which a finding ends although its whole node fell silent."""
KEPT: Final = 90 * 86400.0
"""Seconds that ended findings and incidents are kept."""
KEPT_WATCH: Final = 86400.0
"""Seconds that findings are kept which ended without ever firing."""

Presence = Literal["reports", "restarted", "drained", "silent", "idle", "lost"]


@dataclass(frozen=True)
class Tracked:
    """One finding with its life so far.

    Attributes:
        finding: As last judged; its state is the one shown, after hysteresis.
        first: Unix seconds when it was first seen.
        changed: Unix seconds of the last change of state.
        calm: Judgements in a row in which it wasn't firing (or wasn't there).
        why: Why it ended, one clause; empty while it hasn't.
        fired: Whether it ever fired.
        last: Unix seconds of the data on which it fired last.
    """

    finding: Finding
    first: float
    changed: float
    calm: int = 0
    why: str = ""
    fired: bool = False
    last: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values for the ledger."""
        return {
            "finding": self.finding.to_dict(), "first": self.first, "changed": self.changed,
            "calm": self.calm, "why": self.why, "fired": self.fired, "last": self.last,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Tracked:
        """Return what `to_dict` wrote."""
        rest = {name: data[name] for name in ("first", "changed", "calm", "why", "fired")}
        # Ledgers of before do not have the last one.
        return cls(Finding.from_dict(data["finding"]), **rest, last=data.get("last", 0.0))

    def stands(self, now: Finding | None, at: float) -> bool:
        """Return whether what fired still stands at a judgement that does not say so.

        Args:
            now: What was found of it instead; None for nothing.
            at: Unix seconds of the data.
        """
        since = self.finding.since
        return self.finding.state == "firing" and stands(
            self.last if since is None else since, self.last, now, at
        )


def follow(
    tracked: Mapping[str, Tracked],
    findings: Iterable[Finding],
    fresh: Set[str],
    now: float,
    presence: Callable[[Finding], Presence],
) -> dict[str, Tracked]:
    """Return the findings after one more judgement.

    Args:
        tracked: What was known, by id.
        findings: What was judged now.
        fresh: Signals that brought new points; nothing can end on old ones.
        now: Unix seconds.
        presence: Whether the series of a finding still reports (`Presences`).
    """
    after: dict[str, Tracked] = {}
    for finding in findings:
        before = tracked.get(finding.id)
        if presence(finding) == "reports":
            after[finding.id] = _seen(before, finding, finding.signal in fresh, now)
        elif before is None:
            continue  # a series that stopped before we ever saw it leak is nobody's page
    for key, before in tracked.items():
        if key in after:
            continue
        if before.finding.state == "ended":
            if now - before.changed < (KEPT if before.fired else KEPT_WATCH):
                after[key] = before
        elif before.finding.signal in fresh:
            after[key] = _missed(before, presence(before.finding), now)
        else:
            after[key] = before
    return after


def _seen(before: Tracked | None, finding: Finding, fresh: bool, now: float) -> Tracked:
    fires = finding.state == "firing"
    if before is None:
        return Tracked(finding, now, now, fired=fires, last=finding.as_of if fires else 0.0)
    if fires:
        before = replace(before, fired=True, last=finding.as_of)
    was = before.finding.state
    if fires or was != "firing":
        changed = before.changed if was == finding.state else now
        return replace(before, finding=finding, calm=0, changed=changed, why="")
    if before.stands(finding, finding.as_of):
        cause = finding.evidence.get("stands") or before.finding.cause
        told = replace(finding, state="firing", verdict=before.finding.verdict, cause=cause)
        return replace(before, finding=told, calm=0)
    calm = before.calm + fresh
    if calm < CALM:
        return replace(before, finding=replace(finding, state="firing"), calm=calm)
    return replace(before, finding=finding, calm=calm, changed=now)


def _missed(before: Tracked, presence: Presence, now: float) -> Tracked:
    # A node that stopped reporting says nothing about the leak, an hour without a trial nothing
    # about the ratio: the page stays, as of then.
    if presence in {"silent", "idle"} and now - before.finding.as_of < SILENT:
        return before
    if presence == "reports" and before.stands(None, now):
        return replace(before, calm=0)
    calm = before.calm + 1
    if calm < CALM:
        return replace(before, calm=calm)
    why = {
        "reports": "no longer found",
        "restarted": "its process was started anew",
        "drained": "its process or pod is gone",
        "silent": "its node stopped reporting",
        "idle": "nothing was tried any longer",
        "lost": "its series is gone",
    }[presence]
    ended = replace(before.finding, state="ended")
    return replace(before, finding=ended, calm=calm, changed=now, why=why)


def row_of(panel: Panel | None, labels: Labels) -> int | None:
    """Return the row of the series with *labels* (empty ones don't count), or None.

    A label that no series has is the finding's own: the pool of a GPU, told by its node.
    """
    if panel is None:
        return None
    wanted = _of_series(panel, labels)
    for i, row in enumerate(panel.labels):
        if {key: value for key, value in row.items() if value} == wanted:
            return i
    return None


def rows_of(panel: Panel, labels: Labels) -> list[int]:
    """Return the rows of all series that a finding with *labels* is about."""
    wanted = _of_series(panel, labels).items()
    return [
        i for i, row in enumerate(panel.labels)
        if all(row.get(key, "") == value for key, value in wanted)
    ]  # fmt: skip


def _of_series(panel: Panel, labels: Labels) -> dict[str, str]:
    """Return those of *labels* that have a value and that some series of *panel* has."""
    kept = {key for row in panel.labels for key in row}
    return {key: value for key, value in labels.items() if value and key in kept}


class Presences:
    """Whether the series of findings still report, as one cycle sees it."""

    def __init__(self, panels: Mapping[str, Panel]) -> None:
        """Look at *panels* of all signals; a node reports too by its host's own memory."""
        self._panels = panels
        self._seen: dict[str, _Seen] = {}

    def __call__(self, finding: Finding) -> Presence:
        """Return whether the series of *finding* reports, and if not, whether its node does."""
        panel = self._panels.get(finding.signal)
        if panel is None or not len(panel.times):
            return "silent"
        if finding.signal not in self._seen:
            self._seen[finding.signal] = _Seen(panel)
        seen = self._seen[finding.signal]
        row = seen.row(finding.labels)
        if row is None:
            # A finding over many series has no row of its own: the detector answers for it.
            matching = rows_of(panel, finding.labels)
            if not matching:
                return "drained" if seen.recent.any() else "lost"
            return "reports" if seen.recent[matching].any() else "drained"
        if seen.sampled[row]:
            if _started_since(panel, row, finding.as_of):
                return "restarted"
            return "reports" if seen.recent[row] else "idle"
        place = panel.labels[row]
        beside = place.get("node") in seen.reporting
        return "drained" if beside or _left_its_node(self._panels, place) else "silent"


class _Seen:
    """One panel: which series it has, and which of them report."""

    def __init__(self, panel: Panel) -> None:
        self._names: set[str] = set().union(*panel.labels)
        # All but a few others are told apart by the first of these, without a look at each label.
        self._by = next((name for name in ("server", "node") if name in self._names), "")
        self._rows: dict[str, list[tuple[int, Labels]]] = {}
        for i, labels in enumerate(panel.labels):
            self._rows.setdefault(labels.get(self._by, ""), []).append((i, labels))
        self.recent = _recent(panel)
        self.sampled = self.recent if panel.trials is None else _recent(panel, panel.trials)
        self.reporting = {panel.labels[i].get("node") for i in np.flatnonzero(self.recent)}

    def row(self, labels: Labels) -> int | None:
        """Return the row of the series with *labels* (`row_of`)."""
        wanted = {k: value for k, value in labels.items() if value and k in self._names}
        for i, one in self._rows.get(wanted.get(self._by, ""), ()):
            if {k: value for k, value in one.items() if value} == wanted:
                return i
        return None


def _started_since(panel: Panel, row: int, then: float) -> bool:
    """Return whether the process of a series was started after *then*."""
    if panel.starts is None:
        return False
    known = panel.starts[row][np.isfinite(panel.starts[row])]
    return bool(len(known) and known[-1] > then)


def _left_its_node(around: Mapping[str, Panel], place: Labels) -> bool:
    """Return whether the host of a process reports, but no container of its server is there.

    With a container that goes on it is our reading of processes that failed.
    """
    node = {name: place.get(name, "") for name in ("cluster", "node")}
    pod = node | {"server": place.get("server", "")}
    return (
        bool(node["node"])
        and _reports(around.get("host_memory_total"), node)
        and not _reports(around.get("container_working_set"), pod)
    )


def _reports(panel: Panel | None, where: Labels) -> bool:
    """Return whether some series of a place has a sample of late."""
    if panel is None:
        return False
    return any(
        alive and all(labels.get(name, "") == value for name, value in where.items())
        for labels, alive in zip(panel.labels, _recent(panel), strict=True)
    )


def _recent(panel: Panel, values: FloatArray | None = None) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return for each series whether it has a sample in the last five minutes or three steps.

    Of counts, whether there was a trial, unless *values* are given.
    """
    width = 3 if not panel.step > 0 else max(3, int(np.ceil(300.0 / panel.step)))
    if values is None:
        values = panel.values
        if panel.trials is not None:
            values = np.where(panel.trials > 0, values, np.nan)
    return np.asarray(np.isfinite(values[:, -width:]).any(axis=1), dtype=np.bool_)
