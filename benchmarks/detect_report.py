"""The results as Markdown: what was run, on what, and every figure with its interval."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.detect_arena import OURS, Heard
from benchmarks.detect_figures import (
    Alarms,
    Leads,
    alarms,
    intervals,
    joined,
    leads,
    median_bounds,
    together,
    verdicts,
)
from benchmarks.peers.peer import Peer
from catalog.panel import FloatArray

BUDGETS = (0.05, 0.5)


@dataclass
class Run:
    """One run: what it was about, and what every detector said."""

    size: str
    seed: int
    data: bool
    parity: str
    every: float
    sets: list[tuple[str, int, float, int]] = field(default_factory=list)
    heard: dict[str, list[Heard]] = field(default_factory=dict)
    peers: list[Peer] = field(default_factory=list)
    skipped: list[Peer] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    scenarios: list[str] = field(default_factory=list)
    cpu: float = 0.0
    _quiet: dict[tuple[str, int], Alarms] = field(default_factory=dict, repr=False)
    _caught: dict[tuple[str, int, str], Leads] = field(default_factory=dict, repr=False)

    def kinds(self, *, leak: bool) -> list[str]:
        """Return the names of the cases with, or without, a leak."""
        return list(dict.fromkeys(h.case.name for h in self.heard[OURS] if h.case.leak == leak))

    def one(self, name: str, kind: str) -> Heard:
        """Return what a detector said about a case."""
        return next(h for h in self.heard[name] if h.case.name == kind)

    def published(self, name: str) -> int:
        """Return the number of the published setting of a detector."""
        return next((p.grid.index(p.default) for p in self.peers if p.name == name), 0)

    def quiet(self, name: str, setting: int) -> Alarms:
        """Return the false alarms of a detector over all kinds of series without a leak."""
        if (name, setting) not in self._quiet:
            several = [alarms(h, setting) for h in self.heard[name] if not h.case.leak]
            self._quiet[name, setting] = together(several)
        return self._quiet[name, setting]

    def caught(self, name: str, setting: int, kind: str = "") -> Leads:
        """Return the leads of a detector over the leaks whose name begins with *kind*."""
        if (name, setting, kind) not in self._caught:
            several = [leads(h, setting) for h in self.heard[name]
                       if h.case.leak and h.case.name.startswith(kind)]  # fmt: skip
            self._caught[name, setting, kind] = joined(several)
        return self._caught[name, setting, kind]

    def within(self, name: str, budget: float) -> int | None:
        """Return the setting with the largest mean lead among those within a budget, or None."""
        settings = range(len(self.heard[name][0].fires))
        allowed = [s for s in settings if self.quiet(name, s).rate <= budget]
        return max(allowed, key=lambda s: self.caught(name, s).mean_share, default=None)


def report(run: Run, out: Path | None) -> str:
    """Return the results of *run*; plots are laid beside *out*."""
    parts = [
        "# How early and how quiet: Leadline beside other detectors",
        "Written by `make bench-detect`; not edited by hand.",
        _about(run),
        _glance(run),
        _budgets(run),
        _plots(run, out),
        _quiet_kinds(run),
        _leak_kinds(run),
        *(_leak_matrix(run, budget) for budget in BUDGETS),
        _verdicts(run),
        _intervals(run),
        *run.scenarios,
        _settings(run),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def _about(run: Run) -> str:
    """Return what was run on what."""
    data = (
        f"{run.parity}-numbered hosts of the real sets, on which nothing was tuned"
        if run.data and run.parity == "odd"
        else f"{run.parity} hosts of the real sets"
        if run.data
        else "**seeded noise alone: no `--data` was given, so nothing here is about real noise**"
    )
    if not run.data and run.parity:
        data += " (AR(.8) by the minute with a slow wander of 1 GiB)"
    sets = "; ".join(
        f"{name}: {series} series of {days:.0f} days in {cases} case{'s' if cases > 1 else ''}"
        for name, series, days, cases in run.sets
    )
    lines = [
        f"- Run: {datetime.now(UTC):%Y-%m-%d}, size `{run.size}`, seed {run.seed}, "
        f"{run.cpu / 60:.0f} CPU minutes on a machine of {os.cpu_count()} cores.",
        f"- Data: {data}. {sets}. Hosts are taken evenly spread from those of the split, so that "
        "a run takes minutes; a dear peer is asked about the first of them alone (column series).",
        f"- Every detector is asked at the same moments, every {run.every:g} h from the third day "
        "on, and sees nothing later. Place: 100 GiB, half full.",
        "- False alarms are episodes: at most one a day and series, so 7 a week is always on. "
        "Brackets are 95 % intervals: Poisson, binomial, or bootstrap over series. A missed leak "
        "has lead 0.",
        *(f"- {line}" for line in run.checks),
    ]
    if run.skipped:
        names = ", ".join(f"{p.name} (no module {p.package})" for p in run.skipped)
        lines.append(f"- Skipped: {names}: `pip install -e '.[bench]'`.")
    return "\n".join(lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, its first column to the left."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


def _glance(run: Run) -> str:
    rows = [_summary(run, name, run.published(name)) for name in run.heard]
    return "## At published settings\n\n" + table(_SUMMARY, rows)


_SUMMARY = ("detector", "series", "false alarms a series-week", "recall of all leaks",
            "lead of 12 h", "of 48 h", "of 120 h", "mean share left",
            "CPU ms a series and judgement")  # fmt: skip


def _summary(run: Run, name: str, setting: int) -> list[str]:
    """Return one line about a detector at one setting."""
    heard = run.heard[name]
    cpu = 1e3 * sum(h.cpu for h in heard) / max(sum(h.judged for h in heard), 1)
    if len(heard[0].fires) > 1 and not _by_score(run, name):
        cpu /= len(heard[0].fires)
    every = run.caught(name, setting)
    series = str(heard[0].fires.shape[1])
    left = [_median(run.caught(name, setting, f"leak of {h} h").lead, run.seed)
            for h in (12, 48, 120)]  # fmt: skip
    return [_bold(name), series, _rate(run.quiet(name, setting)), _recall(every), *left,
            f"{every.mean_share:.0%}", f"{cpu:.2f}"]  # fmt: skip


def _by_score(run: Run, name: str) -> bool:
    """Return whether one pass serves all settings of a peer, so that its cost is not shared."""
    return next((p.one_pass for p in run.peers if p.name == name), True)


def _budgets(run: Run) -> str:
    """Return what each detector achieves within the same false-alarm budgets."""
    parts = [
        "## Swept to equal false-alarm budgets",
        "Of the settings tried, the one with the most lead within the budget. It is chosen on "
        "these very series, which favours the peers; Leadline is as it is shipped.",
    ]
    for budget in BUDGETS:
        rows = []
        for name in run.heard:
            setting = run.within(name, budget)
            if setting is None:
                rows.append([_bold(name), "none within it", *("" for _ in _SUMMARY[1:])])
                continue
            at = "as shipped" if name == OURS else f"{_grid(run, name)[setting]:g}"
            rows.append([_bold(name), at, *_summary(run, name, setting)[1:]])
        parts.append(f"### At most {budget:g} a series-week")
        parts.append(table((_SUMMARY[0], "setting", *_SUMMARY[1:]), rows))
    return "\n\n".join(parts)


def _grid(run: Run, name: str) -> tuple[float, ...]:
    return next((p.grid for p in run.peers if p.name == name), (0.0,))


def _plots(run: Run, out: Path | None) -> str:
    if out is None:
        return ""
    from benchmarks.detect_plot import budget_plot, kinds_plot  # noqa: PLC0415 - only if written

    name = out.stem.lower()
    budget_plot(run, out.with_name(f"{name}_budget.svg"))
    kinds_plot(run, BUDGETS[0], out.with_name(f"{name}_lead.svg"))
    return (f"![Lead against false alarms]({name}_budget.svg)\n\n"
            f"![Lead by kind of leak]({name}_lead.svg)")  # fmt: skip


def _quiet_kinds(run: Run) -> str:
    rows = []
    for kind in run.kinds(leak=False):
        row = [kind]
        for name in run.heard:
            found = alarms(run.one(name, kind), run.published(name))
            low, high = found.bounds
            row.append(f"{found.rate:.2f} [{low:.2f}, {high:.2f}]")
        rows.append(row)
    return ("## False alarms a series-week, by kind of quiet series, at published settings\n\n"
            + table(("kind", *run.heard), rows))  # fmt: skip


def _leak_kinds(run: Run) -> str:
    """Return every kind of leak with every detector, at published settings."""
    head = ("kind", "detector", "recall", "delay, median", "delay, 90th percentile",
            "lead in hours, median", "share left, median")  # fmt: skip
    rows = []
    for kind in run.kinds(leak=True):
        for name in run.heard:
            found = leads(run.one(name, kind), run.published(name))
            rows.append([kind, _bold(name), *_caught(found, run.seed)])
    return (
        "## Leaks by kind, at published settings\n\nDelays are of those found; a missed one has "
        "lead 0.\n\n" + table(head, rows)
    )


def _leak_matrix(run: Run, budget: float) -> str:
    """Return recall and median lead of every kind of leak within a budget."""
    names = [name for name in run.heard if run.within(name, budget) is not None]
    rows = []
    for kind in run.kinds(leak=True):
        row = [kind]
        for name in names:
            found = leads(run.one(name, kind), run.within(name, budget) or 0)
            lead = float(np.median(np.nan_to_num(found.lead))) if len(found.lead) else float("nan")
            row.append(f"{found.recall[0]:.2f}, {_number(lead)} h")
        rows.append(row)
    return (
        f"## Leaks by kind, within {budget:g} false alarms a series-week\n\nRecall and median "
        "lead.\n\n" + table(("kind", *names), rows)
    )


def _caught(found: Leads, seed: int) -> list[str]:
    """Return recall, delays, lead and share."""
    if not found.caught:
        return [_recall(found), "-", "-", "0", "0%"]
    delays = found.delay[np.isfinite(found.delay)]
    share = float(np.median(np.nan_to_num(found.share)))
    return [_recall(found), f"{np.median(delays):.1f} h", f"{np.quantile(delays, 0.9):.1f} h",
            _median(found.lead, seed), f"{share:.0%}"]  # fmt: skip


def _verdicts(run: Run) -> str:
    """Return how well each kind was told apart by those who give a verdict: Leadline alone."""
    rows, right, unknown, wrong = [], [], [], []
    for heard in run.heard[OURS]:
        told = verdicts(heard)
        if told is None:
            continue
        rows.append([heard.case.name, f"{told.right:.2f}", f"{told.unknown:.2f}",
                     f"{told.wrong:.2f}"])  # fmt: skip
        right.append(told.right)
        unknown.append(told.unknown)
        wrong.append(told.wrong)
    rows.append(["**mean over kinds**", *(f"{np.mean(v):.2f}" for v in (right, unknown, wrong))])
    return (
        "## Verdicts\n\nLeadline alone gives any. A leak is read three quarters of the way to the "
        "breach; a quiet series must never fire, and warm-up be called that at some moment.\n\n"
        + table(("kind", "right", "unknown", "wrong"), rows)
    )


def _intervals(run: Run) -> str:
    """Return how right the intervals are of those who give any."""
    head = ("detector", "judgements", "held the truth", "median width / estimate", "median error")
    rows = []
    for name in run.heard:
        leaks = [h for h in run.heard[name] if h.case.leak]
        sure = intervals(leaks, run.published(name))
        if sure is not None and sure.count:
            rows.append([_bold(name), str(sure.count), f"{sure.cover:.0%}", f"{sure.width:.0%}",
                         f"{sure.error:.0%}"])  # fmt: skip
    return (
        "## 90 % intervals of the time to breach\n\nOf all judgements that fired while a leak was "
        "on its way; others give none.\n\n" + table(head, rows)
    )


def _settings(run: Run) -> str:
    """Return what every peer was set to, and whose it is."""
    rows = []
    for p in (*run.peers, *run.skipped):
        swept = f"{p.swept}: {', '.join(f'{g:g}' for g in p.grid)}"
        rows.append([p.name, p.settings, swept, p.source])
    return "## Settings\n\n" + table(("peer", "as published", "swept", "source"), rows)


def _rate(found: Alarms) -> str:
    low, high = found.bounds
    return f"{found.rate:.3f} [{low:.3f}, {high:.3f}]"


def _recall(found: Leads) -> str:
    recall, low, high = found.recall
    return f"{recall:.2f} [{low:.2f}, {high:.2f}]"


def _median(lead: FloatArray, seed: int) -> str:
    middle, low, high = median_bounds(np.nan_to_num(lead), seed)
    return f"{middle:.1f} [{low:.1f}, {high:.1f}]" if np.isfinite(middle) else "-"


def _number(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else "-"


def _bold(name: str) -> str:
    return f"**{name}**" if name == OURS else name
