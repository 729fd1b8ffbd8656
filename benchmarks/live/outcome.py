"""What came of a run: printed for people, kept as facts for the replay."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.live.measure import History, breach_at
from benchmarks.live.watch import Said

MB = 1e6
# Of the page, for people; facts.json holds all of it.
SHOWN = ("alertname", "severity", "pool", "summary", "description", "cause", "panel_url")


@dataclass(frozen=True)
class Leak:
    """The leak as the rig set it, and the limit it was judged against."""

    began: float
    bytes_per_step: int
    limit: float


@dataclass(frozen=True)
class Facts:
    """A run in numbers: instants in unix seconds, sizes in bytes, rates in bytes a second.

    Attributes:
        leak: The leak as it was set.
        ended: When the run ended.
        rate: Growth of decode's EngineCore, as the rig measured it.
        breach: When decode's processes meet the limit at the rate measured for all of them.
        fired_at: First firing finding about the leak, or None.
        paged_at: When Alertmanager first held the page, or None.
        page: The page's labels and annotations.
        false_alarms: Every other alert.
        accused: Pool and process of findings about anybody else.
    """

    leak: Leak
    ended: float
    rate: float
    breach: float
    fired_at: float | None
    paged_at: float | None
    page: dict[str, str]
    false_alarms: list[dict[str, str]]
    accused: list[tuple[str, str]]

    @property
    def silent(self) -> bool:
        """Whether nothing was said that should not have been."""
        return not self.false_alarms and not self.accused

    @property
    def good(self) -> bool:
        """Whether the leak was paged, or there was none, and nothing false was said."""
        leaks = self.leak.bytes_per_step > 0
        said = self.paged_at is not None if leaks else self.fired_at is None
        return said and self.silent

    def lines(self) -> list[str]:
        """The run for people to read."""
        told = [f"{key}: {value}" for key, value in self.page.items() if key in SHOWN]
        if self.fired_at is not None:
            told.append(
                f"lead time: {(self.breach - self.fired_at) / 60:.1f} min, from the first firing "
                f"finding ({(self.fired_at - self.leak.began) / 60:.1f} min after the leak began) "
                f"to the breach of {self.leak.limit / MB:.0f} MB at the measured rates"
            )
        if self.paged_at is not None:
            left, seen = self.breach - self.paged_at, self.paged_at - self.leak.began
            told.append(f"the page: {seen / 60:.1f} min after it began, {left / 60:.1f} min left")
        told.append(f"EngineCore grew by {self.rate * 60 / MB:.1f} MB/min, as measured")
        told.append(f"false alarms: {len(self.false_alarms)}")
        told += [f"  {alert}" for alert in self.false_alarms]
        told += [f"  a finding about {process} of {pool}" for pool, process in self.accused]
        return told

    def write(self, path: Path) -> None:
        """Keep the facts as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def facts(said: Said, history: History, leak: Leak, now: float) -> Facts:
    """Put together what was said and what was measured."""
    total = max(history.pool_growth("decode", leak.began), 1e-9)
    page = said.page
    return Facts(
        leak=leak,
        ended=now,
        rate=history.growth("decode", "engine_core", leak.began),
        breach=breach_at(history, leak.limit, total, now),
        fired_at=said.fired_at,
        paged_at=said.paged_at,
        page={**page.labels, **page.annotations} if page else {},
        false_alarms=[{**a.labels, **a.annotations} for a in said.false.values()],
        accused=sorted(said.accused),
    )
