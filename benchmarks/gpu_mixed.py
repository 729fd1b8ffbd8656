"""NVML's binding with more GPUs than a machine has: its own, then ones that answer from a record.

A machine without a driver has replayed ones alone. Calls go by what they are asked about: a handle
of a real GPU goes to the driver as it is, one of a replayed GPU to the record. Samples and sets of
events come from the driver for all, so that real GPUs are asked as without a record.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import sys
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.gpu_record import Replayer

_NAME: Final = "pynvml_of_the_driver"
# Where a sample or a set of events is first used for a GPU, and where it is asked about.
_USED: Final = ("nvmlGpmSampleGet", "nvmlDeviceRegisterEvents")
_ASKED: Final = ("nvmlGpmMetricsGet", "nvmlEventSetWait_v2")


class Replayed:
    """Handle of a replayed GPU.

    Args:
        index: Its number.
    """

    def __init__(self, index: int) -> None:
        self.index = index


class Mixed:
    """Stands in for the binding.

    Args:
        real: The binding; started by this, and left out where there is no driver.
        answers: The record of one GPU.
        gpus: How many GPUs there shall be, the real ones among them.
    """

    def __init__(self, real: Any, answers: Mapping[str, Any], gpus: int) -> None:
        self._library = real
        self._gpus = gpus
        names = (name for name in dir(real) if name.startswith("NVMLError"))
        self._record = Replayer(answers, {name: getattr(real, name) for name in names})
        self._real = count(real)
        self._theirs: set[int] = set()

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - NVML's
        """Return how many GPUs there are."""
        return max(self._real, self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802 - NVML's
        """Return the handle of a GPU, real ones first."""
        if index < self._real:
            return self._library.nvmlDeviceGetHandleByIndex(index)
        return Replayed(index)

    def nvmlDeviceGetUUID(self, handle: Any) -> str:  # noqa: N802 - NVML's
        """Return the name of a GPU."""
        if isinstance(handle, Replayed):
            return f"GPU-00000000-0000-0000-0000-{handle.index:012d}"
        return str(self._library.nvmlDeviceGetUUID(handle))

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._library, name) if self._real else getattr(self._record, name)
        if not self._real or not name.startswith("nvml"):
            return value

        def call(*arguments: Any) -> Any:
            replayed = any(isinstance(a, Replayed) for a in arguments)
            if name in _USED:
                mark = self._theirs.add if replayed else self._theirs.discard
                mark(_address(arguments[-1]))
            elif name in _ASKED:
                about = getattr(arguments[0], "sample1", arguments[0])
                replayed = _address(about) in self._theirs
            return getattr(self._record if replayed else self._library, name)(*arguments)

        return call


def _address(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def count(library: Any) -> int:
    """Start NVML and return how many GPUs the driver shows; 0 without one."""
    try:
        library.nvmlInit()
        return int(library.nvmlDeviceGetCount())
    except library.NVMLError:
        return 0


def beyond(folder: str) -> Any:
    """Return the binding that this one in *folder* hides."""
    path = [one for one in sys.path if one != folder]
    hidden = importlib.machinery.PathFinder.find_spec("pynvml", path)
    if hidden is None or hidden.origin is None:
        raise ImportError("nvidia-ml-py is not installed")
    # It finds itself by its name, to make its errors.
    spec = importlib.util.spec_from_file_location(_NAME, hidden.origin)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module
    spec.loader.exec_module(module)
    return module
