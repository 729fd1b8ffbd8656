"""Which series can be judged, and why the others cannot: unknown is an answer, never healthy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from catalog.panel import FloatArray, Labels, Panel
from detectors.drift.buckets import (
    FEWEST,
    MOVED,
    RESTART_SHARE,
    BoolArray,
    segment_start,
)
from detectors.finding import Finding, finding_id

POOL_LABELS = ("cluster", "namespace", "deployment", "pool", "model_name")
STALE_STEPS = 5  # as Prometheus' own staleness at one minute: five missed scrapes
GLANCE = 3 * FEWEST  # newest points that a glance is given to
QUIET = 3600.0  # seconds without a trial that are a quiet night, not a ratio that stopped
NEED_NOT_TRY = ("prefill", "encode", "router")  # pools with counters of drafts that never draft


def stopped(panel: Panel, row: int, as_of: float) -> bool:
    """Whether a series has no sample, or had its last too long before *as_of*."""
    seen = np.flatnonzero(np.isfinite(panel.values[row]))
    return not len(seen) or bool(as_of - panel.times[seen[-1]] > STALE_STEPS * panel.step)


@dataclass(frozen=True)
class Coverage:
    """What is known of each series of a panel at one moment.

    Attributes:
        reasons: Series by series: "" when judged, else "short", "stale", "empty", or, where
            trials are counted: "untried" with none in the whole span, "idle" with none of late.
        judged_from: Where it is not: the instant from which the running incarnation can be; NaN
            where nothing is known, or that is long ago.
    """

    reasons: tuple[str, ...]
    judged_from: tuple[float, ...]

    @property
    def judged(self) -> int:
        """Number of series that are judged."""
        return sum(reason == "" for reason in self.reasons)


def coverage(panel: Panel, as_of: float) -> Coverage:
    """Return which series of *panel* have enough fresh data to be judged at *as_of*."""
    known = panel.until(as_of)
    step = known.step
    reasons, since = [""] * len(known.labels), [float("nan")] * len(known.labels)
    for row in np.flatnonzero(~surely(known, as_of)).tolist():
        values = known.values[row]
        trials = None if known.trials is None else known.trials[row]
        sampled = np.flatnonzero(np.isfinite(values if trials is None else trials))
        # A step without a trial says nothing of the ratio: only the others are looked at.
        seen = np.flatnonzero(np.isfinite(values) & (True if trials is None else trials > 0))
        if not len(seen):
            reasons[row] = "untried" if trials is not None and len(sampled) else "empty"
            continue
        starts = None if known.starts is None else known.starts[row]
        # Counts are corrected for restarts: they have no incarnation to begin anew with.
        begin = segment_start(values, starts) if trials is None else 0
        inside = seen[seen >= begin]
        enough = len(inside) >= FEWEST
        since[row] = float(known.times[inside[0]]) + (FEWEST - 1) * (step if step > 0 else 0.0)
        stale = as_of - known.times[sampled[-1]] > STALE_STEPS * step
        idle = as_of - known.times[seen[-1]] > max(QUIET, STALE_STEPS * step)
        if stale or idle:
            reasons[row] = "stale" if stale else "idle"
        else:
            reasons[row] = "" if enough else "short"
    return Coverage(tuple(reasons), tuple(since))


def surely(panel: Panel, as_of: float) -> BoolArray:
    """Return (s,): the series that are judged, as far as a glance at their newest points tells.

    Enough of them are there, and no restart is among them: by start times that are known of all of
    them, or, where none is, by a level that never halves (`buckets.segments`).
    """
    none = np.zeros(len(panel.labels), dtype=np.bool_)
    if not len(panel.times) or as_of - panel.times[-1] > panel.step:
        return none
    values = panel.values[:, -GLANCE:]
    seen = np.isfinite(values)
    if panel.trials is not None:
        seen &= panel.trials[:, -GLANCE:] > 0
    fine: BoolArray = seen[:, -STALE_STEPS:].any(axis=1) & (seen.sum(axis=1) >= FEWEST)
    if panel.trials is not None:
        return fine
    told: BoolArray = none
    if panel.starts is not None:
        starts = panel.starts[:, -GLANCE:]
        known = np.isfinite(starts)
        told = np.any(known, axis=1)
        first, last = _ends(starts, known)
        fine = fine & (~told | ((last - first <= MOVED) & (known | ~seen).all(axis=1)))
    rest = np.flatnonzero(fine & ~told)
    low, high = _ends(values[rest], seen[rest])
    fine[rest] = low >= RESTART_SHARE * high
    return fine


def _ends(values: FloatArray, known: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return the least and the greatest of what is known of each row."""
    return (
        np.min(values, axis=1, initial=np.inf, where=known),
        np.max(values, axis=1, initial=-np.inf, where=known),
    )


def silent(panel: Panel, as_of: float) -> Panel:
    """Return the series of those pools of which, at a glance, none has enough fresh data.

    *panel* holds nothing later than *as_of*. A glance at the newest points of all series at once:
    in life they are all there, and nothing is left to look at.
    """
    lately = np.isfinite(panel.values[:, -GLANCE:])
    if panel.trials is not None:
        lately &= panel.trials[:, -GLANCE:] > 0
    fine = lately[:, -STALE_STEPS:].any(axis=1) & (lately.sum(axis=1) >= FEWEST)
    if not len(panel.times) or as_of - panel.times[-1] > 2 * panel.step:
        return panel
    if fine.all():
        return panel.rows([])
    keys = [tuple((k, labels.get(k, "")) for k in POOL_LABELS) for labels in panel.labels]
    known = {key for key, good in zip(keys, fine, strict=True) if good}
    return panel.rows([row for row, key in enumerate(keys) if key not in known])


def unknown_findings(panel: Panel, as_of: float, detector: str) -> list[Finding]:
    """Return one finding for each pool of which no series can be judged.

    Prefill that never drafts has nothing to judge and gets none; decode that never does has one.
    """
    if surely(panel.until(as_of), as_of).all():
        return []
    cover = coverage(panel, as_of)
    pools: dict[tuple[tuple[str, str], ...], list[int]] = defaultdict(list)
    for row, labels in enumerate(panel.labels):
        if cover.reasons[row] == "untried" and labels.get("pool") in NEED_NOT_TRY:
            continue
        pools[tuple((k, labels[k]) for k in POOL_LABELS if labels.get(k))].append(row)
    return [
        _unknown(panel, dict(key), rows, cover, as_of, detector)
        for key, rows in pools.items()
        if not any(cover.reasons[row] == "" for row in rows)
    ]


def _unknown(
    panel: Panel, labels: Labels, rows: list[int], cover: Coverage, as_of: float, detector: str
) -> Finding:
    """Return the finding that says a pool could not be judged, and from when it can be."""
    why = {cover.reasons[row] for row in rows}
    when = [cover.judged_from[row] for row in rows if cover.reasons[row] == "short"]
    judged_from = min(when) if when else None
    text = _why(why, panel.signal)
    evidence: Mapping[str, object] = {
        "series": len(rows),
        "reasons": sorted(why),
        "judged_from": judged_from,
    }
    return Finding(
        id=finding_id(detector, panel.signal, labels, 0.0),
        kind="unknown",
        verdict="unknown",
        detector=detector,
        signal=panel.signal,
        labels=dict(labels),
        as_of=as_of,
        state="watch",
        cause=text,
        evidence=evidence,
        runbook="LeadlineUnknown",
    )


def _why(reasons: set[str], signal: str) -> str:
    """Return one sentence for why *signal* cannot be judged."""
    if reasons == {"empty"}:
        return f"{signal} has no data here, so nothing can be said about it."
    if reasons == {"untried"}:
        return f"{signal} counts no trial here at all: no traffic, or what it counts is off."
    if reasons == {"idle"}:
        return f"{signal} counted no trial for over an hour: no traffic, or what it counts stopped."
    if "short" in reasons:
        return f"{signal} has too little data since the last start to be judged ({FEWEST} points)."
    return f"{signal} has no recent data: its series stopped, so it is not known to be healthy."
