"""Runs the checks in the order in which data flows, and says what follows from them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from catalog.config import Config
from catalog.signals import SIGNALS
from catalog.units import human
from reports.doctor import alerting, pools, rules, server
from reports.doctor.line import Asks, Line, counted
from store.api import Api
from store.errors import StoreError

WELL: Final = 0
NOT_WELL: Final = 1
_LONGEST_WAIT: Final = 10.0
"""Seconds that somebody who waits for an answer gives a server."""
Open = Callable[[str, str], Asks]


def run(config: Config, file: Path | None, expected: Sequence[rules.Rule]) -> int:
    """Print one line for each check.

    Args:
        config: As loaded.
        file: Where from; None: defaults.
        expected: Our rules for this configuration.

    Returns:
        0: nothing fails; 1: something does.
    """

    def connect(url: str, token: str = "") -> Asks:
        timeout = min(config.prometheus.timeout, _LONGEST_WAIT)
        return Api(url, timeout=timeout, bearer_token_file=token)

    states = []
    for line in examine(config, file, expected, connect):
        print(line, flush=True)
        states.append(line.state)
    counts = ", ".join(
        f"{states.count(state)} {state}" for state in ("ok", "warn", "fail", "unknown")
    )
    print(f"{counts}.")
    return NOT_WELL if "fail" in states else WELL


def examine(
    config: Config, file: Path | None, expected: Sequence[rules.Rule], connect: Open
) -> Iterator[Line]:
    """Yield what each check found; *connect* opens an address with a file of a token."""
    yield _configuration(config, file)
    prometheus = connect(config.prometheus.url, config.prometheus.bearer_token_file)
    living = server.alive(prometheus)
    yield living
    firing = False
    if living.state == "ok":
        yield server.clock(prometheus, time.time())
        now = prometheus.date or time.time()  # what it says of itself is by its own clock
        yield from _guarded("rules", lambda: rules.rules(prometheus, expected, now))
        yield from _guarded("targets", lambda: server.targets(prometheus))
        yield from _guarded("pools", lambda: pools.pools(prometheus))
        detector = list(_guarded("detector", lambda: alerting.service(prometheus, config, now)))
        firing = all(line.state == "ok" for line in detector)
        yield from detector
        yield alerting.sends(prometheus)
    if not config.alertmanager.urls:
        said = "none is configured: what the detector finds pages nobody"
        remedy = "write alertmanager: {urls: [http://host:9093]}, or give --alertmanager"
        yield Line("fail", "alertmanager", said, remedy)
    for url in config.alertmanager.urls:
        yield from alerting.route(connect(url, ""), firing=firing)


def _configuration(config: Config, file: Path | None) -> Line:
    """Return what the configuration comes to."""
    sla = ", ".join(f"{n} {human(v, SIGNALS[n].unit)}" for n, v in sorted(config.sla.items()))
    scopes = sum(len(one.models) + 1 for one in config.deployments.values())
    parts = [f"SLA {sla}", counted(len(config.limits), "limit")]
    parts += (
        [f"{counted(scopes, 'deployment or model')} with bounds of their own"] if scopes else []
    )
    return Line("ok", "config", f"{file or 'defaults and variables'}: {', '.join(parts)}")


def _guarded(about: str, check: Callable[[], Iterator[Line]]) -> Iterator[Line]:
    """Yield the lines of a check; what keeps it from being made is a line itself."""
    try:
        yield from check()
    except StoreError as error:
        yield Line("fail", about, f"could not be checked: {error}")
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        yield Line("fail", about, f"could not be checked: odd answer ({type(error).__name__})")
