"""Alerts on the hardware and on memory limits, which need no detector: an event is enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from alerts.rule import Alert, where
from catalog import promql
from catalog.config import Config
from catalog.labels import LEVELS
from catalog.signals import METRICS, SIGNALS

GROUP: Final = "leadline-node"

XIDS_RESET: Final = (46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158)
"""Xid events after which the GPU is not to be trusted before it was reset, by NVIDIA's catalogue:
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"""

_GPU: Final = LEVELS["gpu"]
_HOST: Final = LEVELS["host"]
_CONTAINER: Final = LEVELS["container"]
_AT_GPU: Final = where("cluster", "node", "gpu", "uuid")
_AT: Final = where("cluster", "node")
_LINK: Final = 0.99
_SLOWED: Final = 0.05
_THROTTLED: Final = 0.1


def _name(metric: str) -> str:
    return METRICS[f"leadline_{metric}"].name


def _on(labels: Sequence[str]) -> str:
    return f"on ({', '.join(labels)})"


def _happened(metric: str, condition: str, by: Sequence[str], witness: str, on: str) -> str:
    """Return how often a counter moved in 15 minutes, its birth in sight of a witness included."""
    counter = promql.selector(_name(metric), condition)
    kept = f"sum by ({', '.join(by)})"
    # What was born with its first count has no increase; what was just scraped first has no past.
    born = f"{counter} > 0 unless {counter} offset 15m and {on} {_name(witness)} offset 15m"
    return f"{kept} (increase({counter}[15m])) > 0 or {kept} ({born})"


def _last_xid(xids: Sequence[int]) -> str:
    """Return the GPUs whose last Xid, as dcgm-exporter has it, came in 15 minutes and is of these.

    The number is the value there: it becomes a label, and one that only these have is joined on.
    """
    last = METRICS["DCGM_FI_DEV_XID_ERRORS"].name
    by = ", ".join(_GPU)
    new = f"({last} and changes({last}[15m]) > 0)"
    numbered = f'count_values by ({by}) ("xid", {promql.as_ours(new)})'
    these = "|".join(map(str, xids))
    marked = f'label_replace({numbered}, "of_these", "yes", "xid", "{these}")'
    return (
        f"max by ({by}, xid) ({marked} and on (of_these) "
        'label_replace(vector(1), "of_these", "yes", "", ""))'
    )


def _dcgm(expr: str, name: str) -> str:
    """Return a condition on what dcgm-exporter says, for GPUs that our exporter doesn't see."""
    ours = f"max by ({', '.join(_GPU)}) ({_name('gpu_info')})"
    theirs = promql.as_ours(expr.replace("NAME", METRICS[f"DCGM_FI_DEV_{name}"].name))
    return f"max by ({', '.join(_GPU)}) ({theirs}) unless on (uuid) {ours}"


def _host_kills() -> str:
    """Return kills on hosts where a vLLM process began in the last 15 minutes.

    A container that is killed whole takes its own count with it.
    """
    started = SIGNALS["process_start_time"].record
    new = f"group by ({', '.join(_HOST)}) (time() - {started} < 900)"
    kills = f"increase({_name('host_oom_kills_total')}[15m])"
    return f"max by ({', '.join(_HOST)}) ({kills}) > 0 and {_on(_HOST)} {new}"


def _link_degraded() -> str:
    """Return the links below what device and slot can, where idling is no excuse."""
    link = SIGNALS["pcie_link"].record
    lanes = f"{_name('pcie_lanes')} / {_name('pcie_lanes_max')}"
    by = f"by ({', '.join(_HOST)}, device, kind)"
    network = promql.selector(link, 'kind="network"')
    generation = f"{_name('gpu_pcie_generation')} / {_name('gpu_pcie_generation_max')}"
    busy = f"min_over_time({_name('gpu_utilization_ratio')}[5m]) > 0"
    return (
        f"{network} < {_LINK:g} or min {by} ({lanes}) < {_LINK:g} "
        f"or min by ({', '.join(_GPU)}) ({generation} and {_on(_GPU)} {busy}) < {_LINK:g}"
    )


def _throttled() -> str:
    """Return the share of periods in which a cgroup had used its processor time up."""
    sides = (
        f"max by ({', '.join(_CONTAINER)}) (increase({_name(f'container_cpu_{what}_total')}[15m]))"
        for what in ("throttled_periods", "periods")
    )
    return f"{promql.ratio(*sides)} > {_THROTTLED:g}"


def _slowed() -> str:
    """Return the share of time that something held clocks down which full load alone does not."""
    held = SIGNALS["gpu_clock_held"].record
    why = promql.selector(held, 'reason=~"sw_thermal|hw_thermal|hw_power_brake"')
    return f"max by ({', '.join(_GPU)}, reason) (avg_over_time({why}[15m])) > {_SLOWED:g}"


def _link_down() -> str:
    """Return links that were up within a day and are down, and RDMA ports that fell otherwise.

    A port without a cable, and one that was taken out of use, was never up. One that came back may
    run at a part of its speed.
    """
    port = f"by ({', '.join(_HOST)}, device, port)"
    link = f"by ({', '.join(_GPU)}, link)"
    downs = promql.selector(_name("infiniband_errors_total"), 'kind="link_downed"')
    states = ((_name("infiniband_up"), port), (_name("gpu_nvlink_up"), link))
    down = [
        f"1 - max {by} ({state}) == 1 and max {by} (max_over_time({state}[1d])) == 1"
        for state, by in states
    ]
    speed = _name("infiniband_rate_bytes_per_second")
    slower = f"max {port} ({speed}) / max {port} (max_over_time({speed}[1d])) < 1"
    return " or ".join((*down, slower, f"max {port} (increase({downs}[15m])) > 0"))


def alerts(_: Config) -> tuple[Alert, ...]:
    """Return the alerts of this module."""
    xids = 'xid=~"' + "|".join(map(str, XIDS_RESET)) + '"'
    remap = "GPU memory has bad rows."
    return (
        Alert(
            "LeadlineGpuLost", "page",
            f"max by ({', '.join(_GPU)}) ({_name('gpu_up')}) == 0",
            "A GPU is lost.",
            f"It has not answered its driver for 5 minutes (limit 5 min{_AT_GPU}). What runs on it "
            "hangs or has failed, and with it all ranks that wait for it.",
            wait="5m", group=GROUP,
        ),
        Alert(
            "LeadlineGpuXid", "page",
            _happened("gpu_xid_events_total", xids, (*_GPU, "xid"), "gpu_info", _on(_GPU))
            + f" or on (uuid) {_last_xid(XIDS_RESET)}",
            "A GPU reported an error after which it must be reset.",
            'Xid {{ $labels.xid }} came {{ $value | printf "%.0f" }} times in the last 15 minutes '
            f"(limit 0{_AT_GPU}). What runs on it fails, hangs or may compute wrong numbers.",
            wait="0m", keep="30m", group=GROUP,
        ),
        Alert(
            "LeadlineGpuMemoryErrors", "ticket",
            _happened("gpu_ecc_errors_total", 'error="uncorrected",scope="volatile"', _GPU,
                      "gpu_info", _on(_GPU))
            + " or " + _dcgm("increase(NAME[15m]) > 0", "ECC_DBE_VOL_TOTAL"),
            "A GPU's memory had errors that could not be corrected.",
            '{{ $value | printf "%.0f" }} uncorrectable errors in the last 15 minutes (limit 0'
            f"{_AT_GPU}). The process that used that memory has ended.",
            wait="0m", keep="1h", group=GROUP,
        ),
        Alert(
            "LeadlineGpuRowRemap", "page",
            f"max by ({', '.join(_GPU)}) ({_name('gpu_row_remap_failure')}) == 1 or "
            + _dcgm("(NAME == 1)", "ROW_REMAP_FAILURE"), remap,
            f"There is no spare row left for one of them (limit 0{_AT_GPU}): the GPU must be "
            "replaced.",
            wait="0m", group=GROUP,
        ),
        Alert(
            "LeadlineGpuRowRemap", "ticket", f"{SIGNALS['gpu_rows_pending'].record} == 1", remap,
            f"One of them is replaced by a spare only once the GPU is reset (limit 0{_AT_GPU}).",
            wait="5m", group=GROUP,
        ),
        Alert(
            "LeadlineGpuSlowed", "ticket", _slowed(),
            "Heat or power hold the clocks of a GPU down.",
            "{{ $labels.reason }} has held them for {{ $value | humanizePercentage }} of the last "
            f"15 minutes (limit {_SLOWED:.0%}{_AT_GPU}). All ranks of its group wait for it at "
            "each step.",
            wait="10m", keep="15m", group=GROUP,
        ),
        Alert(
            "LeadlineOomKill", "page",
            _happened("container_memory_events_total", 'event="oom_kill"', _CONTAINER,
                      "container_memory_bytes", _on(_CONTAINER)),
            "The kernel killed a process of a vLLM server for want of memory.",
            '{{ $value | printf "%.0f" }} processes were killed in the last 15 minutes (limit 0'
            f"{where(*_CONTAINER)}).",
            wait="0m", keep="30m", group=GROUP,
        ),
        Alert(
            "LeadlineOomKill", "ticket", _host_kills(),
            "The kernel killed a process for want of memory on a host where vLLM restarted.",
            '{{ $value | printf "%.0f" }} processes were killed on the host in the last 15 minutes '
            f"(limit 0{_AT}), and a vLLM process there began within them.",
            wait="0m", keep="30m", group=GROUP,
        ),
        Alert(
            "LeadlineCpuThrottled", "ticket", _throttled(),
            "A limit of processor time holds a vLLM server back.",
            "It reached the limit in {{ $value | humanizePercentage }} of the periods of the last "
            f"15 minutes (limit {_THROTTLED:.0%}{where(*_CONTAINER)}). Each time all its processes "
            "stand still until the next period, up to 100 ms, and with them the GPUs.",
            wait="10m", keep="15m", group=GROUP,
        ),
        Alert(
            "LeadlineLinkDown", "ticket", _link_down(),
            "An RDMA port or an NVLink is down or slow, or came and went.",
            "It was up within the last day and for 5 minutes has been down or below its speed, or "
            "it went down in the last 15 (limit 0"
            f"{where(*_HOST, 'device', 'port', 'gpu', 'uuid', 'link')}). "
            "KV transfers over it fail, are slow, or take another way.",
            wait="5m", group=GROUP,
        ),
        Alert(
            "LeadlinePcieLinkDegraded", "ticket", _link_degraded(),
            "A PCIe link runs below what device and slot can.",
            "It has run at {{ $value | humanizePercentage }} for 15 minutes (limit 100%"
            f"{where('cluster', 'node', 'gpu', 'uuid', 'device', 'kind')}). What is "
            "loaded, offloaded and transferred over it is slower by as much.",
            wait="15m", group=GROUP,
        ),
    )  # fmt: skip
