"""Watches Alertmanager for the demo: shows what becomes active, and waits for the right alert."""

import time
from collections.abc import Iterator, Mapping
from typing import NoReturn

from stack.line import Line
from stack.pages import Alert, active, query
from stack.programs import Stack

POLL = 1.0
JUDGED = 'sum(leadline_detector_series{state="judged"})'


class Clock:
    """Says what was done when, in seconds from its making."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since then."""
        return time.monotonic() - self._began

    def say(self, what: str) -> None:
        """Print one line with the time."""
        print(f"{self.seconds:6.1f} s  {what}", flush=True)


def show(stack: Stack, line: Line, clock: Clock) -> NoReturn:
    """Print alerts as they become active and as they end, until Ctrl-C."""
    for _ in _alerts(stack, line, clock):
        pass
    raise AssertionError("the watch has no end of its own")


def until_page(
    stack: Stack, line: Line, clock: Clock, *, wanted: Mapping[str, str], deadline: float
) -> int:
    """Return 0 once an alert with the labels *wanted* is active, 1 if none is by the deadline."""
    start = clock.seconds
    for alerts in _alerts(stack, line, clock):
        if any(wanted.items() <= alert.labels.items() for alert in alerts):
            print(
                f"{wanted['alertname']} is active in Alertmanager {clock.seconds:.1f} s after the "
                f"start, {clock.seconds - start:.1f} s after the board's address"
            )
            return 0
        if clock.seconds > deadline:
            break
    print(f"{wanted['alertname']} was not active within {deadline:.0f} s: expected {wanted}")
    return 1


def until_quiet(
    stack: Stack, line: Line, clock: Clock, *, quiet_for: float, deadline: float
) -> int:
    """Return 0 once nothing was active for a while of judging, 1 on any alert or at the deadline.

    Silence counts only from the instant at which the service says that it judges series.
    """
    judging: float | None = None
    for alerts in _alerts(stack, line, clock):
        if alerts:
            print(f"{len(alerts)} alerts are active where nothing is wrong")
            return 1
        if judging is None and query(line.prometheus, JUDGED):
            judging = clock.seconds
            clock.say("series are judged")
        if judging is not None and clock.seconds - judging >= quiet_for:
            print(f"nothing was active in Alertmanager through {quiet_for:.0f} s of judging")
            return 0
        if clock.seconds > deadline:
            break
    print(f"not {quiet_for:.0f} s of silent judging within {deadline:.0f} s")
    return 1


def _alerts(stack: Stack, line: Line, clock: Clock) -> Iterator[list[Alert]]:
    """Yield what is active, again and again, and print what is new or gone."""
    known: dict[tuple[tuple[str, str], ...], Alert] = {}
    while True:
        stack.check()
        now = {tuple(sorted(a.labels.items())): a for a in active(line.alertmanager)}
        for key in now.keys() - known.keys():
            clock.say(now[key].text())
        for key in known.keys() - now.keys():
            clock.say(f"no longer active: {known[key].labels.get('alertname')}")
        known = now
        yield list(now.values())
        time.sleep(POLL)
