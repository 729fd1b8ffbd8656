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
    """One server (and engine) whose series come from several scrape jobs."""

    family: str
    labels: Labels
    jobs: tuple[str, ...]


def seen_twice(source: Instant, now: float) -> list[Twice]:
    """Return the servers that are scraped under more than one job."""
    found: list[Twice] = []
    for signal in _SEEN_BY:
        family = _family(signal.name)
        expr = promql.gauge(signal.metrics[0], (*LEVELS["engine"], "job"), "max")
        jobs: dict[tuple[str, str], set[str]] = {}
        pools: dict[tuple[str, str], list[Labels]] = {}
        for sample in source.instant(expr, now):
            labels = sample.labels
            server = (labels.get("server", ""), labels.get("engine", ""))
            if server[0]:
                jobs.setdefault(server, set()).add(labels.get("job", ""))
                pools.setdefault(server, []).append(labels)
        for server, names in jobs.items():
            if len(names) > 1:
                found += [Twice(family, one, tuple(sorted(names))) for one in pools[server]]
    return found


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
            f"not judged: the pool of {server} is unknown; name it in leadline.yaml "
            "(deployments.<name>.ports, or the target's pool)"
        )
    for double in twice:
        if double.family == _family(signal) and _covers(double.labels, labels):
            jobs = " and ".join(double.jobs)
            return (
                f"not judged: {double.labels.get('server')} arrives under the jobs {jobs}, each "
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
    named = {n: labels[n] for n in (*LEVELS["server"],) if labels.get(n)}
    return Finding(
        id=finding_id(DETECTOR, signal, named, 0.0), kind="unknown", verdict="unknown",
        detector=DETECTOR, signal=signal, labels=named, as_of=now, state="watch", cause=reason,
    )  # fmt: skip
