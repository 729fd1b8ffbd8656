"""The live state on disk: after a restart the past of all series need not be read again.

One file, written beside the old one and then put in its place, in numpy's own form and without
pickle: what is read back is arrays and can't be code.
"""

from __future__ import annotations

import logging
import os
import zipfile
import zlib
from pathlib import Path
from typing import Final

import numpy as np

from detectors.drift.live_state import LiveState

log = logging.getLogger("leadline.service")

NAME: Final = "live.npz"


class Checkpoint:
    """The file of one state; trouble with it is told once and never stops anything.

    Attributes:
        path: Where it lies.
        error: Why it can't be written; empty while it can.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.error = ""

    def load(self, step: float, points: int) -> LiveState | None:
        """Return what was saved; None, with one warning, if it can't be used.

        Args:
            step: Seconds a point that it must have.
            points: Points that it must look back on.
        """
        try:
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                state = LiveState.of(arrays)
        except FileNotFoundError:
            return None
        except (
            OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error
        ) as error:  # fmt: skip
            self._unusable(f"{error} ({type(error).__name__})")
            return None
        if (state.step, state.points) != (step, points):
            self._unusable("step or history were others")
            return None
        return state

    def _unusable(self, reason: str) -> None:
        log.warning(
            "live state %s can't be used, the history is read instead: %.200s", self.path, reason
        )

    def save(self, state: LiveState) -> None:
        """Put *state* in the place of what was saved before, whole or not at all."""
        beside = self.path.with_suffix(".new")
        try:
            with beside.open("wb") as file:
                np.savez(file, allow_pickle=False, **state.arrays())
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
        except OSError as error:
            if not self.error:
                log.warning("live state %s can't be written: %s", self.path, error)
            self.error = str(error)
            beside.unlink(missing_ok=True)
            return
        self.error = ""
