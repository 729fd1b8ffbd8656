"""Our own families, named and described by the catalogue alone.

They are prometheus_client's samples, and written byte for byte as it writes them (a test holds
that), but not by it: a node of eight GPUs has a thousand, and its writer checks each name anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

from catalog.exposition import escape
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
        return "".join(self._lines(opened=False)).encode()

    def write_open(self) -> bytes:
        """Return them as part of an exposition in OpenMetrics, without its end."""
        return "".join(self._lines(opened=True)).encode()

    def _lines(self, *, opened: bool) -> Iterator[str]:
        for name, known in _BY_NAME.items():
            family = self._families.get(name)
            if family is None:
                continue
            said = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
            # OpenMetrics names a counter without the ending of its samples.
            called = family.name if opened else known.name
            yield f"# HELP {called} {_quoted(said) if opened else said}\n"
            yield f"# TYPE {called} {family.type}\n"
            for sample in family.samples:
                pairs = ",".join([_pair(*pair) for pair in sorted(sample.labels.items())])
                labels = f"{{{pairs}}}" if pairs else ""
                value: str = floatToGoString(sample.value)  # type: ignore[no-untyped-call]
                yield f"{sample.name}{labels} {value}\n"


def _quoted(text: str) -> str:
    return text.replace('"', r"\"")


@lru_cache(maxsize=8192)
def _pair(label: str, value: str) -> str:
    """Return a label as it is written; the same few come at each scrape."""
    return f'{label}="{escape(value)}"'
