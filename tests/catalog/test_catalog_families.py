"""Every family of vLLM: as its releases have it, and as real servers write it."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.metric import Metric
from catalog.metrics import METRICS
from catalog.signals import SIGNALS
from catalog.vllm import VERSIONS, VLLM

FIXTURES = Path(__file__).parents[1] / "fixtures" / "vllm"
FACTS: dict[str, dict[str, Any]] = json.loads((FIXTURES / "versions.json").read_text())
CAPTURES = sorted(FIXTURES.glob("*.prom.gz"))

BY_SAMPLE = {name: metric for metric in VLLM for name in metric.exposed}
LABEL = re.compile(r'(\w+)="(?:[^"\\]|\\.)*"')


def _lines(path: Path) -> Iterator[str]:
    return iter(gzip.decompress(path.read_bytes()).decode().splitlines())


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name)
def test_every_sample_of_a_real_page_is_known(path: Path) -> None:
    """By name, with the labels that the catalogue gives; `_created` is no metric of its own."""
    seen = 0
    for line in _lines(path):
        name = re.match(r"[\w:]+", line)
        if name is None or name[0].endswith("_created"):
            continue
        seen += 1
        metric = BY_SAMPLE[name[0]]
        labels = set(LABEL.findall(line)) - {"le"}
        assert labels >= set(metric.labels), line
        assert labels == set(metric.labels) or metric.open_labels, line
        assert ("le=" in line) == name[0].endswith("_bucket"), line
    assert seen > 350


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name)
def test_every_type_of_a_real_page_is_the_catalogue_s(path: Path) -> None:
    """The TYPE line says what the catalogue says, and every family has one."""
    types = dict(line.split(" ")[2:4] for line in _lines(path) if line.startswith("# TYPE "))
    known = {m.name: m.type for m in VLLM}
    for name, kind in types.items():
        if not name.endswith("_created"):
            assert known[name] == kind, name
    assert sum(not name.endswith("_created") for name in types) > 50


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name)
def test_the_bounds_said_are_those_of_real_pages(path: Path) -> None:
    """Lowest and highest finite bound of a server that was started without buckets of its own."""
    found: dict[str, list[float]] = {}
    for line in _lines(path):
        if bucket := re.match(r'([\w:]+)_bucket\{.*le="([0-9][^"]*)"', line):
            found.setdefault(bucket[1], []).append(float(bucket[2]))
    told = {name for name in found if METRICS[name].bounds}
    assert len(told) > 10
    for name in told:
        assert METRICS[name].bounds == (min(found[name]), max(found[name])), name


@pytest.mark.parametrize("metric", VLLM, ids=lambda m: m.name)
def test_the_catalogue_agrees_with_the_releases(metric: Metric) -> None:
    """First and last version, type and labels; older names give way where both are written."""
    facts = FACTS[metric.name]
    assert metric.since == facts["versions"][0]
    assert (metric.until or VERSIONS[-1]) == facts["versions"][-1]
    assert metric.type == facts["type"]
    assert sorted(metric.labels) == facts["labels"]
    assert metric.open_labels == facts.get("more_labels", False)
    assert metric.lazy == facts.get("lazy", False)
    assert metric.rust == facts.get("rust", False)
    for name in metric.former:
        assert FACTS[name]["type"] == metric.type
        assert {*FACTS[name]["labels"]} ^ {*facts["labels"]} == {*metric.varying}
        assert FACTS[name]["versions"][0] <= metric.since


def test_no_family_of_any_release_is_left_out() -> None:
    """Nor is one told that no release had."""
    assert {m.name for m in VLLM} == set(FACTS)
    assert len(VLLM) == len(FACTS) == 158
    assert {version for facts in FACTS.values() for version in facts["versions"]} == {*VERSIONS}


def _reads(expr: str, metric: Metric) -> list[str]:
    """Return the selector's conditions at each place that reads *metric* by any of its names."""
    names = {
        sample.replace(metric.name, name)
        for sample in metric.exposed
        for name in (metric.name, *metric.former)
    }
    found = re.findall(r"([\w:]+)(\{[^}]*\})?", expr)
    return [where for name, where in found if name in names]


@pytest.mark.parametrize("name", SIGNALS)
def test_no_signal_reads_a_metric_where_it_means_nothing(name: str) -> None:
    """What prefill only pretends to measure is selected without prefill, everywhere it is read."""
    for metric in SIGNALS[name].metrics:
        if metric.since and metric.pools and "prefill" not in metric.pools:
            reads = _reads(SIGNALS[name].expr, metric)
            assert reads
            # A pure producer has none; where prefill is kv_both there are none to count.
            if not metric.gate.roles:
                assert all('pool!="prefill"' in where for where in reads)


def test_no_signal_reads_what_tells_of_the_api_server_alone() -> None:
    """The process that serves pages says nothing of those that leak; but when it began."""
    front = {m.name for m in VLLM if m.name.startswith(("process_", "python_"))}
    front.remove("process_start_time_seconds")
    assert len(front) == 9
    assert not [s.name for s in SIGNALS.values() if front & {m.name for m in s.metrics}]


def test_names_are_exact_and_never_matched_by_pattern() -> None:
    """`x_created` holds a time: whoever matches names by their beginning adds it to bytes."""
    for signal in SIGNALS.values():
        assert "__name__" not in signal.expr
        assert "_created" not in signal.expr
