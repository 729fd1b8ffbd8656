"""Read the memory of a vLLM server's processes straight from /proc.

This is the rig's own measurement, apart from Leadline's exporter, so that a live run can tell
what happened from what Leadline said happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

# setproctitle by vLLM: VLLM::EngineCore, VLLM::EngineCore_DP3, VLLM::Worker, VLLM::Worker_DP0_TP1.
TITLES = {"VLLM::EngineCore": "engine_core", "VLLM::Worker": "worker"}
FIELDS = {
    "RssAnon": "anon",
    "VmSwap": "swap",
    "VmRSS": "rss",
    "RssShmem": "shmem",
    "Threads": "threads",
}


@dataclass(frozen=True)
class Reading:
    """One process at one instant; sizes in bytes."""

    pid: int
    process: str
    rank: str
    start: float
    rss: int
    anon: int
    swap: int
    shmem: int
    threads: int
    fds: int
    cpu_seconds: float


def kind(title: str) -> tuple[str, str] | None:
    """The process kind and the rank that a title tells, None for what is no part of an engine."""
    for prefix, name in TITLES.items():
        if title.startswith(prefix):
            return name, title.split(" ", maxsplit=1)[0].removeprefix(prefix).lstrip("_")
    return None


def read_tree(root: int) -> list[Reading]:
    """Every API server, EngineCore and Worker of the server whose first process is ``root``."""
    return list(_readings(root))


def _readings(root: int) -> Iterator[Reading]:
    try:
        first = psutil.Process(root)
        family = [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in family:
        try:
            told = ("api_server", "") if process.pid == root else kind(_title(process.pid))
            if told is not None:
                yield _read(process, *told)
        except (psutil.Error, OSError):
            continue  # it ended between listing and reading


def _title(pid: int) -> str:
    line = Path(f"/proc/{pid}/cmdline").read_bytes()
    return line.replace(b"\0", b" ").decode(errors="replace").strip()


def _read(process: psutil.Process, name: str, rank: str) -> Reading:
    values = dict.fromkeys(FIELDS.values(), 0)
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    for line in status.splitlines():
        key, _, rest = line.partition(":")
        if key in FIELDS:
            number = int(rest.split()[0])
            values[FIELDS[key]] = number if key == "Threads" else number * 1024
    times = process.cpu_times()
    return Reading(
        pid=process.pid,
        process=name,
        rank=rank,
        start=process.create_time(),
        fds=process.num_fds(),
        cpu_seconds=times.user + times.system,
        **values,
    )
