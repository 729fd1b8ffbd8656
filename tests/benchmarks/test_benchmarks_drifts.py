"""The figures of the simulated days are what one counts by hand."""

from __future__ import annotations

import numpy as np

from benchmarks.detect_drift_days import Breach, Day, played
from benchmarks.detect_drift_figures import confusion, forecasts, found, quiet
from benchmarks.detect_drifts import seeds_of
from detectors.finding import Finding, Verdict
from simulator.scenario import SCENARIOS

HOUR = 3600.0


def _day(name: str, looks: dict[float, Verdict | None], pool: str = "decode") -> Day:
    """Return a day on which something falls at some looks (hours), or nothing is said."""
    said = tuple(
        ()
        if verdict is None
        else (
            Finding(
                id=f"falling-{pool}", kind="falling", verdict=verdict, detector="falling",
                signal="acceptance_ratio", labels={"pool": pool}, as_of=at * HOUR, state="firing",
                cause="It falls.",
            ),
        )
        for at, verdict in looks.items()
    )  # fmt: skip
    return Day(SCENARIOS[name], np.array([*looks]) * HOUR, said, 70)


def test_a_decay_is_found_in_time_or_late_or_too_early() -> None:
    """The slow decline began eight hours before now."""
    days = [
        _day("acceptance_slow", {-9.0: None, -7.0: "drift"}),
        _day("acceptance_slow", {-9.0: None, -3.0: "drift"}),
        _day("acceptance_slow", {-9.0: "drift", -7.0: None}),
        _day("acceptance_slow", {-9.0: None, -7.0: "drift"}, pool="prefill"),
    ]
    in_time, median, _, early = found(days, 2 * HOUR)
    assert in_time.startswith("1 of 4")
    assert (median, early) == ("inf min", "1")
    assert found(days[:2], 6 * HOUR)[1] == "300 min"


def test_false_alarms_are_counted_once_a_day_over_all_series() -> None:
    """Two looks of one alarm are one episode; 70 series for two days are 20 series-weeks."""
    calm = _day("none", {-48.0: None, -20.0: "drift", -10.0: "drift", 0.0: None})
    ((name, episodes, weeks, rate, what),) = quiet({"none": [calm]})
    assert (name, episodes, weeks, what) == ("none", "1", "20.0", "falling of acceptance_ratio")
    assert rate.startswith("0.050 [")


def test_what_a_day_was_taken_for_is_right_wrong_or_unknown() -> None:
    """A step where it still falls is wrong, silence is unknown, and a false alarm is wrong."""
    text = confusion({
        "acceptance_slow": [
            _day("acceptance_slow", {0.0: "drift"}),
            _day("acceptance_slow", {0.0: "step"}),
            _day("acceptance_slow", {0.0: None}),
            _day("acceptance_slow", {0.0: "drift"}),
        ],
        "none": [_day("none", {0.0: None}), _day("none", {0.0: "drift"})],
    })  # fmt: skip
    assert "right 0.500, unknown 0.125, wrong 0.375" in text
    assert "`acceptance_slow` 1 unknown, 1 wrong of 4; `none` 0 unknown, 1 wrong of 2" in text
    assert "| falling (drift) | 2 | 1 | 1 |" in text


def test_an_interval_holds_the_truth_or_not() -> None:
    """Half of two, as wide as half of what was told, in the middle."""
    known = [
        Breach("creep", 4 * HOUR, 3 * HOUR, 5 * HOUR, 5 * HOUR),
        Breach("creep", 4 * HOUR, 3 * HOUR, 5 * HOUR, 8 * HOUR),
    ]
    ((kind, judgements, held, width, error),) = forecasts(known)
    assert (kind, judgements, width) == ("creep", "2", "50%")
    assert held.startswith("1 of 2")
    assert error == "35%"


def test_train_and_test_seeds_have_nothing_in_common() -> None:
    """Even ones to tune on, odd ones to judge by."""
    assert seeds_of("train", 3) == [0, 2, 4]
    assert seeds_of("test", 3) == [1, 3, 5]


def test_a_simulated_day_is_asked_until_the_decay_is_found() -> None:
    """Nothing is said before it began, and asking ends with the first right answer."""
    start = SCENARIOS["acceptance_collapse"].start
    looks = start + HOUR * np.array([-1.0, 1.0, 1.5, 2.0])
    day = played("acceptance_collapse", 0, looks, until_found=True)
    assert len(day.said) == len(day.at) < 4
    assert found([day], 1.5 * HOUR)[0].startswith("1 of 1")
