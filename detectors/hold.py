"""How long what fired stands once it no longer does."""

from __future__ import annotations

from typing import Final

from detectors.finding import Finding

SEEN_FOR: Final = 8.0
"""Part of the time that something was seen for, for which it stands."""
AT_MOST: Final = 12 * 3600.0
"""Seconds that it stands at most without a word for it."""


def stands(since: float, last: float, now: Finding | None, at: float) -> bool:
    """Return whether what fired still stands though it does not fire now.

    What took a day to be seen is not over because one look did not show it. It stands for an eighth
    of the time that it was seen for, at most half a day, and for as long as what is found speaks
    for it, if not as clearly as it takes to fire (`evidence["stands"]`: what is then said of it).

    Args:
        since: Unix seconds of its onset.
        last: Unix seconds at which it fired last.
        now: What is found of it now; None for nothing.
        at: Unix seconds of now.
    """
    if now is not None and now.evidence.get("stands"):
        return True
    return at - last < min((last - since) / SEEN_FOR, AT_MOST)
