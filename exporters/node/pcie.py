"""Collector `pcie`: the links of GPUs and network adapters, as they are and as they could be.

What a link could be is the least of what the device and the port above it can. Devices are looked
for seldom, their links each time. Access control (ACS) is read where the exporter may: the part of
the configuration space that holds it is shown with CAP_SYS_ADMIN alone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from exporters.look import Look, Result, Task
from exporters.node import names as node
from exporters.node import proc

MAX_DEVICES: Final = 64
LOOK_AGAIN_SECONDS: Final = 300.0
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_SPEED = re.compile(rb"([0-9]{1,3}(?:\.[0-9])?) GT/s")
_KINDS: Final = {"0x02": "network", "0x0300": "gpu", "0x0302": "gpu", "0x1200": "gpu"}
_GPU_MAKERS: Final = ("0x10de", "0x1002")
MAX_LANES: Final = 32
_CAPABILITIES: Final = 0x34  # in the configuration space: where the first one is
_EXPRESS: Final = 0x10
_DOWNSTREAM: Final = 0x6  # type of a port: of a switch, towards devices
_EXTENDED: Final = 0x100
_ACS: Final = 0x0D
_REDIRECTS: Final = 0b11100  # request redirect, completion redirect, upstream forwarding


class Link(NamedTuple):
    """A link: transfers a second and lane in 10^9, and lanes."""

    speed: float
    lanes: int

    @property
    def bytes_per_second(self) -> float:
        """Return what it carries in one direction, after the line's own coding."""
        coding = 0.8 if self.speed <= 5 else 128 / 130 if self.speed <= 32 else 242 / 256
        return self.speed * 1e9 * self.lanes * coding / 8


@dataclass(frozen=True)
class _Found:
    """A device with a link."""

    folder: Path
    kind: str
    most: Link
    acs: bool | None


class Pcie:
    """Reads the links.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._absent = node.Absent()
        self._again = float("-inf")
        self._found: list[_Found] = []

    def tasks(self, look: Look) -> Mapping[str, Task]:
        """Return the one task of this collector."""
        return {"": Task(partial(self.collect, look))}

    def collect(self, look: Look) -> Result:
        """Read the links of all devices that have one.

        Raises:
            OSError: The list of devices is there and can't be read.
        """
        if self._clock() >= self._again:
            self._found = self._search(look.sys / "bus" / "pci" / "devices")
            self._again = self._clock() + LOOK_AGAIN_SECONDS
        result = Result()
        for found in self._found:
            labels = {**node.place(look), "device": found.folder.name, "kind": found.kind}
            now = link(found.folder, "current")
            add = result.families.add
            if now is not None:
                add("leadline_pcie_lanes", labels, now.lanes)
                add("leadline_pcie_lanes_max", labels, found.most.lanes)
                add("leadline_pcie_bytes_per_second", labels, now.bytes_per_second)
                add("leadline_pcie_bytes_per_second_max", labels, found.most.bytes_per_second)
            if found.acs is not None:
                add("leadline_pcie_acs_redirect", labels, float(found.acs))
        return result

    def _search(self, root: Path) -> list[_Found]:
        found: list[_Found] = []
        for name in node.entries(root, 4096):
            folder = root / name
            kind = _kind(folder) if _ADDRESS.fullmatch(name) else ""
            most = _most(folder) if kind else None
            if most is None:
                continue
            if len(found) == MAX_DEVICES:
                self._absent.say("links of some devices", f"more than {MAX_DEVICES} of them")
                break
            found.append(_Found(folder, kind, most, self._acs(folder)))
        return found

    def _acs(self, folder: Path) -> bool | None:
        """Tell whether a port above the device redirects what devices send each other.

        What two devices below one switch send each other meets the switch's downstream ports and
        no root port: that one is asked only where there is no switch.
        """
        told: dict[bool, list[bool]] = {True: [], False: []}
        for above in folder.resolve().parents:
            if not _ADDRESS.fullmatch(above.name):
                break
            try:
                config = proc.read(above / "config", 4096)
            except OSError:
                continue
            if len(config) <= _EXTENDED:
                self._absent.say("state of PCIe access control (ACS)", "needs CAP_SYS_ADMIN")
                return None
            switch = port_type(config) == _DOWNSTREAM
            told[switch].append(bool((acs_control(config) or 0) & _REDIRECTS))
        ports = told[True] or told[False]
        return any(ports) if ports else None


def link(folder: Path, which: str) -> Link | None:
    """Return the `current` or the `max` link of a device; None where it has none that is known."""
    try:
        speed = _SPEED.match(proc.read(folder / f"{which}_link_speed", 64))
        lanes = proc.one(folder / f"{which}_link_width")
    except (OSError, ValueError):
        return None
    # An unknown width is 0 or 255.
    if speed is None or float(speed[1]) <= 0 or not 0 < lanes <= MAX_LANES:
        return None
    return Link(float(speed[1]), lanes)


def port_type(config: bytes) -> int | None:
    """Return what kind of port or device a configuration space is of; None if it isn't PCIe's."""
    at = config[_CAPABILITIES] & 0xFC if len(config) > _CAPABILITIES else 0
    for _ in range(48):
        if not 0x40 <= at <= len(config) - 4:
            return None
        if config[at] == _EXPRESS:
            return config[at + 2] >> 4
        at = config[at + 1] & 0xFC
    return None


def acs_control(config: bytes) -> int | None:
    """Return the ACS control bits of a configuration space; None where there are none."""
    at, seen = _EXTENDED, 0
    while _EXTENDED <= at <= len(config) - 8 and seen < 64:
        header = int.from_bytes(config[at : at + 4], "little")
        if header in (0, 0xFFFFFFFF):
            return None
        if header & 0xFFFF == _ACS:
            return int.from_bytes(config[at + 6 : at + 8], "little")
        at, seen = header >> 20 & 0xFFC, seen + 1
    return None


def _most(folder: Path) -> Link | None:
    own, above = link(folder, "max"), link(folder.resolve().parent, "max")
    if own is None or above is None:
        return own
    return Link(min(own.speed, above.speed), min(own.lanes, above.lanes))


def _kind(folder: Path) -> str:
    """Return what a device is, if it is one that we want; a virtual function has no link."""
    try:
        code = proc.read(folder / "class", 64).decode("ascii", "replace").strip()
        maker = proc.read(folder / "vendor", 64).decode("ascii", "replace").strip()
    except OSError:
        return ""
    kind = _KINDS.get(code[:4]) or _KINDS.get(code[:6], "")
    if (kind == "gpu" and maker not in _GPU_MAKERS) or (folder / "physfn").exists():
        return ""
    return kind
