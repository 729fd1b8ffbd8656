"""Figures of simulated days: found in time, quiet, told apart, and sure of the time left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from benchmarks.detect_drift_days import KINDS, Breach, Day
from benchmarks.detect_figures import Alarms
from benchmarks.detect_score import COOL_DOWN, WEEK
from detectors.finding import Finding

Row = tuple[str, ...]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


def share(hits: int, of: int) -> str:
    """Return a share with its exact interval of 95 %."""
    if not of:
        return "-"
    low, high = stats.binomtest(hits, of).proportion_ci()
    return f"{hits} of {of} [{low:.2f}, {high:.2f}]"


def right(day: Day, finding: Finding) -> bool:
    """Return whether a finding is what the truth of the day says, of the right pool."""
    truth = day.scenario
    same = finding.kind == truth.kind or {finding.kind, truth.kind} == {"creep", "forecast"}
    return same and finding.labels.get("pool", truth.pool) == truth.pool


def found(days: Sequence[Day], within: float) -> Row:
    """Return how many were found in time, after how long, and how many fired before the start."""
    after, early = [], 0
    for day in days:
        start = day.scenario.start
        fires = [any(right(day, f) and f.state == "firing" for f in said) for said in day.said]
        late = [at - start for at, one in zip(day.at, fires, strict=True) if one and at > start]
        early += any(one for at, one in zip(day.at, fires, strict=True) if at <= start)
        after.append(late[0] if late else np.inf)
    minutes = np.array(after) / 60
    in_time = int((minutes * 60 <= within).sum())
    middle, most = np.quantile(minutes, (0.5, 0.9), method="higher")
    return share(in_time, len(days)), f"{middle:.0f} min", f"{most:.0f} min", str(early)


def quiet(days: Mapping[str, Sequence[Day]]) -> list[Row]:
    """Return the false alarms of each scenario on which nothing is wrong."""
    rows: list[Row] = []
    for name, some in days.items():
        counted = _episodes(some)
        low, high = counted.bounds
        what = Counter(
            f"{f.kind} of {f.signal}" for day in some for said in day.said for f in said
            if f.kind in KINDS and f.state == "firing"
        )  # fmt: skip
        words = ", ".join(word for word, _ in what.most_common(3))
        rate = f"{counted.rate:.3f} [{low:.3f}, {high:.3f}]"
        rows.append((name, str(counted.episodes), f"{counted.weeks:.1f}", rate, words))
    return rows


def _episodes(days: Sequence[Day]) -> Alarms:
    episodes, weeks = 0, 0.0
    for day in days:
        weeks += day.series * float(day.at[-1] - day.at[0]) / WEEK
        last: dict[str, float] = {}
        for at, said in zip(day.at.tolist(), day.said, strict=True):
            for f in said:
                if f.kind not in KINDS or f.state != "firing":
                    continue
                if at - last.get(f.id, -np.inf) >= COOL_DOWN:
                    episodes += 1
                    last[f.id] = at
    return Alarms(episodes, weeks)


def forecasts(known: Sequence[Breach]) -> list[Row]:
    """Return how often the intervals held the truth, how wide they are, and the error."""
    rows: list[Row] = []
    for kind in sorted({one.kind for one in known}):
        some = [one for one in known if one.kind == kind]
        held = sum(one.low <= one.truth <= one.high for one in some)
        width = np.median([(one.high - one.low) / max(one.told, 60.0) for one in some])
        error = np.median([abs(one.told - one.truth) / one.truth for one in some])
        rows.append((kind, str(len(some)), share(held, len(some)), f"{width:.0%}", f"{error:.0%}"))
    return rows


def _word(day: Day) -> str:
    """Return what a day was taken for: the right kind where it fires, else what else does."""
    said = [f for moment in day.said for f in moment if f.kind in KINDS and f.state == "firing"]
    mine = [f for f in said if right(day, f)]
    if mine:
        same = [f for f in mine if f.verdict == day.scenario.verdict]
        one = (same or mine)[0]
        return f"{day.scenario.kind} ({one.verdict})"
    return f"{said[0].kind} ({said[0].verdict})" if said else "nothing"


def confusion(days: Mapping[str, Sequence[Day]]) -> str:
    """Return which days were taken for what; a day with nothing said of a decay is unknown."""
    counts: dict[str, Counter[str]] = {}
    score: dict[str, list[str]] = {}
    for some in days.values():
        for day in some:
            truth = day.scenario
            row = "nothing" if truth.negative else f"{truth.kind} ({truth.verdict})"
            word = _word(day)
            counts.setdefault(row, Counter())[word] += 1
            verdict = "right" if word == row else "unknown" if word == "nothing" else "wrong"
            score.setdefault(truth.name, []).append(verdict)
    columns = sorted({word for one in counts.values() for word in one})
    rows = [(row, *(str(one[c] or "") for c in columns)) for row, one in counts.items()]
    shares = {
        word: np.mean([np.mean([v == word for v in one]) for one in score.values()])
        for word in ("right", "unknown", "wrong")
    }
    worst = [
        f"`{name}` {one.count('unknown')} unknown, {one.count('wrong')} wrong of {len(one)}"
        for name, one in score.items() if set(one) != {"right"}
    ]  # fmt: skip
    told = ", ".join(f"{word} {value:.3f}" for word, value in shares.items())
    return f"Mean over scenarios: {told}. Not right: {'; '.join(worst) or 'none'}.\n\n" + table(
        ("truth", *columns), rows
    )
