"""The comparison with other detectors runs from its front door, and its parts do what they say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.detect_arena import Heard
from benchmarks.detect_cases import NEGATIVES, Case, Injected
from benchmarks.detect_figures import alarms, leads
from benchmarks.peers import rolling
from benchmarks.peers.registry import PEERS

NEVER = np.full(1, np.inf)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of the tiny run, written where they do no harm."""
    path = tmp_path_factory.mktemp("results") / "RESULTS.md"
    assert main(["detect-compare", "--", "--tiny", "--out", str(path)]) == 0
    return path


def test_the_tiny_run_names_every_peer_and_what_it_lacks(results: Path) -> None:
    """Who ran is in the tables, who could not is listed as skipped, and the data is told."""
    text = results.read_text()
    skipped = re.search(r"^- Skipped: (.*)$", text, re.MULTILINE)
    for peer in PEERS:
        there = f"| {peer.name} | " in text.split("## Swept")[0]
        assert there == peer.there, peer.name
        assert peer.there or (skipped and f"{peer.name} (no module {peer.package})" in skipped[1])
        assert peer.source in text
    assert "no `--data` was given" in text
    assert "nan" not in text
    for plot in re.findall(r"\]\((.*\.svg)\)", text):
        assert (results.parent / plot).stat().st_size > 1000


def test_the_tiny_run_finds_the_leaks_earlier_than_a_threshold(results: Path) -> None:
    """Of a plain leak in little noise, what is left when Leadline fires is more than at 90 %."""
    rows = re.findall(r"^\| leak of 48 h \| (.*?) \| (\S+) .*\| (\d+)% \|$", results.read_text(),
                      re.MULTILINE)  # fmt: skip
    shares = {name: int(share) for name, _, share in rows}
    assert shares["**Leadline**"] > 2 * shares["static threshold"] > 0


def test_episodes_and_leads_are_counted_by_hand() -> None:
    """Two firings within a day are one episode; the lead is told from the first after onset."""
    looks = np.arange(0.0, 240.0, 12.0)  # hours are points here
    fires = np.zeros((1, 1, 20), dtype=bool)
    fires[0, 0, [1, 2, 3, 8]] = True  # at 12, 24, 36 and 96 hours
    quiet = Case("quiet", False, "none", NEGATIVES[0].make)
    calm = Injected(np.zeros((1, 0)), NEVER, NEVER, NEVER)
    counted = alarms(Heard(calm, quiet, 3600.0, looks, fires))
    assert counted.episodes == 3  # 36 is a day after 12
    assert counted.weeks == pytest.approx(228 / 168)
    low, high = counted.bounds
    assert low < counted.rate < high
    leaking = Injected(np.zeros((1, 0)), np.array([30.0]), np.array([80.0]), NEVER)
    found = leads(Heard(leaking, Case("leak", True, "leak", quiet.make), 3600.0, looks, fires))
    assert (found.delay[0], found.lead[0], found.share[0]) == (6.0, 44.0, 0.88)


def test_functions_over_a_range_are_those_of_a_loop() -> None:
    """Mean, deviation, median, prediction and `for:` equal the slow way, gaps included."""
    rng = np.random.default_rng(5)
    values = 50 + rng.normal(size=(2, 90)).cumsum(axis=1)
    values[1, 30:50] = np.nan
    span, ahead = 10, 25.0
    moments = rolling.Moments(values, span)
    medians = rolling.median(values, span)
    told = rolling.predicted(values, span, ahead)
    high = rolling.held(values > 50, 4)
    for row in range(2):
        for end in range(span, 90):
            at = np.arange(end - span, end + 1)
            known = at[np.isfinite(values[row, at])]
            if len(known) < 2:
                assert np.isnan(told[row, end])
                continue
            some = values[row, known]
            assert moments.mean[row, end] == pytest.approx(some.mean())
            assert moments.std[row, end] == pytest.approx(some.std(), abs=1e-6)
            assert medians[row, end] == pytest.approx(np.median(some))
            line = np.polyfit(known - end, some, 1)
            assert told[row, end] == pytest.approx(np.polyval(line, ahead))
            assert high[row, end] == (values[row, end - 4 : end + 1] > 50).all()
