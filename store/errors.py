"""The errors of this room; each message is one line: what, where, what to do about it.

StoreError
├── UnreachableError   no answer: nothing listens, too slow, or it says it is overloaded
├── BadAnswerError     an answer that is none: not the API, not allowed, too large
├── BadQueryError      it understood us and refused the expression
└── TableError         a file that can't be read as a table
"""

from __future__ import annotations


class StoreError(Exception):
    """Base: the data can't be had."""


class UnreachableError(StoreError):
    """Nobody answers, or too late; worth trying again at the next cycle."""


class BadAnswerError(StoreError):
    """Something answers that is no usable Prometheus API."""


class BadQueryError(StoreError):
    """The server refuses the expression."""


class TableError(StoreError):
    """A file can't be read as a table of signals."""
