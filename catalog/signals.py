"""Every signal, made of the helpers in `promql`: the only list there is."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from catalog import promql
from catalog.forms import NOT_DECODE, NOT_PREFILL
from catalog.metrics import METRICS, UP
from catalog.signal import Signal
from catalog.signals_beside import CACHE, ROUTER
from catalog.signals_doubt import DOUBT
from catalog.signals_node import GPU, NODE
from catalog.signals_peers import TRANSFER, USER
from catalog.signals_probe import LOGS, PROBE
from catalog.signals_server import SERVER
from catalog.signals_vllm import SERVING

__all__ = [
    "METRICS", "NOT_DECODE", "NOT_PREFILL", "SIGNALS", "UP", "signal", "target_expr",
    "target_record", "unknown",
]  # fmt: skip

_ALL: Final = (
    *USER, *SERVING, *DOUBT, *TRANSFER, *ROUTER, *CACHE, *NODE, *GPU, *PROBE, *LOGS, *SERVER,
)  # fmt: skip

SIGNALS: Final[dict[str, Signal]] = {s.name: s for s in _ALL}


def target_record(signal: Signal) -> str:
    """Return the name of the recorded series that holds a signal's service level, per series."""
    return f"{signal.level}:leadline_{signal.name}:target"


def target_expr(signal: Signal) -> str:
    """Return the expression of `target_record`."""
    return promql.target(METRICS["leadline_slo_target"], signal.name, signal.record)


def signal(name: str) -> Signal:
    """Return the signal called *name*.

    Raises:
        ValueError: There is none; one line that names the nearest.
    """
    if name in SIGNALS:
        return SIGNALS[name]
    raise ValueError(unknown("signal", name, SIGNALS))


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return one line that says *name* is unknown and names the nearest right one."""
    choices = list(known)
    near = get_close_matches(name, choices, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(choices)}"
    return f"unknown {what} {name!r}: {hint}"
