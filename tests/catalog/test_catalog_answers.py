"""Every signal answers, on a real Prometheus, where its metrics are: once, by its own labels.

What it comes to for real work is worked out by hand elsewhere, vLLM's in test_catalog_versions.py;
this holds for all, whoever adds one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from catalog.metric import Metric
from catalog.signal import Signal
from catalog.signals import SIGNALS

if TYPE_CHECKING:
    from conftest import Server, StartPrometheus

T0 = 1_700_000_040
MINUTES = 8
AT = T0 + 60 * (MINUTES - 1)
KINDS = {"_sum": 30.0, "_count": 60.0, "_bucket": 60.0}


def _matched(expr: str, sample: str) -> dict[str, str]:
    """Return labels that pass the first selector of *sample*: the first choice of each pattern."""
    found = re.search(rf"(?<![\w:]){re.escape(sample)}\{{([^}}]*)\}}", expr)
    pairs = re.findall(r'(\w+)(=~|=)"([^"]*)"', found[1]) if found else ()
    return {name: re.sub(r"[(?]|\).*", "", value).split("|")[0].replace(".+", "x")
            for name, _, value in pairs if value}  # fmt: skip


def _samples(signal: Signal, metric: Metric) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the series of *metric* that *signal* reads, with all labels that it knows."""
    for sample in metric.exposed:
        labels = dict.fromkeys((*signal.labels, *metric.labels), "x")
        labels |= _matched(signal.expr, sample) | {"cluster": signal.name}
        if not sample.endswith("_bucket"):
            yield sample, labels
            continue
        for le in ("0.1", "0.5", "+Inf"):
            yield sample, {**labels, "le": le}


def _rows(signal: Signal) -> dict[tuple[str, int], float]:
    """Return a history in which each metric of *signal* does something, each series once."""
    rows: dict[tuple[str, int], float] = {}
    for metric in signal.metrics:
        for sample, labels in _samples(signal, metric):
            inner = ",".join(f'{k}="{v}"' for k, v in sorted(labels.items()))
            suffix = next(
                (s for s in KINDS if metric.type == "histogram" and sample.endswith(s)), ""
            )
            step = KINDS.get(suffix, 60.0)
            for minute in range(MINUTES):
                value = 3.0 if metric.type == "gauge" else step * minute
                rows[f"{sample}{{{inner}}}", minute] = value
    return rows


@pytest.fixture(scope="module")
def answers(module_prometheus: StartPrometheus) -> Server:
    """A Prometheus with the metrics of every signal, each signal's as a cluster of its own."""
    rows = [
        f"{series} {value!r} {T0 + 60 * minute}"
        for signal in SIGNALS.values()
        for (series, minute), value in _rows(signal).items()
    ]
    return module_prometheus(openmetrics="\n".join([*rows, "# EOF\n"]))


def _own(samples: list[Mapping[str, Mapping[str, str]]], cluster: str) -> list[set[str]]:
    return [set(s["metric"]) for s in samples if s["metric"].get("cluster") == cluster]


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_answers_once_by_its_labels(answers: Server, name: str) -> None:
    """One series with the labels that it promises: none lost on the way, none left over."""
    found = _own(answers.query(SIGNALS[name].expr, at=AT), name)
    assert len(found) == 1
    # Without a reset there is no kind of one.
    spare = {"kind"} if name == "counter_resets" else set()
    assert found[0] == set(SIGNALS[name].labels) - spare
