"""Leaks, decays and faults of public reports, at the rates that were reported.

Only numbers are taken, with the issue they are from. Where a rate is by request or token, the rate
by hour is that at the traffic which the report had; the simulated servers are larger than most.
"""

from __future__ import annotations

from typing import Final

from simulator.change import GIB, HOUR, MIB, Change, Loss
from simulator.fleet import restarted, steady
from simulator.truth import Scenario, leak

_LEAKS: Final = (
    leak(
        "leak_block_ids", "whose prefill EngineCores keep the ids of allocated blocks",
        Loss("prefill", "engine_core", 16 * 47.5 * MIB, "requests", -12 * HOUR),
        breach=820 * HOUR, limit=512 * GIB,
        source="vllm-project/vllm#44175",
        note="47.5 MiB/h each: 6.00 -> 6.57 GiB in 12 h at 150 requests/s, ~90 B a request.",
    ),
    leak(
        "leak_nixl", "whose decode workers lose 400 MB a minute in the transfer library",
        Loss("decode", "worker", 24e9, "requests", -2 * HOUR),
        breach=2.3 * HOUR, limit=800 * GIB, source="vllm-project/vllm#24264",
    ),
    leak(
        "leak_eager_steps", "whose decode workers lose memory by the step, towards 64 GiB a pod",
        Loss("decode", "worker", 8 * 0.9 * GIB, "steps", -10 * HOUR),
        breach=3.3 * HOUR, limit=800 * GIB, source="vllm-project/vllm#50150",
        note="48 B for each eager call; the hourly rate is taken from its pods' ends at 64 GiB.",
    ),
    leak(
        "leak_by_request", "whose prefill EngineCores lose 2 kB a request and rest when it rests",
        Loss("prefill", "engine_core", 16 * 66 * MIB, "requests", -14 * HOUR),
        breach=560 * HOUR, limit=512 * GIB,
        source="vllm-project/vllm#52089", note="1.4-2.3 KB a request at 10 requests/s: 50-83 MB/h.",
    ),
    leak(
        "leak_ascend", "whose decode workers grow by 2 GiB an hour",
        Loss("decode", "worker", 1.97 * GIB, "tokens", -16.75 * HOUR),
        breach=29.6 * HOUR, limit=800 * GIB, source="vllm-project/vllm-ascend#15193",
        note="+32.9 GiB in 16.75 h on a node.",
    ),
    leak(
        "leak_scheduler", "whose API servers lose memory by the request",
        Loss("prefill", "api_server", 4 * 0.6 * GIB, "requests", -12 * HOUR),
        breach=246 * HOUR, limit=512 * GIB,
        source="sgl-project/sglang#6914", note="To 60 GB and a kill; no rate was reported.",
    ),
    leak(
        "leak_one_rank", "one of whose ranks leaks to the limit and restarts, six times in 3 days",
        Loss("decode", "engine_core", 8.2 * GIB, "hours", -80 * HOUR, rank=0),
        breach=4.0 * HOUR, limit=800 * GIB, source="sgl-project/sglang#28902",
        note="A sawtooth of 12 h with restarts; the ranks beside it are flat.",
        fleet=lambda fleet: restarted(
            steady(fleet), "node-4:8000", *(h * HOUR for h in range(-68, 0, 12))
        ),
    ),
    leak(
        "leak_by_token", "whose decode workers lose .155 MB for each token that they write",
        Loss("decode", "worker", 11 * GIB, "tokens", -3 * HOUR),
        breach=6.3 * HOUR, limit=800 * GIB, source="ggml-org/llama.cpp#25740",
        note="At 20 tokens/s, one stream: 11 GiB/h.",
    ),
    leak(
        "leak_swapped", "whose decode EngineCores leak into swap: resident memory stands still",
        Loss("decode", "engine_core", 1.7 * GIB, "requests", -5.5 * HOUR, swapped=True),
        source="ollama/ollama#18106", note="9.35 GiB in 5.5 h, invisible in RSS.",
    ),
    leak(
        "leak_18mb_a_day", "one of whose processes loses 18 MB a day, for 27 days",
        Loss("decode", "api_server", 18e6 / 24, "hours", -27 * 24 * HOUR),
        source="FootprintAI/Containarium#1349", fleet=steady,
    ),
    leak(
        "leak_cache_server", "whose EngineCores grow to an out-of-memory kill within a trace",
        Loss("prefill", "engine_core", 40 * GIB, "requests", -2 * HOUR, server=0),
        breach=1.7 * HOUR, limit=512 * GIB, source="LMCache/LMCache#3767",
        note="23,608 requests fill a host of 256 GB: 9 MiB each, here at 1.2 requests/s.",
    ),
    leak(
        "leak_10mb_a_request", "whose prefill EngineCores lose 10 MB a request",
        Loss("prefill", "engine_core", 16 * 0.9 * GIB, "requests", -6 * HOUR),
        breach=42 * HOUR, limit=512 * GIB, source="tenstorrent/tt-inference-server#5198",
        note="2 GB in 200 requests, at .1 requests/s an engine.",
    ),
    leak(
        "leak_sender", "whose prefill workers lose 30 MB for each request that they hand over",
        Loss("prefill", "worker", 16 * 2.6 * GIB, "requests", -3 * HOUR),
        breach=14.6 * HOUR, limit=512 * GIB, source="intel/llm-scaler#590",
        note="23-40 MB a request, at .025 requests/s an engine.",
    ),
)  # fmt: skip

_DECAYS: Final = (
    Scenario(
        "acceptance_collapse", "whose acceptance length falls from 3.33 to 1.90 in 2.2 hours",
        "report", "falling", "drift", "acceptance_ratio", "decode",
        start=-2.2 * HOUR, rate=-1.43 / 2.2 / 3, limit=0.020, source="sgl-project/sglang#28771",
        profile=(0.86, 0.75, 0.67),
        changes=(Change("accepted", -1.43 / 2.2, -2.2 * HOUR, 0.0, shape="ramp", pool="decode"),),
    ),
    Scenario(
        "acceptance_slow", "whose acceptance length falls from 3.07 to 2.8 in eight hours",
        "report", "falling", "drift", "acceptance_ratio", "decode",
        start=-8 * HOUR, rate=-0.27 / 8 / 3, source="vllm-project/vllm#41838",
        note="On the busiest prompts only; a restart mends it. Healthy wander of 2.92-3.12.",
        changes=(
            Change("accepted", 0.05, pool="decode"),
            Change("accepted", -0.27 / 8, -8 * HOUR, 0.0, shape="ramp", pool="decode"),
        ),
    ),
    Scenario(
        "draft_cache_broken", "nearly none of whose drafts is accepted any more: length 1.05",
        "report", "falling", "fault", "acceptance_ratio", "decode",
        start=-2 * HOUR, breach=-2 * HOUR, limit=0.020, source="vllm-project/vllm-ascend#13523",
        changes=(Change("accepted", -1.97, -2 * HOUR, pool="decode"),),
    ),
    Scenario(
        "first_position", "whose first draft token is accepted in 72 %, no longer 93 %, of cases",
        "report", "falling", "fault", "acceptance_by_position", "decode",
        start=-6 * HOUR, source="vllm-project/vllm#54926",
        profile=(0.935, 0.65, 0.52),
        changes=(
            Change("position_0", -0.214, -6 * HOUR, shape="saturate", span=HOUR, pool="decode"),
        ),
    ),
    Scenario(
        "latency_step", "whose prefill takes three times as long since some hours, and stays so",
        "report", "creep", "step", "ttft_mean", "prefill",
        start=-5 * HOUR, source="vllm-project/vllm#44175",
        note="After 7 h or 3.8 M requests: .03-.05 s, then .13-.18 s; never explained.",
        changes=(Change("prefill", 0.4, -5 * HOUR, pool="prefill"),),
    ),
)  # fmt: skip

_FAULTS: Final = (
    Scenario(
        "shared_twice", "whose CPU tier took 1.92 times the memory it was given, at its start",
        "report", "parity", "step", "host_shmem", "prefill",
        start=-6 * HOUR, source="vllm-project/vllm#53042",
        note="400 -> 769 GiB of shared memory: here 4 x 12.5 -> 24 GiB a server.",
        changes=(
            Change("shared", 12.5, -6 * HOUR, pool="prefill", process="worker"),
            Change("shared", 11.5, -6 * HOUR, pool="prefill", process="worker"),
        ),
    ),
    Scenario(
        "transfers_fail", "four of a hundred of whose KV transfers fail after three days",
        "report", "transfer", "fault", "transfer_failures_rate", "decode",
        start=-2 * HOUR, source="wtdcode/vllm-backport#33",
        note="92,724 transfers were well, then ~76 failures in 19 requests.",
        changes=(Change("transfer_failures", 0.04, -2 * HOUR, pool="decode"),
                 Change("errors", 0.01, -2 * HOUR, pool="decode")),
    ),
    Scenario(
        "transfers_miscounted", "all of whose KV transfers count as failed, and all arrive",
        "report", "known_bug", "fault", "transfer_failures_rate", "decode",
        start=-24 * HOUR, source="vllm-project/vllm#58038",
        note="17,960 failed, none successful, outputs flow: telemetry was away.",
        changes=(Change("transfer_failures", 1.0, -24 * HOUR, pool="decode"),),
    ),
    Scenario(
        "leases_expire", "whose KV leases run out before decode has read them",
        "report", "lease", "fault", "leases_expired_rate", "prefill",
        start=-3 * HOUR, source="vllm-project/vllm#52234",
        note="Requests end well and are garbage.",
        changes=(Change("leases", 0.02, -3 * HOUR, pool="prefill"),),
    ),
    Scenario(
        "late_reads", "8 of 42 of whose requests read KV that was given away",
        "report", "lease", "fault", "reads_after_expiry_rate", "prefill",
        start=-1 * HOUR, source="aws-do-eks#84",
        changes=(Change("late_reads", 8 / 42, -1 * HOUR, pool="prefill"),
                 Change("leases", 8 / 42, -1 * HOUR, pool="prefill")),
    ),
    Scenario(
        "pair_fails", "one of whose prefill servers was restarted and can't be read from since",
        "report", "transfer", "fault", "transfer_failures_rate", "decode",
        start=-4 * HOUR, source="vllm-project/vllm#49238",
        fleet=lambda fleet: restarted(fleet, "node-1:8000", -4 * HOUR),
        changes=(Change("transfer_failures", 0.25, -4 * HOUR, pool="decode"),
                 Change("errors", 0.05, -4 * HOUR, pool="decode")),
    ),
    Scenario(
        "gauges_frozen", "one of whose ranks stands still with 106 requests on its gauges",
        "report", "known_bug", "fault", "gauges_frozen", "decode",
        start=-1 * HOUR, source="vllm-project/vllm#22545",
        changes=(Change("share", -1.0, -1 * HOUR, pool="decode", server=0, rank=5),
                 Change("frozen", 1.0, -1 * HOUR, pool="decode", server=0, rank=5)),
    ),
    Scenario(
        "aborts_uncounted", "nearly half of whose requests are given up and never counted",
        "report", "known_bug", "fault", "finished_rate_by_reason", "prefill",
        start=-3 * HOUR, source="vllm-project/vllm#31503",
        note="+3010 prompt tokens, 0 finished.",
        changes=(Change("uncounted", 0.45, -3 * HOUR, pool="prefill"),),
    ),
    Scenario(
        "errors", "two of a hundred of whose requests fail",
        "report", "falling", "fault", "error_ratio", "decode",
        start=-2 * HOUR, source="vllm-project/vllm#49238",
        changes=(Change("errors", 0.02, -2 * HOUR, pool="decode"),),
    ),
)  # fmt: skip

PUBLIC: Final[tuple[Scenario, ...]] = (*_LEAKS, *_DECAYS, *_FAULTS)
