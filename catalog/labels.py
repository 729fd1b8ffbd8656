"""Identity labels, the levels that signals are kept by, and the rule that gives a pool."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, get_args

Pool = Literal["prefill", "decode", "aggregate", "encode", "router", "unknown"]
POOLS: Final[tuple[Pool, ...]] = get_args(Pool)

ProcessKind = Literal["api_server", "engine_core", "worker", "dp_coordinator"]
PROCESS_KINDS: Final[tuple[ProcessKind, ...]] = get_args(ProcessKind)

Level = Literal[
    "deployment",
    "pool",
    "position",
    "server",
    "engine",
    "process",
    "container",
    "host",
    "gpu",
]

IDENTITY: Final = (
    "cluster",
    "namespace",
    "deployment",
    "pool",
    "model_name",
    "server",
    "engine",
)

_DEPLOYMENT: Final = ("cluster", "namespace", "deployment", "model_name")
_POOL: Final = ("cluster", "namespace", "deployment", "pool", "model_name")

LEVELS: Final[dict[Level, tuple[str, ...]]] = {
    "deployment": _DEPLOYMENT,
    "pool": _POOL,
    "position": (*_POOL, "position"),
    "server": (*_POOL, "server"),
    "engine": (*_POOL, "server", "engine"),
    "process": (*_POOL, "server", "node", "process", "rank"),
    "container": (*_POOL, "server", "node", "cgroup"),
    "host": ("cluster", "node"),
    "gpu": ("cluster", "node", "gpu", "uuid"),
}
"""Labels that each level keeps. A joined series keeps them all."""

LLMD_ROLE_LABEL: Final = "llm-d.ai/role"
_LLMD_ROLES: Final[dict[str, Pool]] = {
    "prefill": "prefill",
    "decode": "decode",
    "both": "aggregate",
    "prefill-decode": "aggregate",
    "encode": "encode",
}
_KV_ROLES: Final[dict[str, Pool]] = {"kv_producer": "prefill", "kv_consumer": "decode"}


def pool_of(
    *,
    configured: str | None = None,
    role_label: str | None = None,
    kv_role: str | None = None,
    kv_connector: bool | None = None,
) -> Pool:
    """Return the pool of a server by what is known of it, `unknown` rather than a guess.

    Args:
        configured: What the configuration says of this target; wins over all else.
        role_label: Value of the pod label `llm-d.ai/role`.
        kv_role: `kv_role` of `--kv-transfer-config`. `kv_both` says nothing of the role.
        kv_connector: False where the command line is known and names no connector: such a server
            does prefill and decode itself, even where llm-d's guides label it decode.

    Raises:
        ValueError: *configured* is no pool.
    """
    if configured:
        if configured not in POOLS:
            raise ValueError(f"pool {configured!r} is none of {', '.join(POOLS)}")
        return configured
    if role_label and role_label in _LLMD_ROLES:
        role = _LLMD_ROLES[role_label]
        return "aggregate" if role == "decode" and kv_connector is False else role
    if kv_role and kv_role in _KV_ROLES:
        return _KV_ROLES[kv_role]
    return "aggregate" if kv_connector is False else "unknown"


def identity(labels: Mapping[str, str], level: Level) -> dict[str, str]:
    """Return the labels of *level* that *labels* has with a value."""
    return {name: labels[name] for name in LEVELS[level] if labels.get(name)}


_CREDENTIALS = re.compile(r"://[^/@\s]+@")


def without_credentials(text: str) -> str:
    """Return *text* with user and password taken out of any URL in it.

    A model may be named by the URL that it was fetched from.
    """
    return _CREDENTIALS.sub("://", text)
