"""Plots of the results: lead against false alarms over each sweep, and lead by kind of leak."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from benchmarks.detect_arena import OURS
from benchmarks.detect_figures import leads

if TYPE_CHECKING:
    from benchmarks.detect_report import Run

LEAST = 0.003  # where none is drawn, on a logarithmic axis
OUR_COLOUR = "#c2410c"


def budget_plot(run: Run, path: Path) -> None:
    """Draw the mean share of lead of all leaks against false alarms, a line for each sweep."""
    figure = Figure(figsize=(8.5, 5.2), layout="constrained")
    axes = figure.subplots()
    colours = mpl.colormaps["tab20"]
    for i, name in enumerate(name for name in run.heard if name != OURS):
        points = sorted(
            (max(run.quiet(name, s).rate, LEAST), run.caught(name, s).mean_share)
            for s in range(len(run.heard[name][0].fires))
        )
        axes.plot(*zip(*points, strict=True), ".-", color=colours(i % 20), label=name, lw=1)
        at = run.published(name)
        axes.plot(max(run.quiet(name, at).rate, LEAST), run.caught(name, at).mean_share, "o",
                  color=colours(i % 20), mfc="none", ms=9)  # fmt: skip
    axes.plot(max(run.quiet(OURS, 0).rate, LEAST), run.caught(OURS, 0).mean_share, "*",
              color=OUR_COLOUR, ms=17, label=OURS)  # fmt: skip
    for budget in (0.05, 0.5):
        axes.axvline(budget, color="0.8", lw=1, zorder=0)
    axes.set(xscale="log", ylim=(0, 1), xlabel="false alarms a series-week (7: always on)",
             ylabel="mean share of the way left when it fires")  # fmt: skip
    axes.set_title("Up and to the left is better; rings are the settings as published", size=10)
    axes.legend(fontsize=7, ncols=2, loc="upper left")
    _save(figure, path)


def kinds_plot(run: Run, budget: float, path: Path) -> None:
    """Draw the median share of lead by kind of leak, within one budget."""
    kinds = list(dict.fromkeys(h.case.name for h in run.heard[OURS] if h.case.leak))
    names = [name for name in run.heard if run.within(name, budget) is not None]
    shares = np.array([[_share(run, name, kind, budget) for kind in kinds] for name in names])
    figure = Figure(figsize=(8.5, 0.34 * len(names) + 2.6), layout="constrained")
    axes = figure.subplots()
    if shares.size:
        axes.imshow(shares, vmin=0, vmax=1, cmap="YlGn", aspect="auto")
        for (row, column), share in np.ndenumerate(shares):
            axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", size=7)
    axes.set_xticks(range(len(kinds)), kinds, rotation=40, ha="right", size=7)
    axes.set_yticks(range(len(names)), names, size=8)
    axes.set_title(f"Median share of the way left, %, within {budget:g} false alarms a "
                   "series-week", size=10)  # fmt: skip
    _save(figure, path)


def _share(run: Run, name: str, kind: str, budget: float) -> float:
    setting = run.within(name, budget)
    heard = next(h for h in run.heard[name] if h.case.name == kind)
    shares = np.nan_to_num(leads(heard, setting or 0).share)
    return float(np.median(shares)) if len(shares) else 0.0


def _save(figure: Figure, path: Path) -> None:
    """Write an SVG that is the same for the same figures."""
    with mpl.rc_context({"svg.hashsalt": "leadline", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
