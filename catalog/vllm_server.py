"""Families of vLLM's API server: HTTP, sleep and weight updates, its own process."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from catalog.metric import Gate, Metric, MetricType
from catalog.units import Unit
from catalog.vllm_family import bare, counter, gauge, histogram

_SLEEP: Final = Gate("VLLM_SERVER_DEV_MODE=1")
_RL: Final = Gate("endpoints of weight transfer")
_SPEECH: Final = Gate("a realtime speech model")
_OPERATION: Final = (0.01, 600.0)


def _alive(metric: Metric) -> Metric:
    """Return a gauge of work in flight: the processes that live add up, and none freezes."""
    return replace(metric, merge="livesum", traps=metric.traps[1:])


OPERATIONS: Final[tuple[Metric, ...]] = (
    bare(histogram("sleep_mode_operation_duration_seconds", "seconds",
                   "Time to sleep, wake or release the KV cache.", _OPERATION, since="0.32",
                   gate=_SLEEP, lazy=True, rust=True), "operation"),
    _alive(bare(gauge("sleep_mode_operations_in_flight", "count", "Such operations under way.",
                      since="0.32", gate=_SLEEP, lazy=True, rust=True), "operation")),
    bare(histogram("rl_weight_update_operation_duration_seconds", "seconds",
                   "Time of one step of a weight update.", _OPERATION, since="0.32", gate=_RL,
                   lazy=True, rust=True), "operation"),
    _alive(bare(gauge("rl_weight_update_operations_in_flight", "count",
                      "Steps of weight updates under way.", since="0.32", gate=_RL, lazy=True,
                      rust=True), "operation")),
    _alive(bare(gauge("websocket_connections_active", "count", "Websockets open.", since="0.18",
                      gate=_SPEECH))),
    bare(counter("websocket_connections_total", "count", "Websockets opened.", since="0.18",
                 gate=_SPEECH)),
    bare(histogram("websocket_connection_duration_seconds", "seconds", "Life of a websocket.",
                   (0.5, 1800.0), since="0.18", gate=_SPEECH)),
    bare(counter("tool_call_parser_invocations_total", "count",
                 "Answers read for tool calls, by outcome.", since="0.26",
                 gate=Gate("--tool-call-parser"), lazy=True),
         "mode", "model_name", "outcome", "request_type"),
)  # fmt: skip

_GROUPED: Final = "Status in groups: 2xx, 4xx, 5xx."
_SCRAPES: Final = "Other handlers than those of requests count too, such as health checks."
_FRONT: Final = (
    "Of the API server's process alone: EngineCore and workers, which hold the memory and leak, "
    "don't show."
)
_ALONE: Final = Gate("one API server, Python front end")


HTTP: Final[tuple[Metric, ...]] = (
    Metric("http_requests_total", "counter", "requests", "HTTP requests.",
           ("handler", "method", "status"), "0.11", lazy=True, rust=True,
           traps=(_GROUPED, _SCRAPES)),
    Metric("http_request_size_bytes", "summary", "bytes", "Bytes of an HTTP request.",
           ("handler",), "0.11", lazy=True),
    Metric("http_response_size_bytes", "summary", "bytes", "Bytes of an HTTP answer.",
           ("handler",), "0.11", lazy=True),
    Metric("http_request_duration_highr_seconds", "histogram", "seconds",
           "Time of an HTTP request, in fine buckets and without labels.", (), "0.11", rust=True,
           bounds=(0.01, 60.0), traps=("Above 60 s all is one bucket.", _SCRAPES)),
    Metric("http_request_duration_seconds", "histogram", "seconds",
           "Time of an HTTP request, in three buckets.", ("handler", "method"), "0.11", lazy=True,
           rust=True, bounds=(0.1, 1.0)),
)  # fmt: skip


def _process(name: str, kind: MetricType, unit: Unit, text: str, *labels: str) -> Metric:
    return Metric(name, kind, unit, text, labels, "0.11", gate=_ALONE, traps=(_FRONT,))


PROCESS: Final[tuple[Metric, ...]] = (
    _process("process_virtual_memory_bytes", "gauge", "bytes", "Virtual memory."),
    _process("process_resident_memory_bytes", "gauge", "bytes", "Resident memory."),
    _process("process_start_time_seconds", "gauge", "seconds", "Start time since the epoch."),
    _process("process_cpu_seconds_total", "counter", "seconds", "CPU time, user and system."),
    _process("process_open_fds", "gauge", "count", "Open file descriptors."),
    _process("process_max_fds", "gauge", "count", "File descriptors allowed."),
    _process("python_gc_objects_collected_total", "counter", "count",
             "Objects that the garbage collector freed.", "generation"),
    _process("python_gc_objects_uncollectable_total", "counter", "count",
             "Objects that the garbage collector could not free.", "generation"),
    _process("python_gc_collections_total", "counter", "count",
             "Runs of the garbage collector.", "generation"),
    _process("python_info", "gauge", "count", "The Python it runs on, in labels; always 1.",
             "implementation", "major", "minor", "patchlevel", "version"),
)  # fmt: skip
