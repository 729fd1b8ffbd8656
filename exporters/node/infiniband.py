"""Collector `infiniband`: ports of InfiniBand and RoCE adapters: state, rate, bytes and errors.

RDMA passes the kernel by: its bytes are in these counters and not in those of the interfaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from catalog.address import printable
from exporters.families import Families
from exporters.look import Look, Result, Task
from exporters.node import names as node
from exporters.node import proc

MAX_PORTS: Final = 32
MAX_DEVICES: Final = 4096
_WORD: Final = 4  # the data counters count words of four bytes
_GIGABIT: Final = 1e9 / 8
_RATE = re.compile(rb"([0-9]{1,5}(?:\.[0-9]{1,3})?) Gb/sec")
_STATE = re.compile(rb"([0-9]): ")
_ACTIVE: Final = b"4"

_DATA: Final = {"port_xmit_data": "transmit", "port_rcv_data": "receive"}
_PACKETS: Final = {"port_xmit_packets": "transmit", "port_rcv_packets": "receive"}
ERRORS: Final = (
    "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors",
    "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors", "port_xmit_discards",
    "port_xmit_constraint_errors", "port_rcv_constraint_errors", "local_link_integrity_errors",
    "excessive_buffer_overrun_errors", "VL15_dropped",
)  # fmt: skip
HARDWARE: Final = (
    "out_of_buffer", "out_of_sequence", "packet_seq_err", "local_ack_timeout_err",
    "rnr_nak_retry_err", "duplicate_request", "rx_icrc_encapsulated", "req_cqe_error",
    "resp_cqe_error", "req_remote_access_errors", "resp_local_length_error", "implied_nak_seq_err",
    "roce_slow_restart", "roce_adp_retrans", "roce_adp_retrans_to", "resp_remote_access_errors",
    "req_remote_invalid_request", "req_transport_retries_exceeded",
)  # fmt: skip
"""Of `hw_counters`, as mlx5 has them; other drivers have some of them."""
CONGESTION: Final = ("np_cnp_sent", "rp_cnp_handled", "np_ecn_marked_roce_packets")


def tasks(look: Look) -> Mapping[str, Task]:
    """Return the one task of this collector."""
    return {"": Task(partial(collect, look))}


def collect(look: Look) -> Result:
    """Read every port; a node without adapters has none, and a counter that is absent is left out.

    Raises:
        OSError: The folder of adapters is there and can't be read.
    """
    result = Result()
    for number, (device, port, folder) in enumerate(_ports(look.sys / "class" / "infiniband")):
        if number == MAX_PORTS:
            result.problem = f"more than {MAX_PORTS} ports: only the first are shown"
            break
        labels = {**node.place(look), "device": printable(device), "port": port}
        _state(folder, labels, result.families)
        _counters(folder, labels, result.families)
    return result


def _ports(root: Path) -> Iterator[tuple[str, str, Path]]:
    devices = node.entries(root, MAX_DEVICES)
    # Virtual functions, of which there may be hundreds, after the adapters that they are of.
    devices.sort(key=lambda device: (root / device / "device" / "physfn").exists())
    for device in devices:
        for port in node.entries(root / device / "ports", MAX_PORTS + 1):
            if port.isdecimal():
                yield device, port, root / device / "ports" / port


def _state(folder: Path, labels: Mapping[str, str], families: Families) -> None:
    state = _STATE.match(_text(folder / "state"))
    if state:
        families.add("leadline_infiniband_up", labels, float(state[1] == _ACTIVE))
    rate = _RATE.match(_text(folder / "rate"))
    if rate:
        speed = float(rate[1]) * _GIGABIT
        families.add("leadline_infiniband_rate_bytes_per_second", labels, speed)


def _counters(folder: Path, labels: Mapping[str, str], families: Families) -> None:
    standard, hardware = folder / "counters", folder / "hw_counters"
    for name, direction in _DATA.items():
        for value in _count(standard, name):
            told = {**labels, "direction": direction}
            families.add("leadline_infiniband_bytes_total", told, value * _WORD)
    for name, direction in _PACKETS.items():
        for value in _count(standard, name):
            told = {**labels, "direction": direction}
            families.add("leadline_infiniband_packets_total", told, value)
    for value in _count(standard, "port_xmit_wait"):
        families.add("leadline_infiniband_transmit_wait_total", labels, value)
    for place, names, family in (
        (standard, ERRORS, "errors_total"), (hardware, HARDWARE, "errors_total"),
        (hardware, CONGESTION, "congestion_total"),
    ):  # fmt: skip
        for name in names:
            for value in _count(place, name):
                told = {**labels, "kind": name.lower()}
                families.add(f"leadline_infiniband_{family}", told, value)


def _count(folder: Path, name: str) -> Iterator[int]:
    """Yield a counter; nothing where the adapter lacks it or says it is not available."""
    try:
        yield proc.one(folder / name)
    except (OSError, ValueError):
        return


def _text(path: Path) -> bytes:
    try:
        return proc.read(path, 256)
    except OSError:
        return b""
