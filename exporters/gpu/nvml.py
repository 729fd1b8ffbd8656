"""Asks NVML: what a GPU, driver or permission can't tell is None; what fails is an NVMLError."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

# Answers that mean "there is no such thing here". NVML says invalid argument for a link or an
# instance number that this GPU lacks.
_CANNOT: Final = (
    "NotSupported", "FunctionNotFound", "NoPermission", "NotFound", "InvalidArgument", "NoData",
    "ArgumentVersionMismatch", "Deprecated", "NotReady",
)  # fmt: skip
_GONE: Final = ("GpuIsLost", "Uninitialized", "DriverNotLoaded", "ResetRequired", "GpuNotFound")

# By nvmlValueType_t: the member of the union that holds the number.
_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
ALL_LINKS: Final = 0xFFFFFFFF
"""Scope of a field value: all NVLinks together."""


class Nvml:
    """The NVML binding.

    Args:
        library: pynvml, or what stands in for it.
    """

    def __init__(self, library: Any) -> None:
        self.library = library
        self.error: type[Exception] = library.NVMLError
        self.gone = _errors(library, _GONE)
        self.cannot = _errors(library, _CANNOT)

    def ask(self, function: str, *arguments: Any) -> Any:
        """Return an answer; None where this GPU, driver, binding or user has none.

        Raises:
            NVMLError: The GPU fails.
        """
        call = getattr(self.library, function, None)
        if call is None:
            return None
        try:
            return call(*arguments)
        except self.cannot:
            return None

    def fields(
        self, handle: Any, wanted: Sequence[tuple[int, int]]
    ) -> dict[tuple[int, int], float]:
        """Return field values by field and scope, in one call; those that aren't there left out.

        Raises:
            NVMLError: The GPU fails.
        """
        answers = self.ask("nvmlDeviceGetFieldValues", handle, list(wanted))
        found: dict[tuple[int, int], float] = {}
        for field, answer in zip(wanted, answers or (), strict=False):
            if answer.nvmlReturn == 0 and 0 <= answer.valueType < len(_MEMBERS):
                found[field] = float(getattr(answer.value, _MEMBERS[answer.valueType]))
        return found


def text(value: str | bytes) -> str:
    """Return a text of NVML, which older bindings give as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _errors(library: Any, names: Sequence[str]) -> tuple[type[Exception], ...]:
    found = (getattr(library, f"NVMLError_{name}", None) for name in names)
    return tuple(error for error in found if error is not None)
