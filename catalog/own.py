"""Metrics that nobody upstream measures: ours, beginning with `leadline_`."""

from __future__ import annotations

from typing import Final

from catalog.labels import LEVELS
from catalog.metric import Metric
from catalog.own_logs import LOGS
from catalog.own_node import CONTAINER, GPU, HOST, PROCESS
from catalog.own_probe import PROBE
from catalog.own_targets import TARGETS

__all__ = ["CONTAINER", "EXPORTER", "GPU", "HOST", "LOGS", "OWN", "PROBE", "PROCESS", "SERVICE"]

_COLLECTOR: Final = ("collector", "server")
EXPORTER: Final[tuple[Metric, ...]] = (
    *TARGETS,
    Metric("leadline_collector_success", "gauge", "count",
           "Whether the collector's last run succeeded: 1 or 0.", _COLLECTOR),
    Metric("leadline_collector_duration_seconds", "gauge", "seconds",
           "Time of the collector's last run.", _COLLECTOR),
    Metric("leadline_dropped_lines_total", "counter", "count",
           "Lines of a vLLM page that were not passed on, by reason.", ("server", "reason")),
    Metric("leadline_dropped_pages_total", "counter", "count",
           "Pages of a target that were dropped: larger than exporter.max_page, or all pages at "
           "once would have taken more memory than exporter.page_budget.", ("server",)),
    Metric("leadline_closed_connections_total", "counter", "count",
           "Connections that the exporter closed before a client had its whole answer, by reason.",
           ("reason",)),
    Metric("leadline_build_info", "gauge", "count", "Version of the exporter; always 1.",
           ("version",)),
)  # fmt: skip

_FINDING: Final = (*LEVELS["process"], "kind", "detector", "signal", "severity", "state")
SERVICE: Final[tuple[Metric, ...]] = (
    Metric("leadline_slo_target", "gauge", "count",
           "Service level or limit of a signal, in the signal's unit.",
           ("signal", "deployment", "model_name")),
    Metric("leadline_finding_effect", "gauge", "count", "Effect of a finding in its unit.",
           _FINDING),
    Metric("leadline_finding_time_to_breach_seconds", "gauge", "seconds",
           "Time that a finding predicts to be left; absent when unknown.", _FINDING),
    Metric("leadline_finding_state", "gauge", "count", "One per finding of the last cycle.",
           _FINDING),
    Metric("leadline_detector_last_cycle_timestamp_seconds", "gauge", "seconds",
           "When the last complete cycle ended."),
    Metric("leadline_detector_cycle_seconds", "gauge", "seconds", "Time of the last cycle."),
    Metric("leadline_detector_series", "gauge", "count", "Series by signal, judged or unknown.",
           ("signal", "state")),
    Metric("leadline_detector_judged_since_timestamp_seconds", "gauge", "seconds",
           "First sample that judging of this signal rests on.", ("signal",)),
    Metric("leadline_detector_query_failures_total", "counter", "count",
           "Queries that failed.", ("signal",)),
    Metric("leadline_alertmanager_send_failures_total", "counter", "count",
           "Posts to Alertmanager that failed; they are tried again."),
)  # fmt: skip

OWN: Final[tuple[Metric, ...]] = (
    *PROCESS,
    *CONTAINER,
    *HOST,
    *GPU,
    *PROBE,
    *LOGS,
    *EXPORTER,
    *SERVICE,
)
