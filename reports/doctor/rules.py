"""Whether Prometheus has our rules: all of them, as they are here, once, working and fresh."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from catalog.signals import METRICS
from catalog.units import duration, human_duration
from reports.doctor.line import Asks, Line, counted, several
from store.errors import StoreError

Rule = Mapping[str, Any]
_Key = tuple[str, tuple[tuple[str, str], ...]]
LATE: Final = 4
"""Intervals after which a group of rules is late."""
REMEDY: Final = "leadline rules -o DIR, name DIR/rules/*.yml in rule_files, reload Prometheus"
_TARGET: Final = METRICS["leadline_slo_target"].name


def rules(prometheus: Asks, expected: Sequence[Rule], now: float) -> Iterator[Line]:
    """Yield whether the rules are loaded, work, are fresh, and are those of the configuration.

    Args:
        prometheus: Whom to ask.
        expected: The rules that we would write.
        now: Unix seconds by its clock.

    Raises:
        LookupError, TypeError, ValueError: Its answer is an odd one.
    """
    try:
        groups = prometheus.get("/api/v1/rules")["data"]["groups"]
    except (StoreError, LookupError, TypeError):
        said = f"{prometheus.url} tells no rules"
        remedy = "name the server that evaluates them (vmalert, a ruler) by --prometheus"
        yield Line("unknown", "rules", said, remedy)
        return
    names = {_name(rule) for rule in expected}
    ours = [group for group in groups if any(rule["name"] in names for rule in group["rules"])]
    loaded = [rule for group in ours for rule in group["rules"] if rule["name"] in names]
    if not loaded:
        yield Line("fail", "rules", "none of Leadline's rules is loaded", REMEDY)
        return
    lines = [*_missing(loaded, names), *_broken(loaded), *_other(prometheus, loaded, expected)]
    yield from lines or [Line("ok", "rules", f"{counted(len(loaded), 'rule')} loaded as they are "
                              "written here, none fails")]  # fmt: skip
    yield from _late(ours, now)


def _name(rule: Rule) -> str:
    return str(rule.get("record") or rule.get("alert"))


def _missing(loaded: Sequence[Rule], names: set[str]) -> Iterator[Line]:
    missing = sorted(names - {rule["name"] for rule in loaded})
    if missing:
        said = f"{len(missing)} of {len(names)} are not loaded ({several(missing)})"
        yield Line("fail", "rules", said, REMEDY)


def _broken(loaded: Sequence[Rule]) -> Iterator[Line]:
    for rule in loaded:
        if rule.get("health") == "err":
            yield Line("fail", "rules", f"{rule['name']} fails: {rule.get('lastError', '')[:200]}")


def _other(prometheus: Asks, loaded: Sequence[Rule], expected: Sequence[Rule]) -> Iterator[Line]:
    """Yield what is there otherwise than it would be written, and what is there more than once."""
    held: dict[_Key, list[Rule]] = defaultdict(list)
    for rule in loaded:
        held[_key(rule["name"], rule)].append(rule)
    wanted = {_key(_name(rule), rule): rule for rule in expected}
    yield from _bounds(held, wanted)
    others = sorted({
        key[0] for key, rule in wanted.items()
        if key[0] != _TARGET and key in held
        and not any(_same(prometheus, one, rule) for one in held[key])
    })  # fmt: skip
    if others:
        said = f"{len(others)} are not as this version and configuration write them"
        yield Line("warn", "rules", f"{said} ({several(others)})", REMEDY)
    if twice := sorted({key[0] for key, found in held.items() if len(found) > 1}):
        said = f"{len(twice)} are loaded more than once ({several(twice)})"
        yield Line("warn", "rules", said, "take older files out of rule_files")


def _key(name: str, rule: Rule) -> _Key:
    return name, tuple(sorted(rule.get("labels", {}).items()))


def _same(prometheus: Asks, held: Rule, wanted: Rule) -> bool:
    """Whether two rules say the same; Prometheus writes an expression in its own way."""
    after = duration(wanted["for"]) if "for" in wanted else 0.0
    if float(held.get("duration", 0.0)) != after:
        return False
    first, second = str(held["query"]), str(wanted["expr"])
    if "".join(first.split()) == "".join(second.split()):
        return True
    try:
        texts = [
            prometheus.get("/api/v1/format_query", query=one)["data"] for one in (first, second)
        ]
    except StoreError:
        return True  # a server without it: what it says otherwise may be but written otherwise
    return bool(texts[0] == texts[1])


def _bounds(held: Mapping[_Key, Sequence[Rule]], wanted: Mapping[_Key, Rule]) -> Iterator[Line]:
    """Yield each SLA and limit that Prometheus holds otherwise than the configuration does."""
    for key in sorted(key for key in {*wanted, *held} if key[0] == _TARGET):
        mine = _constant(str(wanted[key]["expr"]) if key in wanted else "")
        theirs = _constant(str(held[key][0]["query"]) if key in held else "")
        if mine != theirs:
            what = " of ".join(text for _, text in reversed(key[1]))
            said = f"{what} is {theirs} in Prometheus' rules, {mine} in the configuration"
            yield Line("warn", "limits", said, REMEDY)


def _constant(expression: str) -> str:
    """Return the number of `vector(0.02)`."""
    text = expression.removeprefix("vector(").removesuffix(")")
    try:
        return f"{float(text):g}"
    except ValueError:
        return text or "not set"


def _late(groups: Sequence[Mapping[str, Any]], now: float) -> Iterator[Line]:
    """Yield whether each group was evaluated of late, within its interval."""
    ages, waiting = [], []
    for group in groups:
        interval, took = float(group["interval"]), float(group.get("evaluationTime", 0.0))
        last = _instant(group.get("lastEvaluation", ""))
        if not last:
            waiting.append(group)
        elif now - last > LATE * interval:
            said = f"{group['name']} was evaluated {human_duration(now - last)} ago"
            yield Line("fail", "freshness", f"{said}, meant every {interval:.0f} s",
                       "look for errors of the rule manager in Prometheus' log")  # fmt: skip
            return
        else:
            ages.append(now - last)
        if took > interval:
            said = f"{group['name']} takes {took:.1f} s of every {interval:.0f} s"
            yield Line("warn", "freshness", said, "give Prometheus more CPU, or a longer interval")
    for group in waiting:
        said = f"{group['name']} was not evaluated yet"
        remedy = f"its turn comes every {float(group['interval']):.0f} s: ask again then"
        yield Line("unknown", "freshness", said, remedy)
    if ages:
        age = human_duration(max(0.0, *ages))
        yield Line("ok", "freshness", f"rules evaluated {age} ago at most")


def _instant(text: str) -> float:
    """Return unix seconds; the epoch for a group that was never evaluated, or not of this form."""
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError):
        return 0.0
