"""The report as JSON, for programs: keys are added, never renamed, while `schema` stays the same.

All numbers are base units of the signal's `unit`, instants unix seconds, spans seconds, ratios 0 to
1; null is unknown, or doesn't apply. docs/report.md says what each key means:

    schema                  "leadline.report/1"
    verdict, reasons        pass | fail | unknown, and why, the heaviest first
    rules[]                 name, text, outcome (pass | fail | unknown), reasons
    span                    start, end, seconds, step, data_end
    before                  start, end: the span before, of equal length
    fleet                   deployments, shape (as in 4P1D, or "")
    pools[]                 title, labels, servers, stable, drifting, unknown, findings,
                            time_to_limit, nearest_limit (a signal, or null)
    findings[]              exactly as `leadline detect --json` prints them
    signals[]               signal, title, unit, group, labels, part, series, state, why,
                            value, seen, value_before, seen_before, change, change_relative,
                            change_unknown_because, now, slope, slope_low, slope_high (per second),
                            limit, beyond, kept, time_to_limit, judged_from
    absent[]                signal, title, why, metrics
    written, version, source
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

from reports import overview, places
from reports.entry import Row
from reports.gather import Soak
from reports.overview import Pool
from reports.places import Place
from reports.verdict import Summary

SCHEMA: Final = "leadline.report/1"


def render(soak: Soak, summary: Summary, source: str, made: float) -> str:
    """Return the report as JSON."""
    report = as_dict(soak, summary, source, made)
    return json.dumps(report, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def as_dict(soak: Soak, summary: Summary, source: str, made: float) -> dict[str, Any]:
    """Return the report as plain data, see the module."""
    return {
        "schema": SCHEMA,
        "verdict": summary.verdict,
        "reasons": list(summary.reasons),
        "rules": [
            {
                "name": rule.name,
                "text": rule.text,
                "outcome": rule.outcome,
                "reasons": list(rule.reasons),
            }
            for rule in summary.rules
        ],
        "span": {
            "start": soak.start,
            "end": soak.end,
            "seconds": soak.span,
            "step": soak.step,
            "data_end": _number(soak.as_of),
        },
        "before": {"start": soak.before, "end": soak.start},
        "fleet": {
            "deployments": sorted(
                {place.deployment for place in soak.fleet.servers if place.deployment}
            ),
            "shape": soak.fleet.shape,
        },
        "pools": [_pool(one) for one in overview.pools(soak)],
        "findings": [one.to_dict() for one in soak.findings],
        "signals": [_signal(row) for _, rows in overview.sections(soak) for row in rows],
        "absent": [
            {
                "signal": signal.name,
                "title": signal.title,
                "why": why,
                "metrics": [metric.name for metric in signal.metrics],
            }
            for signal, why in soak.absent
            if signal.name in places.SHOWN
        ],
        "written": made,
        "version": overview.release(),
        "source": source,
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _labels(place: Place) -> dict[str, str]:
    named = {name: getattr(place, name) for name in Place.__dataclass_fields__}
    return {name: value for name, value in named.items() if value}


def _pool(pool: Pool) -> dict[str, Any]:
    return {
        "title": pool.place.title,
        "labels": _labels(pool.place),
        "servers": pool.servers,
        "stable": pool.stable,
        "drifting": pool.drifting,
        "unknown": pool.unknown,
        "findings": pool.findings,
        "time_to_limit": _number(pool.left),
        "nearest_limit": pool.nearest or None,
    }


def _signal(row: Row) -> dict[str, Any]:
    numbers, beside = row.numbers, row.beside
    return {
        "signal": row.signal.name,
        "title": row.signal.title,
        "unit": row.signal.unit,
        "group": row.group,
        "labels": _labels(row.place),
        "part": row.detail,
        "series": row.series,
        "state": row.state,
        "why": row.why,
        "value": _number(beside.now.value),
        "seen": beside.now.seen,
        "value_before": _number(beside.before.value),
        "seen_before": beside.before.seen,
        "change": _number(beside.change),
        "change_relative": _number(beside.relative),
        "change_unknown_because": beside.why,
        "now": _number(numbers.now),
        "slope": _number(numbers.slope),
        "slope_low": _number(numbers.slope_low),
        "slope_high": _number(numbers.slope_high),
        "limit": numbers.limit,
        "beyond": None if numbers.limit is None else row.beyond,
        "kept": row.kept,
        "time_to_limit": _number(row.breach_seconds),
        "judged_from": _number(numbers.judged_from),
    }
