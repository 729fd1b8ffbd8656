"""Record what the GPU collector says while known kernels run: `python -m benchmarks.gpu -o FOLDER`.

Needs a GPU, its driver and PyTorch. For each load the page of the exporter after two scrapes, and
the raw NVML readings behind it (from which tests without a GPU replay), go to the folder.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from catalog.config import Config
from exporters.gpm import METRICS
from exporters.gpu import READINGS, Gpu
from exporters.look import Look

SECONDS = 6.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the loads one after the other and write what was read."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("-o", "--output", required=True, type=Path)
    folder: Path = parser.parse_args(argv).output
    folder.mkdir(parents=True, exist_ok=True)
    import pynvml  # noqa: PLC0415 - only where there is a GPU

    recorded = {}
    for name, load in _loads().items():
        recorded[name] = _during(load, pynvml, folder / f"{name}.prom")
        print(name, json.dumps(recorded[name]), flush=True)
    (folder / "readings.json").write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
    return 0


def _loads() -> dict[str, Callable[[], object]]:
    """Return what keeps the GPU busy, by name; each call queues a few milliseconds of work."""
    import torch  # noqa: PLC0415

    gpu = torch.device("cuda")
    square = torch.randn(8192, 8192, device=gpu, dtype=torch.bfloat16)
    big = torch.empty(1 << 30, device=gpu, dtype=torch.bfloat16)
    copy = torch.empty_like(big)
    weights = torch.randn(16384, 16384, device=gpu, dtype=torch.bfloat16)
    few = torch.randn(16384, 16, device=gpu, dtype=torch.bfloat16)
    cycles = 12_000_000  # about 6 ms at full clocks

    def idle() -> None:
        time.sleep(0.01)

    return {
        "idle": idle,
        "gemm": lambda: torch.mm(square, square),
        "copy": lambda: copy.copy_(big),
        "decode": lambda: torch.mm(weights, few),
        "spin": lambda: torch.cuda._sleep(cycles),
    }


def _during(load: Callable[[], object], nvml: Any, page: Path) -> dict[str, float]:
    """Return raw readings while *load* runs, and write the collector's page."""
    import torch  # noqa: PLC0415

    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            for _ in range(20):
                load()
            torch.cuda.synchronize()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        collector = Gpu(nvml)
        look = Look(Config(), "gpu-node", [], Path("/proc"), Path("/sys/fs/cgroup"), 5.0)
        time.sleep(2)
        collector.tasks(look)[""].run()
        time.sleep(SECONDS)
        result = collector.tasks(look)[""].run()
        handle = nvml.nvmlDeviceGetHandleByIndex(0)
        raw = {r.name: float(r.ask(nvml, handle)) for r in READINGS}
        raw["reasons"] = float(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    finally:
        stop.set()
        worker.join(timeout=30)
    for name in METRICS.values():
        for _, value in result.families.samples(f"leadline_gpu_{name}"):
            raw[name] = 100 * value
    if result.problem:
        raise RuntimeError(result.problem)
    page.write_bytes(result.families.write())
    return raw


if __name__ == "__main__":
    raise SystemExit(main())
