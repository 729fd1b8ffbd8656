"""Signals that vLLM alone can't give: the user's TTFT, transfers between pools, KV tiers."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from catalog import promql
from catalog.forms import W, latency, rate
from catalog.labels import LEVELS
from catalog.metrics import ours, vllm
from catalog.peers import EPP_TTFT
from catalog.peers_cache import PHASE_BYTES
from catalog.signal import Signal
from catalog.signals_beside import cache_restores, or_cache


def _ttft_user() -> Signal:
    """Return the TTFT that the user sees: the router's, else a probe's, else the stages' sum."""
    by = LEVELS["deployment"]
    on = f"on ({', '.join(by)})"
    e2e, ttft = vllm("e2e_request_latency_seconds"), vllm("time_to_first_token_seconds")

    def source(expr: str, name: str) -> str:
        return f'label_replace({expr}, "source", "{name}", "", "")'

    router = promql.mean(EPP_TTFT, by, 'streaming!="false"')
    probe = promql.mean(ours("probe_ttft_seconds"), by)
    # Means of stages that follow one another add up; their quantiles would not.
    prefill = promql.mean(e2e, by, 'pool="prefill"')
    decode = promql.mean(ttft, by, 'pool="decode"')
    stages = f"({prefill}) + {on} ({decode})"
    alone = promql.mean(ttft, by, 'pool="aggregate"')
    expr = (
        f"{source(router, 'router')} or {on} {source(probe, 'probe')} "
        f"or {on} {source(stages, 'stages')} or {on} {source(alone, 'server')}"
    )
    return Signal(
        "ttft_user_mean", "Mean time to first token, as the user sees it", "seconds",
        "deployment", expr, f"mean{W}", "up",
        (EPP_TTFT, ours("probe_ttft_seconds"), e2e, ttft), extra=("source",),
        load="request_rate",
        note="source says who measured it: router; probe (our own requests); stages (prefill's "
             "mean end-to-end time and decode's mean TTFT, without what the router adds); server "
             "(no pools).",
    )  # fmt: skip


def _restores() -> Signal:
    """Return what comes back to the GPU: by vLLM's own connector, else by LMCache."""
    # By direction under the older name, one direction alone (no such label) under the newer.
    own = rate(
        "restore_bytes_rate", "KV bytes restored to the GPU from slower tiers",
        vllm("kv_offload_load_bytes_total"), unit="bytes_per_second",
        where='transfer_type=~"(.+_to_GPU)?"',
        note="Of vLLM's OffloadingConnector, else of LMCache's multiprocess mode; other connectors "
             "don't tell bytes.",
    )  # fmt: skip
    return replace(
        own, expr=or_cache(own.expr, cache_restores()), metrics=(*own.metrics, PHASE_BYTES)
    )


USER: Final[tuple[Signal, ...]] = (_ttft_user(),)

TRANSFER: Final[tuple[Signal, ...]] = (
    latency("transfer_time_mean", "Mean KV transfer time (NIXL)", "nixl_xfer_time_seconds",
            load="transfer_bytes_rate"),
    latency("transfer_post_time_mean", "Mean time to post a KV transfer (NIXL)",
            "nixl_post_time_seconds"),
    latency("transfer_descriptors_mean", "Mean descriptors of a KV transfer (NIXL)",
            "nixl_num_descriptors"),
    rate("transfer_bytes_rate", "KV bytes transferred (NIXL)", vllm("nixl_bytes_transferred"),
         unit="bytes_per_second", part="_sum"),
    rate("transfer_failures_rate", "Failed KV transfers (NIXL)",
         vllm("nixl_num_failed_transfers_total"), level="server", bad="up"),
    rate("notification_failures_rate", "Failed KV notifications (NIXL)",
         vllm("nixl_num_failed_notifications_total"), level="server", bad="up"),
    rate("leases_expired_rate", "KV leases expired before the pull (NIXL)",
         vllm("nixl_num_kv_expired_reqs_total"), level="server", bad="up"),
    rate("reads_after_expiry_rate", "Reads of KV after its lease expired (NIXL)",
         vllm("nixl_num_notifications_after_expiry_total"), level="server", bad="up"),
    _restores(),
)  # fmt: skip
