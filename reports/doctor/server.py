"""What Prometheus is asked of itself: that it lives, its clock, what it scrapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from catalog.units import human_duration
from reports.doctor.line import Asks, Line, State, query, several
from store.errors import StoreError

SKEW: Final = 5.0
"""Seconds by which two clocks may differ."""
SKEW_LIES: Final = 60.0
SCRAPE: Final = "add the jobs of README's scrape_configs to prometheus.yml"
_OURS: Final = "leadline_build_info|leadline_instance_info|vllm:num_requests_running"
_JOBS: Final = "leadline.*"


def alive(prometheus: Asks) -> Line:
    """Return whether it answers queries, and its version where it tells one."""
    try:
        query(prometheus, "vector(1)")
    except StoreError as error:
        return Line("fail", "prometheus", str(error), "prometheus.url or --prometheus names it")
    except (LookupError, TypeError, ValueError):
        said = f"{prometheus.url}: answer is not the query API's"
        return Line("fail", "prometheus", said, "is this the base address of a Prometheus?")
    try:
        version = f"version {prometheus.get('/api/v1/status/buildinfo')['data']['version']}"
    except (StoreError, LookupError, TypeError):
        version = "its version is not told"
    return Line("ok", "prometheus", f"{prometheus.url} answers, {version}")


def clock(prometheus: Asks, now: float) -> Line:
    """Return how far its clock is from ours at *now*, when it gave its last answer."""
    if prometheus.date is None:
        return Line("unknown", "clock", "Prometheus' answers bear no date to compare clocks by")
    apart = prometheus.date - now
    if abs(apart) <= SKEW:
        return Line("ok", "clock", f"Prometheus' is within {SKEW:.0f} s of this machine's")
    side = "ahead of" if apart > 0 else "behind"
    said = f"Prometheus' is {human_duration(abs(apart))} {side} this machine's"
    state: State = "fail" if abs(apart) > SKEW_LIES else "warn"
    return Line(state, "clock", said, "let NTP keep both: times of breaches are off by as much")


def targets(prometheus: Asks) -> Iterator[Line]:
    """Yield whether what is scraped for us is up, and what an exporter could not collect."""
    jobs = {one["job"] for one, _ in query(prometheus, _recent()) if one.get("job")}
    known = "|".join([_JOBS, *sorted(_escaped(job) for job in jobs)])
    up = query(prometheus, f'up{{job=~"{known}"}}')
    if not up:
        yield Line("fail", "targets", "no exporter is scraped", SCRAPE)
        return
    why = _last_errors(prometheus)
    for labels, value in up:
        if not value:
            where = (labels.get("job", ""), labels.get("instance", ""))
            said = f"{where[1]} of job {where[0]} is down: {why.get(where, 'no reason told')}"
            yield Line("fail", "targets", said[:400], "runbooks/LeadlineExporterDown.md")
    count = Counter(labels.get("job", "") for labels, value in up if value)
    if count:
        names = ", ".join(f"{number} of job {job}" for job, number in sorted(count.items()))
        yield Line("ok", "targets", f"up: {names}")
    yield from _collectors(prometheus)


def _recent() -> str:
    return f'count by (job) (last_over_time({{__name__=~"{_OURS}"}}[1h]))'


def _escaped(text: str) -> str:
    """Return *text* as it stands in a regular expression in a PromQL string."""
    plain = "".join(c for c in text if c.isprintable())
    return "".join(c if c.isalnum() or c in "_-:/ " else f"\\\\{c}" for c in plain)


def _last_errors(prometheus: Asks) -> dict[tuple[str, str], str]:
    """Return why scrapes failed, by job and instance; nothing where it isn't told."""
    try:
        active = prometheus.get("/api/v1/targets", state="active")["data"]["activeTargets"]
        return {
            (one["labels"].get("job", ""), one["labels"].get("instance", "")): one["lastError"]
            for one in active
            if one.get("lastError")
        }
    except (StoreError, LookupError, TypeError):
        return {}


def _collectors(prometheus: Asks) -> Iterator[Line]:
    """Yield what exporters fail to collect, one line a collector."""
    failed: dict[str, list[str]] = {}
    for labels, _ in query(prometheus, "leadline_collector_success == 0"):
        place = labels.get("server") or labels.get("instance", "")
        failed.setdefault(labels.get("collector", ""), []).append(place)
    for name, places in sorted(failed.items()):
        said = f"collector {name} fails at {several(sorted(places))}"
        yield Line("warn", "collectors", said, "runbooks/LeadlineCollectorFailed.md")
