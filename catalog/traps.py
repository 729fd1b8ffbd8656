"""The traps of vLLM's numbers: what each does, what keeps a reader out of it, what proves that.

docs/traps.md is written from this list. A trap without a guard is one that no expression can see:
what to do instead is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Trap:
    """One trap.

    Attributes:
        name: A few words.
        what: What the number does.
        guard: What keeps our expressions out of it, or what a reader has to do.
        signals: Signals that the guard is in.
        test: Test that springs it on a real Prometheus, or a law that holds it; empty for what
            nobody but the reader can guard against.
    """

    name: str
    what: str
    guard: str
    signals: tuple[str, ...] = ()
    test: str = ""


_TRAPS = "catalog/test_catalog_traps.py::"
_FAMILIES = "catalog/test_catalog_families.py::"
_FRONT = "catalog/test_catalog_front_ends.py::"
_VERSIONS = "catalog/test_catalog_versions.py::"

POOLS: Final[tuple[Trap, ...]] = (
    Trap("TTFT is a stage", "Each server times from the request's arrival at itself: prefill its "
         "queue and prompt, decode the wait for KV and a step. The user waits for both.",
         "The user's is the router's or a probe's, else the stages' means added up; quantiles "
         "never are.", ("ttft_user_mean",),
         _VERSIONS + "test_the_users_wait_is_told_by_who_is_nearest"),
    Trap("Quantiles of stages", "The p99 of two stages added up is no p99 of the whole.",
         "No expression adds quantiles.", (), _TRAPS + "test_only_means_of_stages_are_added_up"),
    Trap("Zeros on prefill", "Prefill ends each request with one token and observes 0.0 for time "
         "per output token and decode time.",
         "Never read from prefill; and a server that observed nothing but zeros is left out "
         "whatever its pool is called.", ("tpot_mean", "tpot_p50", "tpot_p99", "decode_time_mean"),
         _TRAPS + "test_zeros_of_a_prefill_that_nobody_named_do_not_count"),
    Trap("Pools count the same work", "Prefill and decode both count each prompt and each request, "
         "and prefill one token of each answer.",
         "Kept by pool; prompts from prefill, output from decode; `computed_tokens_rate` alone "
         "adds up over pools.",
         ("input_tokens_rate", "output_tokens_rate", "computed_tokens_rate", "request_rate"),
         _TRAPS + "test_no_signal_adds_up_what_pools_both_count"),
    Trap("Decode repeats prefill's prompt", "From 0.32 on decode observes in "
         "`request_prefill_kv_computed_tokens` what prefill computed.",
         "The catalogue gives it no meaning on decode, and no signal reads it there.", (),
         _FAMILIES + "test_no_signal_reads_a_metric_where_it_means_nothing"),
    Trap("KV transfer in the queue", "On decode the queue time holds the wait for KV: a slow "
         "network reads as too few engines.",
         "Little's law on the requests that fetch KV gives that wait; the rest is the queue's own. "
         "Unknown before 0.32, where no gauge tells, and never from NIXL's means, which are of "
         "ranks.", ("kv_fetch_time_mean", "queue_own_mean"),
         _TRAPS + "test_the_wait_for_kv_is_told_from_the_queue"),
    Trap("Hits that say nothing", "At the connector decode finds all it asks for, and prefill of "
         "a pair nothing.", "Read where a cache is behind the connector: never from decode, and "
         "from prefill with hits so far or with offloading set up.", ("external_hit_ratio",),
         _TRAPS + "test_an_external_hit_ratio_is_of_caches_alone"),
    Trap("Waiting is not lack of room", "From 0.18 on requests that wait for KV count as waiting: "
         "decode scaled by them scales with the network's trouble.",
         "The reason is kept apart from 0.26 on and unknown before.",
         ("requests_waiting_capacity", "requests_waiting_by_reason"),
         _VERSIONS + "test_a_signal_is_what_the_work_comes_to"),
    Trap("Full with nothing running", "Requests that wait for KV hold blocks on decode, and blocks "
         "that wait to be read stay on prefill.",
         "`LeadlineKvPressure` wants requests that wait for capacity, or preemptions, beside it.",
         ("kv_usage",), "alerts/serving.yml"),
    Trap("Usage is not what is cached", "Blocks that could be evicted count as free, and an "
         "offload tier's usage is what transfers pin.", "No signal reads a tier's usage; "
         "`restore_bytes_rate` tells what it does.", ("kv_usage", "restore_bytes_rate"),
         _TRAPS + "test_no_signal_reads_what_is_not_what_its_name_says"),
)  # fmt: skip

NUMBERS: Final[tuple[Trap, ...]] = (
    Trap("A sum that falls", "A request that ends before it was scheduled adds minus the server's "
         "uptime to the queue's sum, and as much to those of prefill and inference. `rate()` takes "
         "the fall for a restart.",
         "A server is left out while its sum fell and its count did not.",
         ("queue_mean", "prefill_time_mean"),
         _TRAPS + "test_a_sum_that_falls_or_is_no_number_takes_its_server_out"),
    Trap("A sum that is no number", "One NaN observed stays in the sum for ever.",
         "A server with such a sum is left out, so that its pool keeps a mean.", ("queue_mean",),
         _TRAPS + "test_a_sum_that_falls_or_is_no_number_takes_its_server_out"),
    Trap("Frozen gauges", "Gauges are set when an engine's step ends. After a mass abort they show "
         "the last value for ever, and routers stop sending.",
         "Above zero they are believed only while tokens come or gauges move; else unknown, and "
         "`gauges_frozen` says so.",
         ("requests_running", "requests_waiting", "kv_usage", "kv_fetch_waiting", "gauges_frozen"),
         _TRAPS + "test_a_gauge_of_an_engine_that_stands_still_is_unknown"),
    Trap("ITL is of steps", "One observation covers all tokens that a step brought: one to k+1 "
         "with speculative decoding; prompts in the same batch lengthen it.",
         "Called time between steps everywhere; TPOT is the one per token. Compare it at equal "
         "`tokens_per_step`.", ("itl_mean", "tokens_per_step"),
         _TRAPS + "test_time_between_steps_is_not_time_per_token"),
    Trap("0.11's time per output token", "`time_per_output_token_seconds` is today's ITL, not "
         "TPOT, and stands beside it.", "An older name of ITL: read where the new one is absent.",
         ("itl_mean", "itl_p99"), _VERSIONS + "test_a_signal_is_what_the_work_comes_to"),
    Trap("A quantile above the buckets", "It reads as the highest bound: 5 s for NIXL's transfers, "
         "60 s for HTTP.", "Bounds come from the page. The board of one pool shows the share of "
         "observations above them.", ("ttft_p99", "tpot_p99", "itl_p99"),
         _TRAPS + "test_what_lies_above_the_highest_bound_is_told"),
    Trap("A quantile below the buckets", "End-to-end, queue, prefill and decode times have no "
         "bound below 0.3 s, ITL and TPOT none below 10 ms: below it is a straight line from zero.",
         "No signal is a quantile of the former; means are for drifts. Read a TPOT quantile under "
         "10 ms as \"under 10 ms\".", ("queue_mean", "e2e_mean"),
         _TRAPS + "test_times_below_the_lowest_bound_are_means"),
    Trap("Buckets of one's own", "`--custom-histogram-buckets` (0.32) changes bounds, and servers "
         "of one pool may differ: bound by bound they can't be added up.",
         "No bound is assumed. The board of one pool counts the bounds that only some have.",
         ("ttft_p50", "ttft_p90", "ttft_p99"),
         _TRAPS + "test_buckets_of_servers_that_differ_are_told"),
    Trap("Finished, not successful", "`request_success_total` counts errors, and requests that a "
         "client aborts never reach it, nor any histogram.",
         "`error_ratio` is of errors and aborts among all; started less finished is no number of "
         "requests in flight and is not used.", ("error_ratio",),
         _VERSIONS + "test_a_signal_is_what_the_work_comes_to"),
    Trap("Garbage with status 200", "A failed load of KV may still be answered, wrongly.",
         "Metrics of vLLM can't tell: reads after expiry page at once, and a probe with known "
         "answers sees the rest.", ("reads_after_expiry_rate",), "alerts/transfer.yml"),
    Trap("Nothing over nothing", "A window without drafts, prompts or requests is 0/0.",
         "No data, neither zero nor NaN.", ("acceptance_ratio", "prefix_hit_ratio"),
         _VERSIONS + "test_nothing_over_nothing_is_no_data"),
    Trap("Acceptance by position", "A draft may be shorter than allowed, so positions differ in "
         "what was drafted.", "Of all drafts, as vLLM's own log has it.",
         ("acceptance_by_position",), _VERSIONS + "test_a_signal_is_what_the_work_comes_to"),
    Trap("Failures within failures", "From 0.33 on failed transfers include failed notifications "
         "and handshakes.", "Never added up. The upgrade is a step.",
         ("transfer_failures_rate", "notification_failures_rate"),
         _TRAPS + "test_no_signal_adds_failures_that_hold_one_another"),
    Trap("Observations of ranks", "NIXL observes once a transfer and rank: its count is not of "
         "requests, and transfers overlap.", "Bytes by the second, and means of transfers; no "
         "request is counted by it.", ("transfer_time_mean", "transfer_bytes_rate"),
         _TRAPS + "test_transfers_of_ranks_count_no_request"),
    Trap("Hits counted too early", "Hits and external tokens count at admission, even if the load "
         "fails later.", "Read beside `transfer_failures_rate`.", ("external_hit_ratio",)),
    Trap("Estimates that stand at zero", "FLOP and byte counters are there at zero where "
         "`--enable-mfu-metrics` is off.", "No signal reads them.", (),
         _TRAPS + "test_no_signal_reads_what_is_not_what_its_name_says"),
    Trap("Leases of two lengths", "Prefill keeps KV for decode 480 s up to 0.18, and 30 s with a "
         "heartbeat from 0.26 on; an idle prefill reaps none up to 0.18.",
         "Expired leases are counted over 15 minutes, longer than both.",
         ("leases_expired_rate",), "alerts/transfer.yml"),
)  # fmt: skip

SERIES: Final[tuple[Trap, ...]] = (
    Trap("Absent, lazy, disabled", "Some families appear with their first use, some with a flag or "
         "connector: absence may be zero, a fault or intended.",
         "Gates and laziness are in the catalogue; `guards.presence` tells them apart by the "
         "server's setup. No data is never zero, and no alert fires on the absence of a lazy one.",
         ("restore_bytes_rate",), _TRAPS + "test_absence_is_told_as_lazy_disabled_or_unknown"),
    Trap("Born with its first event", "`increase()` can't see the first step of a counter that was "
         "not there before.", "Alerts on single events count it, unless the whole page is new.",
         (), _TRAPS + "test_a_counter_born_with_its_first_event_counts_it"),
    Trap("Resets without a restart", "Elastic expert parallelism makes all counters anew in a "
         "process that goes on.", "Rates see the fall itself; `counter_resets` tells it from a "
         "restart by the process's start.", ("counter_resets",),
         _TRAPS + "test_a_reset_is_told_from_a_restart"),
    Trap("Restarts without a reset", "A folder of PROMETHEUS_MULTIPROC_DIR that stays keeps the "
         "counters, dead processes' gauges with them.",
         "An incarnation is a process's start, never a counter's fall; `counter_resets` says kept.",
         ("counter_resets", "process_start_time"),
         _TRAPS + "test_rates_and_means_are_right_through_every_reset"),
    Trap("Processes side by side", "With several API servers a gauge may stand once a process, "
         "told by `pid`.", "Merged before anything is added up: the highest stands for the newest, "
         "what lives is summed by the library.", ("kv_usage", "kv_fetch_waiting"),
         _TRAPS + "test_processes_of_one_server_are_merged_as_their_kind_demands"),
    Trap("Steps counted once a front end", "With several API servers an engine's step is observed "
         "by each that has requests in it.", "The mean is too low by up to their number: compare "
         "it with its own past and with servers set up alike.", ("tokens_per_step",)),
    Trap("Ranks", "`engine` is the global data-parallel rank. An average over a page hides the one "
         "that is full, and a page may lose one.",
         "Gauges are kept by engine; `engines_missing` counts those that fell silent.",
         ("kv_usage", "engines_missing"), _TRAPS + "test_a_rank_that_fell_silent_is_missing"),
    Trap("Ranks taken away", "Elastic expert parallelism takes ranks away on purpose. Behind one "
         "server their series stay with the last values; a server that was one ends, and while "
         "the rest scales all of them answer 503.",
         "Gauges that stand still are unknown; `LeadlineRankMissing` misses a rank below the "
         "highest that is there, and none above it.", ("kv_usage", "gauges_frozen"),
         _TRAPS + "test_a_rank_that_was_taken_away_leaves_nothing_behind"),
    Trap("Memory of the wrong process", "`process_resident_memory_bytes` is of the API server; "
         "leaks are in EngineCore and workers.", "No signal reads it: our exporter measures every "
         "process.", ("host_anon_swap",),
         _FAMILIES + "test_no_signal_reads_what_tells_of_the_api_server_alone"),
    Trap("Instants as values", "`x_created` holds a time of 1.7e9: who matches names by their "
         "beginning adds it to bytes.", "Names are exact.", (),
         _FAMILIES + "test_names_are_exact_and_never_matched_by_pattern"),
    Trap("A histogram called total", "`iteration_tokens_total` is a histogram; counters that end "
         "in `_total` by themselves are not doubled.", "Types are the catalogue's, not the "
         "name's.", ("tokens_per_step",),
         _FAMILIES + "test_every_type_of_a_real_page_is_the_catalogue_s"),
    Trap("Without engine or model", "Admission rejections, LoRA, cache settings and the server's "
         "own families lack `engine` or `model_name`.", "Labels are in the catalogue; no signal "
         "joins them by engine.", (), _FAMILIES + "test_every_sample_of_a_real_page_is_known"),
    Trap("The Rust front end", "OpenMetrics, everything lazy, no `_created`, families missing.",
         "The same names arrive; what it lacks is unknown. Bounds above 1e6 are written without "
         "an exponent: don't mix both front ends in one pool's byte histograms.", (),
         _FRONT + "test_both_front_ends_give_the_same_signal"),
    Trap("The other path", "Behind `/metrics/` names come out with `_` for `:`, and scrapes count "
         "themselves.", "Our exporter asks without a slash at the end; so must a Prometheus.", (),
         "catalog/test_catalog_config.py::test_a_page_is_asked_for_without_a_slash_at_its_end"),
    Trap("Ray's names", "Ray Serve writes `vllm_` for `vllm:`, adds labels and leaves zeros out.",
         "Not read: such a server is unknown until relabelling gives the names back."),
    Trap("One name for a model", "`model_name` is the first served name, adapters included.",
         "LoRA adapters can't be told apart."),
    Trap("A counter that ends a server", "In 0.18 a negative step of `prompt_tokens_by_source` "
         "could end the output handler: the server is up and answers nothing.",
         "Rates fall to zero while requests run: `gauges_frozen`; upgrade to 0.26.",
         ("gauges_frozen",), _TRAPS + "test_an_engine_that_stands_still_is_told"),
)  # fmt: skip

TRAPS: Final[dict[str, tuple[Trap, ...]]] = {
    "What a pool means": POOLS,
    "What a number means": NUMBERS,
    "Which series there are": SERIES,
}
