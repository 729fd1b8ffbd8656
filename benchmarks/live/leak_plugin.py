"""A vLLM plugin that leaks real memory in the EngineCore of one server.

vLLM loads it by its entry point in every process of every server, but only the server whose
environment names a file in LEADLINE_LIVE_LEAK_FILE is touched, and only EngineCore calls
``Scheduler.schedule``. The file holds the bytes to keep per step, read again once in a while, so
that the rig can start, stop and pace the leak while the server runs.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

VARIABLE = "LEADLINE_LIVE_LEAK_FILE"
STEPS_PER_LOOK = 20
_kept: list[bytes] = []


def bytes_per_step(path: str) -> int:
    """How much to keep at each step; nothing while the file is absent or half written."""
    try:
        return max(0, int(Path(path).read_text(encoding="ascii").strip() or "0"))
    except (OSError, ValueError):
        return 0


def register() -> None:
    """Wrap the scheduler's step, in the server that was asked to leak."""
    path = os.environ.get(VARIABLE)
    if path is None:
        return
    # By name: this module is checked where there is no vLLM.
    scheduler = importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler
    original = scheduler.schedule
    state = {"step": 0, "bytes": 0}

    def schedule(self: Any, *arguments: Any, **named: Any) -> Any:
        if state["step"] % STEPS_PER_LOOK == 0:
            state["bytes"] = bytes_per_step(path)
        state["step"] += 1
        if state["bytes"]:
            # Written, not zeroed: untouched zero pages would cost no memory.
            _kept.append(b"\x5a" * state["bytes"])
        return original(self, *arguments, **named)

    scheduler.schedule = schedule
