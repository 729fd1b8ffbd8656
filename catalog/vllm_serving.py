"""vLLM's families of requests and tokens: latency, work done, queues."""

from __future__ import annotations

from typing import Final

from catalog.metric import Gate, Metric
from catalog.vllm_family import NOT_ON_PREFILL, bare, counter, gauge, histogram

COARSE: Final = (
    "The lowest bucket ends at 0.3 s, so a quantile below it is an artefact: use the mean."
)
NEGATIVE: Final = (
    "A request that ends before it is scheduled adds a negative time: the sum falls while the "
    "count does not."
)
_STEP: Final = (0.01, 80.0)
_REQUEST: Final = (0.3, 7680.0)

LATENCY: Final[tuple[Metric, ...]] = (
    histogram(
        "time_to_first_token_seconds", "seconds",
        "Time from arrival at this server to the first token, its own queue included.",
        (0.001, 2560.0), rust=True,
        traps=("On prefill it is queue and prefill, on decode the wait for KV and the first step: "
               "neither is what the user sees, and their quantiles can't be added.",),
    ),
    histogram(
        "request_time_per_output_token_seconds", "seconds",
        "Mean time per output token of a finished request.", _STEP, pools=NOT_ON_PREFILL,
        rust=True,
        traps=("On prefill every request observes 0.0, which drags any average over both pools.",),
    ),
    histogram(
        "inter_token_latency_seconds", "seconds",
        "Time between two steps that returned tokens of a request.", _STEP, pools=NOT_ON_PREFILL,
        former=("vllm:time_per_output_token_seconds",), rust=True,
        traps=("One observation covers one to k+1 tokens with speculative decoding.",
               "Prompts in the same batch raise it: compare at equal tokens per step."),
    ),
    histogram(
        "time_per_output_token_seconds", "seconds",
        "Time between two steps that returned tokens of a request, by its old name.", _STEP,
        pools=NOT_ON_PREFILL, until="0.11",
        traps=("In spite of its name it is today's `vllm:inter_token_latency_seconds`, which "
               "stands beside it in 0.11; hidden in 0.12, gone in 0.13.",),
    ),
    histogram(
        "e2e_request_latency_seconds", "seconds",
        "Time from arrival to the last token.", _REQUEST, rust=True, traps=(COARSE,),
    ),
    histogram(
        "request_queue_time_seconds", "seconds", "Time a request waited to be scheduled.",
        _REQUEST, rust=True, traps=(COARSE, NEGATIVE, "On decode the KV transfer hides in it."),
    ),
    histogram(
        "request_prefill_time_seconds", "seconds",
        "Time from being scheduled to the first token.", _REQUEST, rust=True,
        traps=(COARSE, "A request that ends before it is scheduled adds the server's uptime: only "
                       "the queue's sum shows it, by falling."),
    ),
    histogram(
        "request_decode_time_seconds", "seconds",
        "Time from the first to the last token.", _REQUEST, pools=NOT_ON_PREFILL, rust=True,
        traps=(COARSE, "On prefill every request observes 0.0."),
    ),
    histogram(
        "request_inference_time_seconds", "seconds",
        "Time from being scheduled to the last token.", _REQUEST, rust=True,
        traps=(COARSE, "A request that ends before it is scheduled adds the server's uptime: only "
                       "the queue's sum shows it, by falling."),
    ),
    histogram(
        "iteration_tokens_total", "tokens",
        "Tokens of one engine step; a histogram in spite of its name.", (1.0, 16384.0), rust=True,
        traps=("With several API servers it is observed once per front end: the sum is right, "
               "the count too high, the mean too low.",
               "The Rust front end of 0.26 lacks it."),
    ),
)  # fmt: skip

TOKENS: Final[tuple[Metric, ...]] = (
    counter("prompt_tokens_total", "tokens", "Prompt tokens of admitted requests.", rust=True,
            traps=("Prefill and decode both count every prompt: never add the pools up.",
                   "The whole prompt counts, also where its KV came from a cache.")),
    counter("prompt_tokens_by_source_total", "tokens",
            "Prompt tokens by where their KV came from: local_compute, local_cache_hit, "
            "external_kv_transfer.", ("source",), since="0.18", rust=True,
            traps=("external_kv_transfer counts at admission, even if the load fails later.",
                   "In 0.18 a negative step of it could end the output handler, and with it the "
                   "server's answers.")),
    counter("prompt_tokens_cached_total", "tokens",
            "Prompt tokens whose KV came from a cache, local or external.", since="0.18",
            rust=True),
    counter("prompt_tokens_cached_by_source_total", "tokens",
            "Prompt tokens whose KV came from a cache, by tier: device, host, p2p, disk, "
            "external_unspecified.", ("source",), since="0.32", rust=True,
            traps=("Counted at admission, even if the load fails later.",)),
    counter("prompt_tokens_recomputed_total", "tokens",
            "Prompt tokens computed although they were in a cache.", since="0.18", until="0.18"),
    counter("generation_tokens_total", "tokens", "Tokens generated.", rust=True,
            traps=("Prefill generates one token for each request it hands over.",)),
    counter("request_success_total", "requests",
            "Finished requests by reason: stop, length, abort, error, repetition.",
            ("finished_reason",), rust=True,
            traps=("It counts errors too; requests that a client aborts never reach it.",
                   "0.11 knows stop, length and abort alone.")),
    bare(counter("admission_rejections_total", "requests",
                 "Requests turned away because the queue was full, by limit.", since="0.32",
                 gate=Gate("moves with max_num_queued_reqs or max_num_queued_tokens")),
         "model_name", "reason"),
    counter("num_preemptions_total", "count", "Preemptions of running requests.", rust=True),
    counter("corrupted_requests_total", "requests", "Requests with NaN among their logits.",
            since="0.18", rust=True, gate=Gate("VLLM_COMPUTE_NANS_IN_LOGITS=1")),
    counter("watermark_requests_total", "requests", "Requests whose text is watermarked.",
            ("status",), since="0.32", gate=Gate("watermark_config")),
    counter("estimated_flops_per_gpu_total", "count",
            "Estimated floating point operations of one GPU.", since="0.18", rust=True,
            gate=Gate("moves with --enable-mfu-metrics"),
            traps=("Zero where the flag is off, which is not idle; an estimate where it is on.",)),
    counter("estimated_read_bytes_per_gpu_total", "bytes",
            "Estimated bytes read from the memory of one GPU.", since="0.18", rust=True,
            gate=Gate("moves with --enable-mfu-metrics"),
            traps=("Zero where the flag is off, which is not idle; an estimate where it is on.",)),
    counter("estimated_write_bytes_per_gpu_total", "bytes",
            "Estimated bytes written to the memory of one GPU.", since="0.18", rust=True,
            gate=Gate("moves with --enable-mfu-metrics"),
            traps=("Zero where the flag is off, which is not idle; an estimate where it is on.",)),
)  # fmt: skip

SHAPES: Final[tuple[Metric, ...]] = (
    histogram("request_prompt_tokens", "tokens", "Prompt tokens of a finished request.", None,
              rust=True),
    histogram("request_generation_tokens", "tokens", "Tokens generated by a finished request.",
              None, rust=True),
    histogram("request_max_num_generation_tokens", "tokens",
              "Tokens of the longest answer of a finished request.", None, rust=True),
    histogram("request_params_max_tokens", "tokens", "`max_tokens` of a finished request.", None,
              rust=True, traps=("On prefill it is 1: that is how a router hands over.",)),
    histogram("request_params_n", "count", "Answers asked for by a finished request.",
              (1.0, 20.0), rust=True),
    histogram("request_prefill_kv_computed_tokens", "tokens",
              "Prompt tokens that a finished request had to compute.", None, since="0.18",
              pools=("prefill", "aggregate", "unknown"), rust=True,
              traps=("On decode it repeats from 0.32 on what prefill computed: count it on "
                     "prefill alone.",)),
    histogram("request_num_preemptions", "count", "Preemptions of a finished request.",
              (1.0, 20.0), since="0.32", rust=True),
)  # fmt: skip

QUEUES: Final[tuple[Metric, ...]] = (
    gauge("num_requests_running", "requests", "Requests in the running batch.", rust=True),
    gauge("num_requests_waiting", "requests", "Requests that wait, for capacity or deferred.",
          rust=True,
          traps=("From 0.18 on it includes those that wait for KV from the other pool: decode "
                 "scaled by it would scale with the network's trouble.",)),
    gauge("num_requests_waiting_by_reason", "requests",
          "Requests that wait, by reason: capacity or deferred.", ("reason",), since="0.26",
          rust=True),
    gauge("num_requests_kv_fetch_by_stage", "requests",
          "Requests that wait for KV from the other pool, by stage: waiting_to_start, in_progress, "
          "completed_waiting.", ("stage",), since="0.32", pools=NOT_ON_PREFILL,
          gate=Gate(roles=("kv_consumer", "kv_both")),
          traps=("Absent on a pure kv_producer and in the Rust front end.",)),
    gauge("engine_sleep_state", "count",
          "Whether the engine is in this state of sleep: awake, weights_offloaded, discard_all.",
          ("sleep_state",), since="0.18"),
)  # fmt: skip
