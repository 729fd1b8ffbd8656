"""Host, process and container series of a node, from recorded and made-up /proc and cgroups."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from catalog.config import Config, load
from catalog.own import OWN
from exporters.scrape import Exporter

ID = "0123456789abcdef" * 4
Grow = Callable[[Path, dict[str, str]], Path]
Make = Callable[..., Config]


def read(root: Path, config: Config) -> dict[str, list[tuple[Mapping[str, str], float]]]:
    """Return labels and values of our own series, by name."""
    exporter = Exporter(config, proc=root / "proc", cgroup=root / "cgroup")
    text = exporter.page().decode()
    exporter.close()
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def status_bytes(root: Path, pid: int, *lines: str) -> float:
    """Return the sum of lines of a recorded status, read in another way than ours."""
    text = (root / f"proc/{pid}/status").read_text()
    return sum(float(text.split(f"{line}:")[1].split()[0]) for line in lines) * 1024


def test_the_recorded_pair_gives_every_series(recorded: Path, config: Make) -> None:
    """Both servers, each process with what /proc says, pools and connector by the command line."""
    page = read(recorded, config(discover=True, vllm=False))
    for name, lines in (
        ("resident", ("VmRSS",)), ("anonymous", ("RssAnon",)), ("swap", ("VmSwap",)),
        ("shared", ("RssShmem", "RssFile")),
    ):  # fmt: skip
        got = {
            (labels["pool"], labels["process"]): value
            for labels, value in page[f"leadline_process_{name}_bytes"]
        }
        assert got == {
            ("prefill", "api_server"): status_bytes(recorded, 6512, *lines),
            ("prefill", "engine_core"): status_bytes(recorded, 6934, *lines),
            ("prefill", "worker"): status_bytes(recorded, 7353, *lines),
            ("decode", "api_server"): status_bytes(recorded, 6513, *lines),
            ("decode", "engine_core"): status_bytes(recorded, 6929, *lines),
            ("decode", "worker"): status_bytes(recorded, 7358, *lines),
        }
    assert dict(page["leadline_process_threads"][0][0]) == {
        "cluster": "c1", "pool": "prefill", "model_name": "leadline-tiny", "node": "node7",
        "server": "node7:8100", "process": "api_server",
    }  # fmt: skip
    counts = [value for _, value in page["leadline_process_open_fds"]]
    assert counts == [
        len(list((recorded / f"proc/{pid}/fd").iterdir()))
        for pid in (6512, 6934, 7353, 6513, 6929, 7358)
    ]
    info = {labels["server"]: labels for labels, _ in page["leadline_instance_info"]}
    assert info["node7:8101"]["kv_role"] == "kv_consumer"
    assert info["node7:8101"]["kv_connector"] == "NixlConnector"
    assert all(value == 1 for _, value in page["leadline_collector_success"])
    assert "leadline_target_up" not in page


def test_the_recorded_container_of_cgroups_version_1(recorded: Path, config: Make) -> None:
    """Working set less inactive file pages; no limit, no series; the id cut short."""
    page = read(recorded, config(discover=True, vllm=False))
    folder = next((recorded / "cgroup/memory/docker").glob("2ceb*"))
    usage = float((folder / "memory.usage_in_bytes").read_text())
    stat = (folder / "memory.stat").read_text()
    working = usage - float(stat.split("total_inactive_file ")[1].split()[0])
    got = page["leadline_container_working_set_bytes"]
    assert [value for _, value in got] == [working, working]
    assert {labels["cgroup"] for labels, _ in got} == {"2ceb12a3b537"}
    assert {labels["server"] for labels, _ in got} == {"node7:8100", "node7:8101"}
    anonymous = float(stat.split("total_rss ")[1].split()[0])
    assert [v for _, v in page["leadline_container_anonymous_bytes"]] == [anonymous] * 2
    assert "leadline_container_limit_bytes" not in page


def server_in(path: str) -> dict[str, str]:
    """Return the files of a server in a cgroup."""
    fields = "20 (vllm) S 1 " + " ".join("0" for _ in range(17)) + " 500 0 0\n"
    return {
        "proc/stat": "cpu 1 2\nbtime 1700000000\n",
        "proc/meminfo": "MemTotal: 100 kB\nMemAvailable: 40 kB\n",
        "proc/20/stat": fields,
        "proc/20/cmdline": "vllm\0serve\0m\0",
        "proc/20/status": "Name: vllm\nVmRSS: 10 kB\nRssAnon: 6 kB\nThreads: 3\n",
        "proc/20/fd/0": "",
        "proc/20/cgroup": path,
    }


def cgroup(folder: str, limit: str) -> dict[str, str]:
    """Return the files of a cgroup of version 2."""
    return {
        f"cgroup{folder}/memory.current": "9000\n",
        f"cgroup{folder}/memory.stat": "anon 5000\nfile 3000\ninactive_file 1000\n",
        f"cgroup{folder}/memory.max": f"{limit}\n",
    }


@pytest.mark.parametrize(
    ("limits", "expected"),
    [(("max", "max"), []), (("max", "4000"), [4000]), (("3000", "4000"), [3000])],
)
def test_the_limit_is_the_smallest_above(
    tmp_path: Path, grow: Grow, config: Make, limits: tuple[str, str], expected: list[float]
) -> None:
    """Version 2: a pod's limit holds for its container; without any there is no series."""
    pod, scope = "/kubepods.slice/pod1.slice", f"cri-containerd-{ID}.scope"
    files = server_in(f"0::{pod}/{scope}\n") | cgroup(f"{pod}/{scope}", limits[0])
    grow(tmp_path, files | cgroup(pod, limits[1]))
    page = read(tmp_path, config(discover=True, vllm=False))
    ((labels, working),) = page["leadline_container_working_set_bytes"]
    assert working == 8000
    assert labels["cgroup"] == f"cri-containerd-{ID[:12]}.scope"
    assert [v for _, v in page.get("leadline_container_limit_bytes", [])] == expected
    assert page["leadline_host_memory_used_bytes"] == [({"cluster": "c1", "node": "node7"}, 61440)]
    assert [v for _, v in page["leadline_process_swap_bytes"]] == [0]  # the status has no such line
    ((_, start),) = page["leadline_process_start_time_seconds"]
    assert 1700000000 < start < 1700000500


def test_a_container_sees_its_own_cgroup_as_the_root(
    tmp_path: Path, grow: Grow, config: Make
) -> None:
    """Version 1 shows the host's path but mounts the container's part: still measured."""
    path = f"4:memory:/docker/{ID}\n"
    grow(tmp_path, server_in(path) | {"proc/self/cgroup": path})
    folder = {f"memory.{n}": v for n, v in (("usage_in_bytes", "9000"), ("limit_in_bytes", "9999"))}
    folder["memory.stat"] = "total_rss 5000\ntotal_inactive_file 1000\n"
    grow(tmp_path, {f"cgroup/memory/{name}": text for name, text in folder.items()})
    page = read(tmp_path, config(discover=True, vllm=False))
    ((labels, working),) = page["leadline_container_working_set_bytes"]
    assert (labels["cgroup"], working) == (ID[:12], 8000)
    assert page["leadline_container_limit_bytes"][0][1] == 9999
    grow(tmp_path, {"proc/self/cgroup": "4:memory:/docker/elsewhere\n"})
    assert "leadline_container_limit_bytes" not in read(tmp_path, config(discover=True, vllm=False))


def test_a_host_without_containers_says_nothing_of_them(
    tmp_path: Path, grow: Grow, config: Make
) -> None:
    """Neither version's root is a container, and that is no failure."""
    grow(tmp_path, server_in("4:memory:/\n0::/\n"))
    grow(
        tmp_path,
        {
            "cgroup/memory/memory.usage_in_bytes": "9\n",
            "cgroup/memory/memory.stat": "total_rss 1\ntotal_inactive_file 2\n",
            "cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    page = read(tmp_path, config(discover=True, vllm=False))
    assert not [name for name in page if name.startswith("leadline_container")]
    assert all(value == 1 for _, value in page["leadline_collector_success"])


@pytest.mark.parametrize(
    ("path", "text", "collector", "lost"),
    [
        ("proc/meminfo", "MemTotal: lots\n", "host", "leadline_host_memory_total_bytes"),
        ("proc/20/cgroup", "0::/../outside\n", "container", "leadline_container_limit_bytes"),
        ("cgroup/a/memory.current", "many\n", "container", "leadline_container_limit_bytes"),
        ("proc/20/stat", "20 (vllm) S\n", "process", "leadline_process_resident_bytes"),
        ("proc/stat", "cpu 1\n", "process", "leadline_process_resident_bytes"),
    ],
)
def test_one_failing_collector_leaves_the_others(
    tmp_path: Path, grow: Grow, config: Make, caplog: pytest.LogCaptureFixture,
    path: str, text: str, collector: str, lost: str,
) -> None:  # fmt: skip
    """It says 0 and why, once; the rest of the page is there."""
    grow(tmp_path, server_in("0::/a\n") | cgroup("/a", "5000"))
    settings = config(discover=True, vllm=False)
    whole = read(tmp_path, settings)
    grow(tmp_path, {path: text})
    exporter = Exporter(settings, proc=tmp_path / "proc", cgroup=tmp_path / "cgroup")
    for _ in range(3):
        exporter.page()
    exporter.close()
    page = read(tmp_path, settings)
    failed = [labels for labels, value in page["leadline_collector_success"] if value == 0]
    assert [labels["collector"] for labels in failed] == [collector]
    assert lost in whole
    assert lost not in page
    others = {n for n in whole if not n.startswith("_".join(lost.split("_")[:2]))}
    others -= {"leadline_instance_start_time_seconds"}  # of the same file as the processes' times
    assert others <= page.keys()
    said = [r.getMessage() for r in caplog.records if f"collector {collector}" in r.getMessage()]
    assert len(said) == 2  # one line each for the two exporters, not one a scrape
    assert "\n" not in said[0]


def test_processes_of_one_kind_and_rank_are_one_series(
    tmp_path: Path, grow: Grow, config: Make
) -> None:
    """Sums, and the newest start: a restart of any of them shows."""
    grow(tmp_path, server_in("0::/\n"))
    for pid, start in ((21, 700), (22, 900)):
        fields = f"{pid} (VLLM::Worker) S 20 " + " ".join("0" for _ in range(17))
        files = server_in("0::/\n")
        grow(
            tmp_path,
            {
                f"proc/{pid}/stat": f"{fields} {start}\n",
                f"proc/{pid}/cmdline": "VLLM::Worker\0\0",
                f"proc/{pid}/status": files["proc/20/status"],
                f"proc/{pid}/fd/0": "",
                f"proc/{pid}/cgroup": "0::/\n",
            },
        )
    page = read(tmp_path, config(discover=True, vllm=False))
    got = {labels["process"]: value for labels, value in page["leadline_process_resident_bytes"]}
    assert got == {"api_server": 10240, "worker": 20480}
    starts = {
        labels["process"]: value for labels, value in page["leadline_process_start_time_seconds"]
    }
    assert starts["worker"] - starts["api_server"] == pytest.approx(4.0)


def test_deployments_name_pools_by_port(recorded: Path) -> None:
    """Where a command line doesn't tell, or tells otherwise, the configuration does."""
    config = load(
        None,
        {},
        {
            "deployment": "rest",
            "deployments": {"glm": {"ports": {8100: "aggregate"}}},
            "exporter": {"discover": True, "vllm": False, "node": "n"},
        },
    )
    page = read(recorded, config)
    assert {
        (labels["server"], labels["deployment"], labels["pool"])
        for labels, _ in page["leadline_process_threads"]
    } == {("n:8100", "glm", "aggregate"), ("n:8101", "rest", "decode")}


def test_only_labels_of_the_catalogue_are_used(recorded: Path, config: Make) -> None:
    """No series of ours carries a label that the catalogue does not list, a pid least of all."""
    known = {metric.name: {*metric.labels} for metric in OWN}
    extra = {"kv_connector", "pipeline_parallel", "expert_parallel", "namespace", "cluster"}
    for name, samples in read(recorded, config(discover=True, vllm=False)).items():
        for labels, _ in samples:
            assert labels.keys() <= known[name] | extra, name
