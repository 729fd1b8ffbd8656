"""Our metrics of what vLLM says in its log: nothing here is to be added to a metric of vLLM's."""

from __future__ import annotations

from typing import Final

from catalog.labels import LEVELS, Level
from catalog.metric import Metric, MetricType
from catalog.units import Unit

_SINCE_START: Final = (
    "Counts from the exporter's start: what was logged before, or while it was down, is not in it."
)
_WINDOW: Final = (
    "Added up from the counts of the log's own windows, 10 s each; the last window of a process "
    "that dies is lost. No engine is told: with data parallelism it is the server's sum."
)
_READING: Final = (
    "A reading of the last line, absent a minute after it: idle engines stop saying it."
)


def _said(
    name: str,
    unit: Unit,
    text: str,
    *labels: str,
    kind: MetricType = "counter",
    level: Level = "server",
    traps: tuple[str, ...] = (),
) -> Metric:
    return Metric(
        f"leadline_log_{name}", kind, unit, text, (*LEVELS[level], *labels), traps=traps,
    )  # fmt: skip


def _window(name: str, unit: Unit, text: str, *labels: str, twin: str = "") -> Metric:
    same = (f"Where the page has `{twin}` it is the same events: never add them.",) if twin else ()
    return _said(name, unit, text, *labels, traps=(_WINDOW, *same))


def _reading(name: str, unit: Unit, text: str, level: Level = "engine") -> Metric:
    return _said(name, unit, text, kind="gauge", level=level, traps=(_READING,))


LOGS: Final[tuple[Metric, ...]] = (
    _said("messages_total", "count",
          "Messages by level; one that spans lines, such as a traceback, is one.", "level",
          traps=(_SINCE_START,)),
    _said("tracebacks_total", "count", "Python tracebacks."),
    _said("jit_compilations_total", "count",
          "Kernels compiled while serving, by what compiled them.", "backend",
          traps=("Each kernel is told once unless vLLM's monitor is verbose: a lower bound.",)),
    _said("nixl_failures_total", "count",
          "NIXL failures by kind and by the other side, host:port.", "kind", "peer",
          traps=("vLLM's counter of failed transfers lacks handshakes and notifications before "
                 "0.33.", "So many peers are named; the rest is `other`. `unknown`: not told.")),
    _said("leases_expired_total", "count",
          "KV leases that prefill said had expired before they were read.",
          traps=("Where the page has `vllm:nixl_num_kv_expired_reqs_total` it is the same.",)),
    _said("reads_after_expiry_total", "count",
          "Reads of KV that prefill had already freed, as it said: answers may be wrong.",
          traps=("The only trace of it before 0.32.",)),
    _said("events_total", "count", "Other lines that mean something, by event.", "event"),
    _said("stats_lines_total", "count", "Lines of statistics that were read, by kind.", "kind"),
    _said("unread_stats_lines_total", "count",
          "Lines that begin as statistics do and could not be read, by kind.", "kind",
          traps=("Above zero: this vLLM writes a form that we don't know.",)),
    _window("preemptions_total", "count", "Preemptions.", twin="vllm:num_preemptions_total"),
    _window("corrupted_requests_total", "requests", "Requests with NaN in their logits.",
            twin="vllm:corrupted_requests"),
    _window("accepted_tokens_total", "tokens", "Drafted tokens that were accepted.",
            twin="vllm:spec_decode_num_accepted_tokens_total"),
    _window("drafted_tokens_total", "tokens", "Drafted tokens.",
            twin="vllm:spec_decode_num_draft_tokens_total"),
    _window("transfers_total", "count",
            "KV transfers by result (succeeded, failed, expired, late).", "result",
            twin="vllm:nixl_xfer_time_seconds_count"),
    _window("transfer_bytes_total", "bytes", "KV bytes transferred: mean of a window by its count.",
            twin="vllm:nixl_bytes_transferred_sum"),
    _window("transfer_seconds_total", "seconds",
            "Time of KV transfers: mean of a window by its count.",
            twin="vllm:nixl_xfer_time_seconds_sum"),
    _said("iterations_total", "count", "Engine steps told one by one, dummies left out.",
          level="engine"),
    _said("iteration_seconds_total", "seconds", "Time of engine steps told one by one.",
          level="engine"),
    _reading("prompt_tokens_per_second", "tokens_per_second", "Prompt tokens a second."),
    _reading("generation_tokens_per_second", "tokens_per_second", "Output tokens a second."),
    _reading("running_requests", "requests", "Requests running."),
    _reading("waiting_requests", "requests", "Requests waiting, deferred ones among them."),
    _reading("kv_cache_usage_ratio", "ratio", "KV cache in use."),
    _reading("prefix_hit_ratio", "ratio",
             "Prefix cache hit ratio of the last 1,000 requests or fewer."),
    _reading("external_hit_ratio", "ratio",
             "Hit ratio at the KV connector of the last 1,000 requests or fewer."),
    _reading("transfer_p90_seconds", "seconds", "P90 of KV transfer time in the last window.",
             "server"),
    _said("kv_cache_tokens", "tokens", "Size of the KV cache as told at start.", kind="gauge",
          traps=("Seen only if the exporter ran when the server started.",)),
    _said("read_bytes_total", "bytes", "Bytes of log read.", traps=(_SINCE_START,)),
    _said("skipped_bytes_total", "bytes", "Bytes of log passed over because reading fell behind."),
    _said("lag_bytes", "bytes", "Bytes of log that are written and not read yet.", kind="gauge",
          traps=("Of files: the journal doesn't tell.",)),
    _said("rotations_total", "count", "Log files replaced or cut, as followed."),
    _said("long_lines_total", "count", "Lines cut because they are longer than 16 KiB."),
)  # fmt: skip
