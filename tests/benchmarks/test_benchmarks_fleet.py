"""The bench of a fleet: what a person hears of quiet weeks and of leaks."""

from __future__ import annotations

from benchmarks.detect_fleet import Week, played, report

HOUR = 3600.0


def test_a_quiet_week_is_quiet_and_a_leak_is_heard_of() -> None:
    """Through simulator, all detectors, tracking and incidents, asked seldom."""
    quiet = played("none", 2, 24 * HOUR)
    assert quiet.heard == ()
    assert quiet.lead is None
    leak = played("leak", 2, 2 * HOUR)
    assert {kind for _, kind in leak.heard} == {"leak"}
    assert leak.lead is not None
    assert 0.3 < leak.lead < 1.0


def test_the_report_counts_months_of_500_series() -> None:
    """Two clusters of 250 series for 30 days are one month; what fired is named."""
    month = 30 * 24 * HOUR
    weeks = [
        Week("none", 1, 250, month, ()),
        Week("backfill", 3, 250, month, (("page", "creep"), ("ticket", "leak"))),
        Week("leak", 5, 250, month, (("ticket", "leak"),), 0.75),
        Week("leak", 7, 250, month, (), 0.0),
    ]
    text = report("test", weeks, HOUR)
    assert "1.00 months of 500 signal-series" in text
    assert "| page | 1 | 1.00 [0.03, 5.57] | creep 1 |" in text
    assert "`backfill` page of creep: 1" in text
    assert "1 of 2" in text
