"""Host, NUMA, pressure, network, InfiniBand and PCIe series, from trees built by hand."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from catalog.config import Config
from catalog.own import OWN
from exporters.node.pcie import Pcie
from exporters.scrape import Exporter

TREE = json.loads((Path(__file__).parent.parent / "fixtures" / "sys" / "node.json").read_text())
Grow = Callable[[Path, dict[str, str]], Path]
Make = Callable[..., Config]
Series = dict[str, list[tuple[Mapping[str, str], float]]]


def read(exporter: Exporter) -> Series:
    """Return labels and values of our own series, by name."""
    found: Series = {}
    for family in text_string_to_metric_families(exporter.page().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def by(series: Series, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Return the values of one metric by some of its labels."""
    return {tuple(told[n] for n in labels): v for told, v in series[f"leadline_{name}"]}


@pytest.fixture
def node(tmp_path: Path, grow: Grow) -> Path:
    """A node with two NUMA nodes, two adapters, and GPUs behind PCIe switches."""
    grow(tmp_path, {path: text for path, text in TREE.items() if path != "about"})
    port = {"class": "0x060400", "vendor": "0x1000"}
    gpu = {"class": "0x030200", "vendor": "0x10de"}
    nic = {"class": "0x020700", "vendor": "0x15b3"}
    fast, slow = ("32.0 GT/s PCIe", "16"), ("16.0 GT/s PCIe", "16")
    plant_device(tmp_path, "0000:00:01.0", port, fast, fast, acs=0b11101)
    plant_device(tmp_path, "0000:00:01.0/0000:17:00.0", gpu, ("32.0 GT/s PCIe", "8"), fast)
    plant_device(tmp_path, "0000:00:02.0", port, slow, slow, acs=0b00001)
    plant_device(tmp_path, "0000:00:02.0/0000:18:00.0", nic, slow, fast)
    plant_device(tmp_path, "0000:00:02.0/0000:18:00.1", nic, ("Unknown", "0"), fast)
    plant_device(tmp_path, "0000:00:03.0", {"class": "0x030000", "vendor": "0x1a03"}, slow, slow)
    return tmp_path


def plant_device(
    root: Path, where: str, about: Mapping[str, str], now: tuple[str, str],
    most: tuple[str, str], acs: int | None = None,
) -> None:  # fmt: skip
    """Write a PCIe device as sysfs has it, and the link to it."""
    folder = root / "sys/devices/pci0000:00" / where
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in about.items():
        (folder / name).write_text(f"{text}\n")
    for which, (speed, width) in (("current", now), ("max", most)):
        (folder / f"{which}_link_speed").write_text(f"{speed}\n")
        (folder / f"{which}_link_width").write_text(f"{width}\n")
    config = bytearray(4096)
    config[0x100:0x104] = (0x0001 | 1 << 16 | 0x148 << 20).to_bytes(4, "little")  # AER, then:
    if acs is not None:
        config[0x148:0x14C] = (0x000D | 1 << 16).to_bytes(4, "little")
        config[0x14E:0x150] = acs.to_bytes(2, "little")
    (folder / "config").write_bytes(bytes(config))
    listed = root / "sys/bus/pci/devices"
    listed.mkdir(parents=True, exist_ok=True)
    (listed / folder.name).symlink_to(folder)


@pytest.fixture
def page(node: Path, config: Make) -> Series:
    """What the exporter says of the node."""
    exporter = Exporter(config(), proc=node / "proc", cgroup=node / "cgroup", sys=node / "sys")
    found = read(exporter)
    exporter.close()
    assert all(value == 1 for _, value in found["leadline_collector_success"])
    return found


def test_memory_of_the_host_and_of_its_numa_nodes(page: Series) -> None:
    """Huge pages in bytes, swap in use as a difference, kills, and each NUMA node's own."""
    host = {name: page[f"leadline_host_{name}"][0][1] for name in (
        "memory_shmem_bytes", "swap_used_bytes", "huge_pages_total_bytes", "huge_pages_free_bytes",
        "oom_kills_total",
    )}  # fmt: skip
    assert host == {
        "memory_shmem_bytes": 1400 * 1024, "swap_used_bytes": 8192 * 1024,
        "huge_pages_total_bytes": 16 * 2 * 2**20, "huge_pages_free_bytes": 4 * 2 * 2**20,
        "oom_kills_total": 3,
    }  # fmt: skip
    assert by(page, "numa_memory_total_bytes", "numa") == {
        ("0",): 263730188 * 1024, ("1",): 264204984 * 1024,
    }  # fmt: skip
    assert by(page, "numa_memory_free_bytes", "numa")[("1",)] == 64000000 * 1024
    pages = by(page, "numa_pages_total", "numa", "kind")
    assert (pages["1", "miss"], pages["0", "foreign"], pages["0", "miss"]) == (20, 20, 0)
    pressure = by(page, "host_pressure_seconds_total", "resource", "kind")
    assert pressure["memory", "full"] == 1.25
    assert pressure["cpu", "some"] == 2.5


def test_physical_interfaces_alone_are_counted(page: Series) -> None:
    """Those of the host's first process, with a device or a bond; a link that is down: no speed."""
    received = {
        told["interface"]: value
        for told, value in page["leadline_network_bytes_total"] if told["direction"] == "receive"
    }  # fmt: skip
    assert received == {"ens1f0": 5e9, "ens1f1": 0, "bond0": 5e9}
    errors = by(page, "network_errors_total", "interface", "direction")
    assert (errors["ens1f0", "receive"], errors["ens1f0", "transmit"]) == (3, 1)
    assert by(page, "network_drops_total", "interface", "direction")["ens1f0", "receive"] == 2
    assert by(page, "network_up", "interface") == {("ens1f0",): 1, ("ens1f1",): 0, ("bond0",): 1}
    assert by(page, "network_speed_bytes_per_second", "interface") == {
        ("ens1f0",): 25e9, ("bond0",): 25e9,
    }  # fmt: skip


def test_rdma_ports_count_words_as_bytes(page: Series) -> None:
    """State, rate, bytes and errors; what an adapter lacks, or can't count, is absent."""
    assert by(page, "infiniband_up", "device", "port") == {
        ("mlx5_0", "1"): 1, ("mlx5_bond_0", "1"): 0,
    }  # fmt: skip
    assert by(page, "infiniband_rate_bytes_per_second", "device")[("mlx5_0",)] == 50e9
    moved = by(page, "infiniband_bytes_total", "device", "direction")
    assert moved["mlx5_0", "transmit"] == 1e9
    assert moved["mlx5_0", "receive"] == 4e9
    errors = by(page, "infiniband_errors_total", "device", "kind")
    assert (errors["mlx5_0", "symbol_error"], errors["mlx5_0", "packet_seq_err"]) == (3, 4)
    assert not [device for device, _ in errors if device == "mlx5_bond_0"]
    assert by(page, "infiniband_congestion_total", "kind")[("np_cnp_sent",)] == 11


def test_a_link_below_what_device_and_slot_can_is_told(page: Series) -> None:
    """Half of the lanes; full speed for its slot; unknown links and other devices are absent."""
    lanes = by(page, "pcie_lanes", "device", "kind")
    assert lanes == {("0000:17:00.0", "gpu"): 8, ("0000:18:00.0", "network"): 16}
    assert by(page, "pcie_lanes_max", "device")[("0000:17:00.0",)] == 16
    now, most = (by(page, f"pcie_bytes_per_second{end}", "device") for end in ("", "_max"))
    # 32 GT/s, 128 of 130 bits are data: 63.0 GB/s by 16 lanes, as the standard's tables have it.
    assert most[("0000:17:00.0",)] == pytest.approx(63.0e9, rel=0.001)
    assert now[("0000:17:00.0",)] == pytest.approx(31.5e9, rel=0.001)
    assert now[("0000:18:00.0",)] == most[("0000:18:00.0",)]
    acs = by(page, "pcie_acs_redirect", "device")
    assert acs[("0000:17:00.0",)] == 1
    assert acs[("0000:18:00.0",)] == 0


def test_what_an_ordinary_user_may_not_read_is_absent_and_said_once(
    node: Path, config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Without root the configuration space ends after 64 bytes: no ACS, one line, no failure."""
    for path in (node / "sys/devices/pci0000:00").rglob("config"):
        path.write_bytes(bytes(64))
    (node / "proc/pressure/cpu").unlink()
    caplog.set_level(logging.INFO)
    exporter = Exporter(config(), proc=node / "proc", cgroup=node / "cgroup", sys=node / "sys")
    first, second = read(exporter), read(exporter)
    exporter.close()
    for found in (first, second):
        assert "leadline_pcie_acs_redirect" not in found
        assert len(found["leadline_pcie_lanes"]) == 2
        assert all(value == 1 for _, value in found["leadline_collector_success"])
    said = [r.getMessage() for r in caplog.records]
    assert len([line for line in said if "ACS" in line]) == 1
    assert len([line for line in said if "pressure" in line]) == 1


def test_devices_are_looked_for_seldom_and_their_links_each_time(node: Path, config: Make) -> None:
    """A link that degrades shows at once, a new device after a while."""
    from exporters.look import Look  # noqa: PLC0415

    now = [0.0]
    collector = Pcie(lambda: now[0])
    look = Look(config(), "n", [], node / "proc", node / "cgroup", 5.0, node / "sys")

    def lanes() -> list[float]:
        return [v for _, v in collector.collect(look).families.samples("leadline_pcie_lanes")]

    assert lanes() == [8, 16]
    nic = node / "sys/bus/pci/devices/0000:18:00.0"
    (nic / "current_link_width").write_text("4\n")
    link = ("16.0 GT/s PCIe", "2")
    about = {"class": "0x020000", "vendor": "0x15b3"}
    plant_device(node, "0000:00:02.0/0000:19:00.0", about, link, link)
    assert lanes() == [8, 4]
    now[0] = 301.0
    assert lanes() == [8, 4, 2]


def test_the_number_of_series_is_bounded(node: Path, config: Make, grow: Grow) -> None:
    """A host with hundreds of interfaces, ports and NUMA nodes gives the first ones alone."""
    files = {}
    rows = TREE["proc/1/net/dev"].splitlines()[:2]
    for n in range(300):
        files[f"sys/class/net/e{n:03}/device/vendor"] = "0x15b3\n"
        rows.append(f"e{n:03}: " + " ".join("1" for _ in range(16)))
        files[f"sys/class/infiniband/m{n:03}/ports/1/state"] = "4: ACTIVE\n"
        files[f"sys/devices/system/node/node{n}/meminfo"] = f"Node {n} MemTotal: 9 kB\n"
    grow(node, {**files, "proc/1/net/dev": "\n".join(rows) + "\n"})
    exporter = Exporter(config(), proc=node / "proc", cgroup=node / "cgroup", sys=node / "sys")
    found = read(exporter)
    exporter.close()
    assert len(found["leadline_network_bytes_total"]) == 2 * 32
    assert len(found["leadline_infiniband_up"]) == 32
    assert len(found["leadline_numa_memory_total_bytes"]) == 64
    known = {metric.name: {*metric.labels} for metric in OWN}
    for name, samples in found.items():
        for labels, _ in samples:
            assert labels.keys() <= known[name], name
