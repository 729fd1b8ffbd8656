"""Rows of a table file, a block at a time, as arrays: CSV (plain or gzip) and Parquet."""

from __future__ import annotations

import csv
import gzip
import io
import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from catalog.labels import LEVELS
from catalog.panel import FloatArray
from catalog.plain import plain
from catalog.signals import unknown
from store.errors import TableError

log = logging.getLogger("leadline.store")

REQUIRED: Final = ("time", "signal", "value")
NUMBERS: Final = ("value", "load", "trials")
COLUMNS: Final = ("time", "signal", *NUMBERS)
KNOWN_LABELS: Final = sorted({name for level in LEVELS.values() for name in level})
BLOCK: Final = 16 * 2**20
BATCH_ROWS: Final = 500_000
MAX_HEADER: Final = 2**20
SEPARATORS: Final = {";": "';'", "\t": "a tab", "|": "'|'"}
"""Characters that separate columns elsewhere, and how an error calls them."""
MILLISECONDS: Final = 1e11
"""Unix seconds reach this in the year 5138, unix milliseconds did in 1973."""
FINER: Final = ((1e17, "nanoseconds", "1e9"), (1e14, "microseconds", "1e6"))
"""From where on a time is no milliseconds either, what it is, and what makes seconds of it."""

Progress = Callable[[float], None]
_MILLI: Final = ("milliseconds", "1000")
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Words:
    """A column of texts: one code per row, and the text of each code."""

    codes: IntArray
    texts: list[str]


@dataclass(frozen=True)
class Rows:
    """One block of a file.

    Attributes:
        first: Number of its first row in the file, from 1, header not counted.
        time: Unix seconds.
        words: The signal and the labels by column.
        numbers: The value and, where the file has them, load and trials.
    """

    first: int
    time: FloatArray
    words: dict[str, Words]
    numbers: dict[str, FloatArray]


class MixedTimesError(TableError):
    """A column began with unix seconds and went on otherwise: read it again, times as text."""


def blocks(
    path: Path, progress: Progress | None = None, *, time_as_text: bool = False
) -> Iterator[Rows]:
    """Yield the rows of *path* block by block; its format is seen by its first bytes.

    Raises:
        MixedTimesError: Read it again with *time_as_text*, which is slower.
        TableError: One line that names the file, the row or value, the column and the remedy.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise TableError(f"{path}: is no regular file; it is read more than once, so save it first")
    try:
        with path.open("rb") as file:
            magic = file.read(4)
        if not magic:
            raise TableError(f"{path}: is empty; a table begins with its column names")
        if magic == b"PAR1":
            yield from _parquet(path, progress)
        else:
            yield from _csv(path, magic[:2] == b"\x1f\x8b", progress, time_as_text)
    except pa.ArrowException as error:
        raise TableError(f"{path}: {_first_line(error)}") from None
    except zlib.error as error:
        raise TableError(f"{path}: damaged gzip: {_first_line(error)}") from None
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or _first_line(error)
        raise TableError(f"{path}: {reason}") from None


def check_columns(path: Path, columns: Sequence[str]) -> None:
    """Raise for a column that is missing or doubled, or whose name is a slip of a known one."""
    for name in REQUIRED:
        if name not in columns:
            if wrong := next((s for s in SEPARATORS if any(s in c for c in columns)), None):
                raise TableError(
                    f"{path}: no column {name!r}; is the separator {SEPARATORS[wrong]}? "
                    "Columns are separated by ','"
                )
            near = get_close_matches(name, [c for c in columns if c not in COLUMNS], 1, 0.5)
            hint = f"is it {near[0]!r}? Rename it" if near else f"it has {', '.join(columns)}"
            raise TableError(plain(f"{path}: no column {name!r}; {hint}"[:500]))
    doubled = next((name for name in columns if columns.count(name) > 1), None)
    if doubled is not None:
        raise TableError(f"{path}: column {doubled!r} is there twice")
    for name in columns:
        if name in COLUMNS or name in KNOWN_LABELS:
            continue
        if get_close_matches(name.lower(), COLUMNS, 1, 0.8):
            raise TableError(f"{path}: {unknown('column', name, COLUMNS)}")
        if get_close_matches(name.lower(), KNOWN_LABELS, 1, 0.85):
            log.warning("%s: read as a label: %s", path, unknown("label", name, KNOWN_LABELS))


def _csv(path: Path, zipped: bool, progress: Progress | None, time_as_text: bool) -> Iterator[Rows]:
    columns, example = _header(path, zipped)
    check_columns(path, columns)
    first = 1
    as_text = time_as_text or not _is_number(example.get("time", ""))
    texts = pa.dictionary(pa.int32(), pa.string())
    types: dict[str, Any] = {name: pa.float64() if name in NUMBERS else texts for name in columns}
    types["time"] = texts if as_text else pa.float64()
    try:
        for batch in _csv_batches(path, zipped, columns, types, progress):
            yield _rows(path, batch, columns, first)
            first += batch.num_rows
    except pa.ArrowInvalid as error:
        plain: dict[str, Any] = dict.fromkeys(columns, pa.string())
        mixed = _explain(path, _csv_batches(path, zipped, columns, plain, None), columns)
        if mixed and not as_text:
            raise MixedTimesError(f"{path}: times are written in several ways") from None
        raise TableError(f"{path}: {_first_line(error)}") from None


def _csv_batches(
    path: Path,
    zipped: bool,
    columns: Sequence[str],
    types: dict[str, Any],
    progress: Progress | None,
) -> Iterator[Any]:
    size = path.stat().st_size
    with pa.OSFile(str(path)) as file:
        stream = pa.CompressedInputStream(file, "gzip") if zipped else file
        reader = pyarrow.csv.open_csv(
            stream,
            read_options=pyarrow.csv.ReadOptions(
                block_size=BLOCK, column_names=list(columns), skip_rows=1
            ),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=False),
            convert_options=pyarrow.csv.ConvertOptions(column_types=types),
        )
        for batch in reader:
            if progress is not None and size:
                progress(min(1.0, file.tell() / size))
            yield batch


def _header(path: Path, zipped: bool) -> tuple[list[str], dict[str, str]]:
    """Return the column names and the first row by column."""
    with gzip.open(path) if zipped else path.open("rb") as file:
        head = file.read(MAX_HEADER)
    try:
        lines = list(csv.reader(io.StringIO(head.decode("utf-8-sig", "replace"), newline="")))[:2]
    except csv.Error as error:
        raise TableError(f"{path}: is no CSV text: {error}") from None
    if not lines or b"\0" in head:
        raise TableError(f"{path}: is no CSV text and no Parquet file")
    columns = [name.strip() for name in lines[0]]
    return columns, dict(zip(columns, lines[1] if len(lines) > 1 else [], strict=False))


def _parquet(path: Path, progress: Progress | None) -> Iterator[Rows]:
    with pyarrow.parquet.ParquetFile(path) as probe:
        schema, total = probe.schema_arrow, probe.metadata.num_rows
    columns = list(schema.names)
    check_columns(path, columns)
    for name in NUMBERS:
        if name in columns and not _numeric(schema.field(name).type):
            raise TableError(
                f"{path}: column {name!r} holds {schema.field(name).type}, not numbers"
            )
    for name in columns:
        if pa.types.is_nested(schema.field(name).type):
            raise TableError(
                f"{path}: column {name!r} holds {plain(str(schema.field(name).type))[:200]}, no "
                "texts; make one column of each of its parts, or leave it out"
            )
    texts = [name for name in columns if pa.types.is_string(schema.field(name).type)]
    first = 1
    with pyarrow.parquet.ParquetFile(path, read_dictionary=texts) as file:
        for batch in file.iter_batches(batch_size=BATCH_ROWS):
            yield _rows(path, batch, columns, first)
            first += batch.num_rows
            if progress is not None and total:
                progress(min(1.0, (first - 1) / total))


def _numeric(kind: Any) -> bool:
    return bool(
        pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    )


def _rows(path: Path, batch: Any, columns: Sequence[str], first: int) -> Rows:
    numbers = {
        name: _floats(batch.column(columns.index(name))) for name in NUMBERS if name in columns
    }
    words = {
        name: _label(path, name, batch.column(at))
        for at, name in enumerate(columns)
        if name not in NUMBERS and name != "time"
    }
    time = _seconds(path, batch.column(columns.index("time")), first)
    return Rows(first, time, words, numbers)


def _floats(array: Any) -> FloatArray:
    values = np.array(array.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    values[~np.isfinite(values)] = np.nan
    return values


def _label(path: Path, name: str, array: Any) -> Words:
    try:
        return _words(array)
    except pa.ArrowException as error:
        raise TableError(f"{path}: column {name!r}: {_first_line(error)}") from None


def _words(array: Any) -> Words:
    if not pa.types.is_dictionary(array.type):
        array = array.cast(pa.string()).dictionary_encode()
    texts = ["" if text is None else str(text) for text in array.dictionary.to_pylist()]
    indices = array.indices.fill_null(len(texts))
    return Words(np.asarray(indices.to_numpy(zero_copy_only=False), np.int64), [*texts, ""])


def _seconds(path: Path, array: Any, first: int) -> FloatArray:
    """Return unix seconds of numbers, timestamps (without zone: UTC) or ISO 8601 texts."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        whole = array.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
        return _checked(path, _floats(whole) / 1e6, array, first)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        words = _words(array)
        return _checked(path, _instants(words.texts)[words.codes], array, first)
    if not _numeric(kind):
        raise TableError(f"{path}: column 'time' holds {kind}, no unix seconds or ISO 8601")
    return _checked(path, _floats(array), array, first)


def _instants(texts: Sequence[str]) -> FloatArray:
    """Return unix seconds of each text, NaN where it is no instant."""
    series = pd.Series(list(texts), dtype="str")
    iso = pd.to_datetime(series, format="ISO8601", utc=True, errors="coerce")
    seconds = iso.astype("datetime64[us, UTC]").astype("int64").to_numpy(np.float64) / 1e6
    number = pd.to_numeric(series, errors="coerce").to_numpy(np.float64)
    # `20231114` is a date in ISO 8601, but a column of unix seconds may hold any number.
    return np.where(np.isfinite(number), number, np.where(iso.isna(), np.nan, seconds))


def _checked(path: Path, seconds: FloatArray, array: Any, first: int) -> FloatArray:
    wrong = ~(np.abs(seconds) < MILLISECONDS)  # NaN is wrong too
    if not wrong.any():
        return seconds
    at = int(np.argmax(wrong))
    value = array[at].as_py()
    where = f"{path}: row {first + at}: time {str(value)[:80]!r}"
    if np.isfinite(seconds[at]):
        size = abs(float(seconds[at]))
        unit, by = next(((u, by) for least, u, by in FINER if size >= least), _MILLI)
        raise TableError(f"{where} looks like {unit}; divide by {by} to get unix seconds")
    raise TableError(f"{where} is neither unix seconds nor ISO 8601 (2026-01-31T12:00:00Z)")


def _explain(path: Path, batches: Iterator[Any], columns: Sequence[str]) -> bool:
    """Raise for the first row whose number or time is none; return whether a time is a text."""
    first, mixed = 1, False
    for batch in batches:
        for name in (name for name in NUMBERS if name in columns):
            texts = batch.column(columns.index(name)).to_pylist()
            for at, text in enumerate(texts):
                if text and not _is_number(text) and text.lower() not in {"null", "n/a", "na"}:
                    raise TableError(
                        f"{path}: row {first + at}: column {name!r}: {text[:80]!r} is no number"
                    )
        time = batch.column(columns.index("time"))
        _seconds(path, time, first)
        mixed = mixed or not all(_is_number(text) for text in _words(time).texts if text)
        first += batch.num_rows
    return mixed


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _first_line(error: BaseException) -> str:
    return plain((str(error).splitlines() or [type(error).__name__])[0][:300])
