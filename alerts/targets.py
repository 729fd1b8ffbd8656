"""Alerts on what is watched: servers, whole pools, exporters, and what they can't read."""

from __future__ import annotations

from typing import Final

from alerts.rule import Alert, where
from catalog import promql
from catalog.config import Config
from catalog.labels import LEVELS
from catalog.signals import METRICS, UP

GROUP: Final = "leadline-targets"

OWN_JOBS: Final = 'job=~".*leadline.*"'
"""Our exporters and service: the name of their scrape job holds `leadline`."""

_SERVER: Final = LEVELS["server"]
# A server that is down doesn't tell its model.
_POOL: Final = ("cluster", "namespace", "deployment", "pool")
_ENGINE: Final = ("cluster", "server", "engine")
_TARGET: Final = METRICS["leadline_target_up"].name
_SIZE: Final = METRICS["leadline_instance_data_parallel_size"].name
_EXPECTED: Final = METRICS["leadline_instance_engines_expected"].name
_RANKS: Final = (*_POOL, "group")
_RUNNING: Final = METRICS["vllm:num_requests_running"].name


def _by(labels: tuple[str, ...]) -> str:
    return f"by ({', '.join(labels)})"


def _answers(labels: tuple[str, ...]) -> str:
    """Return 1 or 0 by *labels*: whether a page was read lately, by our exporter or directly.

    Five minutes bridge the gaps of a server that crashes again and again.
    """
    return (
        f"(max {_by(labels)} (max_over_time({_TARGET}[5m])) or "
        f'max {_by(labels)} (max_over_time({UP.name}{{server!=""}}[5m])))'
    )


def _seen(more: str = "", window: str = "") -> str:
    """Return the sign of life of every server, by our exporter or directly."""
    span = f"[{window}]" if window else ""
    direct = promql.selector(UP.name, ", ".join(part for part in ('server!=""', more) if part))
    both = (f"{promql.selector(_TARGET, more)}{span}", f"{direct}{span}")
    return " or ".join(f"max_over_time({one})" if window else one for one in both)


def _pool_gone() -> str:
    rest = _POOL[:-1]
    pairs = _seen('pool=~"prefill|decode"', "3h")
    had = f"max {_by(_POOL)} ({pairs}) > 0"
    there = f"on ({', '.join(rest)}) group {_by(rest)} ({_seen()})"
    return f"{had} unless group {_by(_POOL)} ({_seen()}) and {there}"


def _scraped_twice() -> str:
    # Counting targets first: the pid series of one page are no second scrape. Two scrapes may
    # disagree on the pool; server and engine are what they have in common.
    jobs = f'count {_by((*_ENGINE, "job", "instance"))} ({_RUNNING}{{server!=""}})'
    return f"count {_by(_ENGINE)} ({jobs}) > 1"


def _ranks_missing() -> str:
    """Return how many ranks of a data-parallel group no page shows, though some do.

    By the size that its servers were started with: a rank that has gone altogether, with its
    server and its node, leaves no series to miss it by. The server of a single rank that answers
    has that rank, also before it served anything (the Rust front end) and without statistics.
    """
    seen = f'group {_by(_ENGINE)} ({_RUNNING}{{server!=""}})'
    single = f"max by (cluster, server) ({_EXPECTED}) == 1"
    answers = f"max by (cluster, server) ({_seen()}) == 1"
    pages = f"(count by (cluster, server) ({seen}) or ({single} and {answers}))"
    here = f"0 * {_SIZE} + on (cluster, server) group_left () {pages}"
    return f"max {_by(_RANKS)} ({_SIZE}) - on ({', '.join(_RANKS)}) sum {_by(_RANKS)} ({here}) > 0"


def alerts(_: Config) -> tuple[Alert, ...]:
    """Return the alerts of this module."""
    # Loading a large model takes minutes; `for` is longer, so that a rollout stays silent.
    down = "A vLLM server doesn't answer."
    return (
        Alert(
            "LeadlineTargetDown", "page",
            f"{_answers(_SERVER)} == 0 and on ({', '.join(_POOL)}) {_answers(_POOL)} == 0",
            down,
            "No server of this pool has given its metrics page for 15 minutes, this one included "
            f"(limit 15 min{where(*_SERVER)}).",
            wait="10m", group=GROUP,
        ),
        Alert(
            "LeadlineTargetDown", "ticket", f"{_answers(_SERVER)} == 0", down,
            f"It has not given its metrics page for 20 minutes (limit 20 min{where(*_SERVER)}).",
            wait="15m", group=GROUP,
        ),
        Alert(
            "LeadlinePoolGone", "page", _pool_gone(),
            "A whole pool of a deployment has vanished while the rest of it is there.",
            "No server of this pool has been seen for 10 minutes, though one answered "
            f"within the last 3 hours (limit 10 min{where(*_POOL)}).",
            wait="10m", group=GROUP,
        ),
        Alert(
            "LeadlineRankMissing", "ticket", _ranks_missing(),
            "Ranks of a data-parallel group are missing.",
            'No page has shown {{ $value | printf "%.0f" }} of the ranks that the group should '
            f"have for 15 minutes (limit 15 min{where(*_RANKS)}).",
            wait="15m", group=GROUP,
        ),
        Alert(
            "LeadlineExporterDown", "ticket",
            f"min by (cluster, job, instance) ({UP.name}{{{OWN_JOBS}}}) == 0",
            "Prometheus can't scrape an exporter or the service of Leadline.",
            "It has not answered for 10 minutes, so nothing on it is watched (limit 10 min"
            f"{where('cluster', 'job', 'instance')}).",
            wait="10m", group=GROUP,
        ),
        Alert(
            "LeadlineCollectorFailed", "ticket",
            "min by (cluster, instance, collector, server) "
            f"({METRICS['leadline_collector_success'].name}) == 0",
            "One collector of an exporter fails; the rest of its page is there.",
            "The collector {{ $labels.collector }} has failed for 10 minutes (limit 10 min"
            f"{where('cluster', 'instance', 'server')}).",
            wait="10m", group=GROUP,
        ),
        Alert(
            "LeadlineScrapedTwice", "ticket", _scraped_twice(),
            "One engine is scraped under two jobs, so that sums count it twice.",
            '{{ $value | printf "%.0f" }} scrape targets give the same engine (limit 1'
            f"{where(*_ENGINE)}).",
            wait="10m", group=GROUP,
        ),
        Alert(
            "LeadlinePoolUnknown", "report",
            f"max {_by(_SERVER)} (" + _seen('pool="unknown"') + ") == 1",
            "A server's pool is unknown, so Leadline doesn't judge it.",
            "Neither the configuration nor its command line has told its pool for 1 hour (limit "
            f"1 h{where(*_SERVER)}).",
            wait="1h", group=GROUP,
        ),
    )  # fmt: skip
