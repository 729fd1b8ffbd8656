"""Real quiet series, split by host: tuned on even hosts, reported on odd ones.

Data is taken by path and is no part of the project (Alibaba cluster-trace-v2018 memory by host,
InterFusion's ASD, OmniAnomaly's SMD). Every series is shifted to a median of 50 and scaled to GiB
of a place with 100, so that a leak has a known time to its limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.detect_series import GIB
from catalog.panel import FloatArray, Panel

ORIGIN = 1.7e9
LIMIT = 100 * GIB
START = 50.0
SMD_MEMORY = (4, 5, 6, 7, 8)  # columns of SMD that behave like memory: slow, and bounded


@dataclass(frozen=True)
class Hosts:
    """Quiet series of one set: seconds a step and values in bytes, a row each."""

    name: str
    step: float
    values: FloatArray


def load(folder: Path, parity: str) -> list[Hosts]:
    """Return the sets found in *folder*, hosts or series of one *parity* (even, odd or all)."""
    out = []
    if (path := folder / "alibaba_mem_util_percent_1min.csv.gz").is_file():
        frame = pd.read_csv(path)
        out.append(Hosts("alibaba", 60.0, frame.iloc[:, 1:].to_numpy(dtype=np.float64).T))
    if (path := folder / "asd_uint16.npz").is_file():
        with np.load(path) as data:
            rows = [data[f"omi-{i}_train"].T for i in range(1, 7)]
        out.append(Hosts("asd", 300.0, 100 * np.concatenate(rows).astype(np.float64) / 65535))
    if (path := folder / "smd_uint16.npz").is_file():
        with np.load(path) as data:
            names = sorted(name for name in data.files if name.endswith("_train"))
            shortest = min(len(data[name]) for name in names)
            rows = [data[name][:shortest, list(SMD_MEMORY)].T for name in names]
        out.append(Hosts("smd", 60.0, 100 * np.concatenate(rows).astype(np.float64) / 65535))
    return [Hosts(h.name, h.step, _scaled(_chosen(h.values, parity))) for h in out]


def _chosen(values: FloatArray, parity: str) -> FloatArray:
    """Return every second row, or all."""
    return values if parity == "all" else values[{"even": 0, "odd": 1}[parity] :: 2]


def _scaled(values: FloatArray) -> FloatArray:
    """Return *values* with a median of 50 GiB; one per cent is one GiB."""
    shifted: FloatArray = GIB * (START + values - np.nanmedian(values, axis=1, keepdims=True))
    return shifted


def panel(hosts: Hosts, values: FloatArray, end: int) -> Panel:
    """Return the first *end* points of *values*, at most a week of them, as private memory."""
    first = max(0, end - round(7 * 86400 / hosts.step))
    times = ORIGIN + hosts.step * np.arange(first, end, dtype=np.float64)
    labels = tuple({"server": f"host{i}", "node": f"host{i}"} for i in range(len(values)))
    return Panel("host_anon_swap", times, values[:, first:end], labels)
