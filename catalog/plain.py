"""Texts from outside, made fit for one line of a log or a terminal."""

from __future__ import annotations


def plain(text: str) -> str:
    """Return *text* with all that is not printable escaped: newlines, ESC, marks of direction."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
