"""Collector `network`: bytes, packets, errors and drops of the node's physical interfaces.

Virtual ones (a pair for each pod, bridges, tunnels) carry the same bytes again and come and go:
they are left out, bonds apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from catalog.address import printable
from exporters.families import Families
from exporters.look import Look, Result, Task
from exporters.node import names as node
from exporters.node import proc

MAX_INTERFACES: Final = 32
_VIRTUAL: Final = (
    "lo", "veth", "docker", "br-", "cali", "cilium", "lxc", "flannel", "cni", "tunl", "ifb",
    "dummy", "vxlan", "vnet", "virbr", "tap", "tun", "kube", "nodelocaldns", "gre", "sit", "wg",
)  # fmt: skip
# What the columns of /proc/net/dev count, and where they begin for each direction.
_COLUMNS: Final = {"bytes": 0, "packets": 1, "errors": 2, "drops": 3}
_DIRECTIONS: Final = {"receive": 0, "transmit": 8}
_NUMBERS: Final = 16
_MEGABIT: Final = 1e6 / 8


class Network:
    """Reads the interfaces."""

    def __init__(self) -> None:
        self._absent = node.Absent()

    def tasks(self, look: Look) -> Mapping[str, Task]:
        """Return the one task of this collector."""
        return {"": Task(partial(self.collect, look))}

    def collect(self, look: Look) -> Result:
        """Read all interfaces that have a device behind them.

        Raises:
            ValueError: The table makes no sense.
        """
        result = Result()
        try:
            table = _table(look.proc)
        except OSError as error:
            self._absent.say("network interfaces", error)
            return result
        counted = {
            name: numbers
            for name, numbers in counters(table).items()
            if _wanted(look.sys / "class" / "net", name)
        }
        if len(counted) > MAX_INTERFACES:
            self._absent.say("series of some interfaces", f"more than {MAX_INTERFACES} of them")
        for name in sorted(counted)[:MAX_INTERFACES]:
            labels = {**node.place(look), "interface": printable(name)}
            _add(counted[name], labels, result.families)
            _link(look.sys / "class" / "net" / name, labels, result.families)
        return result


def _table(root: Path) -> bytes:
    """Return the table of the host's network, which is that of its first process."""
    try:
        return proc.read(root / "1" / "net" / "dev")
    except OSError:
        return proc.read(root / "net" / "dev")


def counters(data: bytes) -> dict[str, list[int]]:
    """Return the numbers of each interface, as in /proc/net/dev.

    Raises:
        ValueError: A line makes no sense.
    """
    found: dict[str, list[int]] = {}
    for line in data.split(b"\n")[2:]:
        name, colon, rest = line.rpartition(b":")
        if not colon:
            continue
        numbers = [proc.number(word) for word in rest.split()]
        if len(numbers) != _NUMBERS:
            raise ValueError(f"{len(numbers)} numbers instead of {_NUMBERS} in /proc/net/dev")
        found[name.strip().decode("ascii", "replace")] = numbers
    return found


def _wanted(folder: Path, name: str) -> bool:
    """Tell whether an interface is physical or a bond, by sysfs, else by its name."""
    if "/" in name or name in ("", ".", ".."):
        return False
    if (folder / name).exists():
        return (folder / name / "device").exists() or (folder / name / "bonding").exists()
    return not name.startswith(_VIRTUAL)


def _add(numbers: list[int], labels: Mapping[str, str], families: Families) -> None:
    for what, column in _COLUMNS.items():
        for direction, first in _DIRECTIONS.items():
            told = {**labels, "direction": direction}
            families.add(f"leadline_network_{what}_total", told, numbers[first + column])


def _link(folder: Path, labels: Mapping[str, str], families: Families) -> None:
    """Add speed and state; an interface that is down, or virtual, tells no speed."""
    try:
        state = proc.read(folder / "operstate", 64).strip()
        if state in (b"up", b"down"):
            families.add("leadline_network_up", labels, float(state == b"up"))
        changes = proc.one(folder / "carrier_changes")
        families.add("leadline_network_carrier_changes_total", labels, changes)
        speed = proc.one(folder / "speed")
    except (OSError, ValueError):
        return
    if 0 < speed < 1 << 32 - 1:
        families.add("leadline_network_speed_bytes_per_second", labels, speed * _MEGABIT)
