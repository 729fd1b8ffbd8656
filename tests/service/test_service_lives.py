"""More processes than fit in memory with all of their past: judged alike, read once."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.detect_series import GIB, MIB, leaking, noise
from catalog.config import load
from catalog.panel import FloatArray, Panel
from catalog.signal import Signal
from detectors.service import lives
from detectors.service.alertmanager import Alertmanagers
from detectors.service.cycle import Cycle
from detectors.service.ledger import Ledger
from detectors.service.view import View
from store.errors import BadAnswerError
from store.prometheus import Sample

STEP = 60.0
NOW = 1_795_000_020.0
SERIES, POINTS, HISTORY = 40, 2400, 1440


class Fleet:
    """Ten servers of four processes; counts what is read of it."""

    def __init__(self) -> None:
        self.now = NOW
        self.cells = 0
        self.breaks = ""
        values = noise(np.random.default_rng(300), SERIES, POINTS)
        values[::12] += leaking(POINTS, 0.3, 9 * GIB)
        values[5, : POINTS - 900] = np.nan
        values[6, POINTS - 700 :] = np.nan
        values[7, POINTS - 750 : POINTS - 720] = np.nan
        self.values: FloatArray = values
        self.first = NOW - (POINTS - 600) * STEP
        self.labels = tuple(
            {"deployment": "chat", "pool": "decode", "process": f"worker{i % 4}",
             "server": f"n{i // 4}.a:8000", "node": f"n{i // 4}"}
            for i in range(SERIES)
        )  # fmt: skip

    def panel(
        self, signal: Signal, start: float, end: float, step: float, selector: str = ""
    ) -> Panel:
        """Return what was scraped of memory; nothing of any other signal."""
        times = np.arange(np.ceil(start / step), np.floor(end / step) + 1) * step
        if signal.name != "host_anon_swap":
            return Panel(signal.name, times, np.empty((0, len(times))), ())
        if selector and self.breaks:
            raise BadAnswerError(self.breaks)
        at = np.rint((times - self.first) / step).astype(int)
        inside = (at >= 0) & (at < POINTS) & (times <= self.now)
        values = np.full((SERIES, len(times)), np.nan)
        values[:, inside] = self.values[:, at[inside]]
        chosen = re.findall(r'(\w+)=~"([^"]*)"', selector.replace("\\\\", "\\"))
        rows = [
            row
            for row in np.flatnonzero(np.isfinite(values).any(axis=1)).tolist()
            if all(re.fullmatch(pattern, self.labels[row][name]) for name, pattern in chosen)
        ]
        self.cells += len(rows) * len(times)
        return Panel(signal.name, times, values[rows], tuple(self.labels[row] for row in rows))

    def instant(self, query: str, at: float) -> list[Sample]:
        """Nobody is scraped twice."""
        return []


Start = Callable[..., Cycle]


@pytest.fixture(name="start")
def _start(tmp_path: Path) -> Start:
    """Starts a service of a fleet, which holds the past of so many cells of it at most."""

    def start(fleet: Fleet, folder: str = "state") -> Cycle:
        config = load(None, {}, {
            "service": {"history": f"{HISTORY - 1}m", "state": str(tmp_path / folder)},
            "deployments": {"chat": {"limits": {"host_anon_swap": "80GiB"}}},
        })  # fmt: skip
        return Cycle(config, fleet, Ledger(tmp_path / folder), clock=lambda: fleet.now)

    return start


@pytest.fixture(name="small")
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three quarters of the fleet's past are what fits, a tenth is held of all of it."""
    monkeypatch.setattr(lives, "MAX_CELLS", SERIES * HISTORY * 3 // 4)
    monkeypatch.setattr(lives, "TAIL_CELLS", SERIES * HISTORY // 10)


def _found(cycle: Cycle) -> dict[str, Any]:
    tracked = cycle.snapshot.tracked.values()
    return {one.finding.id: one.to_dict() for one in tracked if one.finding.kind == "leak"}


def test_what_does_not_fit_is_judged_as_what_does(
    start: Start, request: pytest.FixtureRequest
) -> None:
    """Cycle by cycle, over a gap of the service, the same findings with the same lives."""

    def story(folder: str) -> list[tuple[int, dict[str, Any]]]:
        fleet = Fleet()
        cycle = start(fleet, folder)
        out = []
        for after in (0, 1, 1, 5, 200, 1, 30, 1, 1, 1):
            fleet.now += after * STEP
            found = _found(_after(cycle))
            out.append((cycle.snapshot.panels["host_anon_swap"].values.size, found))
        return out

    whole = story("whole")
    request.getfixturevalue("small")
    thin = story("thin")
    assert [found for _, found in thin] == [found for _, found in whole]
    assert max(held for held, _ in thin) < SERIES * HISTORY // 5
    assert sum(one["finding"]["state"] == "firing" for one in thin[-1][1].values()) >= 3


def _after(cycle: Cycle) -> Cycle:
    cycle.run_once()
    assert not cycle.snapshot.broken
    return cycle


@pytest.mark.usefixtures("small")
def test_a_cycle_reads_what_is_new_and_a_restart_what_was_missed(start: Start) -> None:
    """All once, then two points a series; after a restart the newest points, not the past."""
    fleet = Fleet()
    cycle = _after(start(fleet))
    first, fleet.cells = fleet.cells, 0
    assert first >= SERIES * (HISTORY - 60) * 0.9
    fleet.now += STEP
    _after(cycle)
    assert fleet.cells <= 3 * SERIES
    fleet.now += 20 * STEP
    fleet.cells = 0
    again = _after(start(fleet))
    looked_back = 22 * HISTORY  # four leaks, the others of their servers, and their peers
    assert fleet.cells <= SERIES * HISTORY // 10 + looked_back + 10 * SERIES
    # What was found before, and is found without a restart, is found.
    assert _found(again) == _found(_after(cycle))
    assert any(one["finding"]["state"] == "firing" for one in _found(again).values())


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("what", ["torn", "foreign", "pickled", "other history"])
def test_a_state_that_cannot_be_used_is_one_warning(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """It names the file, and what is found is what is found without it."""
    fleet = Fleet()
    expected = _found(_after(start(fleet)))
    saved = tmp_path / "state" / "live.npz"
    whole = saved.read_bytes()
    if what == "torn":
        saved.write_bytes(whole[: len(whole) // 2])
    elif what == "foreign":
        saved.write_text("not ours")
    elif what == "pickled":
        np.savez(saved, about=np.array([{"a": 1}], dtype=object))
    else:
        with np.load(saved) as arrays:
            about = arrays["about"].copy()
            about[1] += 1
            np.savez(saved, **{**arrays, "about": about})
    with caplog.at_level(logging.WARNING):
        again = _after(start(fleet))
    [line] = [r.getMessage() for r in caplog.records if "live state" in r.getMessage()]
    assert str(saved) in line
    assert "the history is read instead" in line
    assert _found(again).keys() == expected.keys()


@pytest.mark.usefixtures("small")
def test_a_history_that_cannot_be_read_ends_no_finding(start: Start) -> None:
    """It is told as the signal's error, and what was found stays until it can be read."""
    fleet = Fleet()
    fleet.breaks = "too many samples"
    cycle = start(fleet)
    cycle.run_once()
    [status] = [s for s in cycle.snapshot.signals if s.name == "host_anon_swap"]
    assert status.error == "too many samples"
    assert _found(cycle) == {}
    fleet.breaks = ""
    fleet.now += STEP
    found = _found(_after(cycle))
    assert found
    fleet.breaks = "too many samples"
    fleet.values[1] += np.maximum(np.arange(POINTS) - 1700, 0) * 50 * MIB  # one more grows
    for _ in range(5):
        fleet.now += 10 * STEP
        cycle.run_once()
    assert _found(cycle).keys() >= found.keys()
    assert all(one["finding"]["state"] != "ended" for one in _found(cycle).values())


def test_what_there_is_no_room_for_is_unknown(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Series that are not followed, and leaks that can't be looked back on, are said to be so."""
    monkeypatch.setattr(lives, "MAX_CELLS", 2 * HISTORY)  # two histories, where three leak
    monkeypatch.setattr(lives, "MOST_SERIES", SERIES - 5)
    cycle = _after(start(Fleet()))
    [status] = [s for s in cycle.snapshot.signals if s.name == "host_anon_swap"]
    assert status.unknown >= 6
    assert {lives.NOT_SCREENED: 5, lives.NOT_LOOKED_BACK: 1}.items() <= status.why.items()
    assert "no room" in caplog.text


@pytest.mark.usefixtures("small")
def test_the_chart_of_a_leak_shows_more_than_is_held_of_all(start: Start) -> None:
    """The board draws the whole past of what leaks."""
    cycle = _after(start(Fleet()))
    snapshot = cycle.snapshot
    view = View.of(load(None, {}, {}), lambda: snapshot, Alertmanagers((), 1.0))
    for one in snapshot.tracked.values():
        series = view.series(one.finding)
        assert series is not None
        assert len(series.times) == HISTORY


@pytest.mark.usefixtures("small")
def test_a_clock_put_back_begins_anew(start: Start) -> None:
    """A day ahead and back again: the past is read once more, the leaks are found once more."""
    fleet = Fleet()
    cycle = _after(start(fleet))
    expected = _found(cycle).keys()
    fleet.now += 86_400.0
    _after(cycle)
    fleet.now -= 86_400.0 - STEP
    found = _found(_after(cycle))
    assert found.keys() >= expected
    assert any(one["finding"]["state"] == "firing" for one in found.values())
