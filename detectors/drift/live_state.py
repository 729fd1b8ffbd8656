"""The newest buckets of all series in arrays: a cycle costs its new points.

Of each series the last 64 buckets of 1, 2, 4, ... points are kept in single precision: the very
ones that `buckets.Pyramid` makes of a whole history, on the same grid for all time. So what is
raised is what `leak_windows.grow` raises on the whole history, for a hundredth of its memory.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from catalog.panel import FloatArray
from detectors.drift.buckets import BUCKETS, COARSE, MOVED, BoolArray, IntArray, Singles, lowest
from detectors.drift.leak_windows import TOGETHER, rises

Numbers = npt.NDArray[np.int64]

REACH = BUCKETS - COARSE  # points: a sample that comes later than this changes nothing any more
MOST_SERIES = 500_000  # 1.1 GB; what is new beyond them is not screened, and counted
LONG_AGO, NEVER = -(2**62), 2**62
ROOM = 1.5  # arrays grow by this factor
VERSION = 1
FACTS: Mapping[str, Any] = {
    "first": LONG_AGO, "before": LONG_AGO, "seen": LONG_AGO, "turned": LONG_AGO, "told": LONG_AGO,
    "start": np.nan,
}  # fmt: skip
"""What is known of each series beside its buckets, before its first point.

`first` point of those that follow one another with gaps of less than 64, the last point `before`
them, the last one `seen`, the last one with another start time than now (`turned`), the last one
with any (`told`), and the `start` time itself.
"""


class LiveState:
    """The newest buckets of many series, each named by a key.

    Attributes:
        step: Seconds a point.
        points: Points that a judgement looks back on.
        most: Series at most.
        widths: Points a bucket, ascending: all of which 64 are looked back on.
        keys: What names each series, in the order of the rows.
        begin: Number, since the beginning of time, of the first point; `NEVER` before it.
        end: Number of the next point.
        left_out: Series of the last points that there was no room for.
        moves: How often rows were given to other series.
    """

    def __init__(self, step: float, points: int, most: int = MOST_SERIES) -> None:
        """Make a state of no series; *step*, *points* and *most* as the attributes."""
        self.step = step
        self.points = points
        self.most = most
        self.widths = [1]
        while 2 * self.widths[-1] * BUCKETS <= points:
            self.widths.append(2 * self.widths[-1])
        self.keys: list[str] = []
        self.begin = NEVER
        self.end = 0
        self.left_out = 0
        self.moves = 0
        self._rows: dict[str, int] = {}
        self._rings: Singles = np.empty((len(self.widths), BUCKETS, 0), dtype=np.float32)
        self._facts = {name: np.full(0, unknown) for name, unknown in FACTS.items()}
        self._raised = np.zeros((len(self.widths), 0), dtype=np.bool_)
        self._stale = set(range(len(self.widths)))

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        facts = sum(fact.nbytes for fact in self._facts.values())
        return self._rings.nbytes + self._raised.nbytes + facts

    def rows(self, keys: Sequence[str]) -> IntArray:
        """Return the row of each of *keys*, which are taken in if new; -1 where there is no room.

        Series without a point in all that is looked back on may be dropped to make room for new
        ones; then rows told before are no longer true, and `moves` has changed.
        """
        new = self._unknown(keys)
        if new:
            full = len(self.keys) + len(new) > self.most
            self.drop(1 if full else max(1, len(self.keys) // 8))
            new = self._unknown(keys)
        for key in new[: self.most - len(self.keys)]:
            self._rows[key] = len(self.keys)
            self.keys.append(key)
        self._fit(len(self.keys))
        found = np.fromiter((self._rows.get(key, -1) for key in keys), np.intp, len(keys))
        self.left_out = int((found < 0).sum())
        return found

    def _unknown(self, keys: Sequence[str]) -> list[str]:
        return [key for key in dict.fromkeys(keys) if key not in self._rows]

    def find(self, keys: Sequence[str]) -> IntArray:
        """Return the row of each of *keys*, -1 where there is none."""
        return np.fromiter((self._rows.get(key, -1) for key in keys), np.intp, len(keys))

    def _fit(self, series: int) -> None:
        """Make room for so many series."""
        have = self._rings.shape[2]
        if series <= have:
            return
        more = max(series, min(self.most, round(ROOM * have))) - have

        def longer(array: npt.NDArray[Any], unknown: Any) -> npt.NDArray[Any]:
            blank = np.full((*array.shape[:-1], more), unknown, dtype=array.dtype)
            return np.concatenate([array, blank], axis=-1)

        self._rings = longer(self._rings, np.nan)
        self._raised = longer(self._raised, False)
        self._facts = {name: longer(fact, FACTS[name]) for name, fact in self._facts.items()}

    def alive(self) -> BoolArray:
        """Return (s,): which series have a point in all that is looked back on."""
        alive: BoolArray = self._facts["seen"][: len(self.keys)] >= self.end - self.points
        return alive

    def drop(self, least: int = 1) -> None:
        """Drop the series without a point in all that is looked back on, if so many are."""
        if self.begin == NEVER:
            return
        alive = np.flatnonzero(self.alive())
        if len(self.keys) - len(alive) < least:
            return
        self.keys = [self.keys[row] for row in alive.tolist()]
        self._rows = {key: row for row, key in enumerate(self.keys)}
        self._rings = self._rings[:, :, alive]
        self._raised = self._raised[:, alive]
        self._facts = {name: fact[alive] for name, fact in self._facts.items()}
        self.moves += 1

    def add(
        self, first: int, values: FloatArray, rows: IntArray, starts: FloatArray | None = None
    ) -> bool:
        """Take new points; some may have been read before: what is known now wins.

        Between the last point and these is a gap. A sample that is late by no more than `REACH`
        points is put in its place; what is older is left out.

        Args:
            first: Number of the first of them.
            values: (s, n), NaN where there was no sample.
            rows: Of the series (`rows`), -1 for those left out.
            starts: (s, n) start times of the processes, unix seconds.

        Returns:
            Whether they could be taken. If not, the clock went back by more than is kept: the
            state is to be made anew from the history.
        """
        last = first + values.shape[1]
        if self.begin == NEVER:
            self.begin = self.end = first
        self.begin = min(self.begin, max(first, self.end - REACH))
        if values.shape[1] and last <= self.end - REACH:
            return False
        known = np.flatnonzero(rows >= 0)
        where = rows[known]
        columns = np.ascontiguousarray(values[known].T)
        begun = None if starts is None else np.ascontiguousarray(starts[known].T)
        whole = self.widths[-1] * BUCKETS
        if first - self.end > whole:  # nothing is kept from before such a gap
            self._rings[:] = np.nan
            self.end = first - first % self.widths[-1]
        for number in range(self.end, first):
            self._open(number)
            self._close(number)
        for number in range(max(first, self.end - REACH), last):
            late = number < self.end
            if not late:
                self._open(number)
            column = number - first
            self._put(number, columns[column], where)
            if begun is not None:
                self._start(number, begun[column], where)
            self._close(number, late=late)
        return True

    def _open(self, number: int) -> None:
        """Begin point *number*, the next."""
        self._rings[0, number % BUCKETS] = np.nan
        self.end = number + 1

    def _put(self, number: int, column: FloatArray, where: IntArray) -> None:
        """Put the values of one point in their place; it may have come late."""
        seen = np.isfinite(column)
        if not seen.all():
            column, where = column[seen], where[seen]
        self._rings[0, number % BUCKETS, where] = column
        first, before, last = (self._facts[name] for name in ("first", "before", "seen"))
        newest = last[where]
        again = number - newest >= BUCKETS
        before[where[again]] = newest[again]
        first[where[again | (first[where] > number)]] = number
        last[where] = np.maximum(newest, number)

    def _start(self, number: int, column: FloatArray, where: IntArray) -> None:
        """Note the start times of one point, which may have come late."""
        seen = np.isfinite(column)
        column, where = column[seen], where[seen]
        start, told, turned = (self._facts[name] for name in ("start", "told", "turned"))
        moved = np.abs(column - start[where]) > MOVED  # False at the first: NaN
        newest = number > told[where]
        turned[where[moved]] = np.maximum(
            np.where(newest, told[where], number)[moved], turned[where[moved]]
        )
        start[where[newest]] = column[newest]
        told[where[newest]] = number

    def _close(self, number: int, *, late: bool = False) -> None:
        """Make the buckets anew that hold point *number* and are over."""
        self._stale.add(0)
        for level, width in enumerate(self.widths[1:], 1):
            bucket = number // width
            if (bucket + 1) * width > self.end or bucket * width < self.begin:
                if not late:
                    break
                continue
            # As in the pyramid: eights of eights, and what lies between is the least of two.
            parts = COARSE if level % 3 == 0 else 2
            below = level - (3 if parts == COARSE else 1)
            places = np.arange(bucket * parts, (bucket + 1) * parts) % BUCKETS
            self._rings[level, bucket % BUCKETS] = lowest(self._rings[below][places])
            self._stale.add(level)

    def raised(self) -> BoolArray:
        """Return (widths, s): the windows in which series rise enough for the full fit."""
        for level in range(len(self.widths)):
            self._screen(level)
        self._stale.clear()
        return self._raised[:, : len(self.keys)]

    def _screen(self, level: int) -> None:
        """Screen one window again, if a bucket of it changed; none that was not looked back on."""
        width = self.widths[level]
        closed = self.end // width
        oldest = (closed - BUCKETS) * width
        if oldest < max(self.begin, self.end - self.points):
            self._raised[level] = False
            return
        if level not in self._stale:
            return
        places = np.arange(closed - BUCKETS, closed) % BUCKETS
        for begin in range(0, len(self.keys), TOGETHER):
            some = slice(begin, begin + TOGETHER)
            low = self._rings[level, places, some]
            self._raised[level, some] = rises(low, width * BUCKETS * self.step)

    def young(self) -> BoolArray:
        """Return (s,): whether a life is too short for any window: begun or restarted lately."""
        first, before, seen, turned = (
            self._facts[name][: len(self.keys)] for name in ("first", "before", "seen", "turned")
        )
        late = self.end - BUCKETS
        began: BoolArray = (first > late) & (before < self.end - self.points)
        return (began | (turned >= late)) & (seen >= self.end - self.points)

    def rises(self) -> dict[int, list[int]]:
        """Return row -> widths of its windows that rise, for the full fit; [] if it is young."""
        out: dict[int, list[int]] = defaultdict(list)
        for width, picked in zip(self.widths, self.raised(), strict=True):
            for row in np.flatnonzero(picked).tolist():
                out[row].append(width)
        for row in np.flatnonzero(self.young()).tolist():
            out.setdefault(row, [])
        return dict(out)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all that `of` needs to make the same state again, as plain arrays."""
        count = len(self.keys)
        about = (VERSION, self.points, self.most, count, self.begin, self.end)
        keys = json.dumps(self.keys).encode()
        return {
            "about": np.array(about, dtype=np.int64),
            "step": np.array([self.step]),
            "keys": np.frombuffer(keys, dtype=np.uint8),
            "rings": self._rings[:, :, :count],
            **{name: fact[:count] for name, fact in self._facts.items()},
        }

    @classmethod
    def of(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> LiveState:
        """Return the state that *arrays* were made of.

        Raises:
            ValueError: They are of another version, or no state's.
        """
        try:
            version, points, most, count, begin, end = arrays["about"].tolist()
            if version != VERSION:
                raise ValueError(f"version {version}, not {VERSION}")
            state = cls(float(arrays["step"][0]), points, most)
            keys = json.loads(arrays["keys"].tobytes())
            state.rows(keys)
            state.begin, state.end = begin, end
            taken = {name: arrays[name] for name in ("rings", *FACTS)}
        except (LookupError, TypeError, AttributeError, UnicodeDecodeError) as error:
            raise ValueError(f"not a state ({type(error).__name__})") from None
        here = {"rings": state._rings, **state._facts}
        for name, array in taken.items():
            if array.shape != here[name].shape or array.dtype != here[name].dtype:
                raise ValueError(f"{name} is {array.dtype} {array.shape}")
        if not all(isinstance(key, str) for key in keys) or len(state.keys) != count:
            raise ValueError("keys are not those of its series")
        state._rings = taken.pop("rings")
        state._facts = taken
        return state
