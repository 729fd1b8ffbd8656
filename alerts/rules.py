"""All alerting rules: the one place where a module of alerts is registered."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any, Final

from alerts import fallback, node, probe, serving, targets, transfer, watcher
from alerts.recording import INTERVAL
from alerts.rule import Alert
from catalog.config import Config

MODULES: Final[dict[str, Callable[[Config], tuple[Alert, ...]]]] = {
    serving.GROUP: serving.alerts,
    transfer.GROUP: transfer.alerts,
    probe.GROUP: probe.alerts,
    targets.GROUP: targets.alerts,
    node.GROUP: node.alerts,
    watcher.GROUP: watcher.alerts,
    fallback.GROUP: fallback.alerts,
}
"""Group of rules -> what makes them."""

# Slopes over six hours are no cheaper for being asked for twice a minute.
_SLOW: Final = {fallback.GROUP: "5m"}


def all_alerts(config: Config) -> tuple[Alert, ...]:
    """Return every alerting rule."""
    return tuple(alert for module in MODULES.values() for alert in module(config))


def groups(config: Config) -> list[dict[str, Any]]:
    """Return the groups of `alerts.yml`."""
    return [
        {
            "name": name,
            "interval": _SLOW.get(name, INTERVAL),
            "rules": [alert.to_dict(config) for alert in alerts],
        }
        for name, alerts in groupby(all_alerts(config), key=lambda alert: alert.group)
    ]
