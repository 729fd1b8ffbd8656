"""What each pool shows: servers, versions, and why a signal has no data there."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from catalog.metric import Metric
from catalog.signal import Signal
from catalog.signals import SIGNALS
from catalog.vllm import VLLM
from reports.doctor.line import Asks, Line, counted, query, several

Place = tuple[str, str]
"""Deployment and pool."""
UNEXPLAINED: Final = ""
_BY: Final = "deployment, pool"
_FAMILIES: Final = f'count by (__name__, {_BY}) ({{__name__=~"vllm:.+"}})'
_RECORDED: Final = (
    f'count by (__name__, {_BY}) ({{__name__=~"(pool|position|server|engine):leadline_.+"}})'
)
_INSTANCES: Final = f"count by ({_BY}, server, vllm_version) (leadline_instance_info)"
_PAGES: Final = f"count by ({_BY}, server) (vllm:num_requests_running)"
_MEMORY: Final = "count by (server) (leadline_process_anonymous_bytes)"
_PARTS: Final = re.compile(r"_(bucket|sum|count)$")
_IS_VLLM: Final = frozenset(metric.name for metric in VLLM)


@dataclass
class _Pool:
    servers: set[str] = field(default_factory=set)
    versions: set[str] = field(default_factory=set)
    families: set[str] = field(default_factory=set)
    recorded: set[str] = field(default_factory=set)


def pools(prometheus: Asks) -> Iterator[Line]:
    """Yield what is seen of each pool, what is not, and why."""
    found: dict[Place, _Pool] = defaultdict(_Pool)
    for labels, _ in (*query(prometheus, _INSTANCES), *query(prometheus, _PAGES)):
        pool = found[_place(labels)]
        pool.servers.add(labels.get("server", ""))
        pool.versions |= {labels["vllm_version"]} if labels.get("vllm_version") else set()
    for labels, _ in query(prometheus, _FAMILIES):
        found[_place(labels)].families.add(_PARTS.sub("", labels["__name__"]))
    for labels, _ in query(prometheus, _RECORDED):
        found[_place(labels)].recorded.add(labels["__name__"])
    if not any(pool.servers for pool in found.values()):
        remedy = "leadline exporter --once on a node shows what it finds there; docs/targets.md"
        yield Line("fail", "pools", "no vLLM server is seen", remedy)
        return
    memory = {labels.get("server", "") for labels, _ in query(prometheus, _MEMORY)}
    for place, pool in sorted(found.items()):
        if pool.servers:
            yield from _pool(place, pool, memory)


def _place(labels: Mapping[str, str]) -> Place:
    return labels.get("deployment", ""), labels.get("pool", "")


def _pool(place: Place, pool: _Pool, memory: set[str]) -> Iterator[Line]:
    deployment, name = place
    about = f"{name or 'no pool'} of {deployment or 'no deployment'}"
    version = f"vLLM {', '.join(sorted(pool.versions))}" if pool.versions else "version not told"
    seen = f"{counted(len(pool.servers), 'server')}, {version}, {len(pool.families)} families"
    if name in ("", "unknown"):
        remedy = "name the pool in leadline.yaml (deployments.NAME.ports) or by --target"
        yield Line("fail", about, f"{seen}: their pool is unknown, so nobody judges them", remedy)
        return
    yield Line("ok", about, seen)
    if without := sorted(pool.servers - memory):
        yield Line("warn", about, f"no process memory of {several(without)}, so no leak is seen",
                   "run an exporter on that host, as root or as vLLM's user")  # fmt: skip
    yield from _missing(about, name, pool)


def _missing(about: str, name: str, pool: _Pool) -> Iterator[Line]:
    """Yield the signals without data in a pool, by reason."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for signal in SIGNALS.values():
        if "pool" in signal.labels and signal.record not in pool.recorded:
            reason = why(signal, name, pool.versions, pool.families)
            if reason is not None:
                reasons[reason].append(signal.name)
    for reason, names in sorted(reasons.items()):
        if reason == UNEXPLAINED:
            families = {m.name for n in names for m in SIGNALS[n].metrics} - pool.families
            said = f"no {several(sorted(families & _IS_VLLM))}, so no {several(names)}"
            remedy = "is it dropped by metric_relabel_configs, or is --disable-log-stats set?"
            yield Line("warn", about, said, remedy)
        else:
            yield Line("ok", about, f"without {several(names, 8)}: {reason}")


def why(signal: Signal, pool: str, versions: set[str], families: set[str]) -> str | None:
    """Return why *signal* has no data in a pool; None where nobody expects it.

    Args:
        signal: Of the catalogue.
        pool: Name of the pool.
        versions: Versions of vLLM in it.
        families: Families of vLLM that it has.

    Returns:
        Words; empty where it should have data.
    """
    ours = [metric for metric in signal.metrics if metric.name in _IS_VLLM]
    if not ours or any(metric.pools and pool not in metric.pools for metric in ours):
        return None
    away = [m for m in ours if not families & {m.name, *m.former}]
    if not away:
        return "nothing happened yet that it counts, or rules are younger than their window"
    told = [_reason(metric, versions) for metric in away]
    return next((reason for reason in told if reason), UNEXPLAINED)


def _reason(metric: Metric, versions: set[str]) -> str:
    """Return why a family is away: the version, what it is only with, or that it comes with use."""
    numbers = [found for found in map(_number, versions) if found]
    if numbers and metric.since and max(numbers) < (_number(metric.since) or ()):
        return f"vLLM has it since {metric.since}"
    if numbers and metric.until and min(numbers) > (_number(metric.until) or ()):
        return f"vLLM had it until {metric.until}"
    if str(metric.gate):
        return f"only with {metric.gate}"
    return "absent until it is first used" if metric.lazy else ""


def _number(version: str) -> tuple[int, int] | None:
    """Return major and minor of `0.32.0`."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None
