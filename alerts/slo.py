"""Service levels and limits of the configuration as constant series, `leadline_slo_target`.

Prometheus itself then holds them: rules, panels and detectors join on them. A second group gives
every series of a bounded signal its own target, the nearest scope first, as `Config.limit` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from alerts.recording import INTERVAL
from catalog.config import Bound, Config
from catalog.signals import METRICS, SIGNALS, target_expr, target_record


def groups(config: Config) -> list[dict[str, Any]]:
    """Return the groups of `slo.yml`."""
    constants = [_constant(*scope) for scope in _bounds(config)]
    signals = sorted({rule["labels"]["signal"] for rule in constants})
    nearest = [
        {"record": target_record(SIGNALS[name]), "expr": target_expr(SIGNALS[name])}
        for name in signals
    ]
    named = (("leadline-slo", constants), ("leadline-targets", nearest))
    return [{"name": name, "interval": INTERVAL, "rules": rules} for name, rules in named if rules]


def sla_signals(config: Config) -> list[str]:
    """Return the signals that have a service level in any scope."""
    return sorted({name for bound, _, _ in _scopes(config) for name in bound.sla})


def _scopes(config: Config) -> Iterator[tuple[Bound, str, str]]:
    """Yield every scope with its deployment and model, widest first."""
    yield config, "", ""
    for name, deployment in config.deployments.items():
        yield deployment, name, ""
        for model, bound in deployment.models.items():
            yield bound, name, model


def _bounds(config: Config) -> Iterator[tuple[str, float, str, str]]:
    for bound, deployment, model in _scopes(config):
        for signal, value in sorted({**bound.sla, **bound.limits}.items()):
            yield signal, value, deployment, model


def _constant(signal: str, value: float, deployment: str, model: str) -> dict[str, Any]:
    labels = {"signal": signal, "deployment": deployment, "model_name": model}
    return {
        "record": METRICS["leadline_slo_target"].name,
        "expr": f"vector({value!r})",
        "labels": {name: text for name, text in labels.items() if text},
    }
