"""Fleet overview: what breaks next, what users feel, and both pools side by side."""

from __future__ import annotations

from typing import Final

from catalog import promql
from catalog.signals import METRICS, SIGNALS
from dashboards.make import heatmap, own, signals
from dashboards.panel import LEVEL_LEGEND, Board, Panel, Query, Row
from dashboards.variables import condition

UID: Final = "leadline-fleet"

_LEFT: Final = "leadline_finding_time_to_breach_seconds"
_FINDING: Final = (
    "deployment", "pool", "server", "process", "rank", "kind", "signal", "severity", "state"
)  # fmt: skip
_URGENT: Final = ((None, "red"), (12 * 3600.0, "orange"), (30 * 86400.0, "green"))
"""Severity follows the time left: page under 12 h, ticket under 30 days."""


def _findings() -> Row:
    place = condition("pool")
    left, effect = METRICS[_LEFT].name, METRICS["leadline_finding_effect"].name
    firing = own("finding_state", f'{place},state="firing"')
    judged = own("detector_series", 'state="judged"')
    return Row(
        "Lead time",
        (
            Panel(
                "Soonest breach", "Time left until the first service level or limit is met, by "
                "the findings that fire or are watched. No data: nothing is predicted.",
                "dtdurations", (Query(f"min ({promql.selector(left, place)})"),), "stat", 4, 4,
                steps=_URGENT,
            ),
            Panel(
                "Findings firing", "Findings of the last cycle that fire; watched ones are not "
                "counted.", "short",
                (Query(f"count ({firing}) or vector(0)"),),
                "stat", 4, 4, steps=((None, "green"), (1.0, "orange")),
            ),
            Panel(
                "Detector's last cycle", "Age of the last complete cycle; above 5 minutes the "
                "detector is dead and findings are old.", "s",
                (Query(f"time() - max ({own('detector_last_cycle_timestamp_seconds')})"),),
                "stat", 4, 4, low=0.0, steps=((None, "green"), (300.0, "red")),
            ),
            Panel(
                "Share of series judged", "Series that can be judged, of all that the detector "
                "sees. Unknown is not healthy.", "percentunit",
                (Query(f"sum ({judged}) / (sum ({own('detector_series')}) > 0)"),),
                "stat", 4, 4, low=0.0, high=1.0, decimals=1,
                steps=((None, "red"), (0.5, "orange"), (0.9, "green")),
            ),
            Panel(
                "Servers up", "vLLM servers whose metrics page was read, of those known.", "short",
                (Query(f"sum ({own('target_up', condition('server'))})", "up"),
                 Query(f"count ({own('target_up', condition('server'))})", "known")),
                "stat", 8, 4,
            ),
            Panel(
                "Findings by time to breach", "What will break, where, and when if nothing "
                "changes; the soonest first. The effect's unit follows the signal, an hour.",
                "short",
                (Query(f"sort ({promql.selector(left, place)})"),
                 Query(promql.selector(effect, place))),
                "table", 24, 8, columns=_FINDING,
                values=(("time left", "dtdurations"), ("effect an hour", "short")),
            ),
        ),
    )  # fmt: skip


def _users() -> Row:
    return Row(
        "What users feel",
        (
            signals(("ttft_user_mean",), sla=True),
            signals(("tpot_mean",), sla=True),
            signals(("error_ratio",), high=1.0),
            signals(("request_rate",)),
            signals(("output_tokens_rate",)),
            heatmap(
                "request_time_per_output_token_seconds",
                "Distribution of time per output token (decode)",
                "decode",
            ),
        ),
    )


def _stages() -> Row:
    pairs = (
        (("ttft_mean", "queue_mean", "prefill_time_mean"), "Prefill: queue, prefill, first token",
         ("ttft_mean", "queue_mean", "transfer_time_mean"),
         "Decode: queue with KV wait, transfer, first token"),
        (("requests_running", "requests_waiting"), "Prefill: running and waiting",
         ("requests_running", "requests_waiting"), "Decode: running and waiting"),
        (("requests_waiting_by_reason",), "Prefill: waiting by reason",
         ("requests_waiting_by_reason",), "Decode: waiting by reason"),
    )  # fmt: skip
    panels = [
        panel
        for left, left_title, right, right_title in pairs
        for panel in (
            signals(left, pool="prefill", title=left_title, width=12),
            signals(right, pool="decode", title=right_title, width=12),
        )
    ]
    usage = (
        signals(("kv_usage",), pool="prefill", title="Prefill: KV cache usage", width=12, high=1.0),
        signals(("kv_usage",), pool="decode", title="Decode: KV cache usage", width=12, high=1.0),
    )
    return Row("Prefill and decode, side by side", (*panels, *usage))


def _transfer() -> Row:
    return Row(
        "KV transfer",
        (
            signals(("kv_fetch_by_stage",), pool="decode", title="Requests that fetch KV"),
            signals(("transfer_time_mean", "transfer_post_time_mean"), title="KV transfer time"),
            signals(("transfer_bytes_rate",)),
            signals(("transfer_failures_rate", "notification_failures_rate"),
                    title="Transfer failures"),
            signals(("leases_expired_rate", "reads_after_expiry_rate"), title="Lost KV leases"),
            signals(("preemption_rate",)),
        ),
    )  # fmt: skip


def _drafts() -> Row:
    return Row(
        "Speculative decoding",
        (
            signals(("acceptance_ratio",), high=1.0),
            signals(("acceptance_length",), low=1.0),
            signals(("acceptance_by_position",), high=1.0),
        ),
    )


def _memory() -> Row:
    limit = Query(
        promql.selector(SIGNALS["container_limit"].record, condition("container")),
        f"{LEVEL_LEGEND} {{{{server}}}} {{{{cgroup}}}}",
    )
    container = signals(("container_working_set",), title="Container working set and limit")
    return Row(
        "Host memory",
        (
            signals(("host_anon_swap",), pool="decode", title="Decode: private memory by process",
                    width=12),
            signals(("host_anon_swap",), pool="prefill", title="Prefill: private memory by process",
                    width=12),
            Panel(container.title, container.description, container.unit,
                  (*container.queries, limit), width=12, low=0.0),
            signals(("host_memory_used",), width=6),
            signals(("host_threads",), width=6),
        ),
    )  # fmt: skip


BOARD: Final = Board(
    UID,
    "Leadline / Fleet overview",
    "What breaks next and when, what users feel now, and prefill beside decode.",
    (_findings(), _users(), _stages(), _transfer(), _drafts(), _memory()),
)
