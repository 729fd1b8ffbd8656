"""The laws of counts and of `extend`, on anything that hypothesis makes up."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.panel import Panel
from catalog.signals import SIGNALS
from store.counts import MAX_GAP, differences
from store.history import extend
from store.join import NamedSeries, count_panel

STEP = 60.0
# One step of a server's life: what it counts, whether it restarts first, whether it is scraped.
LIFE = st.lists(
    st.tuples(st.integers(0, 50), st.sampled_from([False] * 9 + [True]), st.booleans()),
    min_size=2,
    max_size=120,
)


def live(life: list[tuple[int, bool, bool]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the counter as scraped, and what it counted in truth in each step."""
    value, counter, truth = 100, [], []
    for count, restarts, scraped in life:
        value = count if restarts else value + count
        counter.append(float(value) if scraped else np.nan)
        truth.append(float(count))
    return np.array([counter]), np.array(truth)


def naive(times: np.ndarray, row: np.ndarray) -> list[float]:
    """Return the counts as the rules say, one sample at a time."""
    counts, last = [], None
    for at, value in zip(times, row, strict=True):
        count = np.nan
        if not np.isnan(value):
            if last is not None and at - last[0] <= MAX_GAP:
                count = value - last[1] if value >= last[1] else value
            last = (at, value)
        counts.append(count)
    return counts


@settings(max_examples=150, deadline=None)
@given(LIFE)
def test_counts_follow_the_rules(life: list[tuple[int, bool, bool]]) -> None:
    """The vectorised counts equal the rules applied one sample at a time."""
    counter, _ = live(life)
    times = STEP * np.arange(len(life))
    np.testing.assert_array_equal(differences(times, counter)[0], naive(times, counter[0]))


@settings(max_examples=150, deadline=None)
@given(LIFE)
def test_the_sum_of_counts_is_the_truth(life: list[tuple[int, bool, bool]]) -> None:
    """Every step scraped and no restart hidden by a higher value: the sum is what was counted."""
    life = [(count, restarts, True) for count, restarts, _ in life]
    counter, truth = live(life)
    times = STEP * np.arange(len(life))
    restarted = np.array([[restarts for _, restarts, _ in life]])
    counts = differences(times, counter, restarted)
    assert np.nansum(counts) == truth[1:].sum()
    assert np.nanmin(counts) >= 0


@settings(max_examples=150, deadline=None)
@given(LIFE.filter(lambda life: len(life) > 3), st.data())
def test_extend_joins_what_was_cut(life, data) -> None:
    """A panel cut anywhere, with overlap or a new series after the cut, is put together again."""
    counter, truth = live(life)
    values = np.vstack([counter, truth[None, :]])
    labels = ({"server": "a"}, {"server": "b"})
    times = STEP * np.arange(len(life))
    whole = Panel("host_rss", times, values, labels, starts=values * 2)
    first = data.draw(st.integers(1, len(life) - 1))
    overlap = data.draw(st.integers(0, first - 1))
    newer = Panel(
        "host_rss", times[first - overlap :], values[:, first - overlap :], labels,
        starts=2 * values[:, first - overlap :],
    ).rows([1, 0])  # fmt: skip
    joined = extend(whole.until(times[first - 1]), newer)
    assert joined.labels == labels
    for name in ("times", "values", "starts"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))


def test_extend_new_series_gaps_and_bound() -> None:
    """A new series is NaN before, unread steps are NaN, history is bounded, the dead go."""
    old = Panel("host_rss", np.array([0.0, 60.0]), np.array([[1.0, 2.0]]), ({"server": "a"},))
    new = Panel(
        "host_rss", np.array([180.0]), np.array([[7.0]]), ({"server": "b"},),
        load=np.array([[3.0]]),
    )  # fmt: skip
    joined = extend(old, new)
    nan = np.nan
    np.testing.assert_array_equal(joined.times, [0, 60, 120, 180])
    np.testing.assert_array_equal(joined.values, [[1, 2, nan, nan], [nan, nan, nan, 7]])
    assert joined.load is not None
    np.testing.assert_array_equal(joined.load, [[nan] * 4, [nan, nan, nan, 3]])
    short = extend(old, new, history=60.0)
    np.testing.assert_array_equal(short.times, [120, 180])
    assert short.labels == ({"server": "b"},)
    with pytest.raises(ValueError, match="different grids"):
        extend(old, Panel("host_rss", np.array([200.0, 260.0]), np.zeros((0, 2)), ()))
    with pytest.raises(ValueError, match="can't extend"):
        extend(old, Panel("host_fds", np.array([120.0]), np.zeros((0, 1)), ()))


def test_parts_of_the_same_trials_and_reasons_that_add_up_are_paired() -> None:
    """Each position counts among all drafts; failures of any reason among all that finished."""
    raw = 60.0 * np.arange(4)
    grown = np.array([0.0, 10.0, 20.0, 30.0])
    engine = {"pool": "decode", "server": "n:1", "engine": "0"}

    def of(name: str, *parts: tuple[dict[str, str], float]) -> list[NamedSeries]:
        labels = tuple({"__name__": name, **engine, **more} for more, _ in parts)
        frozen = tuple({k: v for k, v in one.items() if k != "__name__"} for one in labels)
        return [NamedSeries(np.stack([grown * speed for _, speed in parts]), frozen)]

    positions = of("p", ({"position": "0"}, 0.8), ({"position": "1"}, 0.5))
    by = SIGNALS["acceptance_by_position"]
    panel = count_panel(by, raw[1:], raw, positions, of("d", ({}, 1.0)), 1)
    assert [one["position"] for one in panel.labels] == ["0", "1"]
    assert panel.trials is not None
    np.testing.assert_allclose(panel.values / panel.trials, [[0.8] * 3, [0.5] * 3])

    bad = of("f", ({"finished_reason": "error"}, 0.1), ({"finished_reason": "abort"}, 0.2))
    ended = of("f", *(({"finished_reason": r}, s) for r, s in (("stop", 2), ("error", 0.1))))
    panel = count_panel(SIGNALS["error_ratio"], raw[1:], raw, bad, ended, 1)
    assert panel.trials is not None
    np.testing.assert_allclose([panel.values[0], panel.trials[0]], [[3.0] * 3, [21.0] * 3])
