"""Targets from files in Prometheus' file_sd format, JSON or YAML, read again when they change.

A group is `{targets: ["host:port", ...], labels: {...}}`. The labels that count are those of the
identity, `kind`, `__scheme__` and `__metrics_path__`; others are Prometheus' affair. A file that
can't be read or understood keeps what it last said, and says so; one that is gone ends its targets.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from catalog import yaml_text
from catalog.address import http_address, printable, shown
from catalog.config_targets import known_kind, known_pool
from exporters.targets.wanted import Wanted

MAX_BYTES: Final = 4 << 20
MAX_FILES: Final = 100
MAX_TARGETS: Final = 10_000
_LABELS: Final = ("pool", "deployment", "namespace", "model_name", "server", "node", "kind")
_UNREADABLE: Final = (ValueError, LookupError, AttributeError, TypeError, RecursionError)


@dataclass
class _File:
    """What a file last said, and the state in which it said so."""

    stamp: tuple[int, int, int] = (0, 0, 0)
    wanted: tuple[Wanted, ...] = ()
    problem: str = ""


class FileSd:
    """Remembers what each file says.

    Args:
        patterns: Paths, with `*` where a pattern is meant.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = patterns
        self._files: dict[str, _File] = {}
        self.wanted: list[Wanted] = []
        self.problem = ""

    def refresh(self) -> None:
        """Look at the files again; `wanted` and `problem` are what they say now."""
        paths: dict[str, None] = {}
        missing: list[str] = []
        for pattern in self._patterns:
            found = sorted(glob.iglob(pattern))[:MAX_FILES]  # noqa: PTH207 - a pattern, not a path
            paths.update(dict.fromkeys(found))
            if not found and not glob.has_magic(pattern):
                missing.append(f"{pattern}: no such file")
        self._files = {path: self._read(path) for path in paths}
        self.wanted = [w for file in self._files.values() for w in file.wanted][:MAX_TARGETS]
        problems = [file.problem for file in self._files.values() if file.problem]
        self.problem = "; ".join(printable(problem) for problem in (*missing, *problems))

    def _read(self, path: str) -> _File:
        file = self._files.get(path) or _File()
        try:
            with Path(path).open("rb") as opened:
                text = opened.read(MAX_BYTES + 1)
                stamp = (hash(text), len(text), 1)
        except OSError as error:
            return _File(file.stamp, file.wanted, f"{path}: {error.strerror}, kept as it was")
        if stamp == file.stamp:
            return file
        try:
            return _File(stamp, parse(path, text))
        except _UNREADABLE as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            return _File(stamp, file.wanted, f"{path}: {reason[:200]}; kept as it was")


def parse(path: str, text: bytes) -> tuple[Wanted, ...]:
    """Return the targets in a file.

    Raises:
        ValueError: One line that says what is wrong.
    """
    if len(text) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
    read = json.loads(text) if path.endswith(".json") else yaml_text.read(text)
    if read is None:
        return ()
    if not isinstance(read, list):
        raise ValueError("must be a list of {targets: [...], labels: {...}}")
    found = [w for number, group in enumerate(read) for w in _group(path, number, group)]
    if len(found) > MAX_TARGETS:
        raise ValueError(f"more than {MAX_TARGETS} targets")
    return tuple(found)


def _group(path: str, number: int, group: Any) -> list[Wanted]:
    if not isinstance(group, Mapping) or not isinstance(group.get("targets"), list):
        raise ValueError(f"group {number} has no list of targets")
    labels = group.get("labels") or {}
    if not isinstance(labels, Mapping):
        raise ValueError(f"group {number}: labels are no mapping")
    told: dict[str, Any] = {n: _word(number, n, labels[n]) for n in _LABELS if labels.get(n)}
    known_pool(told.get("pool", ""))
    known_kind(told.get("kind", "vllm"))
    scheme = _word(number, "__scheme__", labels.get("__scheme__", "http"))
    page = _word(number, "__metrics_path__", labels.get("__metrics_path__", "/metrics"))
    if not page.startswith("/"):
        raise ValueError(f"group {number}: __metrics_path__ {shown(page)} is no path")
    whole = []
    for target in group["targets"]:
        if not isinstance(target, str) or "/" in target:
            raise ValueError(f"group {number}: {shown(target)} is no host:port")
        url = http_address(f"{scheme}://{target}{page}", "host:port")
        whole.append(Wanted(url, f"{path}: group {number}", **told))
    return whole


def _word(number: int, name: str, value: Any) -> str:
    """Return a label's value as text; a list or mapping is none.

    Raises:
        ValueError: It is none.
    """
    if isinstance(value, list | Mapping):
        raise ValueError(f"group {number}: label {name} is no text")
    return str(value)
