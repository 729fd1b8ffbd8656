"""The reference of signals and metrics is the generated one and leaves nothing out."""

from __future__ import annotations

import re

from catalog import docs
from catalog.signals import METRICS, SIGNALS


def test_the_committed_reference_is_the_generated_one() -> None:
    """`make generate` would change nothing."""
    assert docs.PATH.read_text(encoding="utf-8") == docs.text()


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
