"""Metrics of what moves and keeps KV beside vLLM: LMCache in both of its modes, and NIXL.

LMCache's multiprocess server speaks OpenTelemetry's names on a page of its own; its older mode,
inside vLLM, writes `lmcache:` on vLLM's page. NIXL's telemetry is a page for each process that has
it. LMCache's names are what OpenTelemetry's own exporter makes of the instruments in the source of
0.5.6, no live page was captured; NIXL's are those of live pages of 1.5.1 in both modes.
"""

from __future__ import annotations

from typing import Final

from catalog.metric import Metric, MetricType
from catalog.units import Unit

_LOOKUP: Final = ("model_name", "cache_salt")
_SALT: Final = "One series for each `cache_salt`: an exporter that passes the page on adds them up."


def _mp(kind: MetricType, name: str, unit: Unit, text: str, *labels: str,
        former: tuple[str, ...] = (), varying: tuple[str, ...] = (),
        traps: tuple[str, ...] = ()) -> Metric:  # fmt: skip
    salt = (_SALT,) if "cache_salt" in labels else ()
    return Metric(
        f"lmcache_mp_{name}", kind, unit, text, labels, lazy=True, former=former, varying=varying,
        traps=(*traps, *salt),
    )  # fmt: skip


# The mode inside vLLM has the same counts under its own names and a label for the process.
LOOKUP_TOKENS: Final = _mp(
    "counter", "lookup_requested_tokens_total", "tokens", "Tokens that were looked for in LMCache.",
    *_LOOKUP, former=("lmcache:num_lookup_tokens_total",), varying=("cache_salt", "worker_id"),
)  # fmt: skip
HIT_TOKENS: Final = _mp(
    "counter", "lookup_hit_tokens_total", "tokens", "Tokens that LMCache had.", *_LOOKUP,
    former=("lmcache:num_lookup_hits_total",), varying=("cache_salt", "worker_id"),
    traps=("`lmcache:retrieve_hit_rate` of the older mode is near 1 by construction: use these.",),
)  # fmt: skip
PHASE_BYTES: Final = _mp(
    "counter", "transfer_phase_bytes_total", "bytes",
    "Bytes moved between GPU and host, by direction and phase.", "device_index",
    "direction", "phase", traps=("Both phases move the same bytes: take one of them.",),
)  # fmt: skip
L1_USAGE: Final = _mp(
    "gauge", "l1_usage_ratio", "ratio", "Share of LMCache's host memory in use.",
    traps=("A cache that is full is at work; what hurts is eviction before reuse.",),
)  # fmt: skip
L1_FAILURES: Final = _mp(
    "counter", "l1_allocation_failure_chunks_total", "count",
    "Times LMCache found no room in host memory.", "during", "model_name",
)  # fmt: skip
L1_EVICTED: Final = _mp(
    "counter", "l1_evicted_chunks_total", "count", "Chunks dropped from host memory.", "cache_salt"
)

_MP: Final[tuple[Metric, ...]] = (
    _mp("counter", "l1_read_chunks_total", "count", "Chunks read from host memory.", "cache_salt"),
    _mp("counter", "l1_write_chunks_total", "count", "Chunks written to host memory.",
        "cache_salt"),
    _mp("counter", "l1_read_failure_chunks_total", "count", "Failed reads from host memory.",
        "during", "reason"),
    _mp("gauge", "l1_memory_usage_bytes", "bytes", "Host memory that LMCache uses."),
    _mp("histogram", "l1_chunk_lifetime_seconds", "seconds", "Age of a chunk when it was dropped.",
        traps=("One chunk in a hundred is watched.",)),
    _mp("histogram", "l1_chunk_idle_before_evict_seconds", "seconds",
        "Time since a chunk's last use when it was dropped.",
        traps=("One chunk in a hundred is watched.",)),
    _mp("histogram", "l1_chunk_reuse_gap_seconds", "seconds", "Time between two uses of a chunk.",
        traps=("One chunk in a hundred is watched.",)),
    _mp("histogram", "real_reuse_gap_seconds", "seconds",
        "Time between two uses of a prefix, dropped or not: what a larger cache would gain."),
    _mp("counter", "l2_store_submitted_requests_total", "count", "Stores sent to the second tier."),
    _mp("counter", "l2_store_completed_requests_total", "count", "Stores done by the second tier.",
        "l2_name"),
    _mp("counter", "l2_load_completed_requests_total", "count", "Loads done by the second tier.",
        "l2_name"),
    _mp("counter", "l2_prefetch_failure_chunks_total", "count", "Failed loads of the second tier.",
        "reason"),
    _mp("counter", "l2_evicted_objects_chunks_total", "count",
        "Objects dropped from the second tier."),
    _mp("gauge", "l2_usage_bytes", "bytes", "Size of what the second tier holds.", "l2_name"),
    _mp("counter", "lookup_hit_l1_tokens_total", "tokens", "Tokens found in host memory.",
        *_LOOKUP),
    _mp("counter", "lookup_hit_l2_tokens_total", "tokens", "Tokens found in the second tier.",
        *_LOOKUP),
    _mp("counter", "lookups_requests_total", "requests", "Lookups.", *_LOOKUP),
    _mp("counter", "lookup_early_exit_requests_total", "requests", "Lookups that ended early.",
        "reason"),
    _mp("counter", "transfer_phase_elapsed_seconds_total", "seconds",
        "Time of moving between GPU and host, by direction and phase.", "device_index",
        "direction", "phase"),
    _mp("gauge", "active_prefetch_jobs", "count", "Loads from the second tier under way."),
    _mp("gauge", "event_bus_queue_depth", "count", "Events of LMCache that wait."),
    _mp("counter", "event_bus_dropped_events_total", "count",
        "Events dropped: the counts above then miss some."),
)  # fmt: skip


def _in(kind: MetricType, name: str, unit: Unit, text: str, *traps: str) -> Metric:
    return Metric(
        f"lmcache:{name}", kind, unit, text, ("model_name", "worker_id"), lazy=True, traps=traps
    )


_CLIENT: Final = (
    "Only where LMCache and vLLM share PROMETHEUS_MULTIPROC_DIR: on vLLM's own page then."
)

_IN_PROCESS: Final[tuple[Metric, ...]] = (
    _in("counter", "num_retrieve_requests_total", "requests", "Requests that read.", _CLIENT),
    _in("counter", "num_store_requests_total", "requests", "Requests that wrote.", _CLIENT),
    _in("counter", "num_lookup_requests_total", "requests", "Requests that looked.", _CLIENT),
    _in("counter", "num_requested_tokens_total", "tokens", "Tokens asked for to be read."),
    _in("counter", "num_hit_tokens_total", "tokens", "Tokens read.",
        "Asked for only after a lookup had found them: nearly all of the requested ones."),
    _in("counter", "num_stored_tokens_total", "tokens", "Tokens written."),
    _in("counter", "num_vllm_hit_tokens_total", "tokens", "Tokens that vLLM itself had."),
    _in("counter", "num_prompt_tokens_total", "tokens", "Prompt tokens of the requests seen."),
    _in("histogram", "time_to_retrieve", "seconds", "Time of one read."),
    _in("histogram", "time_to_store", "seconds", "Time of one write."),
    _in("histogram", "time_to_lookup", "seconds", "Time of one lookup."),
    _in("gauge", "local_cache_usage", "bytes", "Host memory in use."),
    _in("gauge", "remote_cache_usage", "bytes", "Size of what the remote store holds."),
    _in("gauge", "local_storage_usage", "bytes", "Local disk in use."),
    _in("counter", "num_remote_read_bytes_total", "bytes", "Bytes read from the remote store."),
    _in("counter", "num_remote_write_bytes_total", "bytes", "Bytes written to the remote store."),
    _in("counter", "local_cpu_evict_count_total", "count", "Evictions from host memory."),
    _in("counter", "forced_unpin_count_total", "count", "Objects unpinned by force."),
    _in("gauge", "pinned_memory_objs_count", "count", "Objects pinned."),
    _in("gauge", "lmcache_is_healthy", "count", "Whether LMCache is healthy: 1 or 0."),
)  # fmt: skip

LMCACHE: Final[tuple[Metric, ...]] = (
    LOOKUP_TOKENS, HIT_TOKENS, PHASE_BYTES, L1_USAGE, L1_FAILURES, L1_EVICTED, *_MP, *_IN_PROCESS,
)  # fmt: skip

_AGENT: Final = ("hostname", "agent_name")
_MULTI: Final = ("pid", "agent_instance", "local_rank")
_ONE_RANK: Final = (
    "The exporter for a single process shows the one rank that won the port; with several ranks "
    "the multi-process one is needed."
)


def _nixl(kind: MetricType, name: str, unit: Unit, text: str, *labels: str,
          traps: tuple[str, ...] = ()) -> Metric:  # fmt: skip
    return Metric(
        f"agent_{name}", kind, unit, text, (*_AGENT, *_MULTI, *labels), lazy=True, traps=traps
    )


REGISTERED: Final = _nixl(
    "counter", "memory_registered_total", "bytes", "Memory registered with NIXL, all time.",
    traps=("Less what was deregistered it is the memory registered now.", _ONE_RANK),
)  # fmt: skip
DEREGISTERED: Final = _nixl(
    "counter", "memory_deregistered_total", "bytes", "Memory deregistered from NIXL, all time."
)
NIXL_ERRORS: Final = _nixl(
    "counter", "errors_total", "count", "Failed operations of NIXL, by status.", "status",
    traps=(_ONE_RANK,),
)  # fmt: skip
NIXL_SENT: Final = _nixl(
    "counter", "tx_bytes_total", "bytes", "Bytes written by NIXL.", traps=(_ONE_RANK,)
)
NIXL_READ: Final = _nixl(
    "counter", "rx_bytes_total", "bytes", "Bytes read by NIXL.", traps=(_ONE_RANK,)
)

_MICRO: Final = "Microseconds."

NIXL: Final[tuple[Metric, ...]] = (
    REGISTERED, DEREGISTERED, NIXL_ERRORS, NIXL_SENT, NIXL_READ,
    _nixl("counter", "tx_requests_num_total", "requests", "Writes of NIXL."),
    _nixl("counter", "rx_requests_num_total", "requests", "Reads of NIXL."),
    _nixl("gauge", "tx_last_bytes", "bytes", "Bytes of the last write."),
    _nixl("gauge", "rx_last_bytes", "bytes", "Bytes of the last read."),
    _nixl("counter", "xfer_time_total", "seconds", "Time of all transfers.", traps=(_MICRO,)),
    _nixl("counter", "xfer_post_time_total", "seconds", "Time to post all transfers.",
          traps=(_MICRO,)),
    _nixl("histogram", "xfer_time_us", "seconds", "Time of one transfer.", traps=(_MICRO,)),
    _nixl("histogram", "xfer_post_time_us", "seconds", "Time to post one transfer.",
          traps=(_MICRO,)),
    _nixl("counter", "telemetry_events_dropped_total", "count",
          "Events dropped: the other counts miss them."),
)  # fmt: skip
