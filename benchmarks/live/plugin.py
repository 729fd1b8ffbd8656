"""Lay the leak plugin out as an installed package, so that vLLM finds its entry point."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.live import leak_plugin

NAME = "leadline_live_leak"


def lay_plugin(folder: Path) -> Path:
    """Write module and metadata to a folder that goes on PYTHONPATH, and return that folder."""
    metadata = folder / f"{NAME}-1.0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(leak_plugin.__file__, folder / f"{NAME}.py")
    head = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n"
    (metadata / "METADATA").write_text(head, encoding="utf-8")
    entry = f"[vllm.general_plugins]\n{NAME} = {NAME}:register\n"
    (metadata / "entry_points.txt").write_text(entry, encoding="utf-8")
    return folder
