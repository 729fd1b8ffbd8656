"""A GPU server's /sys as the kernel lays it out: links into one tree of devices, not folders.

Built by hand after Documentation/ABI (sysfs-bus-pci, sysfs-class-infiniband, sysfs-class-net), the
PCIe specification for the configuration space, and what such servers print; every reading is held
against the tree it was read from.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.config import load
from exporters.families import Families
from exporters.look import Look
from exporters.node import infiniband
from exporters.node.network import Network
from exporters.node.pcie import Pcie

ROOT, UPSTREAM, DOWNSTREAM, ENDPOINT = 4, 5, 6, 0
REDIRECTS = 0b11101
"""Validation of sources, redirects and upstream forwarding: as Linux sets it."""
GPU: Final = ("0x030200", "0x10de")
ADAPTER: Final = ("0x020700", "0x15b3")
BRIDGE: Final = ("0x060400", "0x1000")
G5, G4 = "32.0 GT/s PCIe", "16.0 GT/s PCIe"


@dataclass
class Pci:
    """One function in the tree.

    Attributes:
        address: Its own.
        above: The port that it hangs below, or None for a root port.
        what: Class and vendor.
        kind: Type of port in its PCIe capability.
        acs: Control bits; None: it lacks the capability.
        now, most: Speed and width, as it runs and as it could.
        physical: Address of what it is a virtual function of.
    """

    address: str
    above: Pci | None
    what: tuple[str, str] = BRIDGE
    kind: int = ENDPOINT
    acs: int | None = None
    now: tuple[str, str] = (G5, "16")
    most: tuple[str, str] = (G5, "16")
    physical: str = ""

    @property
    def path(self) -> str:
        """Return its folder below /sys."""
        if self.above is None:
            return f"devices/pci{self.address[:7]}/{self.address}"
        return f"{self.above.path}/{self.address}"

    def config(self) -> bytes:
        """Return its configuration space: power management, then PCIe; AER, then ACS far behind."""
        space = bytearray(4096)
        space[0x34], space[0x40:0x42], space[0x60] = 0x40, bytes((0x01, 0x60)), 0x10
        space[0x62] = 0x02 | self.kind << 4
        # As a switch of 2024 has it: the chain of extended capabilities goes up and down.
        space[0x100:0x104] = (0x0001 | 2 << 16 | 0xF24 << 20).to_bytes(4, "little")
        if self.acs is None:
            space[0xF24:0xF28] = (0x0025 | 1 << 16).to_bytes(4, "little")
        else:
            space[0xF24:0xF28] = (0x000D | 1 << 16 | 0xB70 << 20).to_bytes(4, "little")
            space[0xF28:0xF2C] = (0x5F | self.acs << 16).to_bytes(4, "little")
            space[0xB70:0xB74] = (0x000B | 1 << 16).to_bytes(4, "little")
        return bytes(space)


def link(at: Path, to: Path) -> None:
    """Make a relative link, as sysfs does."""
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(os.path.relpath(to, at.parent))


def plant(sys: Path, device: Pci) -> None:
    """Write a function, and the link to it in the list of the bus."""
    folder = sys / device.path
    folder.mkdir(parents=True, exist_ok=True)
    files = {"class": device.what[0], "vendor": device.what[1]}
    if not device.physical:  # a virtual function has these files too and says nothing in them
        for which, (speed, width) in (("current", device.now), ("max", device.most)):
            files |= {f"{which}_link_speed": speed, f"{which}_link_width": width}
    else:
        link(folder / "physfn", sys / device.path / ".." / device.physical)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")
    (folder / "config").write_bytes(device.config())
    link(sys / "bus/pci/devices" / device.address, folder)


def adapter(sys: Path, device: Pci, name: str, port: Mapping[str, str], net: str = "") -> None:
    """Write what the driver of an RDMA adapter adds: a class device with a port, an interface."""
    folder = sys / device.path / "infiniband" / name
    for path, text in port.items():
        (folder / "ports/1" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "ports/1" / path).write_text(f"{text}\n")
    link(folder / "device", sys / device.path)
    link(sys / "class/infiniband" / name, folder)
    if net:
        interface(sys, sys / device.path / "net" / net, device)


def interface(sys: Path, folder: Path, device: Pci | None, *, bond: bool = False) -> None:
    """Write an interface: of a device, of a bond, or a virtual one."""
    folder.mkdir(parents=True)
    for name, text in {"operstate": "up", "speed": "400000", "carrier_changes": "2"}.items():
        (folder / name).write_text(f"{text}\n")
    if device is not None:
        link(folder / "device", sys / device.path)
    if bond:
        (folder / "bonding").mkdir()
    link(sys / "class/net" / folder.name, folder)


def port(
    state: str = "4: ACTIVE", rate: str = "400 Gb/sec (4X NDR)", **counts: int
) -> dict[str, str]:
    """Return a port's files; a counter that the firmware lacks says so in words."""
    return {
        "state": state, "phys_state": "5: LinkUp", "rate": rate, "link_layer": "InfiniBand",
        "lid": "0x7", "counters/port_xmit_constraint_errors": "N/A (no PMA)",
        "hw_counters/lifespan": "10",
        **{name.replace("__", "/"): str(value) for name, value in counts.items()},
    }  # fmt: skip


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    """Two root ports: a switch with a GPU and an adapter behind it, and a GPU by itself."""
    root = tmp_path / "sys"
    host = Pci("0000:15:01.0", None, kind=ROOT, acs=REDIRECTS)
    up = Pci("0000:16:00.0", host, kind=UPSTREAM, acs=0)
    one = Pci("0000:17:00.0", up, kind=DOWNSTREAM, acs=0)
    two = Pci("0000:17:04.0", up, kind=DOWNSTREAM, acs=REDIRECTS)
    gpu = Pci("0000:18:00.0", one, GPU, now=("32.0 GT/s PCIe", "8"))
    nic = Pci("0000:1a:00.0", two, ADAPTER, most=("64.0 GT/s PCIe", "16"))
    virtual = Pci("0000:1a:00.1", two, ADAPTER, physical="0000:1a:00.0")
    alone = Pci("0000:37:01.0", None, kind=ROOT, acs=REDIRECTS, most=(G4, "16"))
    slow = Pci("0000:38:00.0", alone, GPU, now=(G4, "16"))
    switch = Pci("0000:39:00.0", alone, ("0x068000", "0x10de"))  # NVSwitch
    screen = Pci("0000:3a:00.0", alone, ("0x030000", "0x1a03"))  # of the board's controller
    for device in (host, up, one, two, gpu, nic, virtual, alone, slow, switch, screen):
        plant(root, device)
    moved = {"counters__port_xmit_data": 250, "counters__port_rcv_data": 2**62,
             "counters__symbol_error": 3, "hw_counters__np_cnp_sent": 11,
             "hw_counters__req_transport_retries_exceeded": 5}  # fmt: skip
    adapter(root, nic, "mlx5_9", port(**moved), net="ibp26s0")
    # Its name sorts first; a virtual function moves nothing here.
    adapter(root, virtual, "mlx5_10", port("1: DOWN", "2.5 Gb/sec (1X SDR)"))
    interface(root, root / "devices/virtual/net/bond0", None, bond=True)
    interface(root, root / "devices/virtual/net/veth12ab", None)
    return root


def look(sys: Path) -> Look:
    """Return a look at a node whose /sys this is."""
    proc = sys.parent / "proc/1/net"
    proc.mkdir(parents=True, exist_ok=True)
    names = ("lo", "ibp26s0", "bond0", "veth12ab")
    rows = [f"{n}: " + " ".join(str(k) for k in range(16)) for n in names]
    (proc / "dev").write_text("\n".join(["Inter-|", " face |", *rows]) + "\n")
    return Look(load(None, {}, {}), "n", [], sys.parent / "proc", sys / "fs/cgroup", 5.0, sys)


def told(families: Families, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Return the values of one metric by some of its labels."""
    samples = families.samples(f"leadline_{name}")
    return {tuple(labels_[label] for label in labels): value for labels_, value in samples}


def test_links_and_access_control_are_those_of_the_way_to_a_device(sys: Path) -> None:
    """A GPU at half its lanes, an adapter beyond its slot, one at what its root port can.

    Redirection by the root port says nothing of devices that meet at a switch below it.
    """
    families = Pcie().collect(look(sys)).families
    assert told(families, "pcie_lanes", "device", "kind") == {
        ("0000:18:00.0", "gpu"): 8, ("0000:1a:00.0", "network"): 16, ("0000:38:00.0", "gpu"): 16,
    }  # fmt: skip
    now, most = (told(families, f"pcie_bytes_per_second{end}", "device") for end in ("", "_max"))
    shares = {device: now[device] / most[device] for device in now}
    assert shares == {("0000:18:00.0",): 0.5, ("0000:1a:00.0",): 1, ("0000:38:00.0",): 1}
    assert told(families, "pcie_acs_redirect", "device") == {
        ("0000:18:00.0",): 0, ("0000:1a:00.0",): 1, ("0000:38:00.0",): 1,
    }  # fmt: skip


def test_adapters_and_interfaces_are_found_through_their_links(sys: Path) -> None:
    """Ports of the adapter and of its virtual function, physical interfaces and the bond."""
    families = infiniband.collect(look(sys)).families
    assert told(families, "infiniband_up", "device", "port") == {
        ("mlx5_9", "1"): 1, ("mlx5_10", "1"): 0,
    }  # fmt: skip
    assert told(families, "infiniband_rate_bytes_per_second", "device") == {
        ("mlx5_9",): 50e9, ("mlx5_10",): 0.3125e9,
    }  # fmt: skip
    assert told(families, "infiniband_bytes_total", "device", "direction") == {
        ("mlx5_9", "transmit"): 1000, ("mlx5_9", "receive"): 2**64,
    }  # fmt: skip
    assert told(families, "infiniband_errors_total", "kind") == {
        ("symbol_error",): 3, ("req_transport_retries_exceeded",): 5,
    }  # fmt: skip
    families = Network().collect(look(sys)).families
    assert told(families, "network_speed_bytes_per_second", "interface") == {
        ("ibp26s0",): 50e9, ("bond0",): 50e9,
    }  # fmt: skip


def test_virtual_functions_take_no_place_of_an_adapter(sys: Path) -> None:
    """A node with hundreds of them shows its adapters first."""
    two = Pci("0000:17:04.0", Pci("0000:16:00.0", Pci("0000:15:01.0", None)))
    for number in range(40):
        one = Pci(f"0000:1a:{number + 1:02x}.0", two, ADAPTER, physical="0000:1a:00.0")
        plant(sys, one)
        adapter(sys, one, f"mlx5_1{number:02}", port())
    result = infiniband.collect(look(sys))
    devices = [labels["device"] for labels, _ in result.families.samples("leadline_infiniband_up")]
    assert len(devices) == infiniband.MAX_PORTS
    assert devices[0] == "mlx5_9"
    assert result.problem


COUNTS = st.integers(0, 2**64 - 1)
NAMES = st.sampled_from((*infiniband.ERRORS, *infiniband.HARDWARE))


@given(
    st.dictionaries(NAMES, COUNTS), st.integers(0, 0x7F), st.sampled_from((UPSTREAM, DOWNSTREAM)),
    st.sampled_from(("1", "2", "4", "8", "16", "32")), st.sampled_from((G4, G5, "2.5 GT/s PCIe")),
)  # fmt: skip
def test_every_reading_is_what_stands_in_the_tree(
    counts: dict[str, int], acs: int, kind: int, lanes: str, speed: str
) -> None:
    """Whatever counters an adapter has, however its link runs, and each bit of ACS."""
    with TemporaryDirectory() as folder:
        sys = Path(folder) / "sys"
        root = Pci("0000:15:01.0", None, kind=ROOT, acs=0)
        above = Pci("0000:16:00.0", root, kind=kind, acs=acs)
        nic = Pci("0000:17:00.0", above, ADAPTER, now=(speed, lanes), most=(G5, "32"))
        for device in (root, above, nic):
            plant(sys, device)
        files = {
            f"{'counters' if name in infiniband.ERRORS else 'hw_counters'}__{name}": value
            for name, value in counts.items()
        }
        adapter(sys, nic, "mlx5_0", port(**files))
        families = infiniband.collect(look(sys)).families
        assert told(families, "infiniband_errors_total", "kind") == {
            (name.lower(),): value for name, value in counts.items()
        }  # fmt: skip
        families = Pcie().collect(look(sys)).families
        assert told(families, "pcie_lanes", "device") == {("0000:17:00.0",): int(lanes)}
        assert told(families, "pcie_lanes_max", "device") == {("0000:17:00.0",): 16}
        # Of the ports above, a switch's towards devices counts; else all, the root's zero too.
        (redirects,) = told(families, "pcie_acs_redirect").values()
        assert redirects == bool(acs & 0b11100)
