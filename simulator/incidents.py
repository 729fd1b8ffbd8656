"""Incidents with a signature that three operators' documents tell of (S1, S2, S3)."""

from __future__ import annotations

from functools import partial
from typing import Final

from simulator.change import GIB, HOUR, Change, Loss
from simulator.fleet import drafting, rolled
from simulator.truth import Scenario, leak

_SLA: Final = {"tpot": 0.020, "ttft": 2.5}

_MEMORY: Final = (
    leak(
        "leak_slow", "whose decode container grows from 721 to 800 GiB in 40 hours on 2 TiB",
        Loss("decode", "engine_core", 79 / 40 * GIB, "tokens", -40 * HOUR),
        group="incident", breach=640 * HOUR, limit=2048 * GIB, source="S1",
        note="79 GiB in 40 h by the tokens held; 25 days are left: a ticket, no page.",
        container={"decode": 2048 * GIB},
    ),
)  # fmt: skip

_STEPS: Final = (
    Scenario(
        "mixed_batch", "whose decode steps mix with prefill work at the hand-over",
        kind="mixed_batch", verdict="fault", signal="tpot_mean", pool="decode",
        start=-3 * HOUR, breach=-3 * HOUR, limit=_SLA["tpot"], source="S1",
        note="TPOT ~22 -> ~40 ms, and more the more requests are handed over.",
        changes=(Change("step_mixed", 0.95, -3 * HOUR, pool="decode"),),
    ),
    Scenario(
        "jit", "that compiles kernels at the first requests after a rolling restart",
        kind="cold_start", verdict="restart", signal="ttft_mean", pool="prefill",
        start=-4 * HOUR, source="S1", fleet=partial(rolled, begin=-4 * HOUR),
        changes=(
            Change("prefill", 6.0, -4 * HOUR, shape="cold", span=240.0),
            Change("step", 1.5, -4 * HOUR, shape="cold", span=240.0),
        ),
    ),
    Scenario(
        "steps_as_prefill", "whose speculative steps are taken for prefill in some hours",
        kind="graph_fallback", verdict="fault", signal="tpot_mean", pool="decode",
        start=-6 * HOUR, breach=-6 * HOUR, limit=_SLA["tpot"], source="S1",
        note="TPOT varies with the load pattern: here in turns of 40 minutes.",
        changes=(
            Change("step", 0.35, -6 * HOUR, pool="decode"),
            Change("step", 0.35, -6 * HOUR, shape="wave", span=4800.0, pool="decode"),
        ),
    ),
    Scenario(
        "spin_wait", "whose decode GPUs spin while they wait: busy, full clocks, 140 W",
        kind="spin_wait", verdict="fault", signal="gpu_power", pool="decode",
        start=-5 * HOUR, breach=-5 * HOUR, limit=_SLA["tpot"], source="S2",
        note="14 ms more for each of four forwards of a step; readings as S2 has them.",
        changes=(
            Change("step_fixed", 0.056, -5 * HOUR, pool="decode"),
            Change("spin", 0.9, -5 * HOUR, pool="decode"),
        ),
    ),
    Scenario(
        "forward_cost", "each of whose forwards costs 12 ms more at the same tokens a step",
        kind="step_cost", verdict="fault", signal="itl_mean", pool="decode",
        start=-5 * HOUR, breach=-5 * HOUR, limit=_SLA["tpot"], source="S2",
        note="71 ms a step with 4 forwards where four healthy ones take 46 ms.",
        changes=(Change("step_fixed", 0.048, -5 * HOUR, pool="decode"),),
    ),
    Scenario(
        "draft_too_deep", "that drafts five tokens of which the last are hardly ever accepted",
        kind="draft_depth", verdict="fault", signal="acceptance_by_position", pool="decode",
        start=-20 * HOUR, source="S2",
        note="Acceptance by position .85 .60 .40 .25 .12; mean length 3.22.",
        profile=(0.85, 0.60, 0.40, 0.25, 0.12), fleet=partial(drafting, depth=5),
    ),
)  # fmt: skip

_STAGES: Final = (
    Scenario(
        "prefill_queue", "whose clients wait for prefill: 97 requests queue, its work is as quick",
        kind="stage", verdict="fault", signal="queue_mean", pool="prefill",
        start=-2 * HOUR, breach=-2 * HOUR, limit=_SLA["ttft"], source="S3",
        note="97 queued; the wait follows from them and the rate.",
        changes=(Change("backlog", 97.0, -2 * HOUR, pool="prefill"),),
    ),
    Scenario(
        "cache_full", "whose prefill caches are full: hits in single digits, all computed anew",
        kind="tier", verdict="fault", signal="prefix_hit_ratio", pool="prefill",
        start=-6 * HOUR, breach=-5.5 * HOUR, limit=_SLA["ttft"], source="S3",
        note="Healthy reuse of .80 here; throughput falls because prefill queues.",
        changes=(
            Change("prefix_hits", 0.55, pool="prefill"),
            Change("prefix_hits", -0.74, -6 * HOUR, shape="saturate", span=HOUR, pool="prefill"),
            Change("prompt", 1.6),
        ),
    ),
    Scenario(
        "cache_restored", "whose prefill caches are full, and whose CPU tier restores what is lost",
        kind="tier", verdict="fault", signal="prefix_hit_ratio", pool="prefill",
        start=-6 * HOUR, source="S3",
        note="59 ms a restored miss of 45K tokens: 26 ms a GB.",
        changes=(
            Change("prefix_hits", 0.55, pool="prefill"),
            Change("prefix_hits", -0.74, -6 * HOUR, shape="saturate", span=HOUR, pool="prefill"),
            Change("tier_hits", 0.72, -6 * HOUR, shape="saturate", span=HOUR, pool="prefill"),
            Change("prompt", 1.6),
        ),
    ),
    Scenario(
        "cache_churn", "whose cache evicts blocks just restored: 222 tokens loaded for 217 served",
        kind="tier", verdict="fault", signal="restore_bytes_rate", pool="prefill",
        start=-6 * HOUR, source="S3", churn=222 / 217 / 0.93,
        changes=(
            Change("prefix_hits", -0.20, -6 * HOUR, pool="prefill"),
            Change("tier_hits", 0.93, -6 * HOUR, pool="prefill"),
        ),
    ),
    Scenario(
        "routing_misses", "whose router sends turns where their prefix is not",
        kind="falling", verdict="drift", signal="prefix_hit_ratio", pool="prefill",
        start=-6 * HOUR, rate=-0.04, source="S3",
        note="97 % of a ceiling of .939 captured, then less by the hour.",
        changes=(
            Change("prefix_hits", 0.664, pool="prefill"),
            Change("prefix_hits", -0.04, -6 * HOUR, shape="ramp", pool="prefill"),
        ),
    ),
    Scenario(
        "decode_narrow", "whose decode pool is too narrow: 39 requests wait for it",
        kind="stage", verdict="fault", signal="queue_mean", pool="decode",
        start=-3 * HOUR, breach=-3 * HOUR, limit=_SLA["ttft"], source="S3",
        changes=(
            Change("backlog", 39.0, -3 * HOUR, pool="decode"),
            Change("step", 0.9, -3 * HOUR, pool="decode"),
        ),
    ),
    Scenario(
        "prefill_narrow", "whose prefill pool is too narrow: 137 wait, 7 TB come from the CPU tier",
        kind="stage", verdict="fault", signal="queue_mean", pool="prefill",
        start=-3 * HOUR, breach=-3 * HOUR, limit=_SLA["ttft"], source="S3",
        changes=(
            Change("backlog", 137.0, -3 * HOUR, pool="prefill"),
            Change("tier_hits", 0.6, -3 * HOUR, pool="prefill"),
        ),
    ),
)  # fmt: skip

_DRIFTS: Final = (
    Scenario(
        "tpot_creep", "whose decode steps get 1 % dearer by the hour",
        kind="creep", verdict="drift", signal="tpot_mean", pool="decode",
        start=-8 * HOUR, rate=0.00013, breach=20 * HOUR, limit=_SLA["tpot"], source="S1",
        changes=(Change("step", 0.01, -8 * HOUR, shape="growth", pool="decode"),),
    ),
    Scenario(
        "ttft_creep", "whose prefill gets 2 % slower by the hour",
        kind="creep", verdict="drift", signal="ttft_mean", pool="prefill",
        start=-8 * HOUR, rate=0.012, breach=19 * HOUR, limit=_SLA["ttft"], source="S1",
        changes=(Change("prefill", 0.02, -8 * HOUR, shape="growth", pool="prefill"),),
    ),
    Scenario(
        "transfer_creep", "whose KV transfers get 3 % slower by the hour",
        kind="creep", verdict="drift", signal="transfer_time_mean", pool="decode",
        start=-8 * HOUR, rate=0.0006, source="S1",
        changes=(Change("link", 0.03, -8 * HOUR, shape="growth", pool="decode"),),
    ),
    Scenario(
        "slow_rollout", "whose new image needs 6 % more for each token",
        kind="rollout", verdict="step", signal="tpot_mean", pool="decode",
        start=-5 * HOUR, rate=0.06, source="S1", fleet=partial(rolled, begin=-5 * HOUR),
        note="rate is the share that TPOT rises by.",
        changes=(Change("step", 0.06, -5 * HOUR, shape="image", pool="decode"),),
    ),
    Scenario(
        "slow_rank", "one of whose prefill ranks computes a third slower than its peers",
        kind="straggler", verdict="fault", signal="ttft_mean_by_server", pool="prefill",
        start=-6 * HOUR, source="S1",
        changes=tuple(
            Change("prefill", 0.5, -6 * HOUR, pool="prefill", server=2, rank=rank)
            for rank in range(4)
        ),
    ),
    Scenario(
        "slow_gpu", "one of whose decode GPUs is held at two thirds of its clock",
        kind="straggler", verdict="fault", signal="gpu_sm_clock", pool="decode",
        start=-6 * HOUR, source="S2",
        changes=(
            Change("clock", -0.34, -6 * HOUR, pool="decode", server=0, rank=3),
            Change("step", 0.12, -6 * HOUR, pool="decode"),
        ),
    ),
)  # fmt: skip

INCIDENTS: Final[tuple[Scenario, ...]] = (*_MEMORY, *_STEPS, *_STAGES, *_DRIFTS)
