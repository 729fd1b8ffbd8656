"""Our metrics of processes, containers, hosts and GPUs."""

from __future__ import annotations

from typing import Final

from catalog.labels import LEVELS
from catalog.metric import Metric, MetricType, ours
from catalog.units import Unit

PROCESS: Final[tuple[Metric, ...]] = (
    ours("process", "process_resident_bytes", "bytes", "Resident memory (VmRSS).",
         traps="Swap hides growth from it and shared pages fake it: a leak is judged on anonymous "
               "memory and swap."),
    ours("process", "process_anonymous_bytes", "bytes", "Anonymous resident memory (RssAnon)."),
    ours("process", "process_swap_bytes", "bytes", "Anonymous memory swapped out (VmSwap)."),
    ours("process", "process_shared_bytes", "bytes",
         "Shared resident memory (RssShmem and RssFile).",
         traps="Pages shared by several processes count in each."),
    ours("process", "process_threads", "count", "Threads."),
    ours("process", "process_open_fds", "count", "Open file descriptors."),
    ours("process", "process_start_time_seconds", "seconds",
         "Start time since the epoch; of several processes the newest."),
    ours("process", "process_cpu_seconds_total", "seconds", "CPU time, user and system.",
         "counter"),
    ours("process", "process_shmem_bytes", "bytes",
         "Resident shared memory: /dev/shm, anonymous shared pages (RssShmem)."),
    ours("process", "process_file_bytes", "bytes", "Resident pages of files (RssFile)."),
    ours("process", "process_proportional_bytes", "bytes",
         "Share of resident memory, shared pages divided among who maps them (PSS).",
         traps="Read seldom, one process after another, for it is dear: how old it is stands "
               "beside it."),
    ours("process", "process_proportional_timestamp_seconds", "seconds",
         "When the proportional memory was read; of several processes the oldest."),
    ours("process", "process_major_faults_total", "count",
         "Page faults that had to read from disk or swap.", "counter"),
    Metric("leadline_process_context_switches_total", "counter", "count",
           "Context switches of the first thread: voluntary when it waits, forced when its time "
           "is up.", (*LEVELS["process"], "kind"),
           traps=("Other threads are not counted; in an engine the first runs the steps.",)),
)  # fmt: skip

CONTAINER: Final[tuple[Metric, ...]] = (
    ours("container", "container_working_set_bytes", "bytes",
         "Memory of the server's cgroup less its inactive page cache.",
         traps="Page cache in use counts: growth here alone is no leak."),
    ours("container", "container_anonymous_bytes", "bytes",
         "Anonymous memory of the server's cgroup."),
    ours("container", "container_limit_bytes", "bytes",
         "Smallest memory limit of the cgroup and its parents; absent without a limit."),
    ours("container", "container_memory_bytes", "bytes",
         "All memory of the server's cgroup, page cache included."),
    ours("container", "container_shmem_bytes", "bytes",
         "Shared memory of the server's cgroup: /dev/shm counts against its limit."),
    Metric("leadline_container_memory_events_total", "counter", "count",
           "What the memory limit did to the server's cgroup: throttled (high), reached (max), "
           "out of memory (oom), processes killed (oom_kill).", (*LEVELS["container"], "event"),
           traps=("Version 1 of cgroups tells max and oom_kill alone, and counts pages of cache "
                  "in max.",)),
    ours("container", "container_cpu_periods_total", "count",
         "Periods in which the server's cgroup had a limit of processor time.", "counter",
         traps="Absent without a limit."),
    ours("container", "container_cpu_throttled_periods_total", "count",
         "Periods in which it reached that limit and had to wait for the next one.", "counter"),
    ours("container", "container_cpu_throttled_seconds_total", "seconds",
         "Time that it waited so, of all processors together.", "counter"),
    Metric("leadline_container_pressure_seconds_total", "counter", "seconds",
           "Time that some or all tasks of the server's cgroup waited for a resource.",
           (*LEVELS["container"], "resource", "kind")),
)  # fmt: skip


def _host(
    name: str, unit: Unit, text: str, *extra: str, kind: MetricType = "gauge", traps: str = ""
) -> Metric:
    """Return our metric of a host, with labels beside the host's own."""
    return Metric(
        f"leadline_{name}", kind, unit, text, (*LEVELS["host"], *extra),
        traps=(traps,) if traps else (),
    )  # fmt: skip


_NETWORK: Final[tuple[tuple[str, Unit, str], ...]] = (
    ("bytes", "bytes", "Bytes over a physical network interface."),
    ("packets", "count", "Packets over a physical network interface."),
    ("errors", "count", "Packets that a network interface received or sent badly."),
    ("drops", "count", "Packets that a network interface dropped."),
)

HOST: Final[tuple[Metric, ...]] = (
    ours("host", "host_memory_total_bytes", "bytes", "Memory of the host (MemTotal)."),
    ours("host", "host_memory_available_bytes", "bytes", "Memory available (MemAvailable)."),
    ours("host", "host_memory_used_bytes", "bytes", "Memory in use: total less available."),
    ours("host", "host_memory_shmem_bytes", "bytes", "Shared memory of the host (Shmem)."),
    ours("host", "host_memory_anonymous_bytes", "bytes", "Anonymous memory (AnonPages)."),
    ours("host", "host_swap_total_bytes", "bytes", "Swap space."),
    ours("host", "host_swap_used_bytes", "bytes", "Swap space in use."),
    ours("host", "host_huge_pages_total_bytes", "bytes",
         "Memory set aside as huge pages, of all sizes.",
         traps="Counted as used, whether or not anybody uses them."),
    ours("host", "host_huge_pages_free_bytes", "bytes", "Huge pages that nobody uses."),
    ours("host", "host_oom_kills_total", "count",
         "Processes that the kernel killed for want of memory, in any cgroup.", "counter"),
    _host("host_pressure_seconds_total", "seconds",
          "Time that some or all tasks of the host waited for a resource.", "resource", "kind",
          kind="counter"),
    _host("numa_memory_total_bytes", "bytes", "Memory of a NUMA node.", "numa"),
    _host("numa_memory_free_bytes", "bytes", "Free memory of a NUMA node.", "numa",
          traps="Page cache is not free, though it can be had."),
    _host("numa_memory_anonymous_bytes", "bytes", "Anonymous memory on a NUMA node.", "numa"),
    _host("numa_memory_shmem_bytes", "bytes", "Shared memory on a NUMA node.", "numa"),
    _host("numa_pages_total", "count",
          "Pages allocated: on the node wished for (hit), here for want elsewhere (miss), "
          "elsewhere for want here (foreign), for a process of another node (other_node).",
          "numa", "kind", kind="counter"),
    *(_host(f"network_{what}_total", unit, text, "interface", "direction", kind="counter")
      for what, unit, text in _NETWORK),
    _host("network_up", "count", "Whether the interface has a link: 1 or 0.", "interface"),
    _host("network_carrier_changes_total", "count", "Times that the link came or went.",
          "interface", kind="counter"),
    _host("network_speed_bytes_per_second", "bytes_per_second", "Speed of the link.",
          "interface"),
    _host("infiniband_up", "count", "Whether the port is active: 1 or 0.", "device", "port"),
    _host("infiniband_rate_bytes_per_second", "bytes_per_second", "Speed of the port.",
          "device", "port"),
    _host("infiniband_bytes_total", "bytes", "Bytes over the port, RDMA included.",
          "device", "port", "direction", kind="counter"),
    _host("infiniband_packets_total", "count", "Packets over the port.",
          "device", "port", "direction", kind="counter"),
    _host("infiniband_transmit_wait_total", "count",
          "Ticks in which the port had data and no credit to send it: congestion.",
          "device", "port", kind="counter"),
    _host("infiniband_errors_total", "count", "Errors of the port, by the driver's counter.",
          "device", "port", "kind", kind="counter",
          traps="Some are harmless alone, such as duplicate_request."),
    _host("infiniband_congestion_total", "count",
          "Packets of RoCE's congestion control, by the driver's counter.",
          "device", "port", "kind", kind="counter"),
    _host("pcie_lanes", "count", "Lanes that a PCIe link uses.", "device", "kind"),
    _host("pcie_lanes_max", "count", "Most lanes that device and slot can.", "device", "kind"),
    _host("pcie_bytes_per_second", "bytes_per_second",
          "What a PCIe link carries in one direction, as it runs.", "device", "kind",
          traps="Lower while a GPU that saves power is idle."),
    _host("pcie_bytes_per_second_max", "bytes_per_second",
          "What a PCIe link could carry: the least of device and slot.", "device", "kind"),
    _host("pcie_acs_redirect", "count",
          "Whether a port above the device sends its traffic to other devices through the root "
          "(ACS): 1 or 0; of a switch's ports if it is behind one.", "device", "kind",
          traps="Absent without CAP_SYS_ADMIN. Seldom the cause of anything: switching "
                "it off changed no speed where it was tried."),
)  # fmt: skip

_SPIN: Final = "A kernel that spins counts: 100 % says nothing of work done."
_GPM: Final = (
    "Of the time since the scrape before; needs Hopper or newer, and a GPU that is not divided."
)
_SHARED: Final = "Compute instances of one GPU instance share its memory: each says all of it."
_LOADED: Final = "Counts from when the driver was loaded."


def _gpu(
    name: str,
    unit: Unit,
    text: str,
    *extra: str,
    kind: MetricType = "gauge",
    traps: str = "",
    lazy: bool = False,
) -> Metric:
    """Return our metric of a GPU, with labels beside the GPU's own."""
    return Metric(
        f"leadline_gpu_{name}", kind, unit, text, (*LEVELS["gpu"], *extra), lazy=lazy,
        traps=(traps,) if traps else (),
    )  # fmt: skip


GPU: Final[tuple[Metric, ...]] = (
    _gpu("utilization_ratio", "ratio", "Share of time in which a kernel ran (NVML).", traps=_SPIN),
    _gpu("memory_activity_ratio", "ratio",
         "Share of time in which GPU memory was read or written (NVML)."),
    _gpu("memory_used_bytes", "bytes", "GPU memory in use."),
    _gpu("memory_total_bytes", "bytes", "GPU memory."),
    _gpu("power_watts", "watts", "Power drawn, as the GPU averages it."),
    _gpu("power_instant_watts", "watts", "Power drawn at this moment."),
    _gpu("power_limit_watts", "watts", "Power limit in force."),
    _gpu("energy_joules_total", "joules", "Energy since the driver was loaded.", kind="counter"),
    _gpu("sm_clock_hertz", "hertz", "Clock of the streaming multiprocessors."),
    _gpu("memory_clock_hertz", "hertz", "Clock of the memory."),
    _gpu("temperature_celsius", "celsius", "Temperature of the GPU."),
    _gpu("memory_temperature_celsius", "celsius", "Temperature of the GPU's memory."),
    _gpu("clock_event", "count", "Whether this reason holds the clocks down now: 1 or 0.",
         "reason"),
    _gpu("clock_event_seconds_total", "seconds", "Time that this reason has held the clocks down.",
         "reason", kind="counter", traps=_LOADED),
    _gpu("up", "count", "Whether the GPU answers: 1 or 0.",
         traps="0 also for one that was there since the exporter began and is no more."),
    _gpu("info", "count", "Name, driver and PCI address of the GPU; always 1.",
         "name", "driver", "device"),
    _gpu("ecc_errors_total", "count",
         "Errors of the GPU's memory, by whether they could be corrected.", "error", "scope",
         kind="counter",
         traps="Scope volatile counts from when the driver was loaded, aggregate over the GPU's "
               "life."),
    _gpu("remapped_rows_total", "count",
         "Rows of GPU memory replaced by spare ones, by the error that was the cause.", "error",
         kind="counter", traps="Over the GPU's life."),
    _gpu("row_remap_pending", "count",
         "Whether a row waits for a reset of the GPU to be replaced: 1 or 0."),
    _gpu("row_remap_failure", "count", "Whether replacing a row has failed: 1 or 0."),
    _gpu("xid_events_total", "count",
         "Xid events (errors that the driver reports), by number.", "xid", kind="counter",
         lazy=True,
         traps="Counts from the exporter's start; earlier ones are in the kernel's log."),
    _gpu("pcie_generation", "count", "Generation at which the PCIe link runs.",
         traps="Lower while a GPU that saves power is idle."),
    _gpu("pcie_generation_max", "count", "Highest generation of GPU and slot."),
    _gpu("pcie_lanes", "count", "Lanes that the PCIe link uses."),
    _gpu("pcie_lanes_max", "count", "Most lanes of GPU and slot."),
    _gpu("pcie_replays_total", "count", "Packets sent again on the PCIe link.", kind="counter"),
    _gpu("pcie_errors_total", "count", "Errors of the PCIe link, by kind.", "error",
         kind="counter"),
    _gpu("nvlink_up", "count", "Whether this NVLink is active: 1 or 0.", "link"),
    _gpu("nvlink_bytes_total", "bytes", "Bytes over all NVLinks of the GPU.", "direction",
         kind="counter"),
    _gpu("nvlink_errors_total", "count", "Errors of all NVLinks of the GPU, by kind.", "error",
         kind="counter"),
    _gpu("nvlink_link_errors_total", "count",
         "Errors of one NVLink, of the kinds that the GPU has any of.", "link", "error",
         kind="counter", lazy=True),
    _gpu("mig_enabled", "count", "Whether the GPU is divided into instances (MIG): 1 or 0."),
    _gpu("mig_memory_used_bytes", "bytes",
         "Memory in use of an instance (MIG), by its number in nvidia-smi and its profile.",
         "mig", "profile", traps=_SHARED),
    _gpu("mig_memory_total_bytes", "bytes", "Memory of an instance (MIG).", "mig", "profile",
         traps=_SHARED),
    Metric("leadline_gpu_process_memory_used_bytes", "gauge", "bytes",
           "GPU memory that vLLM's processes use, by kind and rank.",
           tuple(dict.fromkeys((*LEVELS["process"], "gpu", "uuid")))),
    _gpu("other_memory_used_bytes", "bytes",
         "GPU memory of processes that are none of vLLM's, as far as they are seen.",
         traps="In a container without the host's process ids all of them are."),
    _gpu("sm_active_ratio", "ratio", "Share of multiprocessors with a warp assigned (GPM).",
         traps=_GPM),
    _gpu("sm_occupancy_ratio", "ratio", "Share of warp slots in use (GPM).", traps=_GPM),
    _gpu("tensor_active_ratio", "ratio", "Share of time tensor cores worked (GPM).", traps=_GPM),
    _gpu("dram_active_ratio", "ratio", "Share of the memory bandwidth in use (GPM).", traps=_GPM),
    _gpu("pcie_bytes_per_second", "bytes_per_second", "Bytes over PCIe (GPM).", "direction",
         traps=_GPM),
    _gpu("nvlink_bytes_per_second", "bytes_per_second", "Bytes over all NVLinks (GPM).",
         "direction", traps=_GPM),
)  # fmt: skip
