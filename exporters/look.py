"""What a collector is given, and what it gives back.

A collector is a function from one look at the node to its tasks, by the server they are about
(empty: the node itself). Each task runs on its own, under the scrape's deadline; what it raises or
calls a problem is its own failure and leaves the rest of the page alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from sys import maxsize

from catalog.config import Config
from catalog.splice import Page
from exporters.budget import Budget, Pages
from exporters.families import Families
from exporters.targets.instances import Instance


@dataclass(frozen=True)
class Look:
    """One scrape's view of the node.

    Attributes:
        config: As loaded.
        node: Name of the node in labels.
        instances: The vLLM servers, found and configured.
        proc: Where /proc is mounted.
        cgroup: Where cgroups are mounted.
        seconds: How long a task may take.
        sys: Where /sys is mounted.
        peers: The programs beside vLLM whose pages are passed through.
        pages: Holds what the pages of this scrape take.
    """

    config: Config
    node: str
    instances: Sequence[Instance]
    proc: Path
    cgroup: Path
    seconds: float
    sys: Path = Path("/sys")
    peers: Sequence[Instance] = ()
    pages: Pages = field(default_factory=lambda: Pages(Budget(maxsize)))


@dataclass
class Result:
    """What a task found.

    Attributes:
        families: Our own metrics.
        page: A server's page, passed through.
        problem: What is missing and why, one line; empty: nothing is.
    """

    families: Families = field(default_factory=Families)
    page: Page | None = None
    problem: str = ""


@dataclass(frozen=True)
class Task:
    """Something to find out.

    Attributes:
        run: Finds it out.
        otherwise: What the page says if that fails or takes too long.
    """

    run: Callable[[], Result]
    otherwise: Families = field(default_factory=Families)


Collector = Callable[[Look], Mapping[str, Task]]
