"""What collectors of the node share: its labels, and saying once what this node can't tell."""

from __future__ import annotations

import logging
from pathlib import Path

from catalog.address import printable
from exporters.look import Look

log = logging.getLogger("leadline.exporters")


def place(look: Look) -> dict[str, str]:
    """Return the labels of the node."""
    return {"cluster": look.config.cluster, "node": look.node}


class Absent:
    """What this node can't tell: absent, and said in one line, once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, what: str, why: OSError | str) -> None:
        """Log that *what* is absent, unless that was said before."""
        if what in self._said:
            return
        self._said.add(what)
        reason = (why.strerror or "not readable") if isinstance(why, OSError) else why
        log.info("no %s: %s", what, printable(reason))


def entries(folder: Path, limit: int) -> list[str]:
    """Return the names in a folder in order, at most *limit* of them; none where it is absent."""
    try:
        return sorted(path.name for path in folder.iterdir())[:limit]
    except (FileNotFoundError, NotADirectoryError):
        return []
