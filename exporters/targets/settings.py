"""What a server is set up with, as labels: few, short, and never free text of a command line.

A value goes out only if it is a number or looks like one of vLLM's own words; what is there but
looks otherwise is `other`. The hash over all settings leaves out keys, and what differs between
two replicas that are set up alike: addresses, ports, ranks, devices.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from catalog.labels import without_credentials
from exporters.targets.arguments import Options, size

OTHER: Final = "other"
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}(?:-[a-z]{1,16}){0,2}")
_FRACTION = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")
CONNECTOR = re.compile(r"[A-Za-z0-9_.]{1,64}")
MAX_CONNECTORS: Final = 8
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,254}")

ENVIRONMENT: Final = frozenset(
    {
        "VLLM_ALL2ALL_BACKEND", "VLLM_ALLREDUCE_USE_FLASHINFER", "VLLM_ALLREDUCE_USE_SYMM_MEM",
        "VLLM_ATTENTION_BACKEND", "VLLM_BATCH_INVARIANT", "VLLM_COMPUTE_NANS_IN_LOGITS",
        "VLLM_CPU_KVCACHE_SPACE", "VLLM_DEEPEP_BUFFER_SIZE_MB", "VLLM_DEEP_GEMM_WARMUP",
        "VLLM_DISABLE_COMPILE_CACHE", "VLLM_ENABLE_MOE_DP_CHUNK", "VLLM_FLASHINFER_MOE_BACKEND",
        "VLLM_KV_CACHE_LAYOUT", "VLLM_MLA_DISABLE", "VLLM_MOE_DP_CHUNK_SIZE",
        "VLLM_MOE_USE_DEEP_GEMM", "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT",
        "VLLM_NIXL_ABORT_REQUEST_TIMEOUT", "VLLM_ROCM_USE_AITER", "VLLM_SKIP_P2P_CHECK",
        "VLLM_USE_DEEP_GEMM", "VLLM_USE_FLASHINFER_MOE_FP4", "VLLM_USE_FLASHINFER_MOE_FP8",
        "VLLM_USE_FLASHINFER_SAMPLER", "VLLM_USE_NCCL_SYMM_MEM", "VLLM_USE_RUST_FRONTEND",
        "VLLM_USE_SIMPLE_KV_OFFLOAD", "VLLM_USE_V1", "VLLM_USE_V2_MODEL_RUNNER",
        "VLLM_WORKER_MULTIPROC_METHOD",
    }
)  # fmt: skip
"""Variables of a server's environment that are read: what changes how it computes."""

IMAGE_VARIABLE: Final = "VLLM_IMAGE_TAG"
"""Where vLLM's own images say which one they are."""

# Not settings but places: these differ between replicas that are set up alike.
_PLACES: Final = frozenset(
    {
        "config", "data-parallel-address", "data-parallel-rank", "data-parallel-rpc-port",
        "data-parallel-start-rank", "data-parallel-supervisor-port", "device-ids", "headless",
        "host", "master-addr", "master-port", "node-rank", "port", "uds",
        "engine_id", "kv_ip", "kv_port", "kv_rank", "endpoint", "replay_endpoint", "topic",
    }
)  # fmt: skip
_SECRET = re.compile(r"api.?keys?|hf.?token|ssl.*|.*(passw|secret|credential|bearer|auth).*")


def word(value: object) -> str:
    """Return a value that is one of vLLM's words; `other` for anything else that is there."""
    text = value if isinstance(value, str) else ""
    if text and _WORD.fullmatch(text):
        return text
    return OTHER if value not in (None, "") else ""


def number(value: object) -> str:
    """Return a number as digits, with vLLM's suffixes resolved; `other` for anything else."""
    if isinstance(value, bool):
        return OTHER
    text = str(value) if isinstance(value, int | float | str) else ""
    if text in ("", "-1", "auto"):
        return "auto" if text else ""
    return size(text) or (text if _FRACTION.fullmatch(text) else OTHER)


def image(text: str) -> str:
    """Return the name of an image if it is one."""
    return text if _IMAGE.fullmatch(text) else ""


_FLAT: Final[Mapping[str, tuple[str, Callable[[object], str]]]] = {
    "dcp": ("decode-context-parallel-size", number),
    "tool_parser": ("tool-call-parser", word),
    "reasoning_parser": ("reasoning-parser", word),
    "quantization": ("quantization", word),
    "dtype": ("dtype", word),
    "max_model_len": ("max-model-len", number),
    "max_num_seqs": ("max-num-seqs", number),
    "max_num_batched_tokens": ("max-num-batched-tokens", number),
    "kv_cache_dtype": ("kv-cache-dtype", word),
    "block_size": ("block-size", number),
    "gpu_memory_utilization": ("gpu-memory-utilization", number),
    "all2all_backend": ("all2all-backend", word),
    "api_servers": ("api-server-count", number),
}
"""Labels that an option says as it stands."""

_FLAGS: Final = {
    "enable_prefix_caching": "enable-prefix-caching",
    "enable_chunked_prefill": "enable-chunked-prefill",
    "enforce_eager": "enforce-eager",
    "async_scheduling": "async-scheduling",
    "elastic_ep": "enable-elastic-ep",
}


def settings(given: Options, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a command line and its environment say; none that they don't."""
    found = {label: clean(given.text(option)) for label, (option, clean) in _FLAT.items()}
    if given.whole and not found["dcp"]:
        found["dcp"] = "1"
    for label, option in _FLAGS.items():
        flag = given.flag(option)
        found[label] = "" if flag is None else str(flag).lower()
    found |= _speculation(given)
    found["cudagraph_mode"] = _cudagraph_mode(given)
    found["attention_backend"] = _attention_backend(given, environ)
    kv = given.table("kv-transfer-config") or {}
    found["kv_buffer_device"] = word(kv.get("kv_buffer_device"))
    found["kv_connectors"] = "+".join(_connectors(given, environ))
    return {label: value for label, value in found.items() if value}


def _connectors(given: Options, environ: Mapping[str, str]) -> list[str]:
    """Return what moves KV, each by its name: of a MultiConnector those inside it.

    The size of an offload tier sets a connector by itself, in place of any other.
    """
    if given.text("kv-offloading-size") not in ("", "None"):
        backend = word(given.text("kv-offloading-backend")) or "native"
        simple = environ.get("VLLM_USE_SIMPLE_KV_OFFLOAD", "0") not in ("", "0")
        native = "SimpleCPUOffloadConnector" if simple else "OffloadingConnector"
        return [native if backend == "native" else backend]
    kv = given.table("kv-transfer-config") or {}
    extra = kv.get("kv_connector_extra_config")
    inner = extra.get("connectors") if isinstance(extra, Mapping) else None
    if kv.get("kv_connector") != "MultiConnector" or not isinstance(inner, list):
        inner = [kv] if kv.get("kv_connector") else []
    names = [str(one.get("kv_connector")) for one in inner if isinstance(one, Mapping)]
    return [name if CONNECTOR.fullmatch(name) else OTHER for name in names[:MAX_CONNECTORS]]


def _speculation(given: Options) -> dict[str, str]:
    """Return method and depth of drafts; no tokens (rather than nothing) where there are none."""
    table = given.table("speculative-config")
    if table is None:
        return {"spec_method": OTHER}
    method = table.get("method") or given.text("spec-method")
    tokens = table.get("num_speculative_tokens") or given.text("spec-tokens")
    if not table and not method and not tokens and given.whole:
        return {"spec_tokens": "0"}
    return {"spec_method": word(method), "spec_tokens": number(tokens)}


def _cudagraph_mode(given: Options) -> str:
    table = given.table("compilation-config") or {}
    if given.flag("enforce-eager"):
        return "NONE"
    return word(table.get("cudagraph_mode"))


def _attention_backend(given: Options, environ: Mapping[str, str]) -> str:
    table = given.table("attention-config") or {}
    return word(
        given.text("attention-backend")
        or table.get("backend")
        or environ.get("VLLM_ATTENTION_BACKEND")
    )


def fingerprint(given: Options, environ: Mapping[str, str]) -> str:
    """Return a hash of all settings, equal for servers that are set up alike."""
    told: dict[str, Any] = {}
    for name, values in given.flat.items():
        table = given.table(name) if values and values[0][:1] == "{" else None
        told[name] = sorted(values) if table is None else table
    told |= given.nested
    told = {name: _without(value) for name, value in told.items() if _counts(name)}
    whole = [told, {name: environ[name] for name in sorted(ENVIRONMENT & environ.keys())}]
    text = json.dumps(whole, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def _counts(name: str) -> bool:
    return name not in _PLACES and not _SECRET.fullmatch(name.lower())


def _without(value: Any, depth: int = 0) -> Any:
    """Return a value without the keys, places and credentials in it."""
    if depth > 16:
        return None
    if isinstance(value, dict):
        return {k: _without(v, depth + 1) for k, v in value.items() if _counts(str(k))}
    if isinstance(value, list):
        return [_without(v, depth + 1) for v in value]
    return without_credentials(value) if isinstance(value, str) else value
