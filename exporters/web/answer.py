"""What one scrape found, as a page in the format that a client asks for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from catalog.exposition import END
from catalog.pages import Family, open_text, text
from exporters.families import Families


class Answer:
    """One scrape, written at most once in each format, however many clients get it."""

    def __init__(self, own: Families, passed: Sequence[Family]) -> None:
        self._own = own
        self._passed = passed

    def written(self, opened: bool) -> bytes:
        """Return the page in OpenMetrics if *opened*, else in the text format."""
        return self.openmetrics if opened else self.text

    @cached_property
    def text(self) -> bytes:
        """The page in the text format."""
        return self._own.write() + text(self._passed).encode()

    @cached_property
    def openmetrics(self) -> bytes:
        """The page in OpenMetrics."""
        return self._own.write_open() + (open_text(self._passed) + END).encode()
