"""What can go wrong in a live run, as its user can act on it.

LiveError
    One line that says what failed and what to do about it.
"""

from __future__ import annotations


class LiveError(Exception):
    """A live run can't go on; the message is one line and names the remedy."""
