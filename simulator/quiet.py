"""Days on which nothing is wrong and which look as if: the hard negatives."""

from __future__ import annotations

from functools import partial
from typing import Final, get_args

from simulator.change import HOUR, Change
from simulator.fleet import drained, restarted, rolled, scaled, steady
from simulator.truth import Defect, Scenario


def _quiet(name: str, title: str, verdict: str = "", signal: str = "", pool: str = "",
           start: float = 0.0, *changes: Change, **more: object) -> Scenario:  # fmt: skip
    return Scenario(
        name, title, "quiet", "none", verdict, signal, pool, start=start, negative=True,
        changes=changes, **more,  # type: ignore[arg-type]
    )  # fmt: skip


_MEMORY: Final = (
    _quiet(
        "warm_up", "whose prefill workers warm up for hours to a plateau", "warm_up",
        "host_anon_swap", "prefill", -10 * HOUR,
        Change("private", 5.0, -10 * HOUR, shape="saturate", span=3 * HOUR, pool="prefill",
               process="worker"),
    ),
    _quiet(
        "warm_up_steps", "whose decode workers warm up to a plateau by steps", "warm_up",
        "host_anon_swap", "decode", -10 * HOUR,
        Change("private", 3.0, -10 * HOUR, shape="stairs", span=3 * HOUR, pool="decode",
               process="worker"),
    ),
    _quiet(
        "warm_up_log", "whose EngineCores grow as the logarithm of their time", "warm_up",
        "host_anon_swap", "decode", -20 * HOUR,
        Change("private", 0.35, -20 * HOUR, shape="log", span=HOUR, pool="decode",
               process="engine_core"),
    ),
    _quiet(
        "page_cache", "whose containers' page cache fills", "warm_up", "container_working_set",
        "decode", -12 * HOUR,
        Change("cache", 45.0, -12 * HOUR, shape="saturate", span=8 * HOUR, pool="decode"),
    ),
    _quiet(
        "collector", "whose API servers' garbage collector makes a sawtooth", "season",
        "host_anon_swap", "decode", -72 * HOUR,
        Change("private", 1.2, shape="saw", span=2.2 * HOUR, pool="decode", process="api_server"),
    ),
    _quiet(
        "larger_model", "that was deployed with a larger model", "restart", "host_anon_swap",
        "decode", -6 * HOUR,
        Change("private", 6.0, -6 * HOUR, shape="image", pool="decode", process="worker"),
        fleet=partial(rolled, begin=-6 * HOUR),
    ),
    _quiet(
        "limit_raised", "whose containers were given 20 % more memory", "step", "container_limit",
        "decode", -6 * HOUR, Change("limit", 0.2, -6 * HOUR),
    ),
    _quiet(
        "leak_fixed", "whose leak was mended three hours ago", "leak", "host_anon_swap", "decode",
        -12 * HOUR,
        Change("private", 0.4, -12 * HOUR, -3 * HOUR, shape="ramp", pool="decode",
               process="engine_core"),
    ),
    _quiet(
        "memory_step", "whose decode workers took one step up, once", "step", "host_anon_swap",
        "decode", -8 * HOUR,
        Change("private", 1.5, -8 * HOUR, pool="decode", process="worker"),
    ),
)  # fmt: skip

_TRAFFIC: Final = (
    _quiet(
        "prefix_cache_fills", "whose prefix caches fill after a cold start", "warm_up",
        "prefix_hit_ratio", "prefill", -10 * HOUR,
        Change("prefix_hits", -0.22, end=-10 * HOUR),
        Change("prefix_hits", -0.22, -10 * HOUR),
        Change("prefix_hits", 0.22, -10 * HOUR, shape="saturate", span=3 * HOUR),
    ),
    _quiet("traffic_doubles", "whose traffic doubles within an hour", "new_traffic",
           "request_rate", "", -6 * HOUR,
           Change("traffic", -0.4), Change("traffic", 0.6, -6 * HOUR, -5 * HOUR, shape="ramp")),
    _quiet("traffic_grows", "whose traffic grows all week, by half", "new_traffic",
           "request_rate", "", -168 * HOUR,
           Change("traffic", -0.25),
           Change("traffic", 0.4 / 168, -168 * HOUR, 0.0, shape="ramp"), fleet=steady),
    _quiet("new_customer", "which a new customer came to, with longer prompts and other drafts",
           "new_traffic", "acceptance_ratio", "decode", -6 * HOUR,
           Change("prompt", 0.25, -6 * HOUR), Change("output", 0.15, -6 * HOUR),
           Change("traffic", 0.05, -6 * HOUR), Change("accepted", -0.16, -6 * HOUR)),
    _quiet("monday", "on a Monday after a quiet Sunday", "season", "request_rate", "", -9 * HOUR,
           traffic="weekly", weekday=0.42, fleet=steady),
    _quiet("holiday", "on a holiday with half of the traffic", "season", "request_rate", "",
           -16 * HOUR, Change("traffic", -0.5, -16 * HOUR, 8 * HOUR), fleet=steady),
    _quiet("backfill", "that works off batches for three hours each night", "season",
           "request_rate", "", -72 * HOUR,
           Change("traffic", 0.6, shape="daily", span=3 * HOUR), fleet=steady),
    _quiet("bursts", "whose traffic comes in bursts", "season", "request_rate", traffic="bursty"),
    _quiet("poisson", "whose traffic has no hours and days", "", "request_rate",
           traffic="poisson"),
    _quiet("heavy_tail", "whose waits have a heavy tail", "", "ttft_mean", "prefill", -72 * HOUR,
           Change("queue_tail", 0.8)),
    _quiet("decode_hits_fall", "whose decode-local hits fall from 51 to 45 %",
           "new_traffic", "prefix_hit_ratio", "decode", -8 * HOUR,
           Change("decode_hits", 0.21),
           Change("decode_hits", -0.0075, -8 * HOUR, 0.0, shape="ramp")),
    _quiet("link_spike", "one minute of whose KV transfers took 50 times as long", "",
           "transfer_time_mean", "decode", -2 * HOUR,
           Change("link", 49.0, -2 * HOUR, -2 * HOUR + 60.0)),
    _quiet("idle", "without one request for two days from now on", "", "acceptance_ratio",
           "decode", 0.0, idle=(0.0, 48 * HOUR)),
)  # fmt: skip

_AGENTS: Final = (
    _quiet("agents", "of coding agents: gaps, reuse and sub-agents of real sessions", "",
           "request_rate", traffic="agents", fleet=steady),
    _quiet("sub_agents", "of coding agents whose sub-agents come 50 at a time", "new_traffic",
           "request_rate", "", -5 * HOUR, Change("traffic", 0.8, -5 * HOUR, -3 * HOUR),
           traffic="agents", fleet=steady),
    _quiet("prefix_resets", "of coding agents that start their prompts anew more often",
           "new_traffic", "prefix_hit_ratio", "prefill", -6 * HOUR,
           Change("prefix_hits", -0.06, -6 * HOUR, -4 * HOUR), traffic="agents", fleet=steady),
    _quiet("compaction", "of coding agents whose contexts are made short: from 500K to 30K",
           "new_traffic", "input_tokens_rate", "", -6 * HOUR,
           Change("prompt", -0.30, -6 * HOUR, -4 * HOUR, shape="step"),
           Change("prefix_hits", -0.08, -6 * HOUR, -4 * HOUR), traffic="agents", fleet=steady),
    _quiet("sessions_5x", "whose live sessions are five times its cache: the CPU tier restores",
           "new_traffic", "prefix_hit_ratio", "prefill", -8 * HOUR,
           Change("prefix_hits", -0.5, -8 * HOUR, shape="saturate", span=2 * HOUR),
           Change("tier_hits", 0.48, -8 * HOUR, shape="saturate", span=2 * HOUR),
           traffic="agents", fleet=steady),
)  # fmt: skip

_FLEET: Final = (
    _quiet("scaled", "whose prefill pool was scaled from four to six", "new_traffic",
           "request_rate", "prefill", -5 * HOUR, fleet=partial(scaled, more=2, at=-5 * HOUR)),
    _quiet("rolling_restart", "all of whose servers restart, one after another", "restart",
           "host_anon_swap", "", -4 * HOUR, fleet=partial(rolled, begin=-4 * HOUR)),
    _quiet("drained", "one of whose prefill pods was drained", "restart", "host_anon_swap",
           "prefill", -3 * HOUR, fleet=partial(drained, name="node-3:8000", at=-3 * HOUR)),
    _quiet("restart", "one of whose prefill servers restarted", "restart", "host_anon_swap",
           "prefill", -5 * HOUR,
           fleet=lambda fleet: restarted(fleet, "node-2:8000", -5 * HOUR)),
)  # fmt: skip

QUIET: Final[tuple[Scenario, ...]] = (*_MEMORY, *_TRAFFIC, *_AGENTS, *_FLEET)

_SAMPLES: Final[dict[Defect, str]] = {
    "gap": "that was not scraped for two hours",
    "clock_step": "whose scraper's clock was put forward by 90 seconds",
    "duplicates": "each twentieth of whose samples came twice",
    "out_of_order": "some of whose samples came late and out of order",
    "reset": "whose counters began again without a restart",
    "constant": "whose signals stand still",
    "two_valued": "whose signals have two values",
    "spike": "each of whose signals once was fifty times itself, for a minute",
    "ar99": "whose signals wander as AR(.99) does",
}

SAMPLES: Final[tuple[Scenario, ...]] = tuple(
    Scenario(defect, _SAMPLES[defect], "samples", start=-4 * HOUR, negative=True, defect=defect)
    for defect in get_args(Defect)
)
