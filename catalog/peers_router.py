"""Metrics of what stands before the servers: llm-d's router with its KV index, and vllm-router.

llm-d's router (EPP) writes three generations of names: today's `llm_d_epp_`, the interim
`llm_d_router_epp_`, and those of the Gateway API inference extension, which has the first alone.
Its names were read from the projects' sources up to September 2026; no live page was captured.
Those of vllm-router are of its source and of live pages of 0.1.17.
"""

from __future__ import annotations

from typing import Final

from catalog.metric import Metric, MetricType
from catalog.units import Unit

_R: Final = ("model_name", "target_model_name", "fairness_id", "priority")
_PLUGIN: Final = ("plugin_name", "plugin_type")
_FLOW: Final = ("fairness_id", "priority", "inference_pool", "model_name", "target_model_name")
_TENANT: Final = (
    "One series for each tenant (`fairness_id`): an exporter that passes the page on adds them up."
)


def _epp(
    kind: MetricType,
    name: str,
    unit: Unit,
    text: str,
    *labels: str,
    interim: tuple[str, ...] = (),
    legacy: tuple[str, ...] = (),
    varying: tuple[str, ...] = (),
    lazy: bool = True,
    traps: tuple[str, ...] = (),
) -> Metric:
    """Return a metric of the EPP; *interim* are other names it had under `llm_d_router_epp_`."""
    former = (*(f"llm_d_router_epp_{n}" for n in (name, *interim)), *legacy)
    tenant = (_TENANT,) if "fairness_id" in labels else ()
    unlike = varying or tuple(n for n in ("fairness_id", "priority", *_PLUGIN) if n in labels)
    return Metric(
        f"llm_d_epp_{name}", kind, unit, text, labels, lazy=lazy, former=former,
        varying=unlike, traps=(*traps, *tenant),
    )  # fmt: skip


# The router measures what the user waits for; it writes old names beside the new ones.
EPP_TTFT: Final = _epp(
    "histogram", "request_ttft_seconds", "seconds",
    "Time from a request's arrival at the llm-d router to the first byte of its answer.",
    *_R, "streaming", legacy=("inference_objective_request_ttft_seconds",),
    varying=("fairness_id", "priority", "streaming", *_PLUGIN),
    traps=("A request that does not stream observes its whole time; older names don't tell which "
           "ones did.",),
)  # fmt: skip

REQUESTS: Final = _epp(
    "counter", "request_total", "requests", "Requests that reached the llm-d router.", *_R,
    legacy=("inference_objective_request_total",),
)  # fmt: skip
ERRORS: Final = _epp(
    "counter", "request_error_total", "requests",
    "Requests that the router answered with an error.", *_R, "error_code",
    legacy=("inference_objective_request_error_total",),
)  # fmt: skip
FLOW_QUEUE: Final = _epp(
    "histogram", "flow_control_request_queue_duration_seconds", "seconds",
    "Time a request spent in the router's flow control, by outcome.", *_FLOW, "outcome",
    legacy=("inference_extension_flow_control_request_queue_duration_seconds",),
    traps=("Absent unless flow control is on.", "Tops at 60 s."),
)  # fmt: skip
FLOW_SIZE: Final = _epp(
    "gauge", "flow_control_queue_size", "requests", "Requests queued in the router's flow control.",
    *_FLOW, legacy=("inference_extension_flow_control_queue_size",),
)  # fmt: skip
FLOW_SATURATION: Final = _epp(
    "gauge", "flow_control_pool_saturation", "ratio",
    "Load of a pool against the set point of the router's flow control.", "inference_pool", "stage",
    legacy=("inference_extension_flow_control_pool_saturation",), varying=("stage",),
    traps=("1.0 is the set point and no upper bound; an empty pool reads 1.0.",),
)  # fmt: skip
DECISIONS: Final = _epp(
    "counter", "disagg_decision_total", "requests",
    "Decisions whether a request takes the P/D path, by kind.", *_PLUGIN, "model_name",
    "decision_type", interim=("pd_decision_total",),
    legacy=("llm_d_epp_pd_decision_total", "llm_d_inference_scheduler_disagg_decision_total",
            "llm_d_inference_scheduler_pd_decision_total"),
    varying=_PLUGIN,
)  # fmt: skip
PREFIX_RATIO: Final = _epp(
    "histogram", "prefix_indexer_hit_ratio", "ratio",
    "Share of a prompt that the router expects some server to hold.", *_PLUGIN,
    legacy=("inference_extension_prefix_indexer_hit_ratio",), varying=_PLUGIN,
    traps=("What the router believes, by its approximate index: the servers tell what was there.",),
)  # fmt: skip

_OTHERS: Final[tuple[Metric, ...]] = (
    _epp("histogram", "request_duration_seconds", "seconds",
         "Time from a request's arrival at the router to the end of its answer.", *_R,
         legacy=("inference_objective_request_duration_seconds",)),
    _epp("histogram", "request_size_bytes", "bytes", "Size of a request.", *_R,
         interim=("request_sizes",), legacy=("inference_objective_request_sizes",)),
    _epp("histogram", "response_size_bytes", "bytes", "Size of an answer.", *_R,
         interim=("response_sizes",), legacy=("inference_objective_response_sizes",),
         traps=("Tops at 65,536.",)),
    _epp("histogram", "request_input_tokens", "tokens", "Prompt tokens of a request.", *_R,
         interim=("input_tokens",), legacy=("inference_objective_input_tokens",)),
    _epp("histogram", "request_output_tokens", "tokens", "Output tokens of a request.", *_R,
         interim=("output_tokens",), legacy=("inference_objective_output_tokens",),
         traps=("Tops at 8,192.",)),
    _epp("histogram", "request_cached_tokens", "tokens",
         "Prompt tokens that the server said it had cached.", *_R,
         interim=("prompt_cached_tokens",), legacy=("inference_objective_prompt_cached_tokens",)),
    _epp("gauge", "request_running", "requests", "Requests on their way through the router.", *_R,
         interim=("running_requests",), legacy=("inference_objective_running_requests",),
         varying=("fairness_id", "priority", "target_model_name")),
    _epp("histogram", "request_ntpot_seconds", "seconds",
         "Whole time of a request by its output tokens.", *_R,
         interim=("normalized_time_per_output_token_seconds",),
         legacy=("inference_objective_normalized_time_per_output_token_seconds",),
         traps=("The wait for the first token is spread over all tokens: no TPOT.",)),
    _epp("histogram", "request_streaming_tpot_seconds", "seconds",
         "Time per output token after the first, of streamed requests.", *_R),
    _epp("histogram", "request_streaming_itl_seconds", "seconds",
         "Gap between two chunks of a streamed answer.", *_R,
         traps=("A chunk may hold several tokens.",)),
    _epp("gauge", "average_kv_cache_utilization", "ratio", "Mean KV cache usage of the pool.",
         "name", legacy=("inference_pool_average_kv_cache_utilization",)),
    _epp("gauge", "average_queue_size", "requests", "Mean queue of the pool's servers.", "name",
         legacy=("inference_pool_average_queue_size",)),
    _epp("gauge", "average_running_requests", "requests",
         "Mean of requests running on the pool's servers.", "name",
         legacy=("inference_pool_average_running_requests",)),
    _epp("gauge", "std_dev_kv_cache_utilization", "ratio",
         "Spread of the KV cache usage over the pool's servers.", "name"),
    _epp("gauge", "std_dev_queue_size", "requests", "Spread of the queues of the pool's servers.",
         "name"),
    _epp("gauge", "std_dev_running_requests", "requests",
         "Spread of the requests running on the pool's servers.", "name"),
    _epp("gauge", "ready_endpoints", "count", "Servers of the pool that are ready.", "name",
         legacy=("inference_pool_ready_pods",)),
    _epp("gauge", "per_endpoint_queue_size", "requests", "Queue of one server.", "name",
         "model_server_endpoint", legacy=("inference_pool_per_pod_queue_size",),
         varying=("model_server_endpoint", "model_server_pod")),
    _epp("histogram", "scheduler_e2e_duration_seconds", "seconds", "Time to choose a server.",
         legacy=("inference_extension_scheduler_e2e_duration_seconds",), traps=("Tops at 0.1 s.",)),
    _epp("histogram", "plugin_duration_seconds", "seconds", "Time of one plugin of the router.",
         "extension_point", *_PLUGIN, legacy=("inference_extension_plugin_duration_seconds",),
         traps=("Tops at 0.1 s.",)),
    _epp("counter", "scheduler_attempts_total", "count", "Tries to choose a server, by outcome.",
         "status", "target_model_name", "endpoint_name", "namespace", "port",
         legacy=("inference_extension_scheduler_attempts_total",),
         varying=("endpoint_name", "pod_name")),
    _epp("histogram", "request_processing_duration_seconds", "seconds",
         "Time of the router's work on a request, its wait in flow control included."),
    _epp("histogram", "response_processing_duration_seconds", "seconds",
         "Time of the router's work on an answer."),
    _epp("gauge", "info", "count", "Build of the router; always 1.", "commit", "build_ref",
         legacy=("inference_extension_info",), lazy=False),
    _epp("counter", "model_rewrite_decisions_total", "count", "Requests sent to another model.",
         "model_rewrite_name", "model_name", "target_model",
         legacy=("inference_extension_model_rewrite_decisions_total",)),
    _epp("counter", "datalayer_poll_errors_total", "count",
         "Failed reads of the servers' state.", "source_type"),
    _epp("counter", "datalayer_extract_errors_total", "count",
         "Answers of servers that the router could not read.", "source_type", "extractor_type"),
    _epp("gauge", "prefix_indexer_size", "count", "Entries of the approximate prefix index.",
         *_PLUGIN, legacy=("inference_extension_prefix_indexer_size",)),
    _epp("histogram", "prefix_indexer_hit_bytes", "bytes",
         "Length of the prefix found in the approximate index.", *_PLUGIN,
         legacy=("inference_extension_prefix_indexer_hit_bytes",), traps=("Tops at 65,536.",)),
    _epp("gauge", "inflight_requests", "requests", "Requests sent to a server and not answered.",
         "endpoint_name", "namespace", "producer_name", "fairness_id", "priority"),
    _epp("gauge", "inflight_tokens", "tokens", "Tokens of requests sent and not answered.",
         "endpoint_name", "namespace", "producer_name", "fairness_id", "priority"),
    _epp("gauge", "flow_control_queue_bytes", "bytes", "Size of the requests in flow control.",
         *_FLOW, legacy=("inference_extension_flow_control_queue_bytes",)),
    _epp("histogram", "flow_control_dispatch_cycle_duration_seconds", "seconds",
         "Time of one round of flow control.",
         legacy=("inference_extension_flow_control_dispatch_cycle_duration_seconds",)),
    _epp("histogram", "flow_control_request_enqueue_duration_seconds", "seconds",
         "Time to put a request into flow control.", "fairness_id", "priority", "outcome",
         legacy=("inference_extension_flow_control_request_enqueue_duration_seconds",)),
    _epp("counter", "flow_control_requests_total", "requests",
         "Requests that left flow control, by outcome.", "outcome", "priority", "inference_pool"),
    _epp("gauge", "flow_control_stale_endpoints", "count",
         "Servers whose state is too old to go by.", "detector"),
    _epp("gauge", "flow_control_capacity_utilization_requests", "ratio",
         "Share of a priority's room for requests in use.", "priority", "inference_pool"),
    _epp("gauge", "flow_control_capacity_utilization_bytes", "ratio",
         "Share of a priority's room in bytes in use.", "priority", "inference_pool"),
    _epp("counter", "flow_control_revocations_total", "count",
         "Requests taken back while under way."),
)  # fmt: skip


def _index(kind: MetricType, name: str, unit: Unit, text: str, *labels: str,
           former: tuple[str, ...] = (), traps: tuple[str, ...] = ()) -> Metric:  # fmt: skip
    return Metric(
        f"llm_d_epp_kv_cache_{name}", kind, unit, text, labels, lazy=True, former=former,
        varying=("plugin_name", "plugin_type") if former else (), traps=traps,
    )  # fmt: skip


INDEX_LOOKUPS: Final = _index(
    "counter", "index_lookup_requests_total", "count", "Lookups in the precise KV index.",
    former=("llm_d_router_epp_index_lookup_requests_total", "kvcache_index_lookup_requests_total"),
)  # fmt: skip
INDEX_EVENTS: Final = _index(
    "counter", "events_messages_received_total", "count", "Messages of the servers' KV events.",
    "pod_identifier",
)  # fmt: skip

INDEX: Final[tuple[Metric, ...]] = (
    INDEX_LOOKUPS,
    INDEX_EVENTS,
    _index("counter", "index_lookup_hits_total", "count", "Blocks found in the precise KV index.",
           former=("llm_d_router_epp_index_lookup_hits_total", "kvcache_index_lookup_hits_total"),
           traps=("Blocks, and not lookups: hits by requests is no ratio.",)),
    _index("counter", "index_max_pod_hit_count_total", "count",
           "Blocks found on the server that held most, summed over lookups.",
           former=("kvcache_index_max_pod_hit_count_total",)),
    _index("counter", "index_admissions_total", "count", "Blocks taken into the index.",
           former=("kvcache_index_admissions_total",)),
    _index("counter", "index_evictions_total", "count", "Blocks dropped from the index.",
           former=("kvcache_index_evictions_total",)),
    _index("histogram", "index_lookup_latency_seconds", "seconds", "Time of one lookup.",
           former=("kvcache_index_lookup_latency_seconds",)),
    _index("gauge", "events_active_subscribers", "count", "Servers whose events are listened to."),
    _index("counter", "events_subscriber_reconnections_total", "count",
           "Connections to a server's events made anew.", "pod_identifier"),
    _index("counter", "events_zmq_errors_total", "count", "Errors of the event transport.",
           "pod_identifier", "operation"),
    _index("gauge", "events_pool_queue_depth", "count", "Events that wait to be taken in."),
    _index("gauge", "events_pool_capacity", "count", "Events that may wait."),
    _index("counter", "events_stores_skipped_total", "count",
           "Stored blocks that were passed over.", "cache_kind", "reason"),
    _index("counter", "events_removals_skipped_total", "count",
           "Removed blocks that were passed over.", "cache_kind", "reason"),
)  # fmt: skip


def _vr(kind: MetricType, name: str, unit: Unit, text: str, *labels: str,
        traps: tuple[str, ...] = ()) -> Metric:  # fmt: skip
    return Metric(f"vllm_router_{name}", kind, unit, text, labels, lazy=True, traps=traps)


_LEGS: Final = "Counts in P/D mode only, where the plain families stay absent."

VLLM_ROUTER: Final[tuple[Metric, ...]] = (
    _vr("counter", "requests_total", "requests", "Requests that vllm-router answered.", "route",
        traps=("Without those that failed after all tries, and without those of the P/D path.",)),
    _vr("histogram", "request_duration_seconds", "seconds", "Whole time of a request.", "route"),
    _vr("counter", "request_errors_total", "requests", "Requests that failed.", "route",
        "error_type", traps=("An error of a server is counted in retries_exhausted_total.",)),
    _vr("counter", "retries_total", "count", "Requests tried again.", "route"),
    _vr("counter", "retries_exhausted_total", "requests", "Requests given up after all tries.",
        "route"),
    _vr("gauge", "cb_state", "count", "Circuit breaker of a server: 0 closed, 1 open, 2 half open.",
        "worker"),
    _vr("counter", "cb_outcomes_total", "count", "Outcomes that circuit breakers counted.",
        "worker", "outcome"),
    _vr("gauge", "active_workers", "count", "Servers that get requests."),
    _vr("gauge", "worker_health", "count", "Whether a server is healthy: 1 or 0.", "worker"),
    _vr("gauge", "worker_load", "requests", "Load of a server, as the router counts it.", "worker"),
    _vr("gauge", "running_requests", "requests", "Requests running on a server.", "worker"),
    _vr("counter", "processed_requests_total", "requests", "Requests sent to a server.", "worker"),
    _vr("counter", "policy_decisions_total", "count", "Choices of a server, by policy.", "policy",
        "worker"),
    _vr("counter", "cache_hits_total", "count", "Requests sent to where their prefix was.",
        traps=("The router's own belief, of requests and not tokens.",)),
    _vr("counter", "cache_misses_total", "count", "Requests whose prefix was nowhere."),
    _vr("counter", "pd_requests_total", "requests", "Requests over prefill and decode.", "route",
        traps=(_LEGS,)),
    _vr("counter", "pd_prefill_requests_total", "requests", "Requests sent to a prefill server.",
        "worker", traps=(_LEGS,)),
    _vr("counter", "pd_decode_requests_total", "requests", "Requests sent to a decode server.",
        "worker", traps=(_LEGS,)),
    _vr("counter", "pd_errors_total", "count", "Failures of the P/D path.", "error_type",
        traps=(_LEGS, "Without the errors of servers, which have counters of their own.")),
    _vr("counter", "pd_prefill_errors_total", "count", "Failures of prefill.", "worker"),
    _vr("counter", "pd_decode_errors_total", "count", "Failures of decode.", "worker"),
    _vr("counter", "pd_stream_errors_total", "count", "Answers that broke off.", "worker"),
    _vr("histogram", "pd_request_duration_seconds", "seconds",
        "Whole time of a request over prefill and decode.", "route", traps=(_LEGS,)),
    _vr("summary", "pd_decode_pending_seconds", "seconds",
        "Time a request waited for decode to begin.",
        traps=(_LEGS, "Quantiles of one router can't be added up: use sum and count.")),
    _vr("gauge", "pd_prefill_occupancy", "requests", "Requests on a prefill server.", "worker",
        "rank"),
    _vr("gauge", "pd_active_prefill_tokens", "tokens", "Prompt tokens on a prefill server.",
        "worker", "rank"),
    _vr("gauge", "pd_unknown_prefill_requests", "requests",
        "Requests on a prefill server of unknown length.", "worker", "rank"),
    _vr("gauge", "pd_pending_decode_requests", "requests",
        "Requests that wait for a decode server.", "worker", "rank"),
    _vr("gauge", "pd_active_decode_requests", "requests", "Requests on a decode server.", "worker",
        "rank"),
    _vr("counter", "prefix_routing_decisions_total", "count",
        "Choices by prefix, with how they came about.", "policy", "stage", "outcome"),
    _vr("counter", "kv_routing_inputs_total", "count",
        "Prompts made ready for routing by KV, with what came of it.", "transport", "result"),
    _vr("histogram", "generate_duration_seconds", "seconds", "Whole time of an answered request."),
    _vr("histogram", "retry_backoff_duration_seconds", "seconds", "Pause before another try.",
        "attempt"),
)  # fmt: skip

SIDECAR: Final[tuple[Metric, ...]] = tuple(
    Metric(
        f"moriio_dns_{name}_total", "counter", "count", text, lazy=True,
        traps=("Only with the sidecar's --metrics-port.",),
    )
    for name, text in (
        ("reresolve", "Addresses of prefill looked up anew."),
        ("ip_changed", "Addresses of prefill that had changed."),
        ("lookup_failures", "Addresses of prefill that could not be found."),
    )
)  # fmt: skip

ROUTER: Final[tuple[Metric, ...]] = (
    EPP_TTFT, REQUESTS, ERRORS, FLOW_QUEUE, FLOW_SIZE, FLOW_SATURATION, DECISIONS, PREFIX_RATIO,
    *_OTHERS, *INDEX, *VLLM_ROUTER, *SIDECAR,
)  # fmt: skip
