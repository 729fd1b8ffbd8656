"""NVIDIA's own binding before a driver of our own: a divided GPU and one that falls off the bus.

No such GPUs are on record. Here all but the driver is real: the exporter's process, the binding,
its structures and errors. Skipped where there is no compiler.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.exporter import ROOT, address_of, get

SOURCE = Path(__file__).parent.parent / "fixtures" / "gpu" / "driver.c"


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of an exporter on that driver, and the file whose presence loses a GPU."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path / "libnvidia-ml.so.1"
    flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, "-o", str(library), str(SOURCE)], check=True, timeout=120)
    lost = tmp_path / "lost"
    environment = {
        **os.environ, "LD_LIBRARY_PATH": str(tmp_path), "DRIVER_LOST": str(lost),
        "LEADLINE_EXPORTER__DISCOVER": "false", "LEADLINE_EXPORTER__NODE": "n",
    }  # fmt: skip
    command = [sys.executable, "-m", "leadline", "exporter", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield address_of(process), lost
            assert process.poll() is None
        finally:
            process.terminate()


def page(address: str) -> dict[str, float]:
    """Return the GPUs' series, names without their beginning, labels without node and UUID."""
    found = {}
    for line in get(address).decode().splitlines():
        if match := re.fullmatch(r"leadline_gpu_(\w+)\{(.*)\} (\S+)", line):
            labels = [p for p in match[2].split(",") if not re.match("node|uuid|cluster", p)]
            found[" ".join((match[1], *labels))] = float(match[3])
        elif match := re.fullmatch(r'leadline_collector_success\{collector="gpu"\} (\S+)', line):
            found["success"] = float(match[1])
    return found


def test_divided_and_lost_gpus_through_the_real_binding(exporter: tuple[str, Path]) -> None:
    """Instances by number and profile; a lost GPU is down, with its Xid, and the others stay."""
    address, lost = exporter
    page(address)
    said = page(address)
    assert said["success"] == 1
    expected = {
        'up gpu="0"': 1, 'up gpu="1"': 1, 'up gpu="2"': 1,
        'power_watts gpu="1"': 300, 'utilization_ratio gpu="0"': 1,
        'sm_active_ratio gpu="0"': 0.02, 'row_remap_pending gpu="0"': 1,
        'mig_enabled gpu="0"': 0, 'mig_enabled gpu="1"': 1,
        'mig_memory_used_bytes gpu="1" mig="0" profile="3g.71gb"': 3,
        'mig_memory_used_bytes gpu="1" mig="3" profile="1g.18gb"': 4,
        'mig_memory_total_bytes gpu="1" mig="3" profile="1g.18gb"': 100,
        'other_memory_used_bytes gpu="0"': 1000, 'other_memory_used_bytes gpu="1"': 4000 + 5000,
    }  # fmt: skip
    assert {name: said.get(name) for name in expected} == expected
    for absent in ("utilization_ratio", "sm_active_ratio", "row_remap_pending"):
        assert f'{absent} gpu="1"' not in said
    lost.touch()
    for _ in range(2):
        said = page(address)
        assert said["success"] == 0
        assert {name: value for name, value in said.items() if name.startswith("up ")} == {
            'up gpu="0"': 1, 'up gpu="1"': 1, 'up gpu="2"': 0,
        }  # fmt: skip
        assert said['xid_events_total gpu="2" xid="79"'] == 1
        assert 'power_watts gpu="2"' not in said
        assert said['power_watts gpu="0"'] == said['power_watts gpu="1"'] == 300
    lost.unlink()
    said = page(address)
    assert said["success"] == said['up gpu="2"'] == 1
    assert said['power_watts gpu="2"'] == 300
