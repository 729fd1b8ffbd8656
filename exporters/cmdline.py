"""What a vLLM command line says of its server, and what a process title says of its process.

Only the options named here are kept: a key on the command line is never stored, logged or served.
The environment is not read at all: keys live there too, and vLLM takes none of these from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from catalog.labels import ProcessKind, without_credentials

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")
_MODULES: Final = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")
_CLI: Final = ("vllm.entrypoints.cli.main", "vllm")
_PYTHON_FLAGS_WITH_VALUE: Final = ("-W", "-X")
_SHORT: Final = {
    "-tp": "tensor-parallel-size", "-dp": "data-parallel-size", "-pp": "pipeline-parallel-size",
    "-ep": "enable-expert-parallel", "-dpr": "data-parallel-start-rank",
    "-dpn": "data-parallel-rank",
}  # fmt: skip
_KEPT: Final = frozenset(
    {
        *_SHORT.values(), "host", "port", "uds", "model", "served-model-name", "config", "headless",
        "kv-transfer-config", "ec-transfer-config", "ssl-certfile", "ssl-keyfile",
    }
)  # fmt: skip
_KINDS: Final[dict[str, ProcessKind]] = {
    "APIServer": "api_server",
    "EngineCore": "engine_core",
    "Worker": "worker",
    "DPCoordinator": "dp_coordinator",
}
# VLLM::EngineCore_DP3; the prefix is set by VLLM_PROCESS_NAME_PREFIX.
_TITLE = re.compile(rf"[^/\s]{{0,64}}?::({'|'.join(_KINDS)})(?:_([A-Za-z0-9_]{{1,64}}))?")
# Only these go out as labels: anything may stand on a command line, a key too.
_KV_ROLES: Final = ("kv_producer", "kv_consumer", "kv_both")
_CONNECTOR = re.compile(r"[A-Za-z0-9_.]{1,64}")
DEFAULT_PORT: Final = 8000


class Title(NamedTuple):
    """What a process title says: which kind of process, and its rank as written or empty."""

    kind: ProcessKind
    rank: str


@dataclass(frozen=True)
class Launch:
    """A vLLM API server as its command line asks for it.

    Attributes:
        model: Name that its metrics carry: the first served name, else the model; may be empty.
        host: As given; empty for all addresses.
        port: Of the API.
        tls: Whether it speaks https.
        headless: It serves no API (a further node of one server), or only a Unix socket.
        kv_role: One that vLLM knows, or empty.
        kv_connector: As given, or empty; None where the command line does not tell a name.
        encoder: It makes embeddings for others (`ec_producer`).
        tensor_parallel, pipeline_parallel, data_parallel: Sizes as given, 1 by default; empty
            where the command line does not tell.
        expert_parallel: Whether experts are spread over ranks.
    """

    model: str = ""
    host: str = ""
    port: int = DEFAULT_PORT
    tls: bool = False
    headless: bool = False
    kv_role: str = ""
    kv_connector: str | None = ""
    encoder: bool = False
    tensor_parallel: str = "1"
    pipeline_parallel: str = "1"
    data_parallel: str = "1"
    expert_parallel: bool = False


def title(cmdline: bytes) -> Title | None:
    """Return what the title of a vLLM process says; None for any other process."""
    text = cmdline.rstrip(b"\0 ")
    if b"::" not in text[:80] or b"\0" in text:
        return None
    match = _TITLE.fullmatch(text.decode("utf-8", "replace"))
    return Title(_KINDS[match[1]], match[2] or "") if match else None


def launch(cmdline: bytes) -> Launch | None:
    """Return what the command line of a vLLM API server asks for; None for any other process."""
    if b"vllm" not in cmdline:
        return None
    words = [word.decode("utf-8", "replace") for word in cmdline.rstrip(b"\0").split(b"\0")]
    arguments = _server_arguments(words)
    return None if arguments is None else _launch(arguments)


def _server_arguments(words: Sequence[str]) -> Sequence[str] | None:
    """Return the arguments of `vllm serve` or of its module; None if it is neither.

    A shell, `timeout` or `grep` that merely names vLLM is not the server.
    """
    name = PurePosixPath(words[0]).name
    if name == "vllm":
        return _after_serve(words[1:])
    return _run_by_python(words) if _PYTHON.fullmatch(name) else None


def _run_by_python(words: Sequence[str]) -> Sequence[str] | None:
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-c"):
        at += 2 if words[at] in _PYTHON_FLAGS_WITH_VALUE else 1
    if at + 1 >= len(words):
        return None
    if words[at] == "-m":
        rest = words[at + 2 :]
        if words[at + 1] in _MODULES:
            return rest
        return _after_serve(rest) if words[at + 1] in _CLI else None
    if words[at].endswith("vllm/entrypoints/openai/api_server.py"):
        return words[at + 1 :]
    return _after_serve(words[at + 1 :]) if PurePosixPath(words[at]).name == "vllm" else None


def _after_serve(words: Sequence[str]) -> Sequence[str] | None:
    """Return the arguments after `serve`, the model given by position spelled as an option."""
    if not words or words[0] != "serve":
        return None
    rest = words[1:]
    return ["--model", *rest] if rest and not rest[0].startswith("-") else rest


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options we keep, as vLLM's parser spells them, with the word that follows."""
    for at, word in enumerate(arguments):
        if not word.startswith("-"):
            continue
        key, has_value, value = word.partition("=")
        key = key[2:].replace("_", "-") if key.startswith("--") else _SHORT.get(key, "")
        if key.partition(".")[0] not in _KEPT:
            continue
        if not has_value and at + 1 < len(arguments) and not arguments[at + 1].startswith("-"):
            value = arguments[at + 1]
        yield key, value


def _launch(arguments: Sequence[str]) -> Launch:
    given = dict(_options(arguments))
    kv, ec = _nested(given, "kv-transfer-config"), _nested(given, "ec-transfer-config")
    connector: str | None = str(kv.get("kv_connector") or "")
    if connector and not _CONNECTOR.fullmatch(connector):
        connector = None  # there is one, by a name that we don't pass on
    if not connector and ("config" in given or "kv-transfer-config" in given):
        connector = None  # said elsewhere, or in a form that we can't read
    port = given.get("port", "")
    role = kv.get("kv_role")
    return Launch(
        model=without_credentials(given.get("served-model-name", "") or given.get("model", "")),
        host=given.get("host", ""),
        port=int(port) if port.isdecimal() and int(port) < 1 << 16 else DEFAULT_PORT,
        tls="ssl-certfile" in given or "ssl-keyfile" in given,
        headless="headless" in given or "uds" in given,
        kv_role=role if isinstance(role, str) and role in _KV_ROLES else "",
        kv_connector=connector,
        encoder=ec.get("ec_role") == "ec_producer",
        tensor_parallel=_size(given, "tensor-parallel-size"),
        pipeline_parallel=_size(given, "pipeline-parallel-size"),
        data_parallel=_size(given, "data-parallel-size"),
        expert_parallel="enable-expert-parallel" in given,
    )


def _size(given: dict[str, str], option: str) -> str:
    """Return a size as given, 1 by default; empty where a file or nonsense says it."""
    value = given.get(option, "" if "config" in given else "1")
    return value if value.isdecimal() and value.isascii() else ""


def _nested(given: dict[str, str], option: str) -> dict[str, object]:
    """Return an option that is JSON, or given key by key (`--option.key value`)."""
    try:
        read = json.loads(given.get(option, "{}"))
    except (ValueError, RecursionError):
        read = None
    found: dict[str, object] = dict(read) if isinstance(read, dict) else {}
    for key, value in given.items():
        if key.startswith(f"{option}."):
            found[key.removeprefix(f"{option}.").replace("-", "_")] = value.strip('"')
    return found
