"""What is known beforehand of each ratio: how it is counted, what is healthy, what is big."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from catalog.panel import FloatArray, Labels, Panel
from detectors.drift.context import without

# A healthy mean length wanders between 2.92 and 3.12 over hours (agentic serving on H200): from the
# upper end, where a short reference may have stayed, to the lower one it loses 9.4 % of the tokens.
WANDER = 0.0945


@dataclass(frozen=True)
class Rule:
    """How one signal is judged, as a share of trials that succeed.

    Attributes:
        signal: Name in the catalogue.
        tolerance: Below the lowest healthy level before a fall counts.
        wander: Share of the highest healthy level that health itself may cost over hours, whether
            or not the reference has shown it; believed until the reference is days long.
        big: A fall that counts whatever its shape.
        least: Smallest fall that is worth anybody's time.
        failures: Whether the signal counts failures.
        words: What it is the share of, for a sentence.
        elsewhere: Pools of which it says nothing.
    """

    signal: str
    tolerance: float
    wander: float
    big: float
    least: float
    words: str
    failures: bool = False
    elsewhere: tuple[str, ...] = ()

    def wander_at(self, labels: Labels) -> float:
        """Return the wander of one series: later positions of a draft wander more."""
        return 1.8 * self.wander if labels.get("position", "0") != "0" else self.wander


RULES: Mapping[str, Rule] = {
    rule.signal: rule
    for rule in (
        Rule("acceptance_ratio", 0.006, WANDER, 0.10, 0.03, "the share of drafted tokens accepted"),
        Rule("acceptance_length", 0.006, WANDER, 0.10, 0.03, "the mean acceptance length"),
        Rule("acceptance_by_position", 0.010, WANDER, 0.15, 0.03, "the share of drafts accepted"),
        # On decode KV arrives from prefill: what is found there already says nothing.
        Rule("prefix_hit_ratio", 0.030, 0.12, 0.15, 0.10, "the share of prompt tokens cached",
             elsewhere=("decode", "router")),
        Rule("error_ratio", 0.002, 0.006, 0.01, 0.005, "the share of requests that succeed",
             failures=True),
    )
}  # fmt: skip


QUARTER = 900.0  # seconds
LEAST = 0.2  # share of the usual trials that a quarter must have to tell a healthy level


class Tally:
    """Successes and trials of a panel so far, so that any span of it costs two look-ups.

    Attributes:
        panel: What was counted.
        rule: How it is judged.
        won: (s, n + 1) successes before each point; plain ratios count as one trial a point.
        tried: (s, n + 1) trials.
        counted: Whether there are real trials.
        scale: (s,) what a share of one is in the unit of the signal.
        offset: (s,) what a share of zero is.
    """

    def __init__(self, panel: Panel, rule: Rule) -> None:
        """Add up."""
        self.panel, self.rule = panel, rule
        rows = len(panel.labels)
        self.counted = panel.trials is not None
        self.scale, self.offset = np.ones(rows), np.zeros(rows)
        values = panel.values
        trials = np.isfinite(values).astype(np.float64) if panel.trials is None else panel.trials
        known = np.isfinite(values) & (trials > 0)
        tried = np.where(known, trials, 0.0)
        won = np.where(known, values, 0.0)
        if rule.signal == "acceptance_length":  # one token is the model's own, the depth a bound
            deepest = np.max(np.where(known, values, 1.0), axis=1, initial=1.0) - 1
            self.scale, self.offset = np.maximum(np.ceil(deepest - 0.05), 1.0), np.ones(rows)
            won = np.where(known, (won - 1) / self.scale[:, None], 0.0)
        if rule.failures:
            self.scale, self.offset = -self.scale, self.offset + 1
            won = tried - won
        # A sample that cannot be is no more than all or none of its trials.
        self.won, self.tried = _summed(np.clip(won, 0.0, tried)), _summed(tried)

    @cached_property
    def quarters(self) -> Quarters:
        """Quarters of an hour on one grid for all time."""
        return Quarters(self)

    def between(self, edges: np.ndarray[tuple[int], np.dtype[np.intp]]) -> tuple[FloatArray, ...]:
        """Return successes and trials (s, k) between neighbours of k + 1 *edges* (points)."""
        return np.diff(self.won[:, edges], axis=1), np.diff(self.tried[:, edges], axis=1)


class Quarters:
    """Shares of quarters of an hour, and of hours, on one grid for all time.

    Attributes:
        width: Points a quarter.
        first: Point at which the first begins.
        share: (s, q), infinity where too little was tried to tell a level.
        hours: (s, q / 4), likewise.
        lost: (s, q) by how much each quarter is below the hour before it, at least zero.
        dips: (s, q) by how much each is below the quarter before it, at least zero.
    """

    def __init__(self, tally: Tally) -> None:
        """Make them."""
        step, times = tally.panel.step, tally.panel.times
        self.width = max(1, round(QUARTER / step))
        self.first = -round(float(times[0]) / step) % (4 * self.width)
        count = max(0, len(times) - self.first) // self.width
        won, tried = tally.between(self.first + self.width * np.arange(count + 1))
        enough = (tried > 0) & (tried >= LEAST * tried.mean(axis=1, keepdims=True))
        self.share = np.divide(won, tried, out=np.full(won.shape, np.inf), where=enough)
        rows = len(self.share)
        whole = self.share[:, : count // 4 * 4].reshape(rows, count // 4, 4)
        self.hours = whole.mean(axis=2)
        s = self.share
        self.lost, self.dips = np.zeros(s.shape), np.zeros(s.shape)
        if count > 4:
            hours = (s[:, :-4] + s[:, 1:-3] + s[:, 2:-2] + s[:, 3:-1]) / 4
            self.lost[:, 4:] = _down(hours, s[:, 4:])
            self.dips[:, 1:] = _down(s[:, :-1], s[:, 1:])


def _down(before: FloatArray, after: FloatArray) -> FloatArray:
    """Return by how much *after* is lower, at least zero; zero where either is not known."""
    with np.errstate(invalid="ignore"):
        lost = np.nan_to_num(before - after, nan=0.0, posinf=0.0, neginf=0.0)
    return np.asarray(np.maximum(lost, 0.0))


def _summed(values: FloatArray) -> FloatArray:
    out = np.zeros((values.shape[0], values.shape[1] + 1))
    np.cumsum(values, axis=1, out=out[:, 1:])
    return out


def place(labels: Labels) -> tuple[tuple[str, str], ...]:
    """Return the pool of a series, without what tells rows of one pool apart."""
    return without(labels, "position", "server", "engine", "node", "process", "rank")
