"""Each trap of vLLM's numbers, sprung on a real Prometheus: no signal steps into it.

One fleet per trap, told apart by `cluster`, written sample by sample; nothing of ours is between
vLLM's names and the expressions, as where Prometheus scrapes vLLM itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pytest

from catalog import guards, promql
from catalog.labels import LEVELS
from catalog.metrics import METRICS
from catalog.signals import SIGNALS
from catalog.vllm import VLLM

if TYPE_CHECKING:
    from conftest import Server, StartPrometheus

T0 = 1_700_000_040
MINUTES = 12
AT = T0 + 60 * (MINUTES - 1)
Values = Sequence[float | None]

TTFT = "vllm:time_to_first_token_seconds"
ITL = "vllm:inter_token_latency_seconds"
TPOT = "vllm:request_time_per_output_token_seconds"
QUEUE = "vllm:request_queue_time_seconds"
TOKENS = "vllm:generation_tokens_total"
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
USAGE = "vllm:kv_cache_usage_perc"
FETCH = "vllm:num_requests_kv_fetch_by_stage"
STARTED = "leadline_process_start_time_seconds"


def up(step: float, since: float = 0) -> list[float]:
    """Return a counter that grows by *step* a minute."""
    return [since + step * minute for minute in range(MINUTES)]


def at(value: float) -> list[float]:
    """Return what stands still."""
    return [value] * MINUTES


def fallen(step: float, since: float = 0) -> list[float]:
    """Return a counter that begins again two minutes before the end, at the same pace."""
    return [*up(step, since)[:-3], step, 2 * step, 3 * step]


class Fleet:
    """Rows of OpenMetrics of one cluster."""

    def __init__(self, cluster: str) -> None:
        """Start with nothing."""
        self.cluster = cluster
        self.rows: list[str] = []

    def server(self, server: str, pool: str, series: Mapping[str, Values], **more: str) -> None:
        """Add a server's series; `name{label=value}` has a label more."""
        labels = {"cluster": self.cluster, "deployment": "d", "pool": pool, "model_name": "m",
                  "server": server, "engine": "0", **more}  # fmt: skip
        for key, values in series.items():
            name, _, rest = key.partition("{")
            extra = dict(pair.split("=") for pair in rest.rstrip("}").split(",") if pair)
            inner = ",".join(f'{k}="{v}"' for k, v in {**labels, **extra}.items())
            self.rows += [
                f"{name}{{{inner}}} {value!r} {T0 + 60 * minute}"
                for minute, value in enumerate(values)
                if value is not None
            ]


def histogram(
    name: str, total: Values, count: Values, buckets: Mapping[str, Values] | None = None
) -> dict[str, Values]:
    """Return the series of a histogram; its buckets beside that of all."""
    bounds = {f"{name}_bucket{{le={le}}}": values for le, values in (buckets or {}).items()}
    return {f"{name}_sum": total, f"{name}_count": count, **bounds,
            f"{name}_bucket{{le=+Inf}}": count}  # fmt: skip


def queue(*, running: float, waiting: float, usage: Values) -> dict[str, Values]:
    """Return the gauges of an engine."""
    return {RUNNING: at(running), WAITING: at(waiting), USAGE: usage}


def frozen() -> Fleet:
    """Four engines: at work, left by a mass abort, at rest, and on one long prompt."""
    fleet = Fleet("frozen")
    fleet.server("busy", "decode", {TOKENS: up(600), **queue(running=5, waiting=2, usage=at(0.5))})
    fleet.server(
        "left", "decode", {TOKENS: at(9e5), **queue(running=106, waiting=15, usage=at(0.904))}
    )
    fleet.server("rest", "decode", {TOKENS: at(700), **queue(running=0, waiting=0, usage=at(0))})
    fleet.server(
        "long", "prefill", {TOKENS: at(70), **queue(running=1, waiting=0, usage=up(0.01, 0.2))}
    )
    return fleet  # fmt: skip


def waits() -> Fleet:
    """Decode servers of 0.33 and 0.26 in one pool; the older one can't tell why requests wait."""
    fleet = Fleet("waits")
    both = {TOKENS: up(600), USAGE: at(0.5)}
    stages = {
        f"{FETCH}{{stage={s}}}": at(n)
        for s, n in (("waiting_to_start", 2), ("in_progress", 4), ("completed_waiting", 9))
    }
    told = {**histogram(QUEUE, up(600), up(60)), **histogram(TTFT, up(700), up(60))}
    fleet.server("new", "decode", {**both, **told, **stages})
    fleet.server(
        "old",
        "decode",
        {**both, **histogram(QUEUE, up(6e4), up(60)), **histogram(TTFT, up(7e4), up(60))},
    )
    fleet.server("p", "prefill", {**both, **histogram(QUEUE, up(30), up(60))})
    return fleet  # fmt: skip


def hits() -> Fleet:
    """Prefill of a pair, prefill with a cold offload tier, one with a warm cache, and decode."""
    fleet = Fleet("hits")
    asked, found = (f"vllm:external_prefix_cache_{x}_total" for x in ("queries", "hits"))
    for deployment, hit, more in (
        ("pair", 0.0, {}),
        ("cold", 0.0, {"vllm:kv_offload_total_bytes_total{transfer_type=CPU_to_GPU}": at(0)}),
        ("warm", 25.0, {}),
    ):
        series = {asked: up(100), found: up(hit), **more}
        fleet.server("p", "prefill", series, deployment=deployment)
        fleet.server("d", "decode", {asked: up(100), found: up(100)}, deployment=deployment)
    return fleet


def drafts() -> Fleet:
    """A decode engine whose steps bring two and a half tokens each, and one without drafts."""
    fleet = Fleet("drafts")
    steps = "vllm:iteration_tokens_total"
    for server, itl, tokens in (("mtp", 18, 1500), ("plain", 7.2, 600)):
        fleet.server(server, "decode", {
            **histogram(ITL, up(itl), up(600)), **histogram(TPOT, up(0.36), up(30)),
            **histogram(steps, up(tokens), up(600)), TOKENS: up(tokens),
        }, deployment=server)  # fmt: skip
    return fleet


def low() -> Fleet:
    """Prefill on which each request waits 30 microseconds: far below the lowest bound."""
    fleet = Fleet("low")
    waits = histogram(QUEUE, up(0.0018), up(60), {"0.3": up(60)})
    fleet.server("p", "prefill", {**waits, TOKENS: up(60)})
    return fleet


def sharded() -> Fleet:
    """Decode on four tensor-parallel ranks: each request is four transfers."""
    fleet = Fleet("sharded")
    moved = histogram("vllm:nixl_bytes_transferred", up(240e6), up(240))
    took = histogram("vllm:nixl_xfer_time_seconds", up(2.4), up(240))
    done = {"vllm:request_success_total{finished_reason=stop}": up(60)}
    fleet.server("d", "decode", {**moved, **took, **done})
    return fleet


def taken() -> Fleet:
    """A server of four elastic ranks of which one was taken away: its last values stay."""
    fleet = Fleet("taken")
    for engine in ("0", "1", "2"):
        work = {TOKENS: up(600), **queue(running=5, waiting=0, usage=at(0.5))}
        fleet.server("e", "decode", work, engine=engine)
    gone = {TOKENS: at(9e5), **queue(running=0, waiting=0, usage=at(0.9))}
    fleet.server("e", "decode", gone, engine="3")
    return fleet


def disguised() -> Fleet:
    """A pair whose pools nobody named: prefill observes 0.0 for each request it hands over."""
    fleet = Fleet("disguised")
    decode = "vllm:request_decode_time_seconds"
    bounds = ("0.01", "0.025", "0.05")
    zero = {le: up(60) for le in bounds}
    real = {"0.01": at(0), "0.025": up(60), "0.05": up(60)}
    fleet.server(
        "p", "unknown", {**histogram(TPOT, at(0), up(60), zero), **histogram(decode, at(0), up(60))}
    )
    fleet.server(
        "d",
        "unknown",
        {**histogram(TPOT, up(1.2), up(60), real), **histogram(decode, up(120), up(60))},
    )
    return fleet  # fmt: skip


def corrupt() -> Fleet:
    """Of three servers one saw a negative time and one a NaN."""
    fleet = Fleet("corrupt")
    nan = float("nan")
    down = [v - (5e5 if minute > MINUTES - 3 else 0) for minute, v in enumerate(up(30, 1e6))]
    for server, total in (
        ("well", up(30)),
        ("below", down),
        ("nan", [*up(30)[:-3], nan, nan, nan]),
    ):
        fleet.server(server, "prefill", histogram(QUEUE, total, up(60)))
    return fleet


def resets() -> Fleet:
    """Servers restarted, with counters made anew in place, of unknown start, and one kept."""
    fleet = Fleet("resets")
    steady = {f"{STARTED}{{process=api_server,node=n}}": at(1.7e9)}
    moved = {f"{STARTED}{{process=api_server,node=n}}": [*at(1.7e9)[:-3], *repeat(1.70001e9, 3)]}
    finished = "vllm:request_success_total{finished_reason=stop}"

    def work(pace: Any) -> dict[str, Values]:
        return {TOKENS: pace(600), finished: pace(60), **histogram(TTFT, pace(30), pace(60))}

    for name, began, pace in (
        ("restart", moved, fallen),
        ("no_restart", steady, fallen),
        ("unknown", {}, fallen),
        ("kept", moved, up),
        ("none", steady, up),
    ):
        fleet.server(name, "decode", {**work(pace), **began}, deployment=name)
    return fleet  # fmt: skip


def bounds() -> Fleet:
    """Two servers with buckets of their own, and one whose observations pass the highest."""
    fleet = Fleet("bounds")
    # 100 observations a minute each: half at 0.1 s, the others at 0.4 s.
    coarse = {"0.2": up(50), "0.5": up(100)}
    fine = {"0.1": up(50), "0.15": up(50), "0.2": up(50), "0.45": up(100), "0.5": up(100)}
    for name, buckets in (("coarse", coarse), ("fine", fine)):
        fleet.server(name, "decode", histogram(TTFT, up(25), up(100), buckets))
    beyond = histogram(TTFT, up(900), up(100), {"0.2": up(20), "0.5": up(60)})
    fleet.server("beyond", "prefill", beyond)
    return fleet


def processes() -> Fleet:
    """A server of three front ends whose gauges stand side by side, told by `pid`."""
    fleet = Fleet("processes")
    for pid, usage, fetching in (("11", 0.0, 0.0), ("12", 0.75, 3.0), ("13", 0.5, 2.0)):
        series = {TOKENS: up(60), USAGE: at(usage),
                  f"{FETCH}{{stage=in_progress}}": at(fetching),
                  f"{FETCH}{{stage=waiting_to_start}}": at(fetching)}  # fmt: skip
        fleet.server("s", "decode", series, pid=pid)
    return fleet


def ranks() -> Fleet:
    """A server of four ranks, of which one fell silent; and one that never had more than two."""
    fleet = Fleet("ranks")
    for engine in "0123":
        values: Values = at(1) if engine != "2" else [*at(1)[:-7], *repeat(None, 7)]
        fleet.server("four", "decode", {RUNNING: values}, engine=engine)
    for engine in "01":
        fleet.server("two", "decode", {RUNNING: at(1)}, engine=engine)
    return fleet


def lazy() -> Fleet:
    """Servers with and without offloading, before and after its first use."""
    fleet = Fleet("lazy")
    loaded = "vllm:kv_offload_load_bytes_total"
    for server, connector, more in (
        ("used", "OffloadingConnector", {loaded: up(1e6)}),
        ("unused", "OffloadingConnector", {}),
        ("inside", "NixlConnector+OffloadingConnector", {}),
        ("none", "NixlConnector", {}),
        ("foreigner", "NixlConnector+other", {}),
        ("untold", "", {}),
    ):
        info = (f"leadline_instance_info{{kv_connector=MultiConnector,kv_connectors={connector},"
                "kv_role=kv_both,node=n}")  # fmt: skip
        fleet.server(server, "prefill", {info: at(1), RUNNING: at(0), **more})
    fleet.server("foreign", "prefill", {RUNNING: at(0)})
    born = "vllm:nixl_num_kv_expired_reqs_total"
    fleet.server("born", "prefill", {RUNNING: at(0), born: [*repeat(None, MINUTES - 3), 4, 4, 4]})
    fleet.server("seen", "prefill", {born: at(9), RUNNING: at(0)})
    late = [*repeat(None, MINUTES - 3), 8, 8, 8]
    fleet.server("scraped", "prefill", {born: late, RUNNING: late})
    return fleet


FLEETS = (
    frozen, waits, hits, drafts, low, sharded, taken, disguised, corrupt, resets, bounds, processes,
    ranks, lazy,
)  # fmt: skip


@pytest.fixture(scope="module")
def fleets(module_prometheus: StartPrometheus) -> Server:
    """A Prometheus that holds a fleet for each trap."""
    rows = [row for fleet in FLEETS for row in fleet().rows]
    return module_prometheus(openmetrics="\n".join([*rows, "# EOF\n"]))


def read(fleets: Server, cluster: str, name: str, *keys: str) -> dict[str, float]:
    """Return a signal's values in one fleet by *keys*, each once."""
    return ask(fleets, cluster, SIGNALS[name].expr, *keys)


def ask(fleets: Server, cluster: str, expr: str, *keys: str) -> dict[str, float]:
    """Return the values of an expression in one fleet by *keys*, each once."""
    rows = [s for s in fleets.query(expr, at=AT) if s["metric"].get("cluster") == cluster]
    found = {"/".join(s["metric"].get(k, "") for k in keys): float(s["value"][1]) for s in rows}
    assert len(found) == len(rows)
    return found


def test_a_gauge_of_an_engine_that_stands_still_is_unknown(fleets: Server) -> None:
    """But zero is zero, and a long prompt moves the cache while it brings no token."""
    usage = {"busy": 0.5, "rest": 0, "long": 0.31}
    assert read(fleets, "frozen", "kv_usage", "server") == pytest.approx(usage)
    assert read(fleets, "frozen", "requests_running", "server") == {"busy": 5, "rest": 0, "long": 1}
    waiting = {"busy": 2, "rest": 0, "long": 0}
    assert read(fleets, "frozen", "requests_waiting", "server") == waiting
    # Bare, the dead engine looks like the busiest of all.
    bare = ask(fleets, "frozen", RUNNING, "server")
    assert bare["left"] == max(bare.values()) == 106


def test_an_engine_that_stands_still_is_told(fleets: Server) -> None:
    """So that unknown gauges have a reason."""
    told = {"busy": 0, "left": 1, "rest": 0, "long": 0}
    assert read(fleets, "frozen", "gauges_frozen", "server") == told


def test_the_wait_for_kv_is_told_from_the_queue(fleets: Server) -> None:
    """6 requests wait, one a second comes through: 6 s of 10 s; 0.26 can't tell and is left out."""
    assert read(fleets, "waits", "kv_fetch_time_mean", "pool") == pytest.approx({"decode": 6})
    own = read(fleets, "waits", "queue_own_mean", "pool")
    assert own == pytest.approx({"decode": 4, "prefill": 0.5})
    whole = read(fleets, "waits", "queue_mean", "pool")
    assert whole == pytest.approx({"decode": 505, "prefill": 0.5})


def test_an_external_hit_ratio_is_of_caches_alone(fleets: Server) -> None:
    """A pair without one asks and can find nothing; decode finds all that prefill sent."""
    found = read(fleets, "hits", "external_hit_ratio", "deployment", "pool")
    assert found == {"cold/prefill": 0, "warm/prefill": 0.25}


def test_zeros_of_a_prefill_that_nobody_named_do_not_count(fleets: Server) -> None:
    """Its TPOT of 0.0 would halve the mean and be the median."""
    for name, value in (("tpot_mean", 0.02), ("tpot_p50", 0.0175), ("decode_time_mean", 2.0)):
        assert read(fleets, "disguised", name, "pool") == pytest.approx({"unknown": value})
    bare = f"sum by (cluster) (rate({TPOT}_sum[5m])) / sum by (cluster) (rate({TPOT}_count[5m]))"
    assert ask(fleets, "disguised", bare, "cluster") == pytest.approx({"disguised": 0.01})


def test_a_sum_that_falls_or_is_no_number_takes_its_server_out(fleets: Server) -> None:
    """The rest of the pool keeps its mean; bare, a fall reads as a restart and explodes."""
    assert read(fleets, "corrupt", "queue_mean", "pool") == pytest.approx({"prefill": 0.5})
    bare = ask(fleets, "corrupt", f"rate({QUEUE}_sum[5m])", "server")
    assert bare["below"] > 1000
    assert bare["nan"] != bare["nan"]


RESET = ("restart", "no_restart", "unknown", "kept", "none")


def test_rates_and_means_are_right_through_every_reset(fleets: Server) -> None:
    """Whether processes began anew, counters alone, or neither."""
    for name, value in (("ttft_mean", 0.5), ("request_rate", 1), ("output_tokens_rate", 10)):
        found = read(fleets, "resets", name, "deployment")
        assert found == pytest.approx(dict.fromkeys(RESET, value)), name


def test_a_reset_is_told_from_a_restart(fleets: Server) -> None:
    """By the time the server began, which counters don't know."""
    found = read(fleets, "resets", "counter_resets", "deployment", "kind")
    assert found == {"restart/restart": 1, "no_restart/no_restart": 1, "unknown/unknown": 1,
                     "kept/kept": 1, "none/": 0}  # fmt: skip


def test_buckets_of_servers_that_differ_are_told(fleets: Server) -> None:
    """0.1, 0.15 and 0.45 s are bounds of one server alone: p90 lies, above what any of them saw."""
    assert read(fleets, "bounds", "ttft_p90", "pool")["decode"] == pytest.approx(0.49)
    apart = promql.bounds_apart(METRICS[TTFT], LEVELS["pool"])
    assert ask(fleets, "bounds", apart, "pool") == {"decode": 3, "prefill": 0}
    assert read(fleets, "bounds", "ttft_mean", "pool")["decode"] == pytest.approx(0.25)


def test_what_lies_above_the_highest_bound_is_told(fleets: Server) -> None:
    """Two fifths do, so p90 reads as the bound, 0.5 s, and is not known."""
    above = promql.above(METRICS[TTFT], LEVELS["pool"])
    assert ask(fleets, "bounds", above, "pool") == pytest.approx({"prefill": 0.4, "decode": 0})
    assert read(fleets, "bounds", "ttft_p90", "pool")["prefill"] == 0.5


def test_processes_of_one_server_are_merged_as_their_kind_demands(fleets: Server) -> None:
    """The newest value is one of them, never their sum, where series of `pid` stand apart."""
    assert read(fleets, "processes", "kv_usage", "server") == {"s": 0.75}
    stages = {"s/in_progress": 3, "s/waiting_to_start": 3}
    assert read(fleets, "processes", "kv_fetch_by_stage", "server", "stage") == stages
    assert read(fleets, "processes", "kv_fetch_waiting", "server") == {"s": 6}


@pytest.mark.parametrize("metric", [m for m in VLLM if m.type == "gauge"], ids=lambda m: m.name)
def test_every_gauge_says_how_processes_merge(metric: Any) -> None:
    """Those that the library adds up have no `pid`; all others are the newest of their writers."""
    alone = metric.name.startswith(("process_", "python_")) or metric.until
    assert bool(metric.merge) != bool(alone)
    assert not metric.by_pid or metric.merge != "livesum"


def test_a_rank_that_fell_silent_is_missing(fleets: Server) -> None:
    """Counted by server against the hour before."""
    assert read(fleets, "ranks", "engines_missing", "server") == {"four": 1, "two": 0}


def test_absence_is_told_as_lazy_disabled_or_unknown(fleets: Server) -> None:
    """By the server's setup; a server that nobody described has no state."""
    info = METRICS["leadline_instance_info"]
    expr = guards.presence(METRICS["vllm:kv_offload_load_bytes_total"], info)
    states = {"used/present", "unused/lazy", "inside/lazy", "none/disabled", "foreigner/unknown",
              "untold/unknown"}  # fmt: skip
    assert set(ask(fleets, "lazy", expr, "server", "state")) == states
    flagged = guards.presence(METRICS["vllm:lora_requests_info"], info)
    found = ask(fleets, "lazy", flagged, "server", "state")
    assert {key.partition("/")[2] for key in found} == {"unknown"}
    always = guards.presence(METRICS["vllm:prompt_tokens_total"], info)
    found = ask(fleets, "lazy", always, "server", "state")
    assert {key.partition("/")[2] for key in found} == {"missing"}


def test_a_counter_born_with_its_first_event_counts_it(fleets: Server) -> None:
    """`increase()` loses it; a page that is new brings no event."""
    born = METRICS["vllm:nixl_num_kv_expired_reqs_total"]
    expr = promql.events(born, METRICS[RUNNING], LEVELS["server"], "5m")
    assert ask(fleets, "lazy", expr, "server") == {"born": 4}
    assert ask(fleets, "lazy", f"increase({born.name}[5m])", "server")["born"] == 0


def test_time_between_steps_is_not_time_per_token(fleets: Server) -> None:
    """With drafts a step takes longer and brings more; per token both engines are equal."""
    for name, told in (
        ("itl_mean", {"mtp": 0.03, "plain": 0.012}), ("tpot_mean", {"mtp": 0.012, "plain": 0.012}),
        ("tokens_per_step", {"mtp": 2.5, "plain": 1}),
    ):  # fmt: skip
        assert read(fleets, "drafts", name, "deployment") == pytest.approx(told), name
    for signal in SIGNALS.values():
        if ITL in {metric.name for metric in signal.metrics}:
            assert "steps" in signal.title, signal.name


def test_times_below_the_lowest_bound_are_means(fleets: Server) -> None:
    """The median of waits of 30 microseconds reads 150 ms: no signal is such a quantile."""
    assert read(fleets, "low", "queue_mean", "pool") == pytest.approx({"prefill": 30e-6})
    bare = f"histogram_quantile(0.5, sum by (cluster, le) (rate({QUEUE}_bucket[5m])))"
    assert ask(fleets, "low", bare, "cluster") == pytest.approx({"low": 0.15})
    coarse = {m.name for m in VLLM if m.bounds and m.bounds[0] == 0.3}
    assert QUEUE in coarse
    for signal in SIGNALS.values():
        if "histogram_quantile" in signal.expr:
            assert not coarse & {metric.name for metric in signal.metrics}, signal.name


def test_transfers_of_ranks_count_no_request(fleets: Server) -> None:
    """Bytes and the time of a transfer are right; the count of transfers is nobody's rate."""
    assert read(fleets, "sharded", "transfer_bytes_rate", "pool") == pytest.approx({"decode": 4e6})
    assert read(fleets, "sharded", "transfer_time_mean", "pool") == pytest.approx({"decode": 0.01})
    assert read(fleets, "sharded", "request_rate", "pool") == pytest.approx({"decode": 1})
    for signal in SIGNALS.values():
        for metric in signal.metrics:
            if metric.name.startswith("vllm:nixl_") and f"{metric.name}_count" in signal.expr:
                assert f"{metric.name}_sum" in signal.expr, signal.name


def test_a_rank_that_was_taken_away_leaves_nothing_behind(fleets: Server) -> None:
    """Elastic scaling leaves its series on the page for ever, with the last values."""
    usage = read(fleets, "taken", "kv_usage", "engine")
    assert usage == {"0": 0.5, "1": 0.5, "2": 0.5}
    running = read(fleets, "taken", "requests_running", "engine")
    assert running == {"0": 5, "1": 5, "2": 5, "3": 0}


@pytest.mark.parametrize(
    "names",
    [
        ("vllm:kv_offload_cpu_cache_usage_perc", "vllm:simple_kv_offload_used_blocks"),
        ("vllm:estimated_flops_per_gpu_total", "vllm:estimated_read_bytes_per_gpu_total",
         "vllm:estimated_write_bytes_per_gpu_total"),
    ],
)  # fmt: skip
def test_no_signal_reads_what_is_not_what_its_name_says(names: tuple[str, ...]) -> None:
    """A tier's usage is what transfers pin; estimates stand at zero without their flag."""
    for name in names:
        assert name in METRICS
        for signal in SIGNALS.values():
            assert name not in signal.expr, signal.name


def test_no_signal_adds_up_what_pools_both_count() -> None:
    """Prompts, requests and tokens are kept by pool, all but the work that was really done."""
    twice = {"vllm:prompt_tokens_total", "vllm:request_success_total", TOKENS}
    for signal in SIGNALS.values():
        if twice & {m.name for m in signal.metrics}:
            assert "pool" in signal.labels, signal.name


def test_no_signal_adds_failures_that_hold_one_another() -> None:
    """From 0.33 on failed transfers include failed notifications."""
    inside = {"vllm:nixl_num_failed_transfers_total", "vllm:nixl_num_failed_notifications_total"}
    for signal in SIGNALS.values():
        assert len(inside & {m.name for m in signal.metrics}) < 2, signal.name


def test_only_means_of_stages_are_added_up() -> None:
    """Quantiles of stages that follow one another are no quantile of the whole."""
    for signal in SIGNALS.values():
        if "histogram_quantile" in signal.expr:
            assert signal.expr.count("histogram_quantile") == 1
            assert signal.expr.startswith("histogram_quantile(")
