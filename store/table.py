"""Tables of signals in files: long form, CSV or Parquet, one sample a row.

Columns: `time` (unix seconds, or ISO 8601; without a zone it is UTC), `signal` (a catalogue name),
`value`, optionally `load` and `trials` (then `value` counts successes); every other column is a
label. Rows may come in any order. Each signal gets one even grid: its step is the usual spacing of
its series, samples that share a step are averaged (counts: added up).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from catalog.panel import FloatArray, Labels, Panel
from catalog.signals import SIGNALS, unknown
from store import resample
from store.errors import TableError
from store.grid import frozen, key
from store.rows import COLUMNS, IntArray, MixedTimesError, Progress, Rows, blocks

MAX_SERIES: Final = 100_000
MAX_CELLS: Final = 100_000_000
"""Series times steps of one signal: 0.8 GB an array."""
MAX_POINTS: Final = 5_000_000
"""Steps of one signal: ten years of minutes."""
MAX_ROWS: Final = 200_000_000
CHUNK_ROWS: Final = 500_000
STARTS: Final = "process_start_time"


@dataclass
class _Gathered:
    """What was read of one signal so far."""

    labels: list[Labels] = field(default_factory=list)
    series: list[npt.NDArray[np.int32]] = field(default_factory=list)
    time: list[FloatArray] = field(default_factory=list)
    numbers: dict[str, list[FloatArray]] = field(default_factory=dict)
    odd: str = ""  # the first value that is no ratio although its row has no trials


def read_table(path: str | Path, progress: Progress | None = None) -> dict[str, Panel]:
    """Return the panels in *path* by signal.

    Args:
        path: CSV, gzipped CSV or Parquet, seen by its first bytes.
        progress: Called with the share that is read, 0 to 1.

    Raises:
        TableError: One line that names the file, the row or value, the column and the remedy.
    """
    path = Path(path)
    try:
        gathered = _gathered(path, blocks(path, progress))
    except MixedTimesError:
        gathered = _gathered(path, blocks(path, progress, time_as_text=True))
    panels = {name: _panel(path, name, gathered.pop(name)) for name in sorted(gathered)}
    return _with_starts(panels)


def _gathered(path: Path, found: Iterator[Rows]) -> dict[str, _Gathered]:
    gathered: dict[str, _Gathered] = {}
    known: dict[tuple[str, tuple[str, ...]], int] = {}
    count = 0
    for rows in found:
        count += len(rows.time)
        if count > MAX_ROWS:
            raise TableError(f"{path}: more than {MAX_ROWS:,} rows; cut it by time or signal")
        _gather(path, rows, gathered, known)
    if not count:
        raise TableError(f"{path}: has no rows, only column names")
    return gathered


def _gather(
    path: Path,
    rows: Rows,
    gathered: dict[str, _Gathered],
    known: dict[tuple[str, tuple[str, ...]], int],
) -> None:
    """Sort the rows of one block to their signals and series."""
    combined, texts = _series(rows)
    order = np.empty(len(texts), dtype=np.int64)
    owner: list[str] = []
    for at, (name, *values) in enumerate(texts):
        if name not in SIGNALS:
            row = rows.first + int(np.argmax(combined == at))
            raise TableError(f"{path}: row {row}: {unknown('signal', name, SIGNALS)}")
        into = gathered.setdefault(name, _Gathered())
        labels = frozen(dict(zip(_label_columns(rows), values, strict=True)))
        order[at] = known.setdefault((name, key(labels)), len(into.labels))
        if order[at] == len(into.labels):
            into.labels.append(labels)
        owner.append(name)
    if len(known) > MAX_SERIES:
        raise TableError(f"{path}: more than {MAX_SERIES:,} series; {_widest(rows)}")
    names = sorted(set(owner))
    signal = np.array([names.index(name) for name in owner])[combined]
    for at, name in enumerate(names):
        mask = slice(None) if len(names) == 1 else signal == at
        into = gathered[name]
        into.series.append(order[combined[mask]].astype(np.int32))
        into.time.append(rows.time[mask])
        _check(path, name, rows, mask, into)
        for column, numbers in rows.numbers.items():
            into.numbers.setdefault(column, []).append(numbers[mask])


def _check(
    path: Path, name: str, rows: Rows, mask: slice | npt.NDArray[np.bool_], into: _Gathered
) -> None:
    """Raise for counts that are none; note the first value that is neither count nor ratio."""
    at = np.arange(len(rows.time))[mask] + rows.first
    value = rows.numbers["value"][mask]
    trials = rows.numbers["trials"][mask] if "trials" in rows.numbers else np.full(len(at), np.nan)
    counted = np.isfinite(trials)
    wrong = counted & ((value < 0) | (value > trials) | (trials < 0))
    if wrong.any():
        bad = int(np.argmax(wrong))
        raise TableError(
            f"{path}: row {at[bad]}: {name}: value {value[bad]:g} of {trials[bad]:g} trials; with "
            "a column 'trials' the value counts the successes among them"
        )
    if SIGNALS[name].unit == "ratio" and not into.odd:
        wrong = ~counted & ((value < 0) | (value > 1))
        if wrong.any():
            bad = int(np.argmax(wrong))
            into.odd = f"row {at[bad]}: {name}: value {value[bad]:g}"


def _label_columns(rows: Rows) -> list[str]:
    return [name for name in rows.words if name != "signal"]


def _series(rows: Rows) -> tuple[IntArray, list[tuple[str, ...]]]:
    """Return the number of each row's (signal, labels) in this block, and those by number."""
    columns = [rows.words["signal"], *(rows.words[name] for name in _label_columns(rows))]
    combined = np.zeros(len(rows.time), dtype=np.int64)
    combos: list[tuple[int, ...]] = [()]
    widths: list[int] = []
    for column in columns:
        width = len(column.texts)
        if len(combos) * math.prod(widths) * width >= 2**62:
            combined, combos = _numbered(combined, combos, widths)
            widths = []
        combined = combined * width + column.codes
        widths.append(width)
    combined, combos = _numbered(combined, combos, widths)
    return combined, [
        tuple(column.texts[code] for column, code in zip(columns, combo, strict=True))
        for combo in combos
    ]


def _numbered(
    combined: IntArray, combos: list[tuple[int, ...]], widths: list[int]
) -> tuple[IntArray, list[tuple[int, ...]]]:
    """Return numbers from zero for what *combined* holds: a combo and a code for each width."""
    numbers, distinct = pd.factorize(combined)
    out = []
    for one in distinct.tolist():
        codes = []
        for width in reversed(widths):
            one, code = divmod(one, width)  # noqa: PLW2901 - peeled off digit by digit
            codes.append(code)
        out.append((*combos[one], *reversed(codes)))
    return np.asarray(numbers, dtype=np.int64), out


def _widest(rows: Rows) -> str:
    names = _label_columns(rows)
    widest = max(names, key=lambda name: len(rows.words[name].texts), default="")
    return f"leave out column {widest!r}, whose values are the most" if widest else "cut it"


def _panel(path: Path, name: str, found: _Gathered) -> Panel:
    series, time = _joined(found.series), _joined(found.time)
    numbers = {column: _joined(parts) for column, parts in found.numbers.items()}
    step = resample.step_of(series, time)
    at = resample.buckets(series, time, len(found.labels), step)
    first, points = int(at.min()), int(at.max() - at.min()) + 1
    shape = (len(found.labels), points)
    if points > MAX_POINTS or shape[0] * points > MAX_CELLS:
        ends = " to ".join(
            f"{pd.Timestamp(float(t), unit='s'):%Y-%m-%dT%H:%M:%SZ}"
            for t in (time.min(), time.max())
        )
        raise TableError(
            f"{path}: {name}: {shape[0]:,} series from {ends} every {step:g} s are too much to "
            "hold; is a time wrong? Else cut it by time"
        )
    at -= first
    at += series.astype(np.int64) * points
    cells = at
    del series, time
    times = (first + np.arange(points, dtype=np.float64)) * step
    labels = tuple(found.labels)
    value, load, trials = numbers["value"], numbers.get("load"), numbers.get("trials")
    if trials is None or np.isnan(trials).all():
        if found.odd:
            counts = SIGNALS[name].counts is not None
            hint = "add a column 'trials'" if counts else "of percents write hundredths"
            raise TableError(f"{path}: {found.odd} is no ratio (0 to 1); {hint}")
        values, tried = resample.average(cells, value, shape), None
    else:
        both = np.isfinite(value) & np.isfinite(trials)
        values = resample.total(cells, np.where(both, value, np.nan), shape)
        tried = resample.total(cells, np.where(both, trials, np.nan), shape)
    loads = None
    if load is not None and np.isfinite(load).any():
        loads = resample.average(cells, load, shape)
    return Panel(name, times, values, labels, load=loads, trials=tried)


def _joined(parts: list[Any]) -> Any:
    """Return the parts as one array and let go of them: a week of a fleet is there only once."""
    whole = np.concatenate(parts)
    parts.clear()
    return whole


def _with_starts(panels: dict[str, Panel]) -> dict[str, Panel]:
    """Give the signals of a process the incarnations that the same table has."""
    starts = panels.get(STARTS)
    if starts is None:
        return panels
    rows = {key(labels): row for row, labels in enumerate(starts.labels)}
    for name, panel in panels.items():
        if SIGNALS[name].level != "process" or name == STARTS:
            continue
        at = np.searchsorted(starts.times, panel.times + starts.step / 2) - 1
        near = (at >= 0) & (panel.times - starts.times[at] <= panel.step)
        whole = np.full(panel.values.shape, np.nan)
        for row, labels in enumerate(panel.labels):
            found = rows.get(key(labels))
            if found is not None:
                whole[row] = np.where(near, starts.values[found][at], np.nan)
        panels[name] = replace(panel, starts=whole)
    return panels


def write_table(path: str | Path, panels: Mapping[str, Panel] | Iterable[Panel]) -> None:
    """Write panels as a table that `read_table` reads back; missing values become no rows.

    Args:
        path: Its name says the format: `.parquet`, `.csv.gz`, else CSV.
        panels: What to write. Incarnations are written as the signal `process_start_time`.

    Raises:
        TableError: The file can't be written.
    """
    path = Path(path)
    written = list(panels.values() if isinstance(panels, Mapping) else panels)
    if not any(panel.signal == STARTS for panel in written):
        written += [
            Panel(STARTS, panel.times, panel.starts, panel.labels)
            for panel in written
            if panel.starts is not None
        ][:1]
    names = sorted({name for panel in written for one in panel.labels for name in one})
    clash = next((name for name in names if name in COLUMNS), None)
    if clash is not None:
        raise TableError(f"{path}: a label is called {clash!r}, as a column of the table is")
    schema = _schema(written, names)
    partial = path.with_name(f".{path.name}.partial")
    try:
        with _writer(partial, path.name, schema) as writer:
            for batch in _batches(written, names, schema):
                writer.write(batch)
        partial.replace(path)
    except (OSError, pa.ArrowInvalid) as error:
        partial.unlink(missing_ok=True)
        raise TableError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _schema(panels: Iterable[Panel], names: Iterable[str]) -> Any:
    panels = list(panels)
    whole = all((panel.times == np.floor(panel.times)).all() for panel in panels)
    fields = [("time", pa.int64() if whole else pa.float64()), ("signal", pa.string())]
    fields.append(("value", pa.float64()))
    fields += [
        (name, pa.float64())
        for name in ("load", "trials")
        if any(getattr(panel, name) is not None for panel in panels)
    ]
    return pa.schema([*fields, *((name, pa.string()) for name in names)])


def _writer(path: Path, name: str, schema: Any) -> Any:
    if name.endswith((".parquet", ".pq")):
        return pyarrow.parquet.ParquetWriter(path, schema, compression="zstd")
    sink = pa.output_stream(str(path), compression="gzip" if name.endswith(".gz") else None)
    return pyarrow.csv.CSVWriter(sink, schema)


def _batches(panels: Iterable[Panel], names: list[str], schema: Any) -> Iterator[Any]:
    for panel in panels:
        series = max(1, CHUNK_ROWS // max(1, len(panel.times)))
        for first in range(0, len(panel.labels), series):
            part = panel.rows(range(first, min(first + series, len(panel.labels))))
            row, at = np.nonzero(np.isfinite(part.values))
            columns: dict[str, Any] = {
                "time": part.times[at],
                "signal": np.repeat(part.signal, len(at)),
                "value": part.values[row, at],
            }
            for name in ("load", "trials"):
                if name in schema.names:
                    array = getattr(part, name)
                    columns[name] = (
                        pa.nulls(len(at), pa.float64()) if array is None
                        else pa.array(array[row, at], from_pandas=True)
                    )  # fmt: skip
            for name in names:
                texts = np.array([one.get(name, "") for one in part.labels], dtype=object)
                columns[name] = texts[row]
            yield pa.table(columns).cast(schema) if len(at) else pa.table(columns, schema=schema)
