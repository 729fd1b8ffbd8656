"""vLLM's families of KV offloading: one tier beside the GPU, several, and the simple connector."""

from __future__ import annotations

from typing import Final

from catalog.metric import Gate, Metric
from catalog.vllm_family import counter, gauge, histogram

_ON: Final = ("OffloadingConnector",)
_OFFLOAD: Final = Gate(connectors=_ON)
_CPU: Final = Gate("CPUOffloadingSpec or TieringOffloadingSpec", _ON)
_TIERING: Final = Gate("TieringOffloadingSpec", _ON)
_SIMPLE: Final = Gate(connectors=("SimpleCPUOffloadConnector",))

_SIZE: Final = (1e6, 2e8)
_SYNC: Final = (1e-5, 1.0)
_ASYNC: Final = (1e-4, 10.0)
_CAPPED: Final = "Above 200 MB all is one bucket."
_PINNED: Final = (
    "What transfers in flight pin, near zero in health: it is not how full the tier is."
)
_AGAIN: Final = (
    "By transfer_type in both directions; from 0.26 on the names without that label count the same "
    "bytes again: don't add them."
)

OFFLOAD: Final[tuple[Metric, ...]] = (
    counter("kv_offload_load_bytes_total", "bytes",
            "Bytes of KV restored to the GPU from slower tiers (OffloadingConnector).",
            since="0.26", gate=_OFFLOAD, lazy=True,
            former=("vllm:kv_offload_total_bytes_total",), varying=("transfer_type",),
            traps=("The older name, by transfer_type in both directions, is in 0.33 still and "
                   "counts the same bytes again: don't add them.",)),
    counter("kv_offload_load_time_total", "seconds", "Time of restoring KV to the GPU.",
            since="0.26", gate=_OFFLOAD, lazy=True),
    histogram("kv_offload_load_size", "bytes", "Bytes of one restoring to the GPU.", _SIZE,
              since="0.26", gate=_OFFLOAD, lazy=True, traps=(_CAPPED,)),
    counter("kv_offload_store_bytes_total", "bytes", "Bytes of KV moved off the GPU.",
            since="0.26", gate=_OFFLOAD, lazy=True),
    counter("kv_offload_store_time_total", "seconds", "Time of moving KV off the GPU.",
            since="0.26", gate=_OFFLOAD, lazy=True),
    histogram("kv_offload_store_size", "bytes", "Bytes of one move off the GPU.", _SIZE,
              since="0.26", gate=_OFFLOAD, lazy=True, traps=(_CAPPED,)),
    histogram("kv_offload_lookup_sync_delay_seconds", "seconds",
              "Time of a lookup that is answered at once.", _SYNC, since="0.26", gate=_OFFLOAD,
              lazy=True),
    histogram("kv_offload_lookup_async_delay_seconds", "seconds",
              "Time until a lookup that takes steps is answered.", _ASYNC, since="0.26",
              gate=_OFFLOAD, lazy=True),
    counter("kv_offload_allocation_failure_total", "count",
            "Blocks that found no room in the slower tier.", since="0.26", gate=_OFFLOAD,
            lazy=True),
    counter("kv_offload_total_bytes_total", "bytes", "Bytes moved between the GPU and the CPU.",
            ("transfer_type",), since="0.18", gate=_OFFLOAD, traps=(_AGAIN,)),
    counter("kv_offload_total_time_total", "seconds", "Time of moves between GPU and CPU.",
            ("transfer_type",), since="0.18", gate=_OFFLOAD, traps=(_AGAIN,)),
    histogram("kv_offload_size", "bytes", "Bytes of one move between GPU and CPU.", _SIZE,
              ("transfer_type",), since="0.18", gate=_OFFLOAD, traps=(_AGAIN, _CAPPED)),
    gauge("kv_offload_cpu_cache_usage_perc", "ratio", "Share of the CPU tier pinned.",
          since="0.26", gate=_CPU, lazy=True, by_pid=("0.26",), traps=(_PINNED,)),
    gauge("kv_offload_cpu_cache_write_usage_perc", "ratio",
          "Share of the CPU tier pinned by moves to it.", since="0.26", gate=_CPU, lazy=True,
          by_pid=("0.26",), traps=(_PINNED,)),
    gauge("kv_offload_cpu_cache_read_usage_perc", "ratio",
          "Share of the CPU tier pinned by moves from it.", since="0.26", gate=_CPU, lazy=True,
          by_pid=("0.26",), traps=(_PINNED,)),
    histogram("kv_offload_cpu_allocation_size", "count", "Blocks of one allocation in the CPU "
              "tier.", (1.0, 262144.0), since="0.26", gate=_CPU, lazy=True),
    counter("kv_offload_stores_skipped_total", "count",
            "Blocks not moved because they were not used often enough.", since="0.26",
            gate=Gate("store_threshold of 2 or more", _ON), lazy=True),
    gauge("kv_offload_config_info", "count", "How the slower tiers are set up, in labels; always "
          "1.", ("cpu_blocks_per_chunk", "cpu_kv_cache_size_bytes", "cpu_kv_cache_size_tokens",
                 "cpu_num_chunks"), since="0.33", gate=_CPU, lazy=True, open_labels=True,
          traps=("It appears at the first step of the scheduler.",)),
)  # fmt: skip

_TIER: Final = ("tier",)
TIERING: Final[tuple[Metric, ...]] = (
    histogram("kv_offload_tiering_lookup_sync_delay_seconds", "seconds",
              "Time of a lookup in a tier that is answered at once.", _SYNC, _TIER, since="0.26",
              gate=_TIERING, lazy=True),
    histogram("kv_offload_tiering_lookup_async_delay_seconds", "seconds",
              "Time until a tier's lookup that takes steps is answered.", _ASYNC, _TIER,
              since="0.26", gate=_TIERING, lazy=True),
    counter("kv_offload_tiering_read_bytes_total", "bytes", "Bytes read from a tier.", _TIER,
            since="0.32", gate=_TIERING, lazy=True),
    counter("kv_offload_tiering_read_time_total", "seconds", "Time of reads from a tier.", _TIER,
            since="0.32", gate=_TIERING, lazy=True,
            traps=("A tier that doesn't time its jobs has none.",)),
    counter("kv_offload_tiering_write_bytes_total", "bytes", "Bytes written to a tier.", _TIER,
            since="0.32", gate=_TIERING, lazy=True),
    counter("kv_offload_tiering_write_time_total", "seconds", "Time of writes to a tier.", _TIER,
            since="0.32", gate=_TIERING, lazy=True,
            traps=("A tier that doesn't time its jobs has none.",)),
    counter("kv_offload_tiering_promotion_job_failures_total", "count",
            "Moves from a tier to a faster one that failed.", _TIER, since="0.32", gate=_TIERING,
            lazy=True),
    counter("kv_offload_tiering_cascade_job_failures_total", "count",
            "Moves from a tier to a slower one that failed.", _TIER, since="0.32", gate=_TIERING,
            lazy=True),
    counter("kv_offload_tiering_chunk_queries_total", "count", "Chunks looked up in a tier.",
            _TIER, since="0.32", gate=_TIERING, lazy=True),
    counter("kv_offload_tiering_chunk_hits_total", "count", "Chunks found in a tier.", _TIER,
            since="0.32", gate=_TIERING, lazy=True),
    counter("kv_offload_tiering_backpressure_stores_dropped_total", "count",
            "Stores dropped because a tier was slow.", _TIER, since="0.32", gate=_TIERING,
            lazy=True),
    counter("kv_offload_tiering_backpressure_blocks_dropped_total", "count",
            "Blocks dropped because a tier was slow.", _TIER, since="0.32", gate=_TIERING,
            lazy=True),
    counter("kv_offload_tiering_promotion_allocation_failures_total", "count",
            "Moves to a faster tier that found no room there.", since="0.32", gate=_TIERING,
            lazy=True),
    gauge("kv_offload_tiering_primary_write_usage_perc", "ratio",
          "Share of the first tier pinned by moves to it.", _TIER, since="0.32", gate=_TIERING,
          lazy=True, traps=(_PINNED,)),
    gauge("kv_offload_tiering_primary_read_usage_perc", "ratio",
          "Share of the first tier pinned by moves from it.", _TIER, since="0.32", gate=_TIERING,
          lazy=True, traps=(_PINNED,)),
    gauge("kv_offload_tiering_active_promotion_jobs", "count",
          "Moves to a faster tier under way.", _TIER, since="0.32", gate=_TIERING, lazy=True),
    gauge("kv_offload_tiering_active_cascade_jobs", "count",
          "Moves to a slower tier under way.", _TIER, since="0.32", gate=_TIERING, lazy=True),
    gauge("kv_offload_tiering_backpressure_store_latency_ema", "seconds",
          "Time a tier takes to store, smoothed.", _TIER, since="0.32", gate=_TIERING, lazy=True,
          traps=("Seconds per MiB.",)),
    histogram("kv_offload_tiering_promotion_latency_seconds", "seconds",
              "Time of a move to a faster tier, by result: success or failure.", (0.005, 60.0),
              ("tier", "result"), since="0.33", gate=_TIERING, lazy=True),
)  # fmt: skip

SIMPLE: Final[tuple[Metric, ...]] = (
    counter("simple_kv_offload_save_outcomes_total", "count",
            "What became of KV that could be saved: stored, dropped or skipped, and why.",
            ("outcome",), since="0.32", gate=_SIMPLE,
            traps=("Blocks for some outcomes, requests for others: don't add them up.",)),
    counter("simple_kv_offload_load_blocks_total", "count", "Blocks restored to the GPU.",
            since="0.32", gate=_SIMPLE),
    gauge("simple_kv_offload_used_blocks", "count", "Blocks pinned in host memory.",
          since="0.32", gate=_SIMPLE, traps=(_PINNED,)),
    gauge("simple_kv_offload_pending_store_blocks", "count", "Blocks that wait to be saved.",
          since="0.32", gate=_SIMPLE),
    gauge("simple_kv_offload_info", "count", "How offloading is set up, in labels; always 1.",
          ("backend", "capacity_blocks", "lazy_offload", "page_cache"), since="0.32",
          gate=_SIMPLE),
)  # fmt: skip
