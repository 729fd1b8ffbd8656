"""The options of a vLLM command line, in every spelling that vLLM's own parser takes.

`--a=b` and `--a b`, underscores for hyphens, short names, `--no-a`, JSON values, dotted keys
(`--speculative-config.method mtp`, `-cc.cudagraph_mode=FULL`), `-O`. What is read here may hold
keys: it is looked at by name and let go, never kept, logged or shown as a whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_SHORT: Final = {
    "-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size", "-dp": "data-parallel-size",
    "-dcp": "decode-context-parallel-size", "-pcp": "prefill-context-parallel-size",
    "-ep": "enable-expert-parallel", "-dpn": "data-parallel-rank",
    "-dpr": "data-parallel-start-rank", "-dpl": "data-parallel-size-local",
    "-dpa": "data-parallel-address", "-dpp": "data-parallel-rpc-port",
    "-dpb": "data-parallel-backend", "-dph": "data-parallel-hybrid-lb",
    "-dpe": "data-parallel-external-lb", "-dpm": "data-parallel-multi-port-external-lb",
    "-q": "quantization", "-sc": "speculative-config", "-cc": "compilation-config",
    "-ac": "attention-config", "-O": "compilation-config", "-n": "nnodes", "-r": "node-rank",
}  # fmt: skip
_OPTION = re.compile(r"-(?![0-9.])")  # a negative number is a value
_LEVEL = re.compile(r"-O=?([0-3])")
_SIZE = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,6}))?([kmgtKMGT]?)")
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
MAX_WORDS: Final = 4096
MAX_DEPTH: Final = 16


@dataclass(frozen=True)
class Options:
    """What a command line says.

    Attributes:
        flat: Values of each option as written; a flag that is set has none, one that is unset
            has `false`.
        nested: What options with dotted keys add up to; they win over `flat`, as in vLLM.
        whole: Whether all of it is known: false where a file that it names can't be read.
    """

    flat: Mapping[str, Sequence[str]] = field(default_factory=dict)
    nested: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    whole: bool = True

    def __contains__(self, name: str) -> bool:
        return name in self.flat or name in self.nested

    def text(self, name: str) -> str:
        """Return the first value of an option; empty if it has none."""
        values = self.flat.get(name)
        return values[0] if values else ""

    def flag(self, name: str) -> bool | None:
        """Return whether a flag is set; None where the command line doesn't say."""
        if name not in self.flat:
            return None
        return self.text(name).lower() not in {"false", "0", "no"}

    def table(self, name: str) -> Mapping[str, Any] | None:
        """Return an option that is JSON, or given key by key; None if it can't be read."""
        if name in self.nested:
            return self.nested[name]
        if name not in self.flat:
            return {}
        try:
            read = json.loads(self.text(name))
        except (ValueError, RecursionError):
            return None
        return read if isinstance(read, dict) else None


def options(words: Sequence[str]) -> Options:
    """Return the options among the arguments of a server; of one given twice the last counts."""
    flat: dict[str, Sequence[str]] = {}
    nested: dict[str, dict[str, Any]] = {}
    words = words[:MAX_WORDS]
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not _OPTION.match(word):
            continue
        name, equals, value = _named(word).partition("=")
        values = [value] if equals else []
        while not equals and at < len(words) and not _OPTION.match(words[at]):
            values.append(words[at])
            at += 1
        key, dot, path = _spelled(name).partition(".")
        if dot:
            _put(nested.setdefault(key, {}), path, values[0] if values else "")
        elif key.startswith("no-"):
            flat[key.removeprefix("no-")] = ["false"]
        elif key:
            flat[key] = values
    return Options(flat, nested)


def _named(word: str) -> str:
    """Return a word with `-O3` spelled as the option that it stands for."""
    level = _LEVEL.fullmatch(word)
    return f"--optimization-level={level[1]}" if level else word


def _spelled(name: str) -> str:
    """Return the name of an option as vLLM's parser knows it, without its hyphens in front."""
    key, dot, path = name.partition(".")
    if key.startswith("--"):
        return key[2:].replace("_", "-") + dot + path
    return _SHORT.get(key, "") + dot + path


def _put(into: dict[str, Any], path: str, text: str) -> None:
    """Set a value by its dotted path; `key+` adds to a list."""
    *outer, last = path.removesuffix("+").split(".")[:MAX_DEPTH]
    for key in outer:
        inner = into.get(key)
        into[key] = into = inner if isinstance(inner, dict) else {}
    if path.endswith("+"):
        before = into.get(last)
        into[last] = [*(before if isinstance(before, list) else []), *text.split(",")]
        return
    try:
        into[last] = json.loads(text)
    except (ValueError, RecursionError):
        into[last] = text


def size(text: str) -> str:
    """Return a count as digits: `32k` is 32000, `1K` is 1024, as vLLM reads them; else empty."""
    match = _SIZE.fullmatch(text)
    if match is None or not text.isascii():
        return ""
    whole, fraction, suffix = match.groups()
    if suffix.isupper():
        return "" if fraction else str(int(whole) << 10 * _POWERS[suffix.lower()])
    if fraction and not suffix:
        return ""
    digits = (fraction or "").ljust(3 * _POWERS[suffix], "0")
    return str(int(whole + digits[: 3 * _POWERS[suffix]]))
