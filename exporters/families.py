"""Our own families as prometheus_client writes them, named and described by the catalogue alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_open
from prometheus_client.registry import Collector

from catalog.exposition import END
from catalog.own import OWN

_BY_NAME: Final = {metric.name: metric for metric in OWN}
_BY_SAMPLE: Final = {sample: metric for metric in OWN for sample in metric.exposed}


class Families:
    """Samples of our own metrics, gathered by family."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}

    def add(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """Add one sample of a metric of the catalogue; empty labels are left out."""
        known = _BY_SAMPLE[name]
        family = self._families.get(known.name)
        if family is None:
            family = Metric(known.name.removesuffix("_total"), known.help, known.type)
            self._families[known.name] = family
        family.add_sample(name, {k: v for k, v in labels.items() if v}, value)

    def take(self, other: Families) -> None:
        """Add all samples of *other*."""
        for name, family in other._families.items():
            mine = self._families.get(name)
            if mine is None:
                mine = Metric(family.name, family.documentation, family.type)
                self._families[name] = mine
            mine.samples += family.samples

    def samples(self, name: str) -> Sequence[tuple[Mapping[str, str], float]]:
        """Return labels and value of each sample of a metric."""
        known = _BY_SAMPLE.get(name)
        family = self._families.get(known.name) if known else None
        return [(s.labels, s.value) for s in family.samples if s.name == name] if family else []

    def write(self) -> bytes:
        """Return them as text exposition, in the catalogue's order."""
        return generate_latest(self._registry())

    def write_open(self) -> bytes:
        """Return them as part of an exposition in OpenMetrics, without its end."""
        written: bytes = generate_open(self._registry())  # type: ignore[no-untyped-call]
        return written.removesuffix(END.encode())

    def _registry(self) -> CollectorRegistry:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Once([self._families[n] for n in _BY_NAME if n in self._families]))
        return registry


class _Once(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families
