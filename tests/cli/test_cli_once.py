"""`leadline exporter --once`: what a node's page would be, before anything is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_printed_and_what_is_wrong_told_beside_it(free_port: int) -> None:
    """Standard output is a page that Prometheus reads, standard error says what was not found."""
    url = f"http://127.0.0.1:{free_port}/metrics"
    command = [sys.executable, "-m", "leadline", "exporter", "--once", "--target",
               f"{url},pool=decode,deployment=glm"]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )
    assert done.returncode == 0
    assert "# TYPE leadline_build_info gauge" in done.stdout
    assert 'leadline_collector_success{collector="host"} 1' in done.stdout
    assert f"({url}): connection refused" in done.stderr
    assert "listen" not in done.stderr
