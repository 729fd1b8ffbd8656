"""Every signal, made of the helpers in `promql`: the only list there is."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from catalog import promql
from catalog.labels import LEVELS, Level
from catalog.metric import Metric
from catalog.own import OWN
from catalog.peers import DCGM, EPP_TTFT, PEERS
from catalog.signal import Counts, Direction, Signal
from catalog.units import Unit
from catalog.vllm import VLLM

UP: Final = Metric(
    "up", "gauge", "count", "Whether Prometheus' last scrape of a target succeeded: 1 or 0.",
    ("job", "instance"),
)  # fmt: skip

METRICS: Final[dict[str, Metric]] = {m.name: m for m in (*VLLM, *PEERS, *OWN, UP)}

NOT_PREFILL: Final = 'pool!="prefill"'
NOT_DECODE: Final = 'pool!="decode"'

_W: Final = promql.WINDOW


def _vllm(name: str) -> Metric:
    return METRICS[f"vllm:{name}"]


def _latency(
    name: str,
    title: str,
    metric: str,
    *,
    where: str = "",
    load: str = "",
    note: str = "",
    guard: str = "",
) -> Signal:
    """Return the mean of a latency histogram by pool."""
    m = _vllm(metric)
    expr = promql.mean(m, LEVELS["pool"], where, _vllm(guard) if guard else None)
    return Signal(
        name, title, m.unit, "pool", expr, f"mean{_W}", "up", (m,), load=load,
        note=note or " ".join(m.traps),
    )  # fmt: skip


def _quantile(name: str, title: str, q: float, metric: str, *, where: str = "") -> Signal:
    m = _vllm(metric)
    return Signal(
        name, title, m.unit, "pool", promql.quantile(q, m, LEVELS["pool"], where),
        f"quantile{_W}", "up", (m,),
        note="Equal to the highest bucket bound it may lie above it. Means are for drifts.",
    )  # fmt: skip


def _rate(
    name: str,
    title: str,
    metric: Metric,
    *,
    unit: Unit = "per_second",
    level: Level = "pool",
    where: str = "",
    part: str = "",
    bad: Direction | None = None,
    extra: tuple[str, ...] = (),
    note: str = "",
) -> Signal:
    expr = promql.rate(metric, (*LEVELS[level], *extra), where, part)
    return Signal(
        name, title, unit, level, expr, f"rate{_W}", bad, (metric,), extra=extra,
        note=note or " ".join(metric.traps),
    )  # fmt: skip


def _gauge(
    name: str,
    title: str,
    metric: Metric,
    level: Level,
    *,
    agg: promql.Aggregation = "sum",
    where: str = "",
    bad: Direction | None = None,
    extra: tuple[str, ...] = (),
    note: str = "",
) -> Signal:
    expr = promql.gauge(metric, (*LEVELS[level], *extra), agg, where)
    return Signal(
        name, title, metric.unit, level, expr, agg, bad, (metric,), extra=extra,
        note=note or " ".join(metric.traps),
    )  # fmt: skip


def _ratio(
    name: str,
    title: str,
    successes: Metric,
    trials: Metric,
    *,
    where: str = "",
    bad: Direction = "down",
    note: str = "",
) -> Signal:
    by = LEVELS["pool"]
    expr = promql.ratio(promql.rate(successes, by, where), promql.rate(trials, by, where))
    return Signal(
        name, title, "ratio", "pool", expr, f"ratio_rate{_W}", bad, (successes, trials),
        counts=Counts(successes, trials, where), note=note or " ".join(successes.traps),
    )  # fmt: skip


def _ttft_user() -> Signal:
    """Return the TTFT that the user sees: the router's, else a probe's, else the stages' sum."""
    by = LEVELS["deployment"]
    on = f"on ({', '.join(by)})"
    e2e, ttft = _vllm("e2e_request_latency_seconds"), _vllm("time_to_first_token_seconds")

    def source(expr: str, name: str) -> str:
        return f'label_replace({expr}, "source", "{name}", "", "")'

    router = promql.mean(EPP_TTFT, by, 'streaming!="false"')
    probe = promql.mean(_own("probe_ttft_seconds"), by)
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
        "deployment", expr, f"mean{_W}", "up",
        (EPP_TTFT, _own("probe_ttft_seconds"), e2e, ttft), extra=("source",),
        load="request_rate",
        note="source says who measured it: router; probe (our own requests); stages (prefill's "
             "mean end-to-end time and decode's mean TTFT, without what the router adds); server "
             "(no pools).",
    )  # fmt: skip


def _acceptance_length() -> Signal:
    by = LEVELS["pool"]
    drafts = _vllm("spec_decode_num_drafts_total")
    accepted = _vllm("spec_decode_num_accepted_tokens_total")
    expr = "1 + " + promql.ratio(promql.rate(accepted, by), promql.rate(drafts, by))
    return Signal(
        "acceptance_length", "Mean acceptance length", "tokens", "pool", expr,
        f"ratio_rate{_W}", "down", (accepted, drafts),
        note="One token a step is the model's own; at 1.0 every draft is refused.",
    )  # fmt: skip


def _acceptance_by_position() -> Signal:
    drafts = _vllm("spec_decode_num_drafts_total")
    accepted = _vllm("spec_decode_num_accepted_tokens_per_pos_total")
    pool = LEVELS["pool"]
    expr = promql.ratio(
        promql.rate(accepted, LEVELS["position"]),
        promql.rate(drafts, pool),
        join=f"on ({', '.join(pool)}) group_left ()",
    )
    return Signal(
        "acceptance_by_position", "Acceptance by position in the draft", "ratio", "position",
        expr, f"ratio_rate{_W}", "down", (accepted, drafts),
        note="Of all drafts, those whose token at this position was accepted.",
    )  # fmt: skip


def _anon_swap() -> Signal:
    by = LEVELS["process"]
    anon = METRICS["leadline_process_anonymous_bytes"]
    swap = METRICS["leadline_process_swap_bytes"]
    expr = f"{promql.gauge(anon, by)} + {promql.gauge(swap, by)}"
    return Signal(
        "host_anon_swap", "Private host memory (anonymous and swap)", "bytes", "process", expr,
        "sum", "up", (anon, swap), load="request_rate",
        note="What a leak is judged on: swap can't hide it and page cache can't fake it.",
    )  # fmt: skip


def _own(name: str) -> Metric:
    return METRICS[f"leadline_{name}"]


def _gpu(
    name: str, title: str, metric: str, scale: str = "", bad: Direction | None = None
) -> Signal:
    """Return a gauge by GPU: ours, else dcgm-exporter's in base units."""
    ours, dcgm = _own(f"gpu_{metric}"), DCGM[metric]
    return Signal(
        f"gpu_{name}", title, ours.unit, "gpu",
        promql.gpu_gauge(ours, dcgm, LEVELS["gpu"], scale), "max", bad, (ours, dcgm),
        note=" ".join(ours.traps),
    )  # fmt: skip


def _probe(name: str, title: str) -> Signal:
    metric = _own(f"{name}_seconds")
    return Signal(
        name, title, "seconds", "deployment", promql.mean(metric, LEVELS["deployment"]),
        f"mean{_W}", "up", (metric,), load="request_rate",
    )  # fmt: skip


_WAITING: Final = _vllm("num_requests_waiting_by_reason")
_FETCH: Final = _vllm("num_requests_kv_fetch_by_stage")
_FINISHED: Final = _vllm("request_success_total")
_LOCAL: Final = 'source="local_compute"'

_ALL: Final[tuple[Signal, ...]] = (
    _ttft_user(),
    _latency("ttft_mean", "Mean time to first token of this stage",
             "time_to_first_token_seconds", load="request_rate"),
    _quantile("ttft_p50", "Time to first token, median", 0.5, "time_to_first_token_seconds"),
    _quantile("ttft_p90", "Time to first token, p90", 0.9, "time_to_first_token_seconds"),
    _quantile("ttft_p99", "Time to first token, p99", 0.99, "time_to_first_token_seconds"),
    _latency("tpot_mean", "Mean time per output token",
             "request_time_per_output_token_seconds", where=NOT_PREFILL, load="requests_running"),
    _quantile("tpot_p50", "Time per output token, median", 0.5,
              "request_time_per_output_token_seconds", where=NOT_PREFILL),
    _quantile("tpot_p99", "Time per output token, p99", 0.99,
              "request_time_per_output_token_seconds", where=NOT_PREFILL),
    _latency("itl_mean", "Mean time between steps that returned tokens",
             "inter_token_latency_seconds", where=NOT_PREFILL, load="requests_running"),
    _quantile("itl_p99", "Time between steps that returned tokens, p99", 0.99,
              "inter_token_latency_seconds", where=NOT_PREFILL),
    _latency("e2e_mean", "Mean end-to-end time of this stage", "e2e_request_latency_seconds",
             load="request_rate"),
    _latency("queue_mean", "Mean queue time (on decode: with the wait for KV)",
             "request_queue_time_seconds", load="request_rate"),
    # A request that was never scheduled adds the server's uptime here, and takes as much from the
    # queue time: only the queue's sum shows it by falling.
    _latency("prefill_time_mean", "Mean prefill time", "request_prefill_time_seconds",
             load="request_rate", guard="request_queue_time_seconds"),
    _latency("decode_time_mean", "Mean decode time", "request_decode_time_seconds",
             where=NOT_PREFILL, load="requests_running"),
    _rate("request_rate", "Finished requests", _FINISHED,
          note="By pool: prefill and decode both finish every request, never add them up."),
    _rate("finished_rate_by_reason", "Finished requests by reason", _FINISHED,
          extra=("finished_reason",)),
    Signal("error_ratio", "Share of finished requests that failed or were aborted", "ratio",
           "pool",
           promql.ratio(
               promql.rate(_FINISHED, LEVELS["pool"], 'finished_reason=~"error|abort"'),
               promql.rate(_FINISHED, LEVELS["pool"])),
           f"ratio_rate{_W}", "up", (_FINISHED,),
           note="Requests that clients abort often never reach this counter."),
    _rate("input_tokens_rate", "Prompt tokens admitted", _vllm("prompt_tokens_total"),
          unit="tokens_per_second", where=NOT_DECODE),
    _rate("output_tokens_rate", "Output tokens", _vllm("generation_tokens_total"),
          unit="tokens_per_second", where=NOT_PREFILL),
    _rate("computed_tokens_rate", "Prompt tokens computed",
          _vllm("prompt_tokens_by_source_total"), unit="tokens_per_second", where=_LOCAL,
          note="The prompt work that was really done; it adds up over pools."),
    _latency("tokens_per_step", "Mean tokens of an engine step", "iteration_tokens_total"),
    _gauge("requests_running", "Requests running", _vllm("num_requests_running"), "engine",
           agg="max"),
    _gauge("requests_waiting", "Requests waiting", _vllm("num_requests_waiting"), "engine",
           agg="max", bad="up"),
    _gauge("requests_waiting_capacity", "Requests waiting for capacity", _WAITING, "engine",
           agg="max", where='reason="capacity"', bad="up"),
    _gauge("requests_waiting_by_reason", "Requests waiting by reason", _WAITING, "engine",
           agg="max", extra=("reason",), bad="up"),
    _gauge("kv_fetch_waiting", "Requests waiting for KV from the other pool", _FETCH, "engine",
           where='stage=~"waiting_to_start|in_progress"', bad="up"),
    _gauge("kv_fetch_by_stage", "Requests fetching KV, by stage", _FETCH, "engine", agg="max",
           extra=("stage",), bad="up"),
    _gauge("kv_usage", "KV cache usage", _vllm("kv_cache_usage_perc"), "engine", agg="max"),
    _ratio("prefix_hit_ratio", "Prefix cache hit ratio", _vllm("prefix_cache_hits_total"),
           _vllm("prefix_cache_queries_total"), where=NOT_DECODE,
           note="On decode KV arrives from prefill: its hit ratio says nothing."),
    _ratio("external_hit_ratio", "Hit ratio at the KV connector",
           _vllm("external_prefix_cache_hits_total"),
           _vllm("external_prefix_cache_queries_total"), where=NOT_DECODE,
           note="Means something only with offloading or a shared cache on that pool."),
    _rate("preemption_rate", "Preemptions", _vllm("num_preemptions_total"), level="engine",
          bad="up"),
    _ratio("acceptance_ratio", "Share of drafted tokens accepted",
           _vllm("spec_decode_num_accepted_tokens_total"),
           _vllm("spec_decode_num_draft_tokens_total"),
           note="Falls without any error: each token then costs more steps."),
    _acceptance_length(),
    _acceptance_by_position(),
    _rate("drafts_rate", "Drafts", _vllm("spec_decode_num_drafts_total")),
    _latency("transfer_time_mean", "Mean KV transfer time (NIXL)", "nixl_xfer_time_seconds",
             load="transfer_bytes_rate"),
    _latency("transfer_post_time_mean", "Mean time to post a KV transfer (NIXL)",
             "nixl_post_time_seconds"),
    _latency("transfer_descriptors_mean", "Mean descriptors of a KV transfer (NIXL)",
             "nixl_num_descriptors"),
    _rate("transfer_bytes_rate", "KV bytes transferred (NIXL)", _vllm("nixl_bytes_transferred"),
          unit="bytes_per_second", part="_sum"),
    _rate("transfer_failures_rate", "Failed KV transfers (NIXL)",
          _vllm("nixl_num_failed_transfers_total"), level="server", bad="up"),
    _rate("notification_failures_rate", "Failed KV notifications (NIXL)",
          _vllm("nixl_num_failed_notifications_total"), level="server", bad="up"),
    _rate("leases_expired_rate", "KV leases expired before the pull (NIXL)",
          _vllm("nixl_num_kv_expired_reqs_total"), level="server", bad="up"),
    _rate("reads_after_expiry_rate", "Reads of KV after its lease expired (NIXL)",
          _vllm("nixl_num_notifications_after_expiry_total"), level="server", bad="up"),
    # By direction under the older name, one direction alone (no such label) under the newer.
    _rate("restore_bytes_rate", "KV bytes restored to the GPU from slower tiers",
          _vllm("kv_offload_load_bytes_total"), unit="bytes_per_second",
          where='transfer_type=~"(.+_to_GPU)?"',
          note="Of vLLM's OffloadingConnector; other connectors don't tell bytes."),
    _gauge("host_rss", "Resident memory", _own("process_resident_bytes"), "process", bad="up"),
    _anon_swap(),
    _gauge("host_shmem", "Shared memory", _own("process_shared_bytes"), "process", bad="up"),
    _gauge("host_threads", "Threads", _own("process_threads"), "process", bad="up"),
    _gauge("host_fds", "Open file descriptors", _own("process_open_fds"), "process", bad="up"),
    _gauge("process_start_time", "Process start time", _own("process_start_time_seconds"),
           "process", agg="max"),
    _gauge("container_working_set", "Container working set",
           _own("container_working_set_bytes"), "container", agg="max", bad="up"),
    _gauge("container_limit", "Container memory limit", _own("container_limit_bytes"),
           "container", agg="min"),
    _gauge("host_memory_used", "Host memory in use", _own("host_memory_used_bytes"), "host",
           agg="max", bad="up"),
    _gauge("host_memory_total", "Host memory", _own("host_memory_total_bytes"), "host",
           agg="max"),
    _gpu("utilization", "Share of time in which a kernel ran", "utilization_ratio", "/ 100"),
    _gpu("memory_activity", "Share of time in which GPU memory was in use",
         "memory_activity_ratio", "/ 100"),
    _gpu("memory_used", "GPU memory in use", "memory_used_bytes", "* 1048576"),
    _gpu("power", "Power drawn", "power_watts"),
    _gpu("power_limit", "Power limit in force", "power_limit_watts", bad="down"),
    _gpu("sm_clock", "Clock of the multiprocessors", "sm_clock_hertz", "* 1e6", bad="down"),
    _gpu("temperature", "GPU temperature", "temperature_celsius", bad="up"),
    _gpu("sm_active", "Share of multiprocessors with work", "sm_active_ratio"),
    _gpu("sm_occupancy", "Share of warp slots in use", "sm_occupancy_ratio"),
    _gpu("tensor_active", "Share of time tensor cores worked", "tensor_active_ratio"),
    _gpu("dram_active", "Share of GPU memory bandwidth in use", "dram_active_ratio"),
    _probe("probe_ttft", "Mean time to first token of our own requests"),
    _probe("probe_tpot", "Mean time per output token of our own requests"),
)  # fmt: skip

SIGNALS: Final[dict[str, Signal]] = {s.name: s for s in _ALL}


def target_record(signal: Signal) -> str:
    """Return the name of the recorded series that holds a signal's service level, per series."""
    return f"{signal.level}:leadline_{signal.name}:target"


def target_expr(signal: Signal) -> str:
    """Return the expression of `target_record`."""
    return promql.target(METRICS["leadline_slo_target"], signal.name, signal.record)


def signal(name: str) -> Signal:
    """Return the signal called *name*.

    Raises:
        ValueError: There is none; one line that names the nearest.
    """
    if name in SIGNALS:
        return SIGNALS[name]
    raise ValueError(unknown("signal", name, SIGNALS))


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return one line that says *name* is unknown and names the nearest right one."""
    choices = list(known)
    near = get_close_matches(name, choices, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(choices)}"
    return f"unknown {what} {name!r}: {hint}"
