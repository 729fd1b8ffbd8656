"""What can't be judged, and says so: servers of no known pool, and servers that are seen twice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from catalog import promql
from catalog.labels import LEVELS
from catalog.panel import Labels, Panel
from catalog.signals import SIGNALS
from detectors.finding import Finding, finding_id

DETECTOR: Final = "refusal"
_SEEN_BY: Final = (SIGNALS["requests_running"], SIGNALS["process_start_time"])
"""One signal of each family that may arrive twice: vLLM's own pages, and our exporter's."""


class Sample(Protocol):
    """One sample of an instant query."""

    @property
    def labels(self) -> Labels:
        """Return its labels."""


class Instant(Protocol):
    """Who answers instant queries; `store.prometheus.PromStore` does."""

    def instant(self, query: str, at: float) -> Iterable[Sample]:
        """Return the samples of *query* at *at*."""


@dataclass(frozen=True)
class Twice:
    """One server (and engine) whose series come by several ways.

    Attributes:
        family: Who writes those series.
        labels: Of the engine.
        ways: `the jobs a and b`, or `the targets x and y` of one job.
    """

    family: str
    labels: Labels
    ways: str


def seen_twice(source: Instant, now: float) -> list[Twice]:
    """Return the servers that are scraped by more than one job, or twice by one."""
    found: list[Twice] = []
    for signal in _SEEN_BY:
        # Several pid series of one page are one scrape.
        expr = promql.gauge(signal.metrics[0], (*LEVELS["engine"], "job", "instance"), "max")
        by_server: dict[tuple[str, ...], list[Labels]] = {}
        for sample in source.instant(expr, now):
            # Pods of two clusters may have one address.
            server = tuple(sample.labels.get(n, "") for n in ("server", "engine", "cluster"))
            if server[0]:
                by_server.setdefault(server, []).append(sample.labels)
        for seen in by_server.values():
            if ways := _ways(seen):
                found += [Twice(_family(signal.name), one, ways) for one in seen]
    return found


def _ways(seen: Iterable[Labels]) -> str:
    """Return by which ways one engine arrives, in words; empty for a single one."""
    ways = {(one.get("job", ""), one.get("instance", "")) for one in seen}
    jobs, targets = ({way[i] for way in ways} for i in (0, 1))
    if len(jobs) > 1:
        return f"the jobs {' and '.join(sorted(jobs))}"
    return f"the targets {' and '.join(sorted(targets))}" if len(targets) > 1 else ""


def refuse(
    panels: Mapping[str, Panel], twice: Iterable[Twice], now: float
) -> tuple[dict[str, Panel], list[Finding]]:
    """Return the panels without what can't be judged, and one finding for each such server."""
    doubles = list(twice)
    kept: dict[str, Panel] = {}
    findings: dict[str, Finding] = {}
    for name, panel in panels.items():
        reasons = [_reason(name, labels, doubles) for labels in panel.labels]
        keep = [i for i, reason in enumerate(reasons) if not reason]
        kept[name] = panel if len(keep) == len(reasons) else panel.rows(keep)
        for labels, reason in zip(panel.labels, reasons, strict=True):
            if reason:
                finding = _unknown(name, labels, reason, now)
                findings[finding.id] = finding
    return kept, list(findings.values())


def _reason(signal: str, labels: Labels, twice: Iterable[Twice]) -> str:
    if labels.get("pool") == "unknown":
        server = labels.get("server", "these servers")
        return (
            f"the pool of {server} is unknown; name it in leadline.yaml "
            "(deployments.<name>.ports, or the target's pool)"
        )
    for double in twice:
        if double.family == _family(signal) and _covers(double.labels, labels):
            return (
                f"{double.labels.get('server')} arrives under {double.ways}, each "
                "value twice; scrape it once (--no-vllm, or drop one job)"
            )
    return ""


def _family(signal: str) -> str:
    """Return who writes what *signal* reads: vllm, leadline or llm (the router)."""
    return re.split("[:_]", SIGNALS[signal].metrics[0].name)[0]


def _covers(double: Labels, labels: Labels) -> bool:
    """Return whether a series with *labels* contains the doubled server."""
    names = ("server", "engine") if labels.get("server") else LEVELS["pool"]
    if not labels.get("server") and not labels.get("pool"):
        return False  # a host's own figures are a maximum: seen twice they are the same
    return all(labels.get(n, "") in {"", double.get(n, "")} for n in names)


def _unknown(signal: str, labels: Labels, reason: str, now: float) -> Finding:
    named = {n: labels[n] for n in LEVELS["server"] if labels.get(n)}
    no_pool = labels.get("pool") == "unknown"
    return Finding(
        id=finding_id(DETECTOR, signal, named, 0.0), kind="unknown", verdict="unknown",
        detector=DETECTOR, signal=signal, labels=named, as_of=now, state="watch", cause=reason,
        runbook="LeadlinePoolUnknown" if no_pool else "LeadlineScrapedTwice",
    )  # fmt: skip
