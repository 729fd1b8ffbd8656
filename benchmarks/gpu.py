"""Record what the GPU collector says while known kernels run: `python -m benchmarks.gpu -o FOLDER`.

Needs a GPU, its driver and PyTorch. For each load the page of the exporter after two scrapes, and
every answer of NVML behind it (from which tests without a GPU replay), go to the folder; beside
them, what each load moved by our own count, to hold GPM's units against.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_record import Recorder, cleaned
from catalog.config import Config
from exporters.gpu.collector import Gpu
from exporters.look import Look
from exporters.targets.cmdline import Launch
from exporters.targets.discovery import Found, Member
from exporters.targets.instances import Instance

SECONDS = 6.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the loads one after the other and write what was read."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("-o", "--output", required=True, type=Path)
    folder: Path = parser.parse_args(argv).output
    folder.mkdir(parents=True, exist_ok=True)
    import pynvml  # noqa: PLC0415 - only where there is a GPU

    recorded, moved = {}, {}
    for name, (load, size) in _loads().items():
        recorder = Recorder(pynvml)
        moved[name] = _during(load, size, recorder, folder / f"{name}.prom")
        recorded[name] = recorder.answers
        print(name, json.dumps(moved[name]), flush=True)
    (folder / "readings.json").write_text(json.dumps(recorded, indent=0, sort_keys=True) + "\n")
    (folder / "moved.json").write_text(json.dumps(moved, indent=1) + "\n")
    return 0


def _loads() -> dict[str, tuple[Callable[[], object], int]]:
    """Return what keeps the GPU busy, by name, and the bytes over a link that each call moves.

    Each call queues a few milliseconds of work.
    """
    import torch  # noqa: PLC0415

    gpu = torch.device("cuda:0")
    square = torch.randn(8192, 8192, device=gpu, dtype=torch.bfloat16)
    big = torch.empty(1 << 30, device=gpu, dtype=torch.bfloat16)
    copy = torch.empty_like(big)
    weights = torch.randn(16384, 16384, device=gpu, dtype=torch.bfloat16)
    few = torch.randn(16384, 16, device=gpu, dtype=torch.bfloat16)
    host = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(1 << 28, dtype=torch.uint8, device=gpu)
    cycles = 12_000_000  # about 6 ms at full clocks

    def idle() -> None:
        time.sleep(0.01)

    loads: dict[str, tuple[Callable[[], object], int]] = {
        "idle": (idle, 0),
        "gemm": (lambda: torch.mm(square, square), 0),
        "copy": (lambda: copy.copy_(big), 0),
        "decode": (lambda: torch.mm(weights, few), 0),
        "spin": (lambda: torch.cuda._sleep(cycles), 0),
        "to_gpu": (lambda: there.copy_(host, non_blocking=True), 1 << 28),
        "from_gpu": (lambda: host.copy_(there, non_blocking=True), 1 << 28),
    }
    if torch.cuda.device_count() > 1:
        peer = torch.empty_like(big, device="cuda:1")
        loads["to_peer"] = (lambda: peer.copy_(big), 1 << 31)
    return loads


def _during(load: Callable[[], object], size: int, nvml: Any, page: Path) -> dict[str, float]:
    """Write the collector's page while *load* runs, and return what it moved and took."""
    import torch  # noqa: PLC0415

    stop = threading.Event()
    calls = [0]

    def work() -> None:
        while not stop.is_set():
            for _ in range(20):
                load()
            torch.cuda.synchronize()
            calls[0] += 20

    worker = threading.Thread(target=work)
    worker.start()
    try:
        collector = Gpu(nvml)
        look = _look()
        time.sleep(2)
        collector.tasks(look)[""].run()
        before, begun = calls[0], time.monotonic()
        time.sleep(SECONDS)
        rate = (calls[0] - before) / (time.monotonic() - begun)
        wall = time.perf_counter()
        result = collector.tasks(look)[""].run()
        took = time.perf_counter() - wall
    finally:
        stop.set()
        worker.join(timeout=30)
    if result.problem:
        print("problem:", result.problem, flush=True)
    page.write_text(cleaned(result.families.write().decode()))
    return {"bytes_per_second": rate * size, "scrape_seconds": took}


def _look() -> Look:
    """Return a look at a node whose one worker is this process."""
    found = Found(os.getpid(), Launch(), "", (Member(os.getpid(), "worker", "DP0_TP0"),))
    labels = {"pool": "decode", "model_name": "m", "server": "gpu-node:8000"}
    instance = Instance(labels, "gpu-node", "", found)
    return Look(Config(), "gpu-node", [instance], Path("/proc"), Path("/sys/fs/cgroup"), 5.0)


if __name__ == "__main__":
    raise SystemExit(main())
