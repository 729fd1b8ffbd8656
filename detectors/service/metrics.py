"""The service's own metrics: findings for dashboards, and whether the detector itself lives."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from catalog.labels import LEVELS
from catalog.signals import METRICS
from detectors.finding import Finding
from detectors.service.alertmanager import Alertmanagers
from detectors.service.snapshot import Snapshot

FINDING_LABELS = (*LEVELS["process"], "kind", "detector", "signal", "severity", "state")
_BELOW = ("watch", "firing")


class Own(Collector):
    """Makes the families of the last snapshot when it is scraped."""

    def __init__(self, snapshot: Callable[[], Snapshot], alertmanagers: Alertmanagers) -> None:
        self._snapshot = snapshot
        self._alertmanagers = alertmanagers

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """Return the families."""
        snapshot = self._snapshot()
        yield from _findings(snapshot)
        yield from _signals(snapshot)
        if snapshot.at:
            yield _gauge("detector_last_cycle_timestamp_seconds", snapshot.at)
            yield _gauge("detector_cycle_seconds", snapshot.seconds)
        name = "leadline_alertmanager_send_failures_total"
        sends = CounterMetricFamily(name, METRICS[name].help)
        sends.add_metric([], self._alertmanagers.failures)
        yield sends


def registry(snapshot: Callable[[], Snapshot], alertmanagers: Alertmanagers) -> CollectorRegistry:
    """Return a registry of the service's own metrics."""
    made = CollectorRegistry()
    made.register(Own(snapshot, alertmanagers))
    return made


def page(made: CollectorRegistry) -> bytes:
    """Return the exposition."""
    return generate_latest(made)


def _gauge(name: str, value: float) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"leadline_{name}", METRICS[f"leadline_{name}"].help)
    family.add_metric([], value)
    return family


def _family(name: str, labels: Iterable[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, METRICS[name].help, labels=list(labels))


def _findings(snapshot: Snapshot) -> Iterable[GaugeMetricFamily]:
    effect = _family("leadline_finding_effect", FINDING_LABELS)
    left = _family("leadline_finding_time_to_breach_seconds", FINDING_LABELS)
    state = _family("leadline_finding_state", FINDING_LABELS)
    for labels, finding in _distinct(snapshot).items():
        state.add_metric(list(labels), 1)
        if finding.effect is not None:
            effect.add_metric(list(labels), finding.effect)
        if finding.time_to_breach is not None:
            left.add_metric(list(labels), finding.time_to_breach)
    return effect, left, state


def _distinct(snapshot: Snapshot) -> dict[tuple[str, ...], Finding]:
    """Return one finding for each set of labels: Prometheus drops all but one without a word."""
    found: dict[tuple[str, ...], Finding] = {}
    for one in snapshot.tracked.values():
        finding = one.finding
        if finding.state not in _BELOW:
            continue
        own = {name: getattr(finding, name) for name in FINDING_LABELS[-5:]}
        key = tuple(own.get(name) or finding.labels.get(name, "") for name in FINDING_LABELS)
        if key not in found or _left(finding) < _left(found[key]):
            found[key] = finding
    return found


def _left(finding: Finding) -> float:
    return float("inf") if finding.time_to_breach is None else finding.time_to_breach


def _signals(snapshot: Snapshot) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
    series = _family("leadline_detector_series", ("signal", "state"))
    judged = _family("leadline_detector_judged_since_timestamp_seconds", ("signal",))
    name = "leadline_detector_query_failures_total"
    failures = CounterMetricFamily(name, METRICS[name].help, labels=["signal"])
    for status in snapshot.signals:
        failures.add_metric([status.name], snapshot.failures.get(status.name, 0))
        if not status.detected:
            continue
        series.add_metric([status.name, "judged"], status.judged)
        series.add_metric([status.name, "unknown"], status.unknown)
        if status.since is not None and status.judged:
            judged.add_metric([status.name], status.since)
    return series, judged, failures
