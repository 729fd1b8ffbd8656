"""Judging cycle by cycle: the state says what the whole history says, for what is new alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.detect_series import DAY, GIB, NEGATIVES, ORIGIN, POSITIVES, leaking, noise
from benchmarks.detect_series import panel as simulated
from catalog.panel import FloatArray, Labels, Panel
from detectors.drift import coverage
from detectors.drift.buckets import BUCKETS, Pyramid, fill
from detectors.drift.judge import Limits
from detectors.drift.leak import find_leaks
from detectors.drift.leak_windows import (
    SMALLEST_BYTES,
    SMALLEST_SHARE,
    _young,
    screen,
)
from detectors.drift.live import LiveLeaks
from detectors.drift.live_state import LiveState

LIMITS = Limits({"host_anon_swap": 64 * GIB})
HALF_DAY = 720
FIRST = round(ORIGIN / 60)


def _naive_screen(low: FloatArray, seconds: float) -> list[bool]:
    """The screen as it is meant, series by series in double precision."""
    out = []
    values, usable = fill(low)
    for row, good in zip(values, usable, strict=True):
        blocks = np.median(row.reshape(8, 8), axis=1)
        growth, level = blocks[-1] - blocks[0], np.abs(blocks).max()
        change = np.diff(blocks)
        rising = (change > 0).sum() >= 5 or bool((change[-4:] > 0).all())
        shape = (rising and blocks[-2:].max() >= blocks.max()) or seconds >= 2 * 86_400
        large = growth > max(SMALLEST_SHARE * level, SMALLEST_BYTES)
        out.append(bool(good and large and shape and growth > 3 * np.median(np.abs(np.diff(row)))))
    return out


def _windows(values: FloatArray) -> list[tuple[FloatArray, float]]:
    pyramid = Pyramid(values, FIRST)
    return [(pyramid.lows(w, values.shape[1]), 64 * 60.0 * w) for w in pyramid.widths]


@pytest.mark.parametrize("kind", sorted({**NEGATIVES, **POSITIVES}))
def test_the_fast_screen_raises_what_the_plain_one_raises(kind: str) -> None:
    """On every simulated kind, in windows of all widths, at four moments."""
    values = {**NEGATIVES, **POSITIVES}[kind](np.random.default_rng(200), 20, 3 * DAY)
    for end in (HALF_DAY, DAY + 7, 2 * DAY, 3 * DAY):
        for low, seconds in _windows(values[:, :end]):
            assert screen(low, seconds).tolist() == _naive_screen(low, seconds)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), seconds=st.sampled_from([3840.0, 245_760.0]))
def test_the_fast_screen_on_anything(seed: int, seconds: float) -> None:
    """Steps, ramps, walks, levels of kilobytes and of terabytes, holes at every place."""
    rng = np.random.default_rng(seed)
    level = 10 ** rng.uniform(3, 13, (50, 1))
    shape = np.cumsum(rng.normal(rng.uniform(-1, 1, (50, 1)), 1, (50, BUCKETS)), axis=1)
    low = level * (1 + 10 ** rng.uniform(-5, 0, (50, 1)) * shape)
    low[rng.random(low.shape) < rng.choice([0.0, 0.02, 0.3], (50, 1))] = np.nan
    assert screen(low, seconds).tolist() == _naive_screen(low, seconds)


def _raised(panel: Panel) -> dict[int, list[int]]:
    """What the whole history raises: row -> widths; [] for a life too short for any window."""
    out: dict[int, list[int]] = {row: [] for row in _young(panel)}
    pyramid = Pyramid(panel.values, round(float(panel.times[0]) / panel.step))
    for width in pyramid.widths:
        picked = screen(pyramid.lows(width, len(panel.times)), 64 * panel.step * width)
        for row in np.flatnonzero(picked).tolist():
            out.setdefault(row, []).append(width)
    return {row: some for row, some in out.items() if np.isfinite(panel.values[row]).any()}


def _random(rng: np.random.Generator, series: int, points: int) -> Panel:
    """Leaks, steps and noise with gaps of one and of all series, restarts and new series."""
    values = noise(rng, series, points) + rng.choice([0, 1], (series, 1)) * leaking(
        points, float(rng.uniform(0, 0.9)), 4 * GIB
    )
    starts = np.full_like(values, ORIGIN)
    for row in range(series):
        begin, length = rng.integers(0, points), rng.integers(1, points // 2 + 1)
        what = rng.integers(0, 5)
        if what == 0:
            values[row, begin : begin + length] = np.nan
        elif what == 1:
            values[row, : begin + 1] = np.nan
        elif what == 2:
            starts[row, begin:] += 3600
        elif what == 3:
            values[row, begin:] = np.nan
    gap = int(rng.integers(0, points))
    values[:, gap : gap + int(rng.choice([3, 40, 300]))] = np.nan
    starts[np.isnan(values)] = np.nan
    return replace(simulated(values), starts=starts)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), history=st.sampled_from([300, 520, 1000, 4000]))
def test_fed_by_pieces_the_state_raises_what_the_whole_history_raises(
    seed: int, history: int
) -> None:
    """Pieces of any length, gaps nobody read, late samples, new series, saved and restored."""
    rng = np.random.default_rng(seed)
    whole = _random(rng, 12, 1500)
    leaks = LiveLeaks(whole.signal, LiveState(60.0, history))
    seen = np.full_like(whole.values, np.nan)
    begun = seen.copy()
    end, begin = 0, 1500
    while end < 1500:
        first = max(0, end - int(rng.choice([0, 2, 50])))
        end = min(1500, end + int(rng.choice([1, 5, 37, 200])))
        if rng.random() < 0.1:  # nobody read these
            first = end - 1
        begin = min(begin, first)
        part = whole.values[:, first:end].copy()
        part[rng.random(part.shape) < 0.1] = np.nan  # comes late, or never
        started = np.where(np.isnan(part), np.nan, whole.starts[:, first:end])  # type: ignore[index]
        times = whole.times[first:end]
        new = replace(whole, times=times, values=part, starts=started)
        alive = np.flatnonzero(np.isfinite(part).any(axis=1)).tolist()
        seen[:, first:end] = np.where(np.isnan(part), seen[:, first:end], part)
        begun[:, first:end] = np.where(np.isnan(part), begun[:, first:end], started)
        assert leaks.take(new.rows(alive) if alive else new)
        if rng.random() < 0.3:
            leaks = LiveLeaks(whole.signal, LiveState.of(leaks.state.arrays()))
        since = max(begin, end - history)
        known = replace(
            whole,
            times=whole.times[since:end],
            values=seen[:, since:end],
            starts=begun[:, since:end],
        )
        if len(known.times) > 1:
            assert leaks.raised(whole.labels) == _raised(known)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), dated=st.booleans(), counts=st.booleans())
def test_a_glance_at_all_series_says_what_a_look_at_each_says(
    seed: int, dated: bool, counts: bool
) -> None:
    """Who is judged, and why the others are not, with gaps, restarts and quiet nights."""
    rng = np.random.default_rng(seed)
    panel = _random(rng, 30, int(rng.integers(2, 400)))
    if not dated:
        panel = replace(panel, starts=None)
        fallen = rng.integers(0, len(panel.times), 30)
        panel.values[np.arange(len(panel.times)) >= fallen[:, None]] *= 0.3
    if counts:
        panel = replace(panel, trials=np.where(rng.random(panel.values.shape) < 0.5, 0.0, 5.0))
    as_of = float(panel.times[-1]) + 60.0 * float(rng.integers(0, 8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coverage, "surely", lambda known, _: np.zeros(len(known.labels), dtype=bool))
        expected = coverage.coverage(panel, as_of).reasons
    assert coverage.coverage(panel, as_of).reasons == expected


def _fleet(series: int, points: int) -> Panel:
    """Three ranks a server; the first of some servers leak, one series warms up, one is new."""
    rng = np.random.default_rng(201)
    values = noise(rng, series, points)
    values[::9] += leaking(points, 0.4, 8 * GIB)
    values[4] += 6 * GIB * (1 - np.exp(-np.arange(points) / 300))
    values[7, : points - 40] = np.nan
    starts = np.full_like(values, ORIGIN)
    starts[9, points // 2 :] += 60.0 * (points // 2)
    base = simulated(values)
    labels = tuple(
        {**one, "server": f"n{i // 3}:8000", "node": f"n{i // 3}", "rank": f"{i % 3}"}
        for i, one in enumerate(base.labels)
    )
    return replace(base, labels=labels, starts=starts)


class _Past:
    """Knows all series as of one moment."""

    def __init__(self, whole: Panel) -> None:
        self.whole = whole
        self.asked = 0

    def fetch(self, labels: Sequence[Labels]) -> None:
        self.asked += len(labels)

    def has(self, labels: Labels) -> bool:
        return labels in self.whole.labels

    def panel(self, labels: Sequence[Labels]) -> Panel:
        return self.whole.rows([self.whole.labels.index(one) for one in labels])


@pytest.mark.parametrize("thin", [False, True])
def test_a_cycle_finds_what_a_judgement_of_the_whole_history_finds(thin: bool) -> None:
    """All of the panel in memory, or its last hour and the rest asked for where it is needed."""
    whole = _fleet(30, 2 * DAY)
    leaks = LiveLeaks(whole.signal, LiveState(60.0, 7 * DAY))
    past = _Past(whole)
    end = 0
    for later in (900, 1500, 1505, 2 * DAY - 5, 2 * DAY):
        known = past.whole = whole.until(float(whole.times[later - 1]))
        assert leaks.take(_since(known, max(0, end - 1)))
        end = later
        shown = {known.signal: _since(known, end - 60) if thin else known}
        as_of = float(known.times[-1])
        expected = find_leaks({known.signal: known}, LIMITS, as_of)
        found = leaks.find(shown, LIMITS, as_of, past if thin else None)
        assert [f.to_dict() for f in found] == [f.to_dict() for f in expected], later
    assert sum(f.state == "firing" for f in found) >= 4
    assert not thin or past.asked


def _since(panel: Panel, first: int) -> Panel:
    assert panel.starts is not None
    return replace(
        panel,
        times=panel.times[first:],
        values=panel.values[:, first:],
        starts=panel.starts[:, first:],
    )
