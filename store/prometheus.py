"""`PromStore`: signals as panels from anything that speaks Prometheus' query API.

What a reader must know of the data:
- The grid is the multiples of the step. A gauge's value at a grid point is its newest sample, up to
  5 minutes old (Prometheus' lookback): a server that vanished without a last failed scrape repeats
  its last value that long; one whose scrape failed ends at once.
- NaN and infinite values are missing values.
- Ratios come as counts of raw counters (`store.counts`), the rest as the catalogue's expressions.
- Answers that are known to be partial (Thanos, VictoriaMetrics clusters) are refused: a sum over
  half a pool looks like a drift.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from prometheus_api_client import PrometheusConnect
from urllib3.util.retry import Retry

from catalog.metric import Metric
from catalog.panel import FloatArray, Labels, Panel
from catalog.promql import selector as select
from catalog.signal import Counts, Signal
from catalog.signals import SIGNALS
from store.counts import MAX_GAP
from store.errors import BadAnswerError, StoreError
from store.grid import blank, frozen, grid
from store.history import extend
from store.join import NamedSeries, count_panel, join_load, join_starts
from store.session import MAX_ANSWER, BearerFile, BoundedSession, split_credentials

__all__ = ["PromStore", "Range", "Sample", "extend"]

log = logging.getLogger("leadline.store")

MAX_POINTS: Final = 10_000
"""Points per series in one request; Prometheus refuses more than 11,000."""
MAX_SAMPLES: Final = 1_000_000
"""Samples aimed at in one request: some 30 MB of JSON, 200 MB while it is parsed."""
FIRST_POINTS: Final = 100
"""Points of the first request, which tells how many series there are."""
COUNTER_STEP: Final = 60.0
"""Longest step at which raw counters are read: two resets within one would hide each other."""
_PARTIAL: Final = {"partial_response": "false", "deny_partial_response": "1"}


@dataclass(frozen=True)
class Sample:
    """One series at one instant."""

    labels: Labels
    time: float
    value: float


class Range(NamedTuple):
    """Many series on one grid; `labels` keep the metric's name where there is one."""

    times: FloatArray
    values: FloatArray
    labels: tuple[Mapping[str, str], ...]


class PromStore:
    """Reads from Prometheus, or from what speaks its API; safe to share between threads."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 10.0,
        bearer_token_file: str | Path = "",
        max_answer: int = MAX_ANSWER,
    ) -> None:
        """Make a client; nothing is sent yet.

        Args:
            url: Base address; may hold user and password, which no message shows.
            timeout: Seconds for each request as a whole.
            bearer_token_file: File with a token to send, read for each request.
            max_answer: Bytes of the largest answer read.

        Raises:
            BadAnswerError: The address is none.
        """
        self.url, auth = split_credentials(url)
        self._timeout = timeout
        session = BoundedSession(self.url, timeout, max_answer)
        session.auth = BearerFile(Path(bearer_token_file)) if bearer_token_file else auth
        self._client = PrometheusConnect(
            url=self.url, session=session, retry=Retry(0), timeout=timeout, method="POST"
        )
        self._companions: tuple[object, dict[str, Panel]] = (None, {})
        self._complaints: dict[str, str] = {}

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def instant(self, query: str, at: float) -> list[Sample]:
        """Return the result of *query* at the instant *at*."""
        raw = self._ask(self._client.custom_query, query, {"time": f"{at:.3f}"})
        if raw and not isinstance(raw[0], Mapping):  # a scalar: [time, "value"]
            raw = [{"metric": {}, "value": raw}]
        with self._understood():
            return [
                Sample(frozen(one["metric"]), float(one["value"][0]), float(one["value"][1]))
                for one in raw
            ]

    def range(self, query: str, start: float, end: float, step: float) -> Range:
        """Return the result of *query* at the multiples of *step* in [start, end].

        The span is read in as many requests as its size needs, newest first.
        """
        times = grid(start, end, step)
        rows: dict[tuple[tuple[str, str], ...], int] = {}
        parts: list[tuple[int, int, list[int], FloatArray]] = []
        stop, points = len(times), FIRST_POINTS
        while stop > 0:
            first = max(0, stop - points)
            raw = self._ask_range(query, times[first], times[stop - 1], step)
            with self._understood():
                chosen = [
                    rows.setdefault(tuple(sorted(one["metric"].items())), len(rows)) for one in raw
                ]
                parts.append((first, stop, chosen, _array(raw, times[first:stop], step)))
            stop = first
            points = max(1, min(MAX_POINTS, MAX_SAMPLES // max(1, len(raw))))
        values = blank(len(rows), len(times))
        for first, stop, chosen, array in parts:
            values[chosen, first:stop] = array
        return Range(times, values, tuple(dict(row) for row in rows))

    def panel(
        self, signal: Signal, start: float, end: float, step: float, selector: str = ""
    ) -> Panel:
        """Return *signal* in [start, end], with counts, load and incarnation starts it has.

        Args:
            signal: From the catalogue.
            start: Unix seconds.
            end: Unix seconds, inclusive.
            step: Seconds; the grid is its multiples.
            selector: Label condition put on every series read, such as `deployment="chat"`.

        Raises:
            StoreError: The signal itself can't be read. Load and starts that can't are left out.
        """
        span = (start, end, step, selector)
        if signal.counts is not None:
            panel = self._counts(signal, signal.counts, *span)
        else:
            panel = self._plain(signal, *span)
        if not panel.labels:
            return panel
        if signal.load and (load := self._companion(signal.load, *span)) is not None:
            panel = join_load(panel, signal, load, SIGNALS[signal.load])
        if signal.level == "process" and signal.name != "process_start_time":
            starts = self._companion("process_start_time", *span)
            panel = panel if starts is None else join_starts(panel, starts, signal)
        return panel

    def _plain(self, signal: Signal, start: float, end: float, step: float, where: str) -> Panel:
        found = self.range(narrowed(signal, where), start, end, step)
        labels = tuple(frozen(one, signal.labels) for one in found.labels)
        return Panel(signal.name, found.times, found.values, labels)

    def _counts(
        self, signal: Signal, counts: Counts, start: float, end: float, step: float, where: str
    ) -> Panel:
        condition = _joined(counts.where, where)
        times = grid(start, end, step)
        parts = _parts_of(step)
        before = max(MAX_GAP, step) + step
        span = (start - before, end, step / parts)
        raw = grid(*span)
        return count_panel(
            signal,
            times,
            raw,
            self._counter(counts.successes, _joined(condition, counts.won), *span),
            self._counter(counts.trials, condition, *span),
            parts,
        )

    def _counter(
        self, metric: Metric, where: str, start: float, end: float, step: float
    ) -> list[NamedSeries]:
        """Return the raw series of a counter under its name and its former ones, newest first."""
        names = (metric.name, *metric.former)
        found = [self.range(select(name, where), start, end, step) for name in names]
        return [
            NamedSeries(each.values, tuple(frozen(one) for one in each.labels)) for each in found
        ]

    def _companion(
        self, name: str, start: float, end: float, step: float, where: str
    ) -> Panel | None:
        """Return a signal that others are joined with, read once for all that share a span."""
        span = (start, end, step, where)
        known, kept = self._companions
        if known != span:
            kept = {}
            self._companions = (span, kept)
        if name not in kept:
            try:
                kept[name] = self._plain(SIGNALS[name], *span)
            except StoreError as error:
                if self._complaints.get(name) != str(error):
                    log.warning("%s can't be read, judged without it: %s", name, error)
                self._complaints[name] = str(error)
                return None
            self._complaints.pop(name, None)
        return kept[name]

    def _ask_range(self, query: str, first: float, last: float, step: float) -> list[Any]:
        # The client rounds datetimes to seconds; exact instants go as parameters.
        exact = {"start": f"{first:.3f}", "end": f"{last:.3f}"}
        begin, end = (datetime.fromtimestamp(at, UTC) for at in (first, last))
        return self._ask(self._client.custom_query_range, query, begin, end, f"{step:.3f}", exact)

    def _ask(self, method: Any, query: str, *rest: Any) -> list[Any]:
        *args, params = rest
        params |= {"timeout": f"{self._timeout:g}s", **_PARTIAL}
        with self._understood():
            result = method(query, *args, params=params)
        if not isinstance(result, list):
            raise self._no_api(type(result).__name__)
        return result

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Turn what a malformed answer does to parsing into one line."""
        try:
            yield
        except (
            LookupError, TypeError, ValueError, AttributeError, RecursionError, OverflowError
        ) as err:  # fmt: skip
            raise self._no_api(type(err).__name__) from None

    def _no_api(self, what: str) -> BadAnswerError:
        return BadAnswerError(
            f"{self.url}: answer is not the query API's ({what}); "
            "is this the base address of a Prometheus?"
        )


def _joined(*conditions: str) -> str:
    return ", ".join(part for part in conditions if part)


def narrowed(signal: Signal, where: str) -> str:
    """Return the expression of *signal* with the condition *where* on every metric it reads."""
    if not where:
        return signal.expr
    names = "|".join(
        re.escape(name) for name in sorted(_names(signal.metrics), key=len, reverse=True)
    )
    pattern = re.compile(rf"(?<![\w:])({names})(?![\w:])(?:\{{([^}}]*)\}})?")

    def put(match: re.Match[str]) -> str:
        return select(match[1], ", ".join(part for part in (match[2], where) if part))

    return pattern.sub(put, signal.expr)


def _names(metrics: Sequence[Metric]) -> Iterator[str]:
    for metric in metrics:
        for name in (metric.name, *metric.former):
            yield name
            if metric.type == "histogram":
                yield from (f"{name}_bucket", f"{name}_sum", f"{name}_count")


def _array(raw: Sequence[Any], times: FloatArray, step: float) -> FloatArray:
    values = blank(len(raw), len(times))
    for row, one in zip(values, raw, strict=True):
        pairs = one["values"]
        at = np.rint((np.array([pair[0] for pair in pairs]) - times[0]) / step).astype(np.intp)
        row[at] = [float(pair[1]) for pair in pairs]
    values[~np.isfinite(values)] = np.nan
    return values


def _parts_of(step: float) -> int:
    """Return into how many whole-millisecond parts a step is cut for reading counters."""
    least = max(1, int(np.ceil(step / COUNTER_STEP)))
    milliseconds = round(step * 1000)
    return next((n for n in range(least, 2 * least + 1) if milliseconds % n == 0), 1)
