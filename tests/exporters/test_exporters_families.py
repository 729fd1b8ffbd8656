"""Our own families are written as prometheus_client writes them."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_open
from prometheus_client.registry import Collector

from catalog.own import OWN
from exporters.families import Families

NAMES = [sample for metric in OWN for sample in metric.exposed]
LABELS = st.dictionaries(
    st.sampled_from(["node", "gpu", "server", "le", "reason"]),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12),
    max_size=4,
)
SAMPLES = st.lists(st.tuples(st.sampled_from(NAMES), LABELS, st.floats()), max_size=30)


class Once(Collector):
    """Gives families to prometheus_client."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


@given(SAMPLES)
def test_the_bytes_are_prometheus_clients(samples: list[tuple[str, dict[str, str], float]]) -> None:
    """Any labels and values, in both formats, and also when gathered from two sides."""
    ours, other, theirs = Families(), Families(), {}
    for number, (name, labels, value) in enumerate(samples):
        (ours if number < 5 else other).add(name, labels, value)
        metric = next(m for m in OWN if name in m.exposed)
        family = theirs.setdefault(
            metric.name, Metric(metric.name.removesuffix("_total"), metric.help, metric.type)
        )
        family.add_sample(name, {k: v for k, v in labels.items() if v}, value)
    ours.take(other)
    order = [metric.name for metric in OWN]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Once([theirs[name] for name in order if name in theirs]))
    assert ours.write() == generate_latest(registry)
    opened = generate_open(registry)  # type: ignore[no-untyped-call]
    assert ours.write_open() + b"# EOF\n" == opened
