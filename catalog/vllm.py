"""Every family of a vLLM page from 0.11 to 0.33, by subject, with its gate and its traps.

Written down from the releases 0.11, 0.18, 0.26, 0.32 and 0.33: `since` is the first of them that
has a family. `--disable-log-stats` takes all of `vllm:` away but what the API server counts itself.
"""

from __future__ import annotations

from typing import Final

from catalog.metric import Metric
from catalog.vllm_cache import CACHE, DRAFTS
from catalog.vllm_server import HTTP, OPERATIONS, PROCESS
from catalog.vllm_serving import LATENCY, QUEUES, SHAPES, TOKENS
from catalog.vllm_tiers import OFFLOAD, SIMPLE, TIERING
from catalog.vllm_transfer import MOONCAKE, NIXL, OTHERS

VERSIONS: Final = ("0.11", "0.18", "0.26", "0.32", "0.33")
"""Releases that were read. Those between have what both their neighbours have."""

VLLM: Final[tuple[Metric, ...]] = (
    *LATENCY,
    *TOKENS,
    *SHAPES,
    *QUEUES,
    *CACHE,
    *DRAFTS,
    *NIXL,
    *MOONCAKE,
    *OTHERS,
    *OFFLOAD,
    *TIERING,
    *SIMPLE,
    *OPERATIONS,
    *HTTP,
    *PROCESS,
)
