"""vLLM's families of KV connectors that move KV between servers: NIXL, Mooncake and others."""

from __future__ import annotations

from typing import Final

from catalog.metric import Gate, Metric
from catalog.vllm_family import counter, gauge, histogram

_NIXL: Final = Gate(connectors=("NixlConnector",))
_RANKS: Final = "Tensor-parallel ranks are pooled, one observation each: the count is not requests."
_TIME: Final = (0.005, 5.0)
_BYTES: Final = (2048.0, 8589934592.0)
_DESCRIPTORS: Final = (10.0, 50000.0)

NIXL: Final[tuple[Metric, ...]] = (
    histogram("nixl_xfer_time_seconds", "seconds", "Time of one NIXL transfer of one rank.",
              _TIME, since="0.18", gate=_NIXL, rust=True,
              traps=("Above 5 s all is one bucket; tensor-parallel ranks are pooled, so the count "
                     "is not requests.",
                     "Transfers overlap: bytes over time is not the link's throughput.")),
    histogram("nixl_post_time_seconds", "seconds", "Time to post one NIXL transfer.",
              (0.001, 5.0), since="0.18", gate=_NIXL, rust=True,
              traps=("Part of the transfer's time: equal to it where transfers are tiny.",)),
    histogram("nixl_bytes_transferred", "bytes", "Bytes of one NIXL transfer.", _BYTES,
              since="0.18", gate=_NIXL, rust=True, traps=(_RANKS,)),
    histogram("nixl_num_descriptors", "count", "Descriptors of one NIXL transfer.", _DESCRIPTORS,
              since="0.18", gate=_NIXL, rust=True, traps=(_RANKS,)),
    counter("nixl_num_failed_transfers_total", "count", "NIXL transfers that failed.",
            since="0.18", gate=_NIXL, rust=True,
            traps=("From 0.33 on it includes failed notifications and handshakes: don't add them, "
                   "and expect a step at that upgrade.",
                   "One failed pull may count as none or one.")),
    counter("nixl_num_failed_notifications_total", "count", "NIXL notifications that failed.",
            since="0.18", gate=_NIXL, rust=True),
    counter("nixl_num_kv_expired_reqs_total", "requests",
            "Requests whose KV lease ran out before it was pulled; lives on prefill.",
            since="0.18", gate=_NIXL, rust=True,
            traps=("A lease is 480 s up to 0.18 and 30 s, kept alive by decode, from 0.26 on.",
                   "Up to 0.18 an idle prefill reaps no lease before its next request.")),
    counter("nixl_num_notifications_after_expiry_total", "requests",
            "Reads of KV that had already been given up: wrong answers are possible.",
            since="0.32", gate=_NIXL),
)  # fmt: skip

_MOONCAKE: Final = Gate(connectors=("MooncakeConnector",))
_STORE: Final = Gate(connectors=("MooncakeStoreConnector",))
_OPERATION: Final = ("operation", "status")

MOONCAKE: Final[tuple[Metric, ...]] = (
    histogram("mooncake_xfer_time_seconds", "seconds", "Time of one Mooncake transfer.", _TIME,
              since="0.33", gate=_MOONCAKE, rust=True),
    histogram("mooncake_bytes_transferred", "bytes", "Bytes of one Mooncake transfer.", _BYTES,
              since="0.33", gate=_MOONCAKE, rust=True),
    histogram("mooncake_num_descriptors", "count", "Descriptors of one Mooncake transfer.",
              _DESCRIPTORS, since="0.33", gate=_MOONCAKE, rust=True),
    counter("mooncake_num_failed_transfers_total", "count", "Mooncake transfers that failed.",
            since="0.33", gate=_MOONCAKE, rust=True),
    counter("mooncake_num_failed_recvs_total", "count", "Mooncake receives that failed.",
            since="0.33", gate=_MOONCAKE, rust=True),
    counter("mooncake_num_kv_expired_reqs_total", "requests",
            "Requests whose KV was given up before it was read (Mooncake).", since="0.33",
            gate=_MOONCAKE, rust=True),
    histogram("mooncake_store_operation_time_seconds", "seconds",
              "Time of one operation of Mooncake's store.", (0.001, 4.0), _OPERATION, since="0.26",
              gate=_STORE, lazy=True, rust=True),
    counter("mooncake_store_operation_total", "count", "Operations of Mooncake's store.",
            _OPERATION, since="0.26", gate=_STORE, lazy=True, rust=True),
    counter("mooncake_store_operation_keys_total", "count", "Keys of Mooncake's operations.",
            _OPERATION, since="0.26", gate=_STORE, lazy=True, rust=True),
    counter("mooncake_store_operation_bytes_total", "bytes", "Bytes of Mooncake's operations.",
            _OPERATION, since="0.26", gate=_STORE, lazy=True, rust=True),
    counter("mooncake_store_operation_failed_keys_total", "count",
            "Keys that Mooncake's operations failed on.", _OPERATION, since="0.26", gate=_STORE,
            lazy=True, rust=True),
)  # fmt: skip

_HF3FS: Final = Gate(connectors=("HF3FSConnector",))
_HISPARSE: Final = Gate("HiSparse")
_RESIDENCE: Final = (0.001, 1800.0)
_SAMPLED: Final = Gate("HiSparse and --kv-cache-metrics")
_UMBP: Final = Gate("UMBP")

OTHERS: Final[tuple[Metric, ...]] = (
    histogram("hf3fs_save_duration_seconds", "seconds", "Time to save KV to 3FS.", (0.001, 5.0),
              since="0.26", gate=_HF3FS),
    counter("hf3fs_num_failed_save_total", "count", "Saves of KV to 3FS that failed.",
            since="0.26", gate=_HF3FS),
    histogram("hf3fs_load_duration_seconds", "seconds", "Time to load KV from 3FS.", (0.001, 5.0),
              since="0.26", gate=_HF3FS),
    counter("hf3fs_num_failed_load_total", "count", "Loads of KV from 3FS that failed.",
            since="0.26", gate=_HF3FS),
    counter("hisparse_cache_hits_total", "count", "Hits of HiSparse's cache on the GPU.",
            since="0.32", gate=_HISPARSE),
    counter("hisparse_cache_misses_total", "count", "Misses of HiSparse's cache on the GPU.",
            since="0.32", gate=_HISPARSE),
    counter("hisparse_host_to_device_bytes_total", "bytes", "Bytes that HiSparse fetched from "
            "the host.", since="0.32", gate=_HISPARSE),
    gauge("hisparse_host_cache_usage_perc", "ratio", "Share of HiSparse's host cache in use, 0 to "
          "1.", since="0.32", gate=_HISPARSE),
    gauge("hisparse_pending_page_transfers", "count", "Page transfers that wait (HiSparse).",
          since="0.32", gate=_HISPARSE),
    histogram("hisparse_host_block_lifetime_seconds", "seconds",
              "Life of a host block until its eviction (HiSparse).", _RESIDENCE, since="0.32",
              gate=_SAMPLED),
    histogram("hisparse_host_block_idle_before_evict_seconds", "seconds",
              "Time from a host block's last use to its eviction (HiSparse).", _RESIDENCE,
              since="0.32", gate=_SAMPLED),
    histogram("hisparse_host_block_reuse_gap_seconds", "seconds",
              "Time between two uses of a host block (HiSparse).", _RESIDENCE, since="0.32",
              gate=_SAMPLED),
    counter("umbp_transfer_submitted_total", "count", "Transfers submitted (UMBP).",
            ("operation",), since="0.33", gate=_UMBP),
    counter("umbp_transfer_completed_total", "count", "Transfers completed (UMBP).",
            ("operation",), since="0.33", gate=_UMBP),
    counter("umbp_transfer_failed_total", "count", "Transfers that failed (UMBP).",
            ("operation",), since="0.33", gate=_UMBP),
    counter("umbp_transfer_bytes_total", "bytes", "Bytes transferred (UMBP).", ("operation",),
            since="0.33", gate=_UMBP),
)  # fmt: skip
