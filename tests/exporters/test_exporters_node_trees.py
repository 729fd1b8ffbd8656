"""Trees of /proc and of cgroups drawn at random: each reading is what the tree was made of."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from catalog.config import load
from exporters.families import Families
from exporters.look import Look
from exporters.node import cgroups, container, host, numa
from exporters.node.network import Network
from exporters.node.pressure import Pressure
from exporters.node.process import Process
from exporters.targets.cmdline import Launch
from exporters.targets.discovery import Found, Member
from exporters.targets.instances import Instance

TICK = os.sysconf("SC_CLK_TCK")
ID = "0123456789abcdef" * 4
BYTES = st.integers(0, 2**45)
KIB = st.integers(0, 2**35)

# Where container runtimes put their containers, with either driver of cgroups.
PLACES = st.sampled_from(
    (
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podX.slice/cri-containerd-{ID}.scope",
        f"/kubepods/burstable/podX/{ID}",
        f"/kubepods.slice/kubepods-podX.slice/crio-{ID}.scope/container",
        f"/docker/{ID}",
        f"/system.slice/docker-{ID}.scope",
        f"/machine.slice/libpod-{ID}.scope",
        "/system.slice/vllm@0.service",
        "/user.slice/user-1000.slice/session-3.scope",
    )
)
OWN = "/kubepods.slice/kubepods-besteffort.slice/exporter.scope"


def write(root: Path, files: dict[str, str]) -> None:
    """Write files by path below *root*."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def look(root: Path) -> Look:
    """Return a look at a node with one server of one process."""
    found = Found(20, Launch(), "", (Member(20, "worker", "DP0"),))
    instance = Instance({"server": "n:1"}, "n", "", found)
    return Look(load(None, {}, {}), "n", [instance], root / "proc", root / "sys/fs/cgroup", 5.0,
                root / "sys")  # fmt: skip


def only(families: Families, name: str) -> float | None:
    """Return the one value of a metric, None where it is absent."""
    values = [value for _, value in families.samples(f"leadline_{name}")]
    assert len(values) < 2
    return values[0] if values else None


def by(families: Families, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Return the values of a metric by some of its labels."""
    samples = families.samples(f"leadline_{name}")
    return {tuple(told[label] for label in labels): value for told, value in samples}


@given(
    PLACES, st.sampled_from(("first", "second", "hybrid")), st.booleans(),
    st.lists(st.none() | st.integers(2**20, 2**45), min_size=8, max_size=8),
    BYTES, BYTES, BYTES, BYTES, st.integers(0, 2**40), st.integers(0, 2**40),
    st.integers(0, 2**40),
)  # fmt: skip
def test_a_cgroup_is_read_where_it_is_in_every_layout(
    place: str, layout: str, own: bool,
    limits: list[int | None], usage: int, inactive: int, anonymous: int, shmem: int,
    kills: int, waited: int, periods: int,
) -> None:  # fmt: skip
    """Usage, working set, the least limit above it, kills, pressure; from any namespace."""
    first = layout != "second"
    with TemporaryDirectory() as folder:
        root = Path(folder)
        mount = f"sys/fs/cgroup{'/memory' if first else ''}"
        beside = {"first": "", "second": mount, "hybrid": "sys/fs/cgroup/unified"}[layout]
        usage_file, limit_file = (
            ("memory.usage_in_bytes", "memory.limit_in_bytes") if first
            else ("memory.current", "memory.max")
        )  # fmt: skip
        stat = (
            f"cache 5\nrss 1\ntotal_inactive_file {inactive}\ntotal_rss {anonymous}\n"
            f"total_shmem {shmem}\n" if first
            else f"anon {anonymous}\nfile 7\nshmem {shmem}\ninactive_file {inactive}\n"
        )  # fmt: skip
        events = (
            {"memory.oom_control": f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n"} if first
            else {"memory.events": f"low 0\nhigh 0\nmax 0\noom 0\noom_kill {kills}\n"}
        )  # fmt: skip
        here = {usage_file: f"{usage}\n", "memory.stat": stat, **events}
        files = {f"{mount}{place}/{name}": text for name, text in here.items()}
        parts = place.strip("/").split("/")
        levels = ["/".join(parts[: n + 1]) for n in range(len(parts))]
        none = "9223372036854771712" if first else "max"
        for level, limit in zip(levels, limits, strict=False):
            files[f"{mount}/{level}/{limit_file}"] = f"{none if limit is None else limit}\n"
        if beside:
            psi = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={waited}\n"
            files[f"{beside}{place}/memory.pressure"] = psi
            files[f"{beside}{OWN}/cgroup.procs"] = ""
        files[f"{mount}{OWN}/{usage_file}"] = "1\n"
        shown = os.path.relpath(place, OWN) if own else place[1:]
        ours = "/" if own else OWN
        waits = f"throttled_time {waited}000" if first else f"throttled_usec {waited}"
        stat = f"usage_usec 1\nnr_periods {periods}\nnr_throttled {periods // 3}\n{waits}\n"
        cpu = "sys/fs/cgroup/cpu" if first else mount
        files[f"{cpu}{place}/cpu.stat"] = stat
        files[f"{cpu}{OWN}/cgroup.procs"] = ""
        lines = [
            f"8:cpu,cpuacct:/{shown}",
            f"4:memory:/{shown}",
            f"1:name=systemd:/{shown}",
            f"0::/{shown}",
        ]
        wanted = {"first": lines[:3], "second": lines[3:], "hybrid": lines}[layout]
        mine = [line.partition(":/")[0] + f":{ours}" for line in wanted]
        files |= {"proc/20/cgroup": "\n".join(wanted) + "\n",
                  "proc/self/cgroup": "\n".join(mine) + "\n"}  # fmt: skip
        write(root, files)
        namespace = root / "own"
        if first:
            namespace.mkdir()
            (namespace / "memory").symlink_to(root / f"{mount}{OWN}")
            (namespace / "cpu").symlink_to(root / f"{cpu}{OWN}")
            if layout == "hybrid":
                (namespace / "unified").symlink_to(root / f"{beside}{OWN}")
        else:
            namespace.symlink_to(root / f"{mount}{OWN}")
        with mock.patch.object(cgroups, "OWN", namespace):
            seen = look(root)
            result = container.collect(seen, seen.instances[0])
    families = result.families
    assert result.problem == ""
    assert only(families, "container_memory_bytes") == usage
    assert only(families, "container_working_set_bytes") == max(0, usage - inactive)
    assert only(families, "container_anonymous_bytes") == anonymous
    assert only(families, "container_shmem_bytes") == shmem
    told = [limit for limit in limits[: len(levels)] if limit is not None]
    assert only(families, "container_limit_bytes") == min(told, default=None)
    killed = by(families, "container_memory_events_total", "event")
    assert killed["oom_kill",] == kills
    pressure = by(families, "container_pressure_seconds_total", "resource", "kind")
    assert pressure == ({("memory", "some"): waited / 1e6} if beside else {})
    throttled = (
        only(families, "container_cpu_periods_total"),
        only(families, "container_cpu_throttled_periods_total"),
        only(families, "container_cpu_throttled_seconds_total"),
    )  # fmt: skip
    assert throttled == ((periods, periods // 3, waited / 1e6) if periods else (None,) * 3)
    ((labels, _),) = families.samples("leadline_container_memory_bytes")
    assert labels["cgroup"] == place.rpartition("/")[2].replace(ID, ID[:12])


# A process may call itself anything of up to 15 bytes.
NAMES = st.text(st.sampled_from("ab0() S\n\t\\:\xff"), max_size=15)


@given(
    NAMES, st.lists(KIB, min_size=4, max_size=4), st.none() | KIB,
    st.lists(st.integers(0, 2**40), min_size=6, max_size=6), st.integers(1, 4000),
    st.integers(0, 40),
)  # fmt: skip
def test_a_process_is_read_whatever_it_calls_itself(
    name: str, memory: list[int], swap: int | None, counts: list[int], threads: int, files: int
) -> None:
    """Parentheses, spaces and line ends in the name; a kernel without swap; every number."""
    resident, anonymous, file, shmem = memory
    faults, user, system, start, waits, forced = counts
    with TemporaryDirectory() as folder:
        root = Path(folder)
        status = (
            # The kernel writes line ends and backslashes in the name as \\n and \\\\.
            f"Name:\t{name.encode('unicode_escape').decode()}\nUmask:\t0022\nState:\tS (sleeping)\n"
            f"VmPeak:\t99 kB\nVmRSS:\t{resident} kB\nRssAnon:\t{anonymous} kB\n"
            f"RssFile:\t{file} kB\nRssShmem:\t{shmem} kB\n"
            + ("" if swap is None else f"VmSwap:\t{swap} kB\n")
            + f"Threads:\t{threads}\nSigQ:\t0/5\nvoluntary_ctxt_switches:\t{waits}\n"
            f"nonvoluntary_ctxt_switches:\t{forced}\n"
        )
        fields = ["S", "1", *("0" for _ in range(7)), str(faults), "0", str(user), str(system),
                  *("0" for _ in range(6)), str(start), *("0" for _ in range(30))]  # fmt: skip
        write(root, {"proc/20/status": status, "proc/stat": "cpu  1 2\nbtime 1700000000\nctxt 9\n"})
        stat = f"20 ({name}) ".encode("latin-1") + " ".join(fields).encode() + b"\n"
        (root / "proc/20/stat").write_bytes(stat)
        (root / "proc/20/fd").mkdir()
        for number in range(files):
            (root / f"proc/20/fd/{number}").symlink_to("/dev/null")
        (task,) = Process().tasks(look(root)).values()
        result = task.run()
    families = result.families
    assert result.problem == ""
    own = {
        "resident_bytes": resident * 1024, "anonymous_bytes": anonymous * 1024,
        "file_bytes": file * 1024, "shmem_bytes": shmem * 1024,
        "shared_bytes": (file + shmem) * 1024, "swap_bytes": (swap or 0) * 1024,
        "threads": threads, "open_fds": files, "major_faults_total": faults,
        "cpu_seconds_total": (user + system) / TICK,
        "start_time_seconds": 1_700_000_000 + start / TICK,
    }  # fmt: skip
    assert {name: only(families, f"process_{name}") for name in own} == own
    assert by(families, "process_context_switches_total", "kind") == {
        ("voluntary",): waits, ("forced",): forced,
    }  # fmt: skip


@given(
    st.dictionaries(st.sampled_from((64, 2048, 32768, 1048576)), st.tuples(
        st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1),
    KIB, KIB, st.integers(0, 99), st.booleans(),
)  # fmt: skip
def test_memory_of_a_host_counts_huge_pages_of_every_size(
    sizes: dict[int, tuple[int, int]], available: int, used: int, default: int, tells: bool
) -> None:
    """All sizes by /sys; by /proc/meminfo, which has the default size alone, where it is absent."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        write(root, {
            "proc/meminfo": f"MemTotal: {available + used} kB\nMemFree: 1 kB\n"
                            f"MemAvailable: {available} kB\nHugePages_Total: {default}\n"
                            f"HugePages_Free: {default}\nHugePages_Rsvd: 0\nHugepagesize: 2048 kB\n"
                            "DirectMap4k: 7 kB\n",
        })  # fmt: skip
        for size, (total, free) in sizes.items() if tells else ():
            place = f"sys/kernel/mm/hugepages/hugepages-{size}kB"
            write(root, {f"{place}/nr_hugepages": f"{total}\n",
                         f"{place}/free_hugepages": f"{free}\n",
                         f"{place}/surplus_hugepages": "0\n"})  # fmt: skip
        families = host.collect(look(root)).families
    assert only(families, "host_memory_used_bytes") == used * 1024
    expected = default * 2**21 if not tells else sum(s * 1024 * t for s, (t, _) in sizes.items())
    assert only(families, "host_huge_pages_total_bytes") == expected
    free_ones = default * 2**21 if not tells else sum(s * 1024 * f for s, (_, f) in sizes.items())
    assert only(families, "host_huge_pages_free_bytes") == free_ones


COUNTERS = st.lists(st.integers(0, 2**63), min_size=16, max_size=16)
INTERFACE = st.from_regex(r"[a-z][a-z0-9.@-]{0,14}", fullmatch=True)


@given(
    st.dictionaries(INTERFACE, st.tuples(COUNTERS, st.booleans()), max_size=5),
    st.dictionaries(st.integers(0, 63), st.tuples(KIB, KIB, st.integers(0, 2**63)), max_size=4),
    st.tuples(st.integers(0, 2**50), st.integers(0, 2**50)),
)
def test_networks_nodes_of_memory_and_pressure_are_those_of_the_tree(
    interfaces: dict[str, tuple[list[int], bool]],
    nodes: dict[int, tuple[int, int, int]],
    waited: tuple[int, int],
) -> None:
    """Interfaces with a device alone, however they are called; each NUMA node; both pressures."""
    some, full = waited
    with TemporaryDirectory() as folder:
        root = Path(folder)
        rows = ["Inter-|   Receive", " face |bytes"]
        # Long numbers leave no space behind the colon.
        rows += [f"{name:>6}:" + " ".join(map(str, n)) for name, (n, _) in interfaces.items()]
        write(root, {
            "proc/1/net/dev": "\n".join(rows) + "\n",
            "proc/pressure/memory": f"some avg10=0.10 avg60=0.00 avg300=0.00 total={some}\n"
                                    f"full avg10=0.00 avg60=0.00 avg300=0.00 total={full}\n",
            "proc/pressure/cpu": f"some avg10=1.53 avg60=0.87 avg300=0.73 total={some}\n",
        })  # fmt: skip
        for name, (_, physical) in interfaces.items():
            (root / f"sys/class/net/{name}{'/device' if physical else ''}").mkdir(parents=True)
        for node, (total, free, foreign) in nodes.items():
            place = f"sys/devices/system/node/node{node}"
            write(root, {
                f"{place}/meminfo": f"Node {node} MemTotal:       {total} kB\n"
                                    f"Node {node} MemFree:        {free} kB\n"
                                    f"Node {node} HugePages_Total:     0\n",
                f"{place}/numastat": f"numa_hit 7\nnuma_miss 0\nnuma_foreign {foreign}\n"
                                     "interleave_hit 3\nlocal_node 7\nother_node 0\n",
            })  # fmt: skip
        seen = look(root)
        net, memory, pressed = (
            Network().collect(seen).families, numa.collect(seen).families,
            Pressure().collect(seen).families,
        )  # fmt: skip
    physical = {name: numbers for name, (numbers, real) in interfaces.items() if real}
    columns = {"bytes": (0, 8), "packets": (1, 9), "errors": (2, 10), "drops": (3, 11)}
    for what, (receive, transmit) in columns.items():
        told = by(net, f"network_{what}_total", "interface", "direction")
        assert told == {
            (name, direction): numbers[at]
            for name, numbers in physical.items()
            for direction, at in (("receive", receive), ("transmit", transmit))
        }
    assert by(memory, "numa_memory_total_bytes", "numa") == {
        (str(node),): total * 1024 for node, (total, _, _) in nodes.items()
    }
    assert by(memory, "numa_memory_free_bytes", "numa") == {
        (str(node),): free * 1024 for node, (_, free, _) in nodes.items()
    }
    misplaced = by(memory, "numa_pages_total", "numa", "kind")
    for node, (_, _, foreign) in nodes.items():
        assert misplaced[str(node), "foreign"] == foreign
    assert by(pressed, "host_pressure_seconds_total", "resource", "kind") == {
        ("memory", "some"): some / 1e6, ("memory", "full"): full / 1e6, ("cpu", "some"): some / 1e6,
    }  # fmt: skip
