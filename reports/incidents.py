"""Findings that are one story: eight leaking ranks of a pool are one incident that lists them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from catalog.panel import Labels
from catalog.signals import SIGNALS
from catalog.units import Unit
from detectors.finding import Finding
from reports import words
from reports.places import place_of

_KINDS: Final = {
    "leak": "Memory leak",
    "falling": "Falling ratio",
    "forecast": "Growth towards a limit",
    "unknown": "Not judged",
}
_INNER: Final = ("process", "rank", "engine", "position", "cgroup", "server", "node")


@dataclass(frozen=True)
class Incident:
    """Findings of one kind on one signal in one pool and sort of process, most urgent first."""

    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        """Return the most urgent finding."""
        return self.findings[0]

    @property
    def unit(self) -> Unit:
        """Return the unit of the signal."""
        return SIGNALS[self.first.signal].unit

    @property
    def kind(self) -> str:
        """Return what sort of incident it is, in words."""
        return _KINDS.get(self.first.kind, self.first.kind.replace("_", " ").capitalize())

    @property
    def place(self) -> str:
        """Return where it is: deployment and pool, process, and the series or their number."""
        labels = self.first.labels
        pool = " · ".join(labels[name] for name in ("deployment", "pool") if labels.get(name))
        if len(self.findings) == 1:
            inner = member(labels)
        else:
            inner = f"{labels.get('process', '')} ({len(self.findings)} series)".strip()
        return ", ".join(part for part in (pool, inner) if part) or "the whole table"

    @property
    def effect(self) -> float | None:
        """Return units per second: of all members where the signal adds up, else the first's."""
        known = [f.effect for f in self.findings if f.effect is not None]
        if not known:
            return None
        return (sum(known) if self.unit == "bytes" else known[0]) / 3600

    @property
    def sentence(self) -> str:
        """Return it in one sentence; its card has the rest."""
        left = self.first.time_to_breach
        when = f"{words.left(left)} left" if left is not None else "no limit is known"
        speed = "" if self.effect is None else f" {words.rate(self.effect, self.unit)}"
        together = " together" if len(self.findings) > 1 and self.unit == "bytes" else ""
        return f"{self.kind} in {self.place}:{speed}{together}{',' if speed else ''} {when}"


def member(labels: Labels) -> str:
    """Return what tells a series from the others of its pool."""
    names = list(_INNER)
    if labels.get("node") and labels.get("server", "").startswith(labels["node"]):
        names.remove("node")
    return " ".join(labels[name] for name in names if labels.get(name))


def incidents(findings: Sequence[Finding]) -> list[Incident]:
    """Return the incidents of *findings*, in the order of their most urgent one."""
    grouped: dict[tuple[object, ...], list[Finding]] = {}
    for one in findings:
        if one.kind != "unknown":
            key = (
                place_of(one.labels), one.labels.get("process", ""), one.kind, one.signal,
                one.state,
            )  # fmt: skip
            grouped.setdefault(key, []).append(one)
    return [Incident(tuple(members)) for members in grouped.values()]
