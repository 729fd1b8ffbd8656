"""`make setup` on a machine that lacks something says in one line what to install."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

OLD = "#!/bin/sh\nexit 1\n"  # the Makefile asks a Python whether it is new enough


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_without_a_new_python_one_line_says_so(tmp_path: Path) -> None:
    """A Python that is too old is passed over, and its absence is one clear line."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("python3", "python3.13", "python3.12", "python3.11"):
        (tools / name).write_text(OLD)
        (tools / name).chmod(0o755)
    make = shutil.which("make") or ""
    done = subprocess.run(
        [make, "-s", "-C", str(ROOT), "setup", f"VENV={tmp_path / 'venv'}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": str(tools), "MAKEFLAGS": ""},
    )
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert lines == [
        "setup: no Python 3.11 or newer on PATH: install python3 and python3-venv, "
        "or name one with make PYTHON=/path/to/python"
    ]
