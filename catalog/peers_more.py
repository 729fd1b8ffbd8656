"""Further metrics of the programs beside vLLM, which no signal reads yet: known, passed on, told.

One line each: name, type, unit, labels, meaning. Sources as in the modules beside this one.
"""

from __future__ import annotations

from typing import Final, cast, get_args

from catalog.metric import Metric, MetricType
from catalog.units import Unit

_TABLES: Final = {
    "llm_d_epp_": """
plugin_data_scope_violations_total|counter|count|extension_point plugin_type plugin_name access|Reads by plugins of what they had not asked for.
prefix_predicted_cached_tokens|histogram|tokens|plugin_type|Prompt tokens that the precise index expects to be cached.
prefix_prompt_tokens|histogram|tokens|plugin_type|Prompt tokens that the precise index looked at.
disaggregatedset_strict_header_no_match_total|counter|count|selector mode|Requests whose revision no server had.
disaggregatedset_revision_gating_share|gauge|ratio|revision|Share of requests sent to a revision in a rollout.
flow_control_global_capacity_utilization_requests|gauge|ratio|priority inference_pool|Share of the room for requests of all priorities in use.
flow_control_global_capacity_utilization_bytes|gauge|ratio|priority inference_pool|Share of the room in bytes of all priorities in use.
flow_control_revocations_issued_total|counter|count||Requests under way that were told to give way.
flow_control_reclaim_target|gauge|count||Room that flow control wants back.
flow_control_pending_reclaim|gauge|count||Room told to be given back and not there yet.
flow_control_revocation_confirmation_seconds|histogram|seconds||Time from being told to giving way.
program_aware_jains_fairness_index|gauge|ratio|program_id|Fairness between programs, 1 the fairest.
program_aware_avg_wait_time_milliseconds|gauge|seconds|program_id|Mean wait of a program. Milliseconds.
program_aware_attained_service_tokens|gauge|tokens|program_id|Tokens that a program has had.
encoder_cache_queries_total|counter|count|plugin_type plugin_name pod modality|Lookups in the encoder cache.
encoder_cache_hits_total|counter|count|plugin_type plugin_name pod modality|Hits in the encoder cache.
encoder_cache_hit_ratio|gauge|ratio|plugin_type plugin_name pod modality|Hit ratio of the encoder cache, all time: prefer the counters.
inference_request_metric|gauge|count|plugin_name plugin_type model_name target_model_name type|Last value of a predictor, by type, each in its own unit.
request_predicted_ttft_seconds|histogram|seconds|plugin_name plugin_type model_name target_model_name|TTFT that the router predicted.
request_predicted_tpot_seconds|histogram|seconds|plugin_name plugin_type model_name target_model_name|TPOT that the router predicted.
request_ttft_prediction_duration_seconds|histogram|seconds|plugin_name plugin_type model_name target_model_name|Time to predict a TTFT.
request_tpot_prediction_duration_seconds|histogram|seconds|plugin_name plugin_type model_name target_model_name|Time to predict a TPOT.
request_slo_violation_total|counter|requests|plugin_name plugin_type model_name target_model_name type|Requests slower than they asked for.
extproc_streams_inflight|gauge|count||Streams from the gateway that are open.
extproc_stream_duration_seconds|histogram|seconds||Time of a stream from the gateway.
extproc_streams_total|counter|count|code|Streams from the gateway, by how they ended.
kv_cache_events_dedup_removed_hashes_suppressed_total|counter|count||Removals of blocks that another copy outlived.
kv_cache_events_dedup_removed_hashes_forwarded_total|counter|count||Removals of blocks of which none was left.
""",
    "agent_": """
memory_registered_last_bytes|gauge|bytes|hostname agent_name pid agent_instance local_rank|Memory of the last registration.
memory_deregistered_last_bytes|gauge|bytes|hostname agent_name pid agent_instance local_rank|Memory of the last deregistration.
xfer_time|gauge|seconds|hostname agent_name pid agent_instance local_rank|Time of the last transfer. Microseconds.
xfer_post_time|gauge|seconds|hostname agent_name pid agent_instance local_rank|Time to post the last transfer. Microseconds.
""",
    "lmcache:": """
retrieve_hit_rate|gauge|ratio|model_name worker_id|Near 1 by construction: use the counters of lookups.
lookup_hit_rate|gauge|ratio|model_name worker_id|Hit ratio of late lookups: prefer the counters.
request_cache_hit_rate|histogram|ratio|model_name worker_id|Hit ratio of one request.
retrieve_speed|histogram|tokens_per_second|model_name worker_id|Speed of one read.
store_speed|histogram|tokens_per_second|model_name worker_id|Speed of one write.
num_slow_retrieval_by_time_total|counter|count|model_name worker_id|Reads that took too long.
num_slow_retrieval_by_speed_total|counter|count|model_name worker_id|Reads that were too slow.
request_cache_lifespan|histogram|seconds|model_name worker_id|Age of what a request found. Minutes.
active_memory_objs_count|gauge|count|model_name worker_id|Objects in host memory.
local_cpu_evict_keys_count_total|counter|count|model_name worker_id|Keys dropped from host memory.
local_cpu_evict_failed_count_total|counter|count|model_name worker_id|Evictions that found nothing to drop.
num_remote_read_requests_total|counter|requests|model_name worker_id|Reads of the remote store.
num_remote_write_requests_total|counter|requests|model_name worker_id|Writes to the remote store.
remote_time_to_get|histogram|seconds|model_name worker_id|Time of one read of the remote store. Milliseconds.
remote_time_to_put|histogram|seconds|model_name worker_id|Time of one write to the remote store. Milliseconds.
remote_ping_latency|gauge|seconds|model_name worker_id|Round trip to the remote store. Milliseconds.
remote_ping_errors_total|counter|count|model_name worker_id|Pings that the remote store did not answer.
retrieve_process_tokens_time|histogram|seconds|model_name worker_id|Time of a read spent on tokens.
retrieve_broadcast_time|histogram|seconds|model_name worker_id|Time of a read spent on telling other ranks.
retrieve_to_gpu_time|histogram|seconds|model_name worker_id|Time of a read spent on copying to the GPU.
store_process_tokens_time|histogram|seconds|model_name worker_id|Time of a write spent on tokens.
store_from_gpu_time|histogram|seconds|model_name worker_id|Time of a write spent on copying from the GPU.
store_put_time|histogram|seconds|model_name worker_id|Time of a write spent on the store.
remote_time_to_get_sync|histogram|seconds|model_name worker_id|Time of one blocking read of the remote store. Milliseconds.
remote_backend_batched_get_blocking_time|histogram|seconds|model_name worker_id|Time of one blocking read of several from the remote store. Milliseconds.
instrumented_connector_batched_get_time|histogram|seconds|model_name worker_id|Time of one read of several by the connector. Milliseconds.
p2p_time_to_transfer|histogram|seconds|model_name worker_id|Time of one transfer between peers.
p2p_transfer_speed|histogram|tokens_per_second|model_name worker_id|Speed of one transfer between peers.
lookup_0_hit_requests_total|counter|requests|model_name worker_id|Lookups that found nothing.
local_cpu_hot_cache_count|gauge|count|model_name worker_id|Objects in the hot cache of host memory.
local_cpu_keys_in_request_count|gauge|count|model_name worker_id|Keys in use by requests.
pin_monitor_pinned_objects_count|gauge|count|model_name worker_id|Objects pinned, as the monitor of pins sees it.
get_blocking_failed_count|gauge|count|model_name worker_id|Blocking reads that failed, all time.
put_failed_count|gauge|count|model_name worker_id|Writes that failed, all time.
remote_put_task_num|gauge|count|model_name worker_id|Writes to the remote store that wait.
remote_ping_error_code|gauge|count|model_name worker_id|Code of the last failed ping of the remote store, 0 for none.
kv_msg_queue_size|gauge|count|model_name worker_id|Messages of KV that wait.
periodic_threads_total_count|gauge|count|model_name worker_id|Periodic threads.
periodic_threads_running_count|gauge|count|model_name worker_id|Periodic threads that run.
periodic_threads_active_count|gauge|count|model_name worker_id|Periodic threads that are at work.
chunk_statistics_enabled|gauge|count|model_name worker_id|Whether chunks are counted: 1 or 0.
chunk_statistics_total_requests|gauge|requests|model_name worker_id|Requests whose chunks were counted.
chunk_statistics_total_chunks|gauge|count|model_name worker_id|Chunks counted.
chunk_statistics_unique_chunks|gauge|count|model_name worker_id|Different chunks among them.
chunk_statistics_reuse_rate|gauge|ratio|model_name worker_id|Share of chunks seen before: the ceiling of any cache.
chunk_statistics_bloom_filter_size_mb|gauge|bytes|model_name worker_id|Size of the filter that counts chunks. MB.
chunk_statistics_bloom_filter_fill_rate|gauge|ratio|model_name worker_id|Fill of that filter: full, it overstates reuse.
chunk_statistics_file_count|gauge|count|model_name worker_id|Files of counted chunks.
chunk_statistics_current_file_size|gauge|bytes|model_name worker_id|Size of the file of chunks being written.
cache_controller_registered_workers_count|gauge|count|model_name worker_id|Workers that the controller knows.
cache_controller_kv_pool_keys_count|gauge|count|model_name worker_id|Keys that the controller knows.
cache_controller_kv_op_seq_discontinuity_count|gauge|count|model_name worker_id|Gaps in the workers' messages: the controller's picture is wrong then.
cache_controller_full_sync_workers_syncing|gauge|count|model_name worker_id|Workers that are being read in anew.
cache_controller_full_sync_workers_completed|gauge|count|model_name worker_id|Workers that were read in anew.
cache_controller_full_sync_global_progress|gauge|ratio|model_name worker_id|How far reading in anew has come.
cache_controller_full_sync_missing_batches_total|gauge|count|model_name worker_id|Parts that went missing in reading in anew; a gauge in spite of its name.
cache_controller_pull_socket_message_count|gauge|count|model_name worker_id|Messages pulled by the controller.
cache_controller_pull_socket_has_pending|gauge|count|model_name worker_id|Whether messages wait to be pulled: 1 or 0.
cache_controller_pull_socket_active_requests|gauge|count|model_name worker_id|Pulled messages at work.
cache_controller_reply_socket_message_count|gauge|count|model_name worker_id|Messages that want an answer of the controller.
cache_controller_reply_socket_has_pending|gauge|count|model_name worker_id|Whether messages wait for an answer: 1 or 0.
cache_controller_reply_socket_active_requests|gauge|count|model_name worker_id|Answers at work.
remote_ping_successes_total|counter|count|model_name worker_id|Pings that the remote store answered.
""",
    "lmcache_mp_": """
l1_eviction_loop_ticks_total|counter|count||Rounds of the loop that drops chunks.
l1_eviction_loop_triggered_total|counter|count||Rounds of it that had to drop some.
l1_staging_bytes|gauge|bytes||Host memory that transfers are staged in.
l2_prefetch_adapters|gauge|count||Second tiers that are loaded from.
l2_store_adapters|gauge|count||Second tiers that are stored to.
timeouts_total|counter|count||Requests to LMCache that took too long.
transfer_staging_throughput_GB_per_second|histogram|bytes_per_second|device_index direction|Speed of one staged transfer. GB/s.
kv_events_log_depth|gauge|count||KV events that are kept for late listeners.
key_directory_placement_count|gauge|count|tier|Keys that the coordinator knows, by tier.
key_directory_placement_size_bytes|gauge|bytes|tier|Size of what the coordinator knows, by tier.
l1_chunk_evict_reuse_gap_seconds|histogram|seconds||Time from a chunk's eviction to its next use: what was dropped too early.
real_reuse_gap_objects|histogram|count||Objects used between two uses of a prefix.
l2_store_submitted_objects_chunks_total|counter|count||Objects sent to the second tier.
l2_store_completed_objects_chunks_total|counter|count||Objects stored by the second tier.
l2_prefetch_lookup_requests_total|counter|count||Lookups in the second tier.
l2_prefetch_lookup_objects_chunks_total|counter|count||Objects looked for in the second tier.
l2_prefetch_load_submitted_requests_total|counter|count||Loads asked of the second tier.
l2_prefetch_load_submitted_objects_chunks_total|counter|count||Objects asked of the second tier.
l2_prefetch_load_completed_chunks_total|counter|count||Loads that the second tier answered.
lookup_hit_l1_keys_total|counter|count|model_name cache_salt|Keys found in host memory.
lookup_hit_l2_keys_total|counter|count|model_name cache_salt|Keys found in the second tier.
l0_block_lifetime_seconds|histogram|seconds|instance_id model_name|Age of a GPU block when it was dropped.
l0_block_idle_before_evict_seconds|histogram|seconds|instance_id model_name|Time since a GPU block's last use when it was dropped.
l0_block_reuse_gap_seconds|histogram|seconds|instance_id model_name|Time between two uses of a GPU block.
l0_l1_store_throughput_GB_per_second|histogram|bytes_per_second|engine_id device model_name|Speed of one transfer to host memory. GB/s.
l0_l1_load_throughput_GB_per_second|histogram|bytes_per_second|engine_id device model_name|Speed of one transfer to the GPU. GB/s.
l2_store_throughput_GB_per_second|histogram|bytes_per_second|l2_name|Speed of one store to the second tier. GB/s.
l2_load_throughput_GB_per_second|histogram|bytes_per_second|l2_name|Speed of one load from the second tier. GB/s.
num_submitted_stores_total|counter|count|device|Stores from GPUs that began.
num_submitted_retrieves_total|counter|count|device|Loads to GPUs that began.
num_finished_stores_total|counter|count|device|Stores from GPUs that ended.
num_finished_retrieves_total|counter|count|device|Loads to GPUs that ended.
num_chunks_loaded_total|counter|count|worker_id model_name cache_salt|Chunks loaded to GPUs.
num_inflight_l2_stores|gauge|count|l2_name adapter_index|Stores to the second tier under way.
num_inflight_l2_loads|gauge|count|l2_name adapter_index|Loads from the second tier under way.
inflight_load_memory_usage_bytes|gauge|bytes||Memory that loads under way hold.
event_bus_drain_lag_seconds|gauge|seconds||How far LMCache's own counts are behind.
event_bus_subscriber_exceptions_total|counter|count|subscriber_name|Failures of what counts LMCache's events.
""",
    "DCGM_": """
FI_DEV_SYNC_BOOST_VIOLATION|counter|seconds|gpu UUID hostname|Time held down by synchronous boost. Nanoseconds.
FI_DEV_BOARD_LIMIT_VIOLATION|counter|seconds|gpu UUID hostname|Time held down by the board's limit. Nanoseconds.
FI_DEV_LOW_UTIL_VIOLATION|counter|seconds|gpu UUID hostname|Time held down for lack of work. Nanoseconds.
FI_DEV_RELIABILITY_VIOLATION|counter|seconds|gpu UUID hostname|Time held down for reliability. Nanoseconds.
FI_PROF_NVLINK_TX_BYTES|gauge|bytes_per_second|gpu UUID hostname|Bytes sent over NVLink, a second: no rate() of it.
FI_PROF_NVLINK_RX_BYTES|gauge|bytes_per_second|gpu UUID hostname|Bytes received over NVLink, a second: no rate() of it.
FI_DEV_ECC_SBE_VOL_TOTAL|counter|count|gpu UUID hostname|Corrected memory errors since the driver was loaded.
FI_DEV_ECC_DBE_VOL_TOTAL|counter|count|gpu UUID hostname|Uncorrected memory errors since the driver was loaded.
FI_DEV_ECC_SBE_AGG_TOTAL|counter|count|gpu UUID hostname|Corrected memory errors, all time.
FI_DEV_ECC_DBE_AGG_TOTAL|counter|count|gpu UUID hostname|Uncorrected memory errors, all time.
FI_DEV_RETIRED_SBE|counter|count|gpu UUID hostname|Pages retired for corrected errors.
FI_DEV_RETIRED_DBE|counter|count|gpu UUID hostname|Pages retired for uncorrected errors.
FI_DEV_RETIRED_PENDING|counter|count|gpu UUID hostname|Pages to be retired at the next restart.
EXP_CLOCK_EVENTS_COUNT|gauge|count|gpu UUID hostname clock_event window_size_in_ms|Samples of a window in which a reason held the clocks down.
EXP_XID_ERRORS_COUNT|gauge|count|gpu UUID hostname xid window_size_in_ms|Xid errors of a window.
EXP_GPU_HEALTH_STATUS|gauge|count|gpu UUID hostname health_watch health_error_code|Health of a part of the GPU, 0 for well.
EXP_P2P_STATUS|gauge|count|gpu UUID hostname peer_gpu|State of the path to another GPU.
""",
}  # fmt: skip


def _metric(prefix: str, row: str) -> Metric:
    name, kind, unit, labels, text = row.split("|")
    if kind not in get_args(MetricType) or unit not in get_args(Unit):
        raise ValueError(f"{prefix}{name}: no type {kind} or no unit {unit}")
    told = [word for word in ("Milliseconds.", "Microseconds.", "Minutes.", "Nanoseconds.", "GB/s.", "MB.")
            if text.endswith(word)]  # fmt: skip
    for word in told:
        text = text.removesuffix(word).strip()
    return Metric(
        prefix + name, cast("MetricType", kind), cast("Unit", unit), text, tuple(labels.split()),
        lazy=True, traps=tuple(told),
    )  # fmt: skip


MORE: Final[tuple[Metric, ...]] = tuple(
    _metric(prefix, row) for prefix, table in _TABLES.items() for row in table.split("\n") if row
)
