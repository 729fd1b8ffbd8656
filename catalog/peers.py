"""Metrics of the programs beside vLLM: routers, caches, transfers, and NVIDIA's dcgm-exporter."""

from __future__ import annotations

from typing import Final

from catalog.metric import Metric
from catalog.peers_cache import LMCACHE, NIXL
from catalog.peers_gpu import DCGM, DCGM_OTHERS
from catalog.peers_more import MORE
from catalog.peers_router import EPP_TTFT, ROUTER

__all__ = ["DCGM", "EPP_TTFT", "PEERS"]

PEERS: Final[tuple[Metric, ...]] = (*ROUTER, *LMCACHE, *NIXL, *DCGM.values(), *DCGM_OTHERS, *MORE)
