"""Events put into real noise, with their truth: leaks, and all that looks like one for a while.

A case takes quiet series (a place of 100 GiB, half full) and returns them with one event in each.
Sizes are drawn from wide ranges on purpose: the event of a page is not known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.detect_real import LIMIT, START, Hosts
from benchmarks.detect_series import GIB
from catalog.panel import FloatArray

HEADROOM = LIMIT - START * GIB
BEFORE = 2.2 * 86_400.0  # seconds of history before an event, at least


@dataclass(frozen=True)
class Injected:
    """Series with an event each.

    Attributes:
        values: (s, n), bytes.
        onset: (s,) point at which the event begins.
        breach: (s,) point at which the limit is met; infinity where it never is.
        fixed: (s,) point at which a leak ends; infinity where it does not.
        load: (s, n) or None, what the memory depends on.
        starts: (s, n) or None, start times of the incarnation.
        group: Series of one pool, that many in a row; 1 where each stands alone.
    """

    values: FloatArray
    onset: FloatArray
    breach: FloatArray
    fixed: FloatArray
    load: FloatArray | None = None
    starts: FloatArray | None = None
    group: int = 1


Make = Callable[[Hosts, np.random.Generator], Injected]


@dataclass(frozen=True)
class Case:
    """One kind of event: whether it is a leak, what it should be called, and how it is made."""

    name: str
    leak: bool
    verdict: str
    make: Make


def _axes(hosts: Hosts) -> tuple[int, int, FloatArray]:
    """Return series, points, and hours since the first point."""
    series, points = hosts.values.shape
    return series, points, np.arange(points) * hosts.step / 3600


def _quiet(
    hosts: Hosts,
    added: FloatArray,
    onset: FloatArray | None = None,
    load: FloatArray | None = None,
) -> Injected:
    never = np.full(len(hosts.values), np.inf)
    begun = never if onset is None else onset * 3600 / hosts.step
    return Injected(hosts.values + GIB * added, begun, never, never, load)


def _when(
    hosts: Hosts, rng: np.random.Generator, spare: float = 24.0
) -> tuple[FloatArray, FloatArray]:
    """Return onsets in hours (s, 1), with *spare* hours after them, and hours since (s, n)."""
    series, _, hours = _axes(hosts)
    last = max(hours[-1] - spare, BEFORE / 3600 + 1)
    onset = rng.uniform(BEFORE / 3600, last, (series, 1))
    return onset, np.maximum(hours - onset, 0.0)


def _log_uniform(rng: np.random.Generator, low: float, high: float, series: int) -> FloatArray:
    drawn: FloatArray = np.exp(rng.uniform(np.log(low), np.log(high), (series, 1)))
    return drawn


def _untouched(hosts: Hosts, rng: np.random.Generator) -> Injected:  # noqa: ARG001
    return _quiet(hosts, np.zeros_like(hosts.values))


def season(hosts: Hosts, rng: np.random.Generator) -> FloatArray:
    """Return a daily season of 3 to 8 GiB."""
    series, _, hours = _axes(hosts)
    phase = rng.uniform(0, 2 * np.pi, (series, 1))
    wave: FloatArray = rng.uniform(3, 8, (series, 1)) * np.sin(2 * np.pi * hours / 24 + phase)
    return wave


def collector(hosts: Hosts, rng: np.random.Generator) -> FloatArray:
    """Return a sawtooth of 4 to 12 GiB every 2 to 6 hours."""
    series, _, hours = _axes(hosts)
    period = rng.uniform(2, 6, (series, 1))
    teeth: FloatArray = rng.uniform(4, 12, (series, 1)) * (
        (hours / period + rng.uniform(0, 1, (series, 1))) % 1
    )
    return teeth


def _season(hosts: Hosts, rng: np.random.Generator) -> Injected:
    return _quiet(hosts, season(hosts, rng))


def _collector(hosts: Hosts, rng: np.random.Generator) -> Injected:
    return _quiet(hosts, collector(hosts, rng))


def _step(hosts: Hosts, rng: np.random.Generator) -> Injected:
    onset, since = _when(hosts, rng)
    size = rng.uniform(5, 20, (len(onset), 1))
    return _quiet(hosts, size * (since > 0), onset[:, 0])


def _smooth(hosts: Hosts, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
    onset, since = _when(hosts, rng, 36)
    tau = _log_uniform(rng, 0.5, 8, len(onset))
    return onset, rng.uniform(5, 25, (len(onset), 1)), 1 - np.exp(-since / tau)


def _warm_up(hosts: Hosts, rng: np.random.Generator) -> Injected:
    onset, size, share = _smooth(hosts, rng)
    return _quiet(hosts, size * share, onset[:, 0])


def _by_steps(hosts: Hosts, rng: np.random.Generator) -> Injected:
    onset, size, share = _smooth(hosts, rng)
    steps = rng.integers(5, 12, (len(onset), 1))
    return _quiet(hosts, size * np.floor(share * steps + 0.5) / steps, onset[:, 0])


def _logarithmic(hosts: Hosts, rng: np.random.Generator) -> Injected:
    onset, since = _when(hosts, rng, 36)
    tau = rng.uniform(0.1, 1.0, (len(onset), 1))
    size = rng.uniform(2, 5, (len(onset), 1))
    return _quiet(hosts, size * np.log1p(since / tau), onset[:, 0])


def _ramp(hosts: Hosts, rng: np.random.Generator) -> Injected:
    """A cache that fills at an even rate and then is full."""
    onset, since = _when(hosts, rng, 36)
    length = _log_uniform(rng, 1, 12, len(onset))
    size = rng.uniform(5, 18, (len(onset), 1))
    return _quiet(hosts, size * np.minimum(since / length, 1), onset[:, 0])


def _traffic(hosts: Hosts, rng: np.random.Generator) -> Injected:
    """Traffic that doubles within a day, with memory that follows it, and its daily season."""
    series, _, hours = _axes(hosts)
    onset, since = _when(hosts, rng, 60)
    day = 1 + 0.4 * np.sin(2 * np.pi * hours / 24 + rng.uniform(0, 2 * np.pi, (series, 1)))
    load = day * (1 + np.minimum(since / 24, 1))
    return _quiet(hosts, rng.uniform(3, 8, (series, 1)) * load, onset[:, 0], load)


def _restart(hosts: Hosts, rng: np.random.Generator) -> Injected:
    """A process that starts anew and fills up to where it was."""
    onset, since = _when(hosts, rng)
    tau = _log_uniform(rng, 0.3, 3, len(onset))
    share = np.where(since > 0, 1 - 0.8 * np.exp(-since / tau), 1.0)
    base = _quiet(hosts, np.zeros_like(hosts.values), onset[:, 0])
    starts = np.where(since > 0, 1.7e9 + onset * 3600, 1.6e9)
    return Injected(base.values * share, base.onset, base.breach, base.fixed, starts=starts)


def _unmarked_restart(hosts: Hosts, rng: np.random.Generator) -> Injected:
    """The same where start times are not known."""
    made = _restart(hosts, rng)
    return Injected(made.values, made.onset, made.breach, made.fixed)


def _wander(hosts: Hosts, rng: np.random.Generator) -> Injected:
    """AR(.99) by five minutes, of 4 GiB."""
    series, points, _ = _axes(hosts)
    phi = 0.99 ** (hosts.step / 300)
    shock = rng.normal(0, 4 * np.sqrt(1 - phi**2), (series, points))
    shock[:, 0] /= np.sqrt(1 - phi**2)
    for i in range(1, points):
        shock[:, i] += phi * shock[:, i - 1]
    return _quiet(hosts, shock)


def _spike(hosts: Hosts, rng: np.random.Generator) -> Injected:
    _, since = _when(hosts, rng)
    values = hosts.values.copy()
    place = (since > 0).argmax(axis=1)
    values[np.arange(len(values)), place] *= 50
    return Injected(values, place.astype(float), np.full(len(values), np.inf),
                    np.full(len(values), np.inf))  # fmt: skip


def _gap(hosts: Hosts, rng: np.random.Generator) -> Injected:
    """Two hours without a scrape, behind which the level is another."""
    onset, since = _when(hosts, rng)
    size = rng.uniform(-10, 10, (len(onset), 1))
    added = np.where((since > 0) & (since < 2), np.nan, size * (since > 0))
    return _quiet(hosts, added, onset[:, 0])


def _constant(hosts: Hosts, rng: np.random.Generator) -> Injected:
    series = len(hosts.values)
    level = rng.uniform(10, 60, (series, 1)) * GIB
    return _quiet(Hosts(hosts.name, hosts.step, np.broadcast_to(level, hosts.values.shape)),
                  np.zeros_like(hosts.values))  # fmt: skip


def _two_values(hosts: Hosts, rng: np.random.Generator) -> Injected:
    values = GIB * (40 + rng.uniform(2, 20, (len(hosts.values), 1)) * rng.integers(
        0, 2, hosts.values.shape))  # fmt: skip
    return _quiet(Hosts(hosts.name, hosts.step, values), np.zeros_like(hosts.values))


def _leak(
    hosts: Hosts,
    rng: np.random.Generator,
    length: float,
    beside: FloatArray | float = 0.0,
    traffic: FloatArray | None = None,
) -> Injected:
    """A leak that takes *length* hours to the limit; with *traffic* it follows the work done."""
    series, points, hours = _axes(hosts)
    last = max(hours[-1] - length, BEFORE / 3600 + 0.3 * (hours[-1] - BEFORE / 3600))
    if hours[-1] < length + BEFORE / 3600:
        last = BEFORE / 3600 + 12
    onset = rng.uniform(BEFORE / 3600, last, (series, 1))
    rate = np.ones((series, points)) if traffic is None else traffic
    rise = np.cumsum(rate * (hours >= onset), axis=1) * hosts.step / 3600 / length
    # Breach is when the typical level meets the limit, what is there beside the leak included.
    typical = np.median(np.broadcast_to(beside, (series, points)), axis=1, keepdims=True)
    full = 1 - GIB * typical / HEADROOM
    over = rise >= full
    met = np.where(over.any(axis=1), over.argmax(axis=1), np.inf)
    straight = (onset + full * length)[:, 0] * 3600 / hosts.step
    breach = np.where(np.isfinite(met), met, straight)
    never = np.full(series, np.inf)
    values = hosts.values + GIB * beside + HEADROOM * rise
    return Injected(values, onset[:, 0] * 3600 / hosts.step, breach, never, traffic)


def leak(length: float) -> Make:
    """Return a plain leak of *length* hours to the limit."""
    return lambda hosts, rng: _leak(hosts, rng, length)


def seasonal_leak(length: float) -> Make:
    """Return a leak under a daily season."""
    return lambda hosts, rng: _leak(hosts, rng, length, season(hosts, rng))


def floor(length: float) -> Make:
    """Return a leak under a collector's sawtooth: a rising floor."""
    return lambda hosts, rng: _leak(hosts, rng, length, collector(hosts, rng))


def by_request(length: float) -> Make:
    """Return a leak by request under daily traffic, nearly flat at night."""

    def make(hosts: Hosts, rng: np.random.Generator) -> Injected:
        series, _, hours = _axes(hosts)
        day = 1 + 0.8 * np.sin(2 * np.pi * hours / 24 + rng.uniform(0, 2 * np.pi, (series, 1)))
        return _leak(hosts, rng, length, 0.0, day)

    return make


def _to_the_limit(hosts: Hosts, rng: np.random.Generator) -> Injected:
    """A leak of 22 to 26 hours that ends in a restart each time."""
    series, _, hours = _axes(hosts)
    onset = rng.uniform(BEFORE / 3600, BEFORE / 3600 + 24, (series, 1))
    length = rng.uniform(22, 26, (series, 1))
    cycle = np.maximum(hours - onset, 0) / length
    lives = np.floor(cycle)
    starts = np.where(lives > 0, 1.7e9 + 3600 * (onset + lives * length), 1.6e9)
    values = hosts.values + HEADROOM * (cycle % 1)
    per_hour = 3600 / hosts.step
    never = np.full(series, np.inf)
    return Injected(values, onset[:, 0] * per_hour, (onset + length)[:, 0] * per_hour, never,
                    starts=starts)  # fmt: skip


def _fixed(hosts: Hosts, rng: np.random.Generator) -> Injected:
    """A leak of 36 hours to the limit that is mended half-way."""
    made = _leak(hosts, rng, 36.0)
    end = made.onset + 18 * 3600 / hosts.step
    point = np.arange(hosts.values.shape[1])
    rise = (np.minimum(point, end[:, None]) - made.onset[:, None]).clip(min=0)
    values = hosts.values + HEADROOM * rise * hosts.step / 3600 / 36
    return Injected(values, made.onset, np.full(len(values), np.inf), end)


def _one_of_many(hosts: Hosts, rng: np.random.Generator) -> Injected:
    """One rank of four leaks (48 hours to the limit), its peers share its noise."""
    made = _leak(hosts, rng, 48.0)
    kept = len(hosts.values) // 4 * 4
    rank = np.arange(kept) % 4
    shared = np.repeat(hosts.values[:kept:4], 4, axis=0)
    own = np.where(rank[:, None] == 0, made.values[:kept] - hosts.values[:kept], 0.0)
    jitter = GIB * rng.normal(0, 0.2, shared.shape)
    inf = np.full(kept, np.inf)
    return Injected(
        shared + own + jitter,
        np.where(rank == 0, made.onset[:kept], inf),
        np.where(rank == 0, made.breach[:kept], inf),
        inf,
        group=4,
    )


NEGATIVES: tuple[Case, ...] = (
    Case("untouched", False, "none", _untouched),
    Case("season", False, "none", _season),
    Case("collector sawtooth", False, "none", _collector),
    Case("deploy step", False, "none", _step),
    Case("warm-up", False, "warm_up", _warm_up),
    Case("warm-up by steps", False, "warm_up", _by_steps),
    Case("logarithmic growth", False, "warm_up", _logarithmic),
    Case("cache that fills", False, "warm_up", _ramp),
    Case("traffic doubles", False, "none", _traffic),
    Case("restart", False, "none", _restart),
    Case("unmarked restart", False, "none", _unmarked_restart),
    Case("AR(.99)", False, "none", _wander),
    Case("one spike", False, "none", _spike),
    Case("gap of two hours", False, "none", _gap),
    Case("constant", False, "none", _constant),
    Case("two values", False, "none", _two_values),
)
LEAKS: tuple[Case, ...] = (
    *(Case(f"leak of {h} h", True, "leak", leak(h)) for h in (12, 48, 120)),
    *(Case(f"leak of {h} h, season", True, "leak", seasonal_leak(h)) for h in (12, 48, 120)),
    *(Case(f"leak of {h} h, sawtooth", True, "leak", floor(h)) for h in (12, 48, 120)),
    *(Case(f"leak of {h} h by request", True, "leak", by_request(h)) for h in (48, 120)),
    Case("restarts at the limit", True, "leak", _to_the_limit),
    Case("one rank of four", True, "leak", _one_of_many),
    Case("leak, then mended", True, "leak", _fixed),
)
LONG: tuple[Case, ...] = (
    Case("leak of 30 days", True, "leak", leak(720)),
    Case("leak of 30 days, season", True, "leak", seasonal_leak(720)),
    Case("leak of 30 days, sawtooth", True, "leak", floor(720)),
)
