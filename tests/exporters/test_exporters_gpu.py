"""The GPU collector against what NVML answered on a real H200 while known kernels ran."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gpu_record import PID, Replayer
from catalog.config import Config
from catalog.own import GPU
from exporters.gpu.collector import Gpu
from exporters.look import Look, Result
from exporters.scrape import Exporter
from exporters.targets.cmdline import Launch
from exporters.targets.discovery import Found, Member
from exporters.targets.instances import Instance

FIXTURES = Path(__file__).parent.parent / "fixtures" / "gpu"
ANSWERS: dict[str, dict[str, Any]] = json.loads((FIXTURES / "readings.json").read_text())
MOVED: dict[str, dict[str, float]] = json.loads((FIXTURES / "moved.json").read_text())


class NVMLError(Exception):
    """What every error of NVML is."""


ERRORS = {"NVMLError": NVMLError} | {
    name: type(name, (NVMLError,), {})
    for name in (
        "NVMLError_NotSupported", "NVMLError_Timeout", "NVMLError_InvalidArgument",
        "NVMLError_GpuIsLost", "NVMLError_Uninitialized", "NVMLError_Unknown",
        "NVMLError_NotFound",
    )
}  # fmt: skip
LOST, UNKNOWN = ERRORS["NVMLError_GpuIsLost"], ERRORS["NVMLError_Unknown"]


NVLINK_FIELDS = {*range(32, 60), 138, 139, *range(161, 164), *range(201, 223)}


class Node(Replayer):
    """A node with as many of the recorded GPU as wished for, and what is wrong with them.

    Attributes:
        broken: By GPU: an error that every question about it raises, or an event to wait for.
        failing: By function: the error that it raises.
        xids: What the driver has queued.
    """

    def __init__(self, load: str, gpus: int = 1, **changed: Any) -> None:
        super().__init__({**ANSWERS[load], **changed}, ERRORS)
        self._gpus = gpus
        self.broken: dict[int, Exception | threading.Event] = {}
        self.failing: dict[str, Exception] = {}
        self.xids: list[int] = []
        self.started = self.stopped = self.asked = 0
        self.gone = False
        self.counting: threading.Event | None = None

    def nvmlInit(self) -> None:
        if self.gone:
            raise ERRORS["NVMLError_Uninitialized"]
        self.started += 1

    def nvmlShutdown(self) -> None:
        self.stopped += 1

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        pass

    def nvmlEventSetFree(self, events: Any) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        if self.counting is not None:
            self.counting.wait(30)
        if self.gone:
            raise ERRORS["NVMLError_Uninitialized"]
        return self._gpus

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return self._at(index)

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-00000000-0000-0000-0000-{handle:012d}"

    def nvmlGpmSampleAlloc(self) -> object:
        return object()

    def nvmlEventSetWait_v2(self, events: Any, timeout: int) -> SimpleNamespace:
        if not self.xids:
            raise ERRORS["NVMLError_Timeout"]
        return SimpleNamespace(eventType=8, eventData=self.xids.pop(0))

    def _at(self, handle: int) -> int:
        wrong = self.broken.get(handle)
        if isinstance(wrong, threading.Event):
            wrong.wait(30)
        elif wrong is not None:
            raise wrong
        return handle

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        self.asked += 1
        if name in self.failing:
            raise self.failing[name]
        if arguments and isinstance(arguments[0], int):
            self._at(arguments[0])
            # A record is of one GPU: its calls know no handle.
            arguments = (None, *arguments[1:])
        return super()._answer(name, arguments)


def look(seconds: float = 5.0) -> Look:
    """Return a look at a node whose one worker is the process on record."""
    found = Found(PID, Launch(), "", (Member(PID, "worker", "DP0_TP0"),))
    labels = {"pool": "decode", "model_name": "m", "server": "gpu-node:8000"}
    instance = Instance(labels, "gpu-node", "", found)
    return Look(Config(), "gpu-node", [instance], Path("/proc"), Path("/sys/fs/cgroup"), seconds)


def twice(collector: Gpu) -> Result:
    """Return the second scrape: GPM has none before."""
    collector.tasks(look())[""].run()
    return collector.tasks(look())[""].run()


def values(result: Result, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Return the values of one metric by some of its labels."""
    samples = result.families.samples(f"leadline_gpu_{name}")
    return {tuple(told[label] for label in labels): value for told, value in samples}


@pytest.mark.parametrize("error", [LOST("GPU is lost"), UNKNOWN("Unknown Error")])
def test_a_gpu_that_answers_nothing_is_down(error: Exception) -> None:
    """By whichever error the driver says so; the other GPU stays."""
    node = Node("decode", gpus=2)
    collector = Gpu(node)
    twice(collector)
    node.broken[0] = error
    result = collector.tasks(look())[""].run()
    assert result.problem == f"GPU 0: {error}"
    assert values(result, "up", "gpu") == {("0",): 0, ("1",): 1}
    assert values(result, "power_watts", "gpu").keys() == {("1",)}


@pytest.mark.parametrize("load", sorted(ANSWERS))
def test_the_page_is_what_the_real_gpu_gave(load: str) -> None:
    """The same answers give the page recorded beside them, all but what moved in between."""
    got = twice(Gpu(Node(load))).families.write().decode().splitlines()
    recorded = (FIXTURES / f"{load}.prom").read_text().splitlines()
    assert [line.rpartition(" ")[0] for line in got] == [
        line.rpartition(" ")[0] for line in recorded
    ]
    pairs = zip(got, recorded, strict=True)
    assert [pair for pair in pairs if pair[0] != pair[1] and pair[0][0] != "#"] == []


def test_every_family_of_the_catalogue_is_on_a_page_or_needs_what_an_h200_lacks() -> None:
    """No family is written down that is never emitted."""
    seen = "".join(path.read_text() for path in FIXTURES.glob("*.prom"))
    absent = {metric.name for metric in GPU if f"\n{metric.name}{{" not in seen}
    assert absent == {
        "leadline_gpu_xid_events_total", "leadline_gpu_nvlink_link_errors_total",
        "leadline_gpu_mig_memory_used_bytes", "leadline_gpu_mig_memory_total_bytes",
    }  # fmt: skip


def test_a_spinning_gpu_is_told_from_a_busy_one() -> None:
    """Both read full utilisation; the cores, the memory and the power tell them apart."""
    spin, gemm = twice(Gpu(Node("spin"))), twice(Gpu(Node("gemm")))
    assert values(spin, "utilization_ratio") == values(gemm, "utilization_ratio") == {(): 1.0}
    assert values(spin, "sm_active_ratio")[()] < 0.02 < 0.9 < values(gemm, "sm_active_ratio")[()]
    limit = values(spin, "power_limit_watts")[()]
    assert values(spin, "power_watts")[()] < 0.25 * limit
    held = values(gemm, "clock_event", "reason")
    assert [reason for (reason,), on in held.items() if on] == ["power_cap"]
    assert values(spin, "clock_event", "reason")["power_cap",] == 0


def test_bytes_over_links_agree_with_what_was_moved() -> None:
    """GPM's units: what it says is what the load moved and at most a tenth of headers more."""
    for load, name, direction in (
        ("to_gpu", "pcie", "receive"), ("from_gpu", "pcie", "transmit"),
        ("to_peer", "nvlink", "transmit"),
    ):  # fmt: skip
        said = values(twice(Gpu(Node(load))), f"{name}_bytes_per_second", "direction")
        moved = MOVED[load]["bytes_per_second"]
        assert moved <= said[direction,] <= 1.1 * moved
        assert sum(said.values()) - said[direction,] < 0.1 * moved


def test_memory_is_told_by_vllm_process_and_for_all_others_together() -> None:
    """The recorded process is the worker; unknown ones are nobody's."""
    key = "nvmlDeviceGetComputeRunningProcesses_v3"
    (own,) = ANSWERS["decode"][key]
    others = [{**own, "pid": 1, "usedGpuMemory": 7e9}, {**own, "pid": 2, "usedGpuMemory": None}]
    result = twice(Gpu(Node("decode", **{key: [own, *others]})))
    assert values(result, "process_memory_used_bytes", "process", "rank", "server") == {
        ("worker", "DP0_TP0", "gpu-node:8000"): own["usedGpuMemory"]
    }
    assert values(result, "other_memory_used_bytes") == {(): 7e9}


def test_a_lost_gpu_is_named_and_the_others_stay() -> None:
    """It is a problem with its number; NVML is started anew after a while, not at each scrape."""
    now = [0.0]
    node = Node("decode", gpus=3)
    collector = Gpu(node, lambda: now[0])
    assert twice(collector).problem == ""
    node.broken[1] = LOST("GPU is lost")
    for at in (10.0, 20.0, 290.0):
        now[0] = at
        result = collector.tasks(look())[""].run()
        assert result.problem == "GPU 1: GPU is lost"
        assert values(result, "power_watts", "gpu").keys() == {("0",), ("2",)}
        assert values(result, "sm_active_ratio", "gpu").keys() == {("0",), ("2",)}
        assert values(result, "up", "gpu") == {("0",): 1, ("1",): 0, ("2",): 1}
    assert (node.started, node.stopped) == (1, 0)
    now[0] = 301.0
    collector.tasks(look())[""].run()
    assert (node.started, node.stopped) == (1, 1)
    node.broken.clear()
    now[0] = 310.0
    result = collector.tasks(look())[""].run()
    assert result.problem == ""
    assert len(values(result, "power_watts", "gpu")) == 3
    assert values(result, "up", "gpu") == {("0",): 1, ("1",): 1, ("2",): 1}
    assert node.started == 2


def test_the_xid_that_a_gpu_was_lost_with_is_told() -> None:
    """Its other series end with it; the event and that it is down stay, also once NVML forgot it.

    After a new start the driver may no longer count it: the next GPU then has its number.
    """
    now = [0.0]
    node = Node("decode", gpus=2)
    collector = Gpu(node, lambda: now[0])
    twice(collector)
    node.broken[0], node.xids = LOST("GPU is lost"), [79]
    result = collector.tasks(look())[""].run()
    assert values(result, "xid_events_total", "gpu", "xid") == {("0", "79"): 1}
    assert values(result, "power_watts", "gpu").keys() == {("1",)}
    now[0] = 301.0
    collector.tasks(look())[""].run()

    class Less(Node):
        def nvmlDeviceGetUUID(self, handle: int) -> str:
            return super().nvmlDeviceGetUUID(handle + 1)

    node.__class__, node._gpus = Less, 1
    node.broken.clear()
    result = collector.tasks(look())[""].run()
    ids = "GPU-00000000-0000-0000-0000-{:012d}".format
    assert values(result, "up", "gpu", "uuid") == {("0", ids(0)): 0, ("0", ids(1)): 1}


def test_a_driver_that_is_gone_takes_no_gpu_out_of_sight() -> None:
    """A node that never had GPUs is silent; one whose driver broke says that each is down."""
    now = [0.0]
    node = Node("decode", gpus=2)
    collector = Gpu(node, lambda: now[0])
    twice(collector)
    node.gone = True
    for _ in range(2):
        result = collector.tasks(look())[""].run()
        assert result.problem
        assert values(result, "up", "gpu") == {("0",): 0, ("1",): 0}


def test_a_gpu_that_hangs_costs_its_own_series_alone() -> None:
    """The others are read in time, now and later, and it is not asked again until it answers."""
    release = threading.Event()
    node = Node("decode", gpus=3)
    collector = Gpu(node)
    twice(collector)
    node.broken[0] = release
    begun = time.monotonic()
    result = collector.tasks(look(1.0))[""].run()
    assert time.monotonic() - begun < 1.0
    assert result.problem == "GPU 0: no answer in time"
    assert values(result, "up", "gpu") == {("0",): 0, ("1",): 1, ("2",): 1}
    assert values(result, "power_watts", "gpu").keys() == {("1",), ("2",)}
    result = collector.tasks(look(1.0))[""].run()
    assert result.problem == "GPU 0: no answer since an earlier scrape"
    assert len(values(result, "power_watts", "gpu")) == 2
    release.set()
    deadline = time.monotonic() + 20
    while collector.tasks(look())[""].run().problem and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(values(collector.tasks(look())[""].run(), "power_watts", "gpu")) == 3


def test_a_driver_that_hangs_leaves_no_gpu_out(
    config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The scrape is answered in time and says that all of them are down."""
    node = Node("decode", gpus=2)
    release = threading.Event()
    monkeypatch.setitem(sys.modules, "pynvml", node)
    exporter = Exporter(config(deadline=3.0), proc=tmp_path, only={"gpu"})
    assert exporter.page().decode().count("leadline_gpu_up{") == 2
    node.counting = release
    page = exporter.page().decode()
    release.set()
    exporter.close()
    assert [line[-3:] for line in page.splitlines() if line.startswith("leadline_gpu_up{")] == [
        "0.0", "0.0",
    ]  # fmt: skip
    assert "leadline_gpu_power_watts{" not in page


def test_a_part_that_fails_is_a_problem_and_the_others_stay() -> None:
    """An error of the driver in one call takes none of the rest with it."""
    node = Node("gemm")
    node.failing = {"nvmlDeviceGetPowerUsage": UNKNOWN("Unknown Error"),
                    "nvmlDeviceGetRemappedRows": UNKNOWN("Unknown Error")}  # fmt: skip
    result = twice(Gpu(node))
    assert result.problem == "GPU 0: Unknown Error"
    assert not values(result, "power_watts")
    assert not values(result, "row_remap_pending")
    assert values(result, "temperature_celsius")
    assert values(result, "ecc_errors_total", "error", "scope")
    assert values(result, "sm_active_ratio")


def test_xids_are_counted_by_number_within_bounds() -> None:
    """Each event once; no more than 32 numbers, the rest together."""
    node = Node("decode")
    collector = Gpu(node)
    node.xids = [79, 31, 31]
    first = collector.tasks(look())[""].run()
    assert values(first, "xid_events_total", "xid") == {("79",): 1, ("31",): 2}
    node.xids = [31, *range(1000, 1050)]
    second = collector.tasks(look())[""].run()
    counted = values(second, "xid_events_total", "xid")
    assert counted["31",] == 3
    assert len(counted) == 33
    assert sum(counted.values()) == 3 + 1 + 50
    assert counted["other",] == 20


def test_dear_answers_are_asked_for_once_a_minute() -> None:
    """They are repeated in between: fewer calls, the same series."""
    now = [0.0]
    node = Node("decode")
    collector = Gpu(node, lambda: now[0])
    asked, pages = [], []
    for at in (0.0, 15.0, 30.0, 61.0):
        now[0], before = at, node.asked
        pages.append(collector.tasks(look())[""].run().families)
        asked.append(node.asked - before)
    assert asked[1] == asked[2] < 0.5 * asked[3]
    for name in ("energy_joules_total", "nvlink_up", "ecc_errors_total", "info"):
        counts = [len(page.samples(f"leadline_gpu_{name}")) for page in pages]
        assert len(set(counts)) == 1
        assert counts[0]


def test_links_with_errors_are_told_one_by_one() -> None:
    """A healthy GPU has sums alone, one with errors also the link that has them."""
    links = [(f, 0xFFFFFFFF) for f in (138, 139, 161, 162, 163)]
    sums = ANSWERS["decode"][f"nvmlDeviceGetFieldValues {links!r}"]
    bad = [*sums[:2], {**sums[2], "is": 9}, *sums[3:]]
    each = [(161, link) for link in range(18)]
    by_link = [{"is": 9 if link == 4 else 0, "nvmlReturn": 0, "valueType": 3} for link in range(18)]
    node = Node("decode", **{
        f"nvmlDeviceGetFieldValues {links!r}": bad, f"nvmlDeviceGetFieldValues {each!r}": by_link,
    })  # fmt: skip
    result = twice(Gpu(node))
    assert values(result, "nvlink_errors_total", "error")["replay",] == 9
    told = values(result, "nvlink_link_errors_total", "link", "error")
    assert {key: value for key, value in told.items() if value} == {("4", "replay"): 9}
    assert not values(twice(Gpu(Node("decode"))), "nvlink_link_errors_total", "link")


@pytest.mark.parametrize(
    ("told", "errors", "links"),
    [
        # Ampere: sums over all links, by numbers of their own.
        ({52: 4, 59: 1, 38: 7, 45: 0},
         {("replay",): 4, ("recovery",): 1, ("crc",): 7, ("crc_data",): 0}, {}),
        # Blackwell: link by link alone.
        ({208: 0, 219: 2}, {("receive",): 0, ("effective",): 2 * 18},
         {(str(link), "effective"): 2 for link in range(18)}),
    ],
)  # fmt: skip
def test_other_generations_count_errors_of_nvlink_otherwise(
    told: dict[int, int], errors: dict[tuple[str], float], links: dict[tuple[str, str], float]
) -> None:
    """By the numbers of nvml.h: no such GPU is on record."""

    class Other(Node):
        def nvmlDeviceGetFieldValues(
            self, handle: int, wanted: list[tuple[int, int]]
        ) -> list[SimpleNamespace]:
            if not {field for field, _ in wanted} <= NVLINK_FIELDS:
                said: list[SimpleNamespace] = self._answer(
                    "nvmlDeviceGetFieldValues", (handle, wanted)
                )
                return said
            return [
                SimpleNamespace(nvmlReturn=0 if field in told else 3, valueType=3,
                                value=SimpleNamespace(ullVal=told.get(field, 0)))
                for field, _ in wanted
            ]  # fmt: skip

    result = twice(Gpu(Other("decode")))
    assert result.problem == ""
    assert values(result, "nvlink_errors_total", "error") == errors
    assert values(result, "nvlink_link_errors_total", "link", "error") == links


class Divided(Node):
    """A GPU in two instances, as the NVML reference and people's logs of H100s have it.

    The whole GPU refuses what can't be told apart: utilisation, samples of GPM, remapped rows. Its
    instances have names with the profile at the end, memory and processes of their own, and no
    sensors; their numbers may have gaps. No such GPU is on record.
    """

    REFUSED = ("nvmlDeviceGetUtilizationRates", "nvmlGpmSampleGet", "nvmlDeviceGetRemappedRows")
    INSTANCES: Mapping[int, tuple[str, int, int]] = {
        0: ("NVIDIA H200 MIG 3g.71gb", 70_000_000_000, PID),
        2: ("NVIDIA H200 MIG 1g.18gb+me", 1_000_000_000, 77),
    }

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, index: int) -> int:
        if index not in self.INSTANCES:
            raise ERRORS["NVMLError_NotFound"]("Not Found")
        return 100 + index

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        handle = arguments[0] if arguments and isinstance(arguments[0], int) else 0
        if handle < 100:
            if name in self.REFUSED:
                raise ERRORS["NVMLError_NotSupported"]("Not Supported")
            return super()._answer(name, arguments)
        profile, used, pid = self.INSTANCES[handle - 100]
        if name == "nvmlDeviceGetName":
            return profile
        if name == "nvmlDeviceGetMemoryInfo":
            return SimpleNamespace(used=used, total=2 * used)
        if name == "nvmlDeviceGetComputeRunningProcesses_v3":
            return [SimpleNamespace(pid=pid, usedGpuMemory=used - 1000)]
        raise ERRORS["NVMLError_InvalidArgument"]("Invalid Argument")


def test_a_divided_gpu_tells_its_instances() -> None:
    """Memory by instance and process; what the whole GPU can't tell is absent and no failure."""
    node = Divided("decode", nvmlDeviceGetMigMode=[1, 1], nvmlDeviceGetMaxMigDeviceCount=7)
    result = twice(Gpu(node))
    assert result.problem == ""
    assert values(result, "mig_enabled") == {(): 1}
    assert values(result, "mig_memory_used_bytes", "mig", "profile") == {
        ("0", "3g.71gb"): 70e9, ("2", "1g.18gb+me"): 1e9,
    }  # fmt: skip
    assert values(result, "mig_memory_total_bytes", "mig") == {("0",): 140e9, ("2",): 2e9}
    assert values(result, "process_memory_used_bytes", "rank") == {("DP0_TP0",): 70e9 - 1000}
    assert values(result, "other_memory_used_bytes") == {(): 1e9 - 1000}
    assert values(result, "power_watts")
    for absent in ("utilization_ratio", "sm_active_ratio", "remapped_rows_total"):
        assert not values(result, absent)


def test_no_driver_is_no_error() -> None:
    """A node without GPUs has no samples, and no failed collector."""

    class NoDriver(Node):
        def nvmlInit(self) -> None:
            raise LOST("NVML Shared Library Not Found")

    result = Gpu(NoDriver("idle")).tasks(look())[""].run()
    assert result.problem == ""
    assert result.families.write() == b""


ODD = st.one_of(
    st.none(), st.integers(-2, 2**64), st.text(max_size=3), st.just([]), st.just({}),
    st.lists(st.integers(-1, 2), max_size=5), st.just({"used": None, "gpu": "x", "pid": []}),
    st.sampled_from(sorted(ERRORS)).map(lambda name: {"error": name}),
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(sorted(ANSWERS["decode"])), ODD, max_size=8))
def test_whatever_the_binding_answers_costs_no_other_gpu(odd: dict[str, Any]) -> None:
    """A page that can be written, with each GPU on it; the one that is sound in full."""

    class Half(Node):
        def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
            self._answers = mixed if arguments and arguments[0] == 0 else ANSWERS["decode"]
            return super()._answer(name, arguments)

    mixed = {**ANSWERS["decode"], **odd}
    result = twice(Gpu(Half("decode", gpus=2)))
    result.families.write()
    assert values(result, "up", "gpu").keys() == {("0",), ("1",)}
    assert values(result, "up", "gpu")["1",] == 1
    assert values(result, "power_watts", "gpu")["1",] > 0
    assert values(result, "sm_active_ratio", "gpu")["1",] >= 0


def test_what_a_gpu_cannot_tell_is_absent() -> None:
    """An old GPU without GPM, energy, NVLink and remapping has none of them, not zeros."""
    lacking = ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetFieldValues",
               "nvmlDeviceGetRemappedRows", "nvmlDeviceGetSupportedEventTypes",
               "nvmlGpmQueryDeviceSupport")  # fmt: skip
    node = Node("decode")
    node.failing = {name: ERRORS["NVMLError_NotSupported"]("no") for name in lacking}
    result = twice(Gpu(node))
    assert result.problem == ""
    page = result.families.write().decode()
    for name in ("sm_active", "energy", "nvlink", "remap", "xid", "memory_temperature"):
        assert f"leadline_gpu_{name}" not in page
    assert "leadline_gpu_power_watts" in page
