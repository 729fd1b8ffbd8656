"""Every metric by its name: vLLM's, its peers', ours and Prometheus' own `up`."""

from __future__ import annotations

from typing import Final

from catalog.metric import Metric
from catalog.own import OWN
from catalog.peers import PEERS
from catalog.vllm import VLLM

UP: Final = Metric(
    "up", "gauge", "count", "Whether Prometheus' last scrape of a target succeeded: 1 or 0.",
    ("job", "instance"),
)  # fmt: skip

METRICS: Final[dict[str, Metric]] = {m.name: m for m in (*VLLM, *PEERS, *OWN, UP)}


def vllm(name: str) -> Metric:
    """Return vLLM's metric `vllm:<name>`."""
    return METRICS[f"vllm:{name}"]


def ours(name: str) -> Metric:
    """Return our metric `leadline_<name>`."""
    return METRICS[f"leadline_{name}"]
