"""What a vLLM command line says of its server, and what a process title says of its process.

Only what is named here is kept: a key on the command line is never stored, logged or served. Of
the environment only an allow-list is looked at (`settings.ENVIRONMENT`): keys live there too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from catalog.labels import ProcessKind, without_credentials
from exporters.targets import settings
from exporters.targets.arguments import Options, options
from exporters.targets.ranks import Ranks, ranks

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")
_MODULES: Final = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")
_CLI: Final = ("vllm.entrypoints.cli.main", "vllm")
_PYTHON_FLAGS_WITH_VALUE: Final = ("-W", "-X")
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
DEFAULT_PORT: Final = 8000
_OFF: Final = ("", "0", "false", "False")


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
        ranks: How its data-parallel group is laid out.
        settings: What else it is set up with, by label; without empty values.
        arguments: Hash of all its settings, equal for servers that are set up alike.
        image: Its container's image where the environment tells it, or empty.
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
    ranks: Ranks = field(default=Ranks(), compare=False)
    settings: Mapping[str, str] = field(default_factory=dict, compare=False)
    arguments: str = field(default="", compare=False)
    image: str = field(default="", compare=False)


def title(cmdline: bytes) -> Title | None:
    """Return what the title of a vLLM process says; None for any other process."""
    text = cmdline.rstrip(b"\0 ")
    if b"::" not in text[:80] or b"\0" in text:
        return None
    match = _TITLE.fullmatch(text.decode("utf-8", "replace"))
    return Title(_KINDS[match[1]], match[2] or "") if match else None


def launch(
    cmdline: bytes,
    config: Callable[[str], Sequence[str] | None] = lambda _: None,
    environ: Callable[[], Mapping[str, str]] = dict,
) -> Launch | None:
    """Return what the command line of a vLLM API server asks for; None for any other process.

    Args:
        cmdline: As /proc shows it.
        config: Reads the file of `--config` as more arguments; None if it can't.
        environ: Reads those variables of its environment that matter.
    """
    if b"vllm" not in cmdline:
        return None
    words = [word.decode("utf-8", "replace") for word in cmdline.rstrip(b"\0").split(b"\0")]
    arguments = _server_arguments(words)
    if arguments is None:
        return None
    given = options(arguments)
    if "config" in given:
        more = config(given.text("config"))
        # In front of the rest: what the command line itself says comes later and wins.
        given = replace(options([*(more or ()), *arguments]), whole=more is not None)
    return _launch(given, environ())


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


def _launch(given: Options, environ: Mapping[str, str]) -> Launch:
    kv, ec = given.table("kv-transfer-config"), given.table("ec-transfer-config")
    role = (kv or {}).get("kv_role")
    return Launch(
        model=without_credentials(given.text("served-model-name") or given.text("model")),
        host=given.text("host"),
        port=_port(given),
        tls="ssl-certfile" in given or "ssl-keyfile" in given,
        headless=bool(given.flag("headless")) or "uds" in given,
        kv_role=role if isinstance(role, str) and role in _KV_ROLES else "",
        kv_connector=_connector(given, kv),
        encoder=(ec or {}).get("ec_role") == "ec_producer",
        tensor_parallel=_size(given, "tensor-parallel-size"),
        pipeline_parallel=_size(given, "pipeline-parallel-size"),
        data_parallel=_size(given, "data-parallel-size"),
        expert_parallel=bool(given.flag("enable-expert-parallel")),
        ranks=ranks(given, lazy=environ.get("VLLM_USE_RUST_FRONTEND", "0") not in _OFF),
        settings=settings.settings(given, environ),
        arguments=settings.fingerprint(given, environ),
        image=settings.image(environ.get(settings.IMAGE_VARIABLE, "")),
    )


def _port(given: Options) -> int:
    port = given.text("port")
    sound = port.isdecimal() and port.isascii() and len(port) <= 5
    return int(port) if sound and int(port) < 1 << 16 else DEFAULT_PORT


def _connector(given: Options, kv: Mapping[str, object] | None) -> str | None:
    name = str((kv or {}).get("kv_connector") or "")
    if name:  # by one that we don't pass on it is not known
        return name if settings.CONNECTOR.fullmatch(name) else None
    # Said elsewhere, or in a form that we can't read.
    return "" if given.whole and "kv-transfer-config" not in given else None


def _size(given: Options, option: str) -> str:
    """Return a size as given, 1 by default; empty where a file or nonsense says it."""
    value = given.text(option) if option in given else ("1" if given.whole else "")
    return value if value.isdecimal() and value.isascii() else ""
