"""Collector `probe`: requests of our own through the gateway, every N seconds; off unless told.

They are sent by a thread of their own, one at a time: a scrape tells what they came to, and never
waits for one. The pauses vary by a tenth, so that many probers don't fall into step.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Final

from catalog.config import Config
from exporters.look import Look, Result, Task
from exporters.probe.count import Counts
from exporters.probe.round import Outcome, Prober

_SHORTEST_PAUSE: Final = 1.0
log = logging.getLogger("leadline.probe")


def labels(config: Config) -> dict[str, str]:
    """Return the identity of what is probed."""
    probe = config.exporter.probe
    named = {
        "cluster": config.cluster,
        "namespace": config.namespace,
        "deployment": probe.deployment or config.deployment,
        "model_name": probe.model,
    }
    return {name: value for name, value in named.items() if value}


class Probe:
    """Probes from the first scrape on, until it is closed or nobody holds it any more.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: Counts | None = None
        self._stop = threading.Event()
        weakref.finalize(self, self._stop.set)

    def tasks(self, look: Look) -> Mapping[str, Task]:
        """Return one task if there is something to probe."""
        return {"": Task(lambda: self.collect(look))} if look.config.exporter.probe.url else {}

    def collect(self, look: Look) -> Result:
        """Tell what the probes came to; start them if that wasn't done."""
        if self._counts is None:
            self._start(look.config)
        assert self._counts is not None  # noqa: S101 - just started
        return Result(self._counts.families(labels(look.config)))

    def close(self) -> None:
        """Send no more."""
        self._stop.set()

    def _start(self, config: Config) -> None:
        probe = config.exporter.probe
        self._counts = Counts(answers=probe.answers)
        threading.Thread(
            target=_loop,
            args=(Prober(probe), self._counts, probe.answers, probe.every, self._stop, self._clock),
            name="leadline-probe",
            daemon=True,
        ).start()


def _loop(
    prober: Prober,
    counts: Counts,
    answers: bool,
    every: float,
    stop: threading.Event,
    clock: Callable[[], float],
) -> None:
    """Probe until told to stop; the first one comes at a random instant of the first pause."""
    source = random.Random()
    pause = source.uniform(0, every)
    told: dict[str, str] = {}
    while not stop.wait(pause):
        begun = clock()
        for outcome in one_round(prober, answers=answers):
            counts.take(outcome)
            _tell(outcome, told)
        pause = max(_SHORTEST_PAUSE, every * source.uniform(0.9, 1.1) - (clock() - begun))


def one_round(prober: Prober, *, answers: bool) -> list[Outcome]:
    """Send a latency probe, then a question unless there are none to ask."""
    outcomes = [prober.latency()]
    if answers:
        outcomes.append(prober.answer())
    return outcomes


def _tell(outcome: Outcome, told: dict[str, str]) -> None:
    """Log one line when the result of a probe changes."""
    if outcome.reason == told.get(outcome.probe, ""):
        return
    told[outcome.probe] = outcome.reason
    if outcome.reason:
        log.warning("the %s probe failed: %s", outcome.probe, outcome.reason)
    else:
        log.info("the %s probe works again", outcome.probe)
