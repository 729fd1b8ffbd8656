"""A finding: one slow change, with its size, the time left and why we believe it.

The keys are an interface that other programs rely on (`--json`, API, ledger): add, never rename.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal, get_args

Kind = Literal[
    "leak",
    "falling",
    "creep",
    "forecast",
    "rollout",
    "straggler",
    "spin_wait",
    "step_cost",
    "draft_depth",
    "stage",
    "tier",
    "transfer",
    "balance",
    "lease",
    "cold_start",
    "mixed_batch",
    "graph_fallback",
    "parity",
    "known_bug",
    "unknown",
]
Verdict = Literal[
    "leak", "warm_up", "step", "season", "restart", "new_traffic", "drift", "fault", "unknown"
]
Severity = Literal["page", "ticket", "report"]
State = Literal["watch", "firing", "ended"]

_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "kind": get_args(Kind),
        "verdict": get_args(Verdict),
        "severity": get_args(Severity),
        "state": get_args(State),
    }
)


def finding_id(detector: str, signal: str, identity: Mapping[str, str], start: float) -> str:
    """Return the id of a finding: a hash of detector, signal, identity and start.

    The start is what separates two findings on one series: the start of the incarnation (or of the
    segment) that is judged, not the estimated onset, which moves as data comes in.
    """
    named = sorted((key, value) for key, value in identity.items() if value)
    text = json.dumps([detector, signal, named, int(start)], ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Finding:
    """One slow change of one signal at one identity.

    Attributes:
        id: Hash of detector, signal, identity and start (`finding_id`).
        kind: What sort of change.
        verdict: What it was told to be, against the shapes it competed with.
        detector: Name of the detector that found it.
        signal: Catalogue name of the signal.
        labels: The identity it was found at.
        as_of: Unix seconds of the newest data it rests on.
        since: Unix seconds of the estimated onset, or None.
        effect: Size of the change in `effect_unit`, or None.
        effect_low: Lower end of the 90 % interval of the effect.
        effect_high: Upper end of the 90 % interval of the effect.
        effect_unit: Such as "bytes/hour" or "1/hour".
        limit: The limit, floor or SLA in the unit of the signal, or None.
        time_to_breach: Seconds from `as_of` until the limit is met, or None.
        time_to_breach_low: The soonest end of its 90 % interval.
        time_to_breach_high: The latest end of its 90 % interval; None if it may never come.
        severity: page, ticket or report, by the time left.
        state: watch (not sure yet), firing, or ended.
        cause: One sentence for the person who reads the page.
        evidence: JSON-able details: fit, points, what was rejected and how clearly.
        runbook: Name of the alert whose runbook applies.
    """

    id: str
    kind: Kind
    verdict: Verdict
    detector: str
    signal: str
    labels: Mapping[str, str]
    as_of: float
    since: float | None = None
    effect: float | None = None
    effect_low: float | None = None
    effect_high: float | None = None
    effect_unit: str = ""
    limit: float | None = None
    time_to_breach: float | None = None
    time_to_breach_low: float | None = None
    time_to_breach_high: float | None = None
    severity: Severity = "report"
    state: State = "watch"
    cause: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    runbook: str = ""

    def __post_init__(self) -> None:
        for name, words in _WORDS.items():
            if getattr(self, name) not in words:
                raise ValueError(f"finding: {name} {getattr(self, name)!r} is none of {words}")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-able values under the contract's keys; numbers not known are null."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Finding:
        """Return the finding that `to_dict` wrote; keys that we don't know are ignored."""
        known = {f.name for f in fields(cls)}
        return cls(**{key: value for key, value in data.items() if key in known})


def _plain(value: Any) -> Any:
    """Return *value* as JSON knows it: no NaN or infinity, no numpy scalars, no tuples."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
