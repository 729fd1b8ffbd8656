"""Writes down what NVML answers, call by call, and answers the same again without a GPU.

A record is one JSON object of one GPU: a call with its plain arguments -> the last answer. UUIDs,
PCI addresses and process ids are replaced.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final

_VALUE_TYPES: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_GPM: Final = "nvmlGpmMetricsGet"
_HANDLE: Final = {"handle": True}
PID: Final = 4242
"""Stands for every process id in a record."""

_UUID = re.compile(r"GPU-[0-9a-f-]{36}")
_ADDRESS = re.compile(r"\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\b")


def cleaned(said: str) -> str:
    """Return a text with other UUIDs and PCI addresses in place of the machine's."""
    said = _UUID.sub("GPU-00000000-0000-0000-0000-000000000000", said)
    return _ADDRESS.sub(lambda m: m[0].partition(":")[0] + ":1b:00.0", said)


class Recorder:
    """Stands before the binding and keeps what it answers.

    Attributes:
        answers: By call; grows with each.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self.answers: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._library, name)
        if not callable(value) or isinstance(value, type) or not name.startswith("nvml"):
            return value
        return lambda *arguments: self._call(name, value, arguments)

    def _call(self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        try:
            answer = function(*arguments)
        except self._library.NVMLError as error:
            self.answers[key(name, arguments)] = {"error": type(error).__name__}
            raise
        if name == "nvmlDeviceGetCount":
            answer = 1  # calls of a record don't tell GPUs apart
        if name == _GPM:
            request = arguments[0]
            self.answers[_GPM] = {
                str(m.metricId): [m.nvmlReturn, m.value]
                for m in list(request.metrics)[: request.numMetrics]
            }
        else:
            self.answers[key(name, arguments)] = _plain(answer)
        return answer


def key(name: str, arguments: tuple[Any, ...]) -> str:
    """Return the name of a call in a record: handles are left out, there is one GPU in it."""
    return " ".join([name, *(repr(a) for a in arguments if isinstance(a, int | list))])


def _plain(answer: Any) -> Any:
    """Return an answer as JSON: structures by member."""
    if isinstance(answer, bytes | str):
        return cleaned(answer.decode() if isinstance(answer, bytes) else answer)
    if isinstance(answer, int | float | None):
        return answer
    if isinstance(answer, tuple | list | ctypes.Array):
        return [_plain(one) for one in answer]
    return _structure(answer)


def _structure(answer: Any) -> dict[str, Any]:
    if hasattr(answer, "valueType"):
        member = _VALUE_TYPES[answer.valueType] if answer.nvmlReturn == 0 else "ullVal"
        value = getattr(answer.value, member)
        return {"valueType": answer.valueType, "nvmlReturn": answer.nvmlReturn, "is": value}
    if isinstance(answer, ctypes.Structure):
        members = {field[0]: getattr(answer, field[0]) for field in answer._fields_}
    elif isinstance(answer, ctypes._Pointer | ctypes.c_void_p):
        return _HANDLE
    else:
        members = dict(vars(answer))
    if "pid" in members:
        members["pid"] = PID
    return {n: _plain(v) for n, v in members.items() if not isinstance(v, ctypes._Pointer)}


class Replayer:
    """Answers as a record says, by the same calls; what was never asked is not supported.

    Args:
        answers: One record.
        errors: The binding's errors by name, such as `NVMLError_NotSupported`.
    """

    NVML_GPM_METRICS_GET_VERSION = 1

    def __init__(self, answers: Mapping[str, Any], errors: Mapping[str, type[Exception]]) -> None:
        self._answers = answers
        self._errors = errors

    def __getattr__(self, name: str) -> Any:
        if name == "NVMLError" or name.startswith("NVMLError_"):
            if name in self._errors:
                return self._errors[name]
        elif name.startswith("nvml"):
            return lambda *arguments: self._answer(name, arguments)
        raise AttributeError(name)

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        call = key(name, arguments)
        if call not in self._answers:
            raise self._errors["NVMLError_NotSupported"](f"{call} is not on record")
        answer = self._answers[call]
        if isinstance(answer, dict) and "error" in answer:
            raise self._errors[answer["error"]](answer["error"])
        if name == _GPM:
            for metric in arguments[0].metrics[: arguments[0].numMetrics]:
                metric.nvmlReturn, metric.value = answer[str(metric.metricId)]
            return None
        return _lively(answer)

    def c_nvmlGpmMetricsGet_t(self) -> SimpleNamespace:  # noqa: N802 - NVML's
        """Return an empty request."""
        metrics = [SimpleNamespace(metricId=0, value=0.0, nvmlReturn=0) for _ in range(32)]
        return SimpleNamespace(metrics=metrics, numMetrics=0)


def _lively(answer: Any) -> Any:
    """Return a plain answer with attributes in place of keys."""
    if isinstance(answer, list):
        return [_lively(one) for one in answer]
    if isinstance(answer, dict) and "valueType" in answer:
        value = SimpleNamespace(**dict.fromkeys(_VALUE_TYPES, answer["is"]))
        return SimpleNamespace(
            valueType=answer["valueType"], nvmlReturn=answer["nvmlReturn"], value=value
        )
    if isinstance(answer, dict):
        return SimpleNamespace(**{name: _lively(one) for name, one in answer.items()})
    return answer
