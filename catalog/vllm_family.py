"""How a family of vLLM is written down: one line for what it shares with the others of its kind."""

from __future__ import annotations

from typing import Final, TypedDict, Unpack

from catalog.metric import Gate, Merge, Metric
from catalog.units import Unit

ENGINE: Final = ("engine", "model_name")
NOT_ON_PREFILL: Final = ("decode", "aggregate", "unknown")

FROZEN: Final = "Set only when an engine step ends, so it freezes at its last value when idle."
NO_ENGINE: Final = "Without a label `engine`: a join by engine has to leave it out."


class More(TypedDict, total=False):
    """What only some families have; see `Metric`."""

    since: str
    until: str
    pools: tuple[str, ...]
    gate: Gate
    lazy: bool
    former: tuple[str, ...]
    varying: tuple[str, ...]
    traps: tuple[str, ...]
    open_labels: bool
    by_pid: tuple[str, ...]
    rust: bool


def counter(
    name: str, unit: Unit, text: str, labels: tuple[str, ...] = (), **more: Unpack[More]
) -> Metric:
    """Return vLLM's counter `vllm:<name>` with the engine's labels and *labels*."""
    more.setdefault("since", "0.11")
    return Metric(f"vllm:{name}", "counter", unit, text, (*ENGINE, *labels), **more)


def gauge(
    name: str,
    unit: Unit,
    text: str,
    labels: tuple[str, ...] = (),
    merge: Merge = "newest",
    **more: Unpack[More],
) -> Metric:
    """Return vLLM's gauge `vllm:<name>`, which stands still while no engine step ends."""
    more.setdefault("since", "0.11")
    more["traps"] = (FROZEN, *more.get("traps", ()))
    return Metric(
        f"vllm:{name}", "gauge", unit, text, (*ENGINE, *labels), merge=merge, **more
    )  # fmt: skip


def histogram(
    name: str,
    unit: Unit,
    text: str,
    bounds: tuple[float, float] | None,
    labels: tuple[str, ...] = (),
    **more: Unpack[More],
) -> Metric:
    """Return vLLM's histogram `vllm:<name>`; None: bounds follow the model's length."""
    more.setdefault("since", "0.11")
    return Metric(
        f"vllm:{name}", "histogram", unit, text, (*ENGINE, *labels), bounds=bounds, **more
    )  # fmt: skip


def bare(metric: Metric, *labels: str) -> Metric:
    """Return *metric* with no labels but *labels*."""
    return Metric(**{**vars(metric), "labels": labels, "traps": (*metric.traps, NO_ENGINE)})
