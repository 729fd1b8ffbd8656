"""What a check says: one line, well or not, with the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from catalog.address import printable

State = Literal["ok", "warn", "fail", "unknown"]
_WIDTH: Final = 12
_LONGEST: Final = 600


class Asks(Protocol):
    """Reads a server's API (`store.api.Api`)."""

    url: str
    date: float | None

    def get(self, path: str, **parameters: str) -> Any:
        """Return the JSON at *path*; raises `StoreError`."""
        ...


@dataclass(frozen=True)
class Line:
    """What one check found.

    Attributes:
        state: `ok`; `warn`: something stays unseen or unsaid; `fail`: nobody would be paged;
            `unknown`: this could not be checked here.
        about: What was checked, a word or two.
        said: What is so.
        remedy: What to do about it.
    """

    state: State
    about: str
    said: str
    remedy: str = ""

    def __str__(self) -> str:
        """Return it as it is printed."""
        said = f"{self.said} -> {self.remedy}" if self.remedy else self.said
        return f"{self.state:<7}  {self.about:<{_WIDTH}}  {printable(said, _LONGEST)}"


def several(names: Iterable[str], most: int = 5) -> str:
    """Return the first few of *names* and how many there are more."""
    found = list(names)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def counted(number: int, noun: str) -> str:
    """Return `1 rule`, `2 rules`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def query(prometheus: Asks, expression: str) -> Sequence[tuple[Mapping[str, str], float]]:
    """Return labels and value of each series of *expression* now.

    Raises:
        StoreError: It can't be had.
    """
    answer = prometheus.get("/api/v1/query", query=expression)
    return [(one["metric"], float(one["value"][1])) for one in answer["data"]["result"]]
