"""The reference of signals and metrics is the generated one and leaves nothing out."""

from __future__ import annotations

import re
from pathlib import Path

from catalog import docs
from catalog.signals import METRICS, SIGNALS
from catalog.traps import TRAPS


def test_the_committed_reference_is_the_generated_one() -> None:
    """`make generate` would change nothing."""
    assert docs.PATH.read_text(encoding="utf-8") == docs.text()
    assert docs.TRAPS_PATH.read_text(encoding="utf-8") == docs.traps()


def test_every_signal_and_metric_has_its_entry() -> None:
    """Each once, with its recorded name and expression, its traps and older names."""
    text = docs.text()
    assert re.findall(r"^### (\S+)$", text, re.MULTILINE) == [*SIGNALS, *METRICS]
    for signal in SIGNALS.values():
        assert signal.record in text
        assert f"```promql\n{signal.expr}\n```" in text
    for metric in METRICS.values():
        for said in (*metric.traps, *metric.former, metric.help):
            assert said in text


def test_every_trap_has_a_test_that_is_there_or_says_what_to_do() -> None:
    """The test that a trap names exists, its signals too, and no trap is told twice."""
    traps = [trap for group in TRAPS.values() for trap in group]
    assert len({trap.name for trap in traps}) == len(traps)
    tests = Path(__file__).parents[1]
    for trap in traps:
        assert set(trap.signals) <= set(SIGNALS), trap.name
        assert trap.guard.endswith("."), trap.name
        if trap.test:
            file, _, name = trap.test.partition("::")
            text = (tests / file).read_text(encoding="utf-8")
            assert not name or f"\ndef {name}(" in text, trap.test
    # Those that only a reader can guard against are few, and grow by decision alone.
    assert sum(not trap.test for trap in traps) <= 4
