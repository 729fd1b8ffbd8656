"""Containers in cgroups of version 1, version 2 and both, and files that make no sense.

The trees are built by hand from the kernel's documentation (admin-guide/cgroup-v1/memory,
admin-guide/cgroup-v2, accounting/psi); the recorded one of a real host is in the node's tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from catalog.config import Config, load
from exporters.look import Look, Task
from exporters.node import cgroups, container, infiniband, network, numa, pcie, proc
from exporters.node.process import Process
from exporters.node.pss import Pss
from exporters.scrape import Exporter
from exporters.targets.cmdline import Launch
from exporters.targets.discovery import Discovery, Found, Member
from exporters.targets.instances import Instance

POD = "/kubepods.slice/kubepods-pod1.slice"
SCOPE = f"{POD}/cri-containerd-{'0123456789abcdef' * 4}.scope"
SHORT = "cri-containerd-0123456789ab.scope"
PSI = "some avg10=0.00 avg60=0.00 avg300=0.00 total={some}\nfull avg10=0.00 total={full}\n"
Grow = Callable[[Path, dict[str, str]], Path]
Make = Callable[..., Config]
Series = dict[str, list[tuple[Mapping[str, str], float]]]

V1 = {
    "memory.usage_in_bytes": "9000\n",
    "memory.limit_in_bytes": "20000\n",
    "memory.stat": "rss 100\ntotal_rss 5000\ntotal_shmem 600\ntotal_inactive_file 1000\n",
    "memory.failcnt": "4\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
}
V2 = {
    "memory.current": "9000\n",
    "memory.max": "20000\n",
    "memory.stat": "anon 5000\nfile 3000\nshmem 600\ninactive_file 1000\n",
    "memory.events": "low 0\nhigh 7\nmax 4\noom 3\noom_kill 2\noom_group_kill 0\n",
}
PRESSURE = {
    "memory.pressure": PSI.format(some=2500000, full=1500000),
    "cpu.pressure": PSI.format(some=500000, full=0),
    "io.pressure": PSI.format(some=0, full=0),
}


def below(folder: str, files: Mapping[str, str]) -> dict[str, str]:
    """Return files below a folder of the cgroup tree."""
    return {f"cgroup{folder}/{name}": text for name, text in files.items()}


def server(cgroup: str) -> dict[str, str]:
    """Return the files of a server that is in a cgroup."""
    return {
        "proc/stat": "btime 1700000000\n",
        "proc/meminfo": "MemTotal: 100 kB\nMemAvailable: 40 kB\n",
        "proc/net/dev": "",
        "proc/20/stat": "20 (vllm) S 1 " + " ".join("0" for _ in range(17)) + " 500 0 0\n",
        "proc/20/cmdline": "vllm\0serve\0m\0",
        "proc/20/status": "Name: vllm\nVmRSS: 10 kB\nRssAnon: 6 kB\nThreads: 3\n"
                          "voluntary_ctxt_switches: 11\nnonvoluntary_ctxt_switches: 4\n",
        "proc/20/smaps_rollup": "0-1 ---p 0 00:00 0 [rollup]\nRss: 10 kB\nPss: 8 kB\n",
        "proc/20/fd/0": "",
        "proc/20/cgroup": cgroup,
    }  # fmt: skip


def read(root: Path, config: Config) -> Series:
    """Return labels and values of our own series, by name."""
    exporter = Exporter(config, proc=root / "proc", cgroup=root / "cgroup", sys=root / "sys")
    text = exporter.page().decode()
    exporter.close()
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


TREES = {
    "version 1": (
        f"9:memory:{SCOPE}\n8:cpu,cpuacct:{SCOPE}\n1:name=systemd:{SCOPE}\n",
        below(f"/memory{SCOPE}", V1) | below(f"/memory{POD}", {"memory.limit_in_bytes": "18000\n"}),
    ),
    "version 2": (
        f"0::{SCOPE}\n",
        below(SCOPE, {**V2, **PRESSURE}) | below(POD, {"memory.max": "18000\n"}),
    ),
    "hybrid": (
        f"9:memory:{SCOPE}\n1:name=systemd:{SCOPE}\n0::{SCOPE}\n",
        below(f"/memory{SCOPE}", V1) | below(f"/memory{POD}", {"memory.limit_in_bytes": "18000\n"})
        | below(f"/unified{SCOPE}", PRESSURE),
    ),
    "hybrid with memory in version 2": (
        f"1:name=systemd:{SCOPE}\n0::{SCOPE}\n",
        below(f"/unified{SCOPE}", {**V2, **PRESSURE})
        | below(f"/unified{POD}", {"memory.max": "18000\n"}),
    ),
    "in the container itself": (
        "0::/\n",
        below("", {**V2, "memory.max": "18000\n", **PRESSURE}) | {"proc/self/cgroup": "0::/\n"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TREES)
def test_the_same_container_in_every_layout(
    tmp_path: Path, grow: Grow, config: Make, name: str
) -> None:
    """Memory, the nearest limit, what the limit did, and pressure where version 2 is there."""
    cgroup, files = TREES[name]
    grow(tmp_path, {**server(cgroup), **files})
    page = read(tmp_path, config(discover=True, vllm=False))
    own = {n: page[f"leadline_container_{n}_bytes"] for n in (
        "memory", "working_set", "anonymous", "shmem", "limit"
    )}  # fmt: skip
    assert {n: [v for _, v in samples] for n, samples in own.items()} == {
        "memory": [9000], "working_set": [8000], "anonymous": [5000], "shmem": [600],
        "limit": [18000],
    }  # fmt: skip
    shown = "/" if name.startswith("in the") else SHORT
    assert {told["cgroup"] for told, _ in own["memory"]} == {shown}
    events = {
        told["event"]: v for told, v in page["leadline_container_memory_events_total"]
    }  # fmt: skip
    oldest = {"max": 4, "oom_kill": 2}
    first = name in ("version 1", "hybrid")
    assert events == (oldest if first else {**oldest, "high": 7, "oom": 3})
    pressure = {
        (told["resource"], told["kind"]): v
        for told, v in page.get("leadline_container_pressure_seconds_total", [])
    }
    assert pressure.get(("memory", "full")) == (None if name == "version 1" else 1.5)
    assert len(pressure) == (0 if name == "version 1" else 6)
    assert all(value == 1 for _, value in page["leadline_collector_success"])


EXPORTER = "/kubepods.slice/kubepods-besteffort.slice/kubepods-podx.slice/cri-containerd-x.scope"
BESIDE = "/../../.." + SCOPE.removeprefix("/kubepods.slice")
NAMESPACES = {
    # What /proc tells of the server and of the exporter, and where the exporter's own is mounted.
    "a namespace of its own, version 2": (f"0::{BESIDE}\n", "0::/\n", "", EXPORTER),
    "and a folder in it": (f"0::{BESIDE}\n", "0::/init\n", "", EXPORTER),
    "the host's namespace, version 2": (f"0::{SCOPE}\n", f"0::{EXPORTER}\n", "", EXPORTER),
    "a namespace of its own, version 1": (
        f"9:memory:{BESIDE}\n0::/../x\n", "9:memory:/\n0::/\n", "/memory", EXPORTER,
    ),
    "the host's namespace, version 1": (
        f"9:memory:{SCOPE}\n", f"9:memory:{EXPORTER}\n", "/memory", EXPORTER,
    ),
    "one container with the server": ("0::/\n", "0::/\n", "", SCOPE),
    "the host's root": (f"0::{SCOPE}\n", "0::/system.slice/leadline.service\n", "", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMESPACES)
def test_an_exporter_in_a_container_finds_the_cgroups_of_others(
    tmp_path: Path, grow: Grow, config: Make, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the host's /sys mounted, in whichever cgroup namespace it runs.

    The kernel's own answers, as a process in `unshare --cgroup` got them; in a tree built by hand
    a link to its own folder stands for what a container has at /sys/fs/cgroup.
    """
    told, own, mount, where = NAMESPACES[name]
    files = V1 if mount else V2
    limit = "memory.limit_in_bytes" if mount else "memory.max"
    grow(tmp_path, server(told) | {"proc/self/cgroup": own}
         | below(f"{mount}{SCOPE}", files) | below(f"{mount}{POD}", {limit: "18000\n"})
         | below(f"{mount}{EXPORTER}", {**files, "memory.current": "1\n"}))  # fmt: skip
    ours = tmp_path / "own"
    ours.mkdir()
    if mount:
        (ours / "memory").symlink_to(tmp_path / f"cgroup/memory{where}")
    else:
        ours.rmdir()
        ours.symlink_to(tmp_path / f"cgroup{where}")
    monkeypatch.setattr(cgroups, "OWN", ours)
    page = read(tmp_path, config(discover=True, vllm=False))
    assert [(told["cgroup"], v) for told, v in page["leadline_container_memory_bytes"]] == [
        (SHORT, 9000)
    ]
    assert [v for _, v in page["leadline_container_limit_bytes"]] == [18000]


def test_a_cgroup_that_is_not_mounted_is_a_failure_with_its_remedy(
    tmp_path: Path, grow: Grow, config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """A container without the host's /sys sees its own cgroup alone."""
    grow(tmp_path, server(f"0::/..{SCOPE}\n") | {"proc/self/cgroup": "0::/\n"} | below("", V2))
    page = read(tmp_path, config(discover=True, vllm=False))
    failed = {told["collector"] for told, v in page["leadline_collector_success"] if v == 0}
    assert failed == {"container"}
    assert "mount the host's /sys and name it in exporter.sys" in caplog.text


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("memory.current", "many\n"), ("memory.current", "-5\n"), ("memory.current", "1_000\n"),
        ("memory.current", ""), ("memory.current", "9" * 5000), ("memory.max", "lots\n"),
        ("memory.stat", "anon 5000\n"),
    ],
)  # fmt: skip
def test_a_file_that_makes_no_sense_is_a_failure_and_no_number(
    tmp_path: Path, grow: Grow, config: Make, file: str, text: str
) -> None:
    """The container's collector says 0, and no memory of it is made up."""
    grow(tmp_path, {**server(f"0::{SCOPE}\n"), **below(SCOPE, {**V2, file: text})})
    page = read(tmp_path, config(discover=True, vllm=False))
    failed = {told["collector"] for told, v in page["leadline_collector_success"] if v == 0}
    assert failed == {"container"}
    assert not [name for name in page if name.startswith("leadline_container_")]


def test_a_process_in_full(tmp_path: Path, grow: Grow, config: Make) -> None:
    """Faults, switches by kind, and the proportional memory with the moment it was read."""
    files = server("0::/\n")
    stat = files["proc/20/stat"].split(" ")
    stat[11] = "42"
    grow(tmp_path, {**files, "proc/20/stat": " ".join(stat)})
    page = read(tmp_path, config(discover=True, vllm=False))
    assert [v for _, v in page["leadline_process_major_faults_total"]] == [42]
    switches = {
        told["kind"]: v for told, v in page["leadline_process_context_switches_total"]
    }  # fmt: skip
    assert switches == {"voluntary": 11, "forced": 4}
    assert [v for _, v in page["leadline_process_proportional_bytes"]] == [8192]
    assert page["leadline_process_proportional_timestamp_seconds"][0][1] > 1.6e9


def look(root: Path, members: tuple[Member, ...] = ()) -> Look:
    """Return a look at a node with one server."""
    found = Found(20, Launch(), "", members)
    instance = Instance({"server": "n:1"}, "n", "", found)
    return Look(load(None, {}, {}), "n", [instance], root / "proc", root / "cgroup", 5.0,
                root / "sys")  # fmt: skip


def test_proportional_memory_is_read_one_process_at_a_time(tmp_path: Path, grow: Grow) -> None:
    """In turn and not more than every half minute; a group is shown once all of it was read."""
    members = tuple(Member(pid, "worker", "DP0") for pid in (31, 32))
    for pid in (31, 32):
        grow(tmp_path, {f"proc/{pid}/smaps_rollup": f"Pss: {pid} kB\n"})
    clock, said = [0.0], []
    pss = Pss(lambda: clock[0], lambda: 1e9 + clock[0])
    for at in (0.0, 10.0, 30.0, 60.0):
        clock[0] = at
        families = pss.collect(look(tmp_path, members)).families
        said.append(
            [(v, families.samples("leadline_process_proportional_timestamp_seconds")[0][1])
             for _, v in families.samples("leadline_process_proportional_bytes")]
        )  # fmt: skip
    assert said == [[], [], [(63 * 1024, 1e9)], [(63 * 1024, 1e9 + 30)]]
    (tmp_path / "proc/31/smaps_rollup").unlink()  # it ended: what is left is the other's alone
    clock[0] = 90.0
    families = pss.collect(look(tmp_path, members[1:])).families
    assert [v for _, v in families.samples("leadline_process_proportional_bytes")] == [32 * 1024]


def _only(tasks: Mapping[str, Task]) -> Task:
    (task,) = tasks.values()
    return task


# What any file may hold: noise, and what is nearly right.
_WORDS = st.sampled_from(
    b"0 1 9 -1 18446744073709551615 18446744073709551616 1_0 kB max some full total= avg10= : \n"
    b" ( ) btime anon inactive_file MemTotal MemAvailable Node VmRSS 4: 400 Gb/sec 32.0 GT/s"
    .split(b" ")
)  # fmt: skip
NOISE = st.one_of(st.binary(max_size=300), st.lists(_WORDS, max_size=40).map(b" ".join))


@given(NOISE)
def test_readers_of_the_kernels_files_give_numbers_or_a_named_error(data: bytes) -> None:
    """Any bytes: a declared error, or numbers that stand in the text as digits."""
    digits = {int(d) for d in re.findall(rb"[0-9]{1,20}", data)}
    for parse in (proc.number, proc.rows, proc.pressure, network.counters, pcie.acs_control):
        try:
            said: Any = parse(data)
        except ValueError:
            continue
        if parse is proc.number:
            assert said == int(data.strip())
        elif parse is proc.rows:
            assert all(v in digits or v / 1024 in digits for v in said.values())
        elif parse is proc.pressure:
            assert all(round(v * 1e6) in digits or v > 1e9 for v in said.values())
        elif parse is network.counters:
            assert all(len(v) == 16 and set(v) <= digits for v in said.values())


@given(st.dictionaries(st.sampled_from(
    ["proc/20/stat", "proc/20/status", "proc/20/cgroup", "proc/20/cmdline", "proc/20/smaps_rollup",
     "proc/stat", "cgroup/memory.current", "cgroup/memory.stat", "cgroup/memory.max",
     "cgroup/memory.events", "cgroup/memory.pressure", "cgroup/memory/memory.usage_in_bytes",
     "cgroup/memory/memory.stat", "sys/devices/system/node/node0/meminfo",
     "sys/devices/system/node/node0/numastat",
     "sys/class/infiniband/a/ports/1/state", "sys/class/infiniband/a/ports/1/rate",
     "sys/class/infiniband/a/ports/1/counters/symbol_error", "proc/net/dev",
     "sys/bus/pci/devices/0000:00:01.0/class", "sys/bus/pci/devices/0000:00:01.0/vendor",
     "sys/bus/pci/devices/0000:00:01.0/current_link_speed",
     "sys/bus/pci/devices/0000:00:01.0/current_link_width", "sys/class/net/e/speed"]),
    NOISE, min_size=1, max_size=6,
))  # fmt: skip
def test_no_tree_of_files_breaks_a_collector(files: dict[str, bytes]) -> None:
    """Whatever a kernel may write: a result, or one of the two errors that are declared."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        whole = {k: v.encode() for k, v in server("0::/\n").items()} | files
        for name, data in whole.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        seen = look(root, (Member(20, "worker", ""),))
        Discovery(root / "proc").find()
        process = Process()
        for run in (
            lambda: _only(process.tasks(seen)).run(), lambda: Pss().collect(seen),
            lambda: container.collect(seen, seen.instances[0]), lambda: numa.collect(seen),
            lambda: infiniband.collect(seen), lambda: pcie.Pcie().collect(seen),
            lambda: network.Network().collect(seen),
        ):  # fmt: skip
            try:
                result = run()
            except (OSError, ValueError):
                continue
            result.families.write()
