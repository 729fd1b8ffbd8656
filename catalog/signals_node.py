"""Signals of processes, containers, hosts and GPUs."""

from __future__ import annotations

from typing import Final

from catalog import promql
from catalog.forms import gauge, rate
from catalog.labels import LEVELS
from catalog.metrics import ours
from catalog.peers import DCGM
from catalog.signal import Direction, Signal


def _anon_swap() -> Signal:
    by = LEVELS["process"]
    anon = ours("process_anonymous_bytes")
    swap = ours("process_swap_bytes")
    expr = f"{promql.gauge(anon, by)} + {promql.gauge(swap, by)}"
    return Signal(
        "host_anon_swap", "Private host memory (anonymous and swap)", "bytes", "process", expr,
        "sum", "up", (anon, swap), load="request_rate",
        note="What a leak is judged on: swap can't hide it and page cache can't fake it.",
    )  # fmt: skip


def _gpu(
    name: str, title: str, metric: str, scale: str = "", bad: Direction | None = None
) -> Signal:
    """Return a gauge by GPU: ours, else dcgm-exporter's in base units."""
    own, dcgm = ours(f"gpu_{metric}"), DCGM[metric]
    return Signal(
        f"gpu_{name}", title, own.unit, "gpu",
        promql.gpu_gauge(own, dcgm, LEVELS["gpu"], scale), "max", bad, (own, dcgm),
        note=" ".join(own.traps),
    )  # fmt: skip


def _pcie_link() -> Signal:
    by = (*LEVELS["host"], "device", "kind")
    now, most = ours("pcie_bytes_per_second"), ours("pcie_bytes_per_second_max")
    return Signal(
        "pcie_link", "PCIe link, of what device and slot can", "ratio", "host",
        promql.ratio(promql.gauge(now, by, "max"), promql.gauge(most, by, "max")), "ratio",
        "down", (now, most), extra=("device", "kind"),
        note="Speed times lanes. A GPU that saves power lowers its speed while it is idle; lanes "
             "are never given back by themselves.",
    )  # fmt: skip


NODE: Final[tuple[Signal, ...]] = (
    gauge("host_rss", "Resident memory", ours("process_resident_bytes"), "process", bad="up"),
    _anon_swap(),
    gauge("host_shmem", "Shared memory", ours("process_shared_bytes"), "process", bad="up"),
    gauge("host_threads", "Threads", ours("process_threads"), "process", bad="up"),
    gauge("host_fds", "Open file descriptors", ours("process_open_fds"), "process", bad="up"),
    gauge("process_start_time", "Process start time", ours("process_start_time_seconds"),
          "process", agg="max"),
    gauge("container_working_set", "Container working set",
          ours("container_working_set_bytes"), "container", agg="max", bad="up"),
    gauge("container_limit", "Container memory limit", ours("container_limit_bytes"),
          "container", agg="min"),
    gauge("host_memory_used", "Host memory in use", ours("host_memory_used_bytes"), "host",
          agg="max", bad="up"),
    gauge("host_memory_total", "Host memory", ours("host_memory_total_bytes"), "host",
          agg="max"),
    gauge("host_proportional", "Proportional memory (PSS)", ours("process_proportional_bytes"),
          "process", bad="up"),
    rate("major_faults_rate", "Page faults from disk", ours("process_major_faults_total"),
         level="process", bad="up",
         note="A vLLM process that reads its memory from disk or swap stalls at each."),
    rate("context_switches_rate", "Context switches of the first thread",
         ours("process_context_switches_total"), level="process", extra=("kind",),
         note="Forced ones tell that others want its CPU: an engine's steps then come late."),
    gauge("container_shmem", "Container shared memory", ours("container_shmem_bytes"),
          "container", agg="max", bad="up"),
    rate("container_events_rate", "What the memory limit did to containers",
         ours("container_memory_events_total"), level="container", extra=("event",), bad="up"),
    rate("container_pressure", "Share of time that containers waited",
         ours("container_pressure_seconds_total"), unit="ratio", level="container",
         extra=("resource", "kind"), bad="up",
         note="some: at least one task waited for the resource; full: all at once."),
    gauge("host_memory_shmem", "Host shared memory", ours("host_memory_shmem_bytes"), "host",
          agg="max", bad="up"),
    gauge("host_swap_used", "Swap space in use", ours("host_swap_used_bytes"), "host", agg="max",
          bad="up"),
    gauge("huge_pages_free", "Huge pages that nobody uses", ours("host_huge_pages_free_bytes"),
          "host", agg="max"),
    rate("host_oom_kills_rate", "Processes killed for want of memory",
         ours("host_oom_kills_total"), level="host", bad="up"),
    rate("host_pressure", "Share of time that tasks of the host waited",
         ours("host_pressure_seconds_total"), unit="ratio", level="host",
         extra=("resource", "kind"), bad="up",
         note="some: at least one task waited for the resource; full: all at once."),
    gauge("numa_memory_free", "Free memory by NUMA node", ours("numa_memory_free_bytes"), "host",
          agg="max", extra=("numa",), bad="down"),
    rate("numa_foreign_rate", "Pages that had to come from another NUMA node",
         ours("numa_pages_total"), level="host", where='kind="foreign"', extra=("numa",),
         bad="up"),
    rate("network_bytes_rate", "Network traffic", ours("network_bytes_total"),
         unit="bytes_per_second", level="host", extra=("interface", "direction"),
         note="Without RDMA, which passes the kernel by."),
    rate("network_errors_rate", "Network errors", ours("network_errors_total"), level="host",
         extra=("interface", "direction"), bad="up"),
    rate("network_drops_rate", "Network packets dropped", ours("network_drops_total"),
         level="host", extra=("interface", "direction"), bad="up"),
    rate("rdma_bytes_rate", "RDMA port traffic", ours("infiniband_bytes_total"),
         unit="bytes_per_second", level="host", extra=("device", "port", "direction"),
         note="What NIXL moves between nodes is here, and not in the network's traffic."),
    rate("rdma_errors_rate", "RDMA port errors", ours("infiniband_errors_total"), level="host",
         extra=("device", "port", "kind"), bad="up"),
    rate("rdma_congestion_rate", "RDMA congestion packets", ours("infiniband_congestion_total"),
         level="host", extra=("device", "port", "kind"), bad="up"),
    gauge("rdma_up", "RDMA ports that are active", ours("infiniband_up"), "host", agg="min",
          extra=("device", "port"), bad="down"),
    _pcie_link(),
)  # fmt: skip

GPU: Final[tuple[Signal, ...]] = (
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
    gauge("gpu_memory_temperature", "Temperature of the GPU's memory",
          ours("gpu_memory_temperature_celsius"), "gpu", agg="max", bad="up"),
    rate("gpu_clock_held", "Share of time that clocks were held down",
         ours("gpu_clock_event_seconds_total"), unit="ratio", level="gpu", extra=("reason",),
         note="power_cap is usual under full load; thermal ones and hw_power_brake are not."),
    rate("gpu_ecc_rate", "GPU memory errors", ours("gpu_ecc_errors_total"), level="gpu",
         where='scope="volatile"', extra=("error",), bad="up",
         note="Corrected ones harm nothing; an uncorrected one ends what used that memory."),
    gauge("gpu_rows_pending", "Rows of GPU memory that wait for a reset",
          ours("gpu_row_remap_pending"), "gpu", agg="max", bad="up"),
    rate("gpu_xid_rate", "Xid events", ours("gpu_xid_events_total"), level="gpu", extra=("xid",),
         bad="up"),
    gauge("gpu_pcie_rate", "GPU traffic over PCIe", ours("gpu_pcie_bytes_per_second"), "gpu",
          agg="max", extra=("direction",)),
    rate("gpu_pcie_replays_rate", "Packets sent again over PCIe", ours("gpu_pcie_replays_total"),
         level="gpu", bad="up"),
    gauge("gpu_nvlink_rate", "GPU traffic over NVLink", ours("gpu_nvlink_bytes_per_second"),
          "gpu", agg="max", extra=("direction",)),
    rate("gpu_nvlink_errors_rate", "NVLink errors", ours("gpu_nvlink_errors_total"), level="gpu",
         extra=("error",), bad="up"),
    gauge("gpu_nvlinks_up", "NVLinks that are active", ours("gpu_nvlink_up"), "gpu", bad="down"),
    gauge("gpu_process_memory", "GPU memory by vLLM process",
          ours("gpu_process_memory_used_bytes"), "process", extra=("gpu", "uuid"), bad="up"),
    gauge("gpu_other_memory", "GPU memory of processes that are none of vLLM's",
          ours("gpu_other_memory_used_bytes"), "gpu", agg="max", bad="up"),
)  # fmt: skip
