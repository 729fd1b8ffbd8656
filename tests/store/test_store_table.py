"""Tables: what is written comes back, rows may lie anyhow, and bad ones get one clear line."""

import gzip
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from catalog.panel import Panel
from store.errors import TableError
from store.table import read_table, write_table

T0 = 1_700_000_040


def panels(series: int = 3, points: int = 50) -> dict[str, Panel]:
    """Return memory with gaps, load and a restart, and counts."""
    rng = np.random.default_rng(7)
    times = T0 + 60.0 * np.arange(points)
    labels = tuple(
        {"pool": "decode", "server": f"s{i}:8000", "rank": str(i)} for i in range(series)
    )
    values = 1e9 + 1e6 * rng.random((series, points))
    values[0, 5:9] = np.nan
    load = rng.random((series, points))
    starts = np.full((series, points), float(T0 - 500))
    starts[:, points // 2 :] = T0 + 1500
    trials = rng.integers(50, 90, (series, points)).astype(float)
    return {
        "host_anon_swap": Panel("host_anon_swap", times, values, labels, load=load, starts=starts),
        "acceptance_ratio": Panel(
            "acceptance_ratio", times, np.floor(trials * 0.6), labels, trials=trials
        ),
    }


def assert_same(one: Panel, other: Panel) -> None:
    """Compare panels whose series may be in another order."""
    order = [[dict(labels) for labels in other.labels].index(dict(row)) for row in one.labels]
    other = other.rows(order)
    for name in ("times", "values", "load", "trials", "starts"):
        left, right = getattr(one, name), getattr(other, name)
        assert (left is None) == (right is None), name
        if left is not None:
            known = np.isfinite(one.values) if name != "times" else np.isfinite(left)
            np.testing.assert_allclose(left[known], right[known], rtol=1e-14, err_msg=name)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_round_trip(tmp_path: Path, name: str) -> None:
    """What is written is read back in every format: values, load, trials, incarnations, gaps."""
    path, shares = tmp_path / name, []
    written = panels()
    write_table(path, written)
    read = read_table(path, shares.append)
    assert read.keys() == written.keys() | {"process_start_time"}
    for signal, panel in written.items():
        assert_same(panel, read[signal])
    assert np.isnan(read["host_anon_swap"].values).sum() == 4
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert [file.name for file in tmp_path.iterdir()] == [name]


def text(tmp_path: Path, body: str, header: str = "time,signal,value,server") -> Path:
    """Write a CSV file."""
    path = tmp_path / "in.csv"
    path.write_text(f"{header}\n{body}\n")
    return path


def test_times_in_every_spelling(tmp_path: Path) -> None:
    """Unix seconds, ISO 8601 with and without a zone are one time, even mixed in one column."""
    path = text(
        tmp_path,
        "1700000040,host_fds,1,a\n2023-11-14T22:15:00Z,host_fds,2,a\n"
        "2023-11-14 23:16:00+01:00,host_fds,3,a\n2023-11-14T22:17:00,host_fds,4,a",
    )
    panel = read_table(path)["host_fds"]
    np.testing.assert_array_equal(panel.times, T0 + 60 * np.arange(4))
    np.testing.assert_array_equal(panel.values, [[1, 2, 3, 4]])


@pytest.mark.parametrize("kind", [pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("s"), "text"])
def test_times_of_parquet(tmp_path: Path, kind: object) -> None:
    """Timestamps with and without a zone, and texts; labels that are numbers become texts."""
    seconds = T0 + 60 * np.arange(3)
    if kind == "text":
        times = pa.array([f"{np.datetime64(int(s), 's')}Z" for s in seconds])
    else:
        utc = pa.array(seconds * 1_000_000_000, pa.timestamp("ns", getattr(kind, "tz", None)))
        times = utc.cast(kind)
    path = tmp_path / "t.parquet"
    signals = pa.array(["host_fds"] * 3).dictionary_encode()
    columns = {"time": times, "signal": signals, "value": [1, 2, 3], "engine": [0, 0, 0]}
    pyarrow.parquet.write_table(pa.table(columns), path)
    panel = read_table(path)["host_fds"]
    np.testing.assert_array_equal(panel.times, seconds)
    assert panel.labels == ({"engine": "0"},)


def test_rows_in_any_order_average_and_add_up(tmp_path: Path) -> None:
    """Samples that share a step are averaged, counts are added; NaN and empty are missing."""
    path = text(
        tmp_path,
        "180,host_fds,4,,a\n60,host_fds,2,,a\n61,host_fds,4,,a\n120,host_fds,NaN,,a\n"
        "60,host_fds,,,b\n120,host_fds,9,,b\n240,host_fds,1,,a\n300,host_fds,inf,,a\n"
        "60,acceptance_ratio,3,5,a\n60,acceptance_ratio,4,5,a\n120,acceptance_ratio,1,5,a",
        "time,signal,value,trials,server",
    )
    read = read_table(path)
    fds, nan = read["host_fds"], np.nan
    assert [row["server"] for row in fds.labels] == ["a", "b"]
    np.testing.assert_array_equal(fds.values, [[3, nan, 4, 1, nan], [nan, 9, nan, nan, nan]])
    assert fds.trials is None
    ratio = read["acceptance_ratio"]
    np.testing.assert_array_equal(ratio.values, [[7, 1]])
    np.testing.assert_array_equal(ratio.trials, [[10, 5]])


@settings(max_examples=60, deadline=None)
@example(0.0, 7.0, 4194305, 60)
@given(
    st.floats(0, 59.9), st.floats(0.0, 8.0), st.integers(0, 2**32 - 1), st.sampled_from([15, 60])
)
def test_jitter_makes_no_holes(phase: float, jitter: float, seed: int, step: int) -> None:
    """Series that sample like clockwork, at any phase and with jitter, fill every step once."""
    rng = np.random.default_rng(seed)
    points = 60
    at = T0 + phase + step * np.arange(points) + rng.uniform(-1, 1, points) * jitter * step / 60
    from store import resample  # noqa: PLC0415 - the one inner part worth a law of its own

    zeros = np.zeros(points, dtype=np.int64)
    assert resample.step_of(zeros, at) in {step - 1, step, step + 1}
    cells = resample.buckets(zeros, at, 1, float(step))
    np.testing.assert_array_equal(np.diff(cells), 1)
    assert np.all(np.abs(cells * step + step / 2 - at) <= step * (0.5 + 2 * jitter / 60 + 0.03))


SAMPLE = st.tuples(
    st.integers(0, 9), st.sampled_from(["a", "b", 'c "x", y']),
    st.one_of(st.none(), st.floats(-1e9, 1e9, allow_subnormal=False)),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@example([(k, "c", None) for k in (0, 1, 4)], "csv")  # gaps of 1 and 3 steps, none of 2
@given(st.lists(SAMPLE, min_size=1, max_size=60), st.sampled_from(["csv", "parquet"]))
def test_any_rows_equal_a_naive_reader(tmp_path_factory, samples, kind) -> None:
    """Rows in any order, doubled or empty, read as one sample at a time would be."""
    # Two series that sample every minute fix the step, so that the oracle may know it.
    samples = [*samples, *((k, server, 1.0) for k in range(10) for server in ("a", "b"))]
    sums: dict[tuple[int, str], list[float]] = {}
    for k, server, value in samples:
        sums.setdefault((k, server), []).extend([] if value is None else [value])
    columns = {
        "time": [T0 + 60 * k for k, _, _ in samples], "signal": ["host_fds"] * len(samples),
        "value": pa.array([value for _, _, value in samples], pa.float64()),
        "server": [server for _, server, _ in samples],
    }  # fmt: skip
    path = tmp_path_factory.mktemp("t") / f"t.{kind}"
    if kind == "csv":
        pyarrow.csv.write_csv(pa.table(columns), path)
    else:
        pyarrow.parquet.write_table(pa.table(columns), path)
    panel = read_table(path)["host_fds"]
    assert {row["server"] for row in panel.labels} == {server for _, server, _ in samples}
    for labels, row in zip(panel.labels, panel.values, strict=True):
        for k, value in enumerate(row):
            known = sums.get((k, labels["server"]), [])
            expected = sum(known) / len(known) if known else np.nan
            np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-6)


BAD = {
    "value": ("1700000040,host_rss,abc,a", "row 1: column 'value': 'abc' is no number"),
    "late": ("1,host_rss,1,a\n" * 3 + "2,host_rss,1 GB,a", "row 4: column 'value': '1 GB'"),
    "time": ("1700000040,host_rss,1,a\nyesterday,host_rss,1,a", "row 2: time 'yesterday' is nei"),
    "ns": ("1700000040000000000,host_rss,1,a", "looks like nanoseconds; divide by 1e9"),
    "percent": (
        "60,acceptance_ratio,0.7,a\n120,acceptance_ratio,70,a",
        "row 2: acceptance_ratio: value 70 is no ratio (0 to 1); add a column 'trials'",
    ),
    "ms": ("1700000040000,host_rss,1,a", "looks like milliseconds; divide by 1000"),
    "signal": ("1,host_rsss,1,a", "row 1: unknown signal 'host_rsss': did you mean 'host_rss'?"),
    "ragged": ("1,host_rss,1,a\n2,host_rss,1", "Expected 4 columns, got 3"),
    "no time": (",host_rss,1,a", "row 1: time"),
    "far": (
        "0,host_fds,1,a\n1,host_fds,1,a\n2,host_fds,1,a\n9e10,host_fds,1,a",
        "is a time wrong?",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_rows_get_one_line(tmp_path: Path, case: str) -> None:
    """A bad row is named with its value, its column and what would be right."""
    body, words = BAD[case]
    path = text(tmp_path, body)
    with pytest.raises(TableError) as caught:
        read_table(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


HEADERS = {
    "time,signal,valu": "is it 'valu'? Rename it",
    "timestamp,signal,value": "is it 'timestamp'?",
    "time;signal;value": "no column 'time'; is the separator ';'?",
    "time\tsignal\tvalue": "no column 'time'; is the separator a tab?",
    "time,signal,value,trial": "unknown column 'trial': did you mean 'trials'?",
    "time,signal,value,pool,pool": "column 'pool' is there twice",
}


@pytest.mark.parametrize("header", HEADERS)
def test_bad_columns_get_one_line(tmp_path: Path, header: str) -> None:
    """A missing, doubled or misspelt column is named with the nearest right one."""
    with pytest.raises(TableError) as caught:
        read_table(text(tmp_path, "1,host_rss,1,1,1", header))
    assert HEADERS[header] in str(caught.value)


HURT = gzip.compress(b"time,signal,value\n" * 99)[:10] + b"\xff" * 40


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    """An empty, missing, binary, cut or header-only file, or a folder, gets one line."""
    files = {
        "empty.csv": (b"", "is empty"),
        "head.csv": (b"time,signal,value\n", "has no rows"),
        "bytes.csv": (b"\x00\x01\x02\x03", "is no CSV text"),
        "cut.parquet": (b"PAR1 and then nothing", "arquet"),
        "hurt.csv.gz": (HURT, "damaged gzip"),
        "cut.csv.gz": (gzip.compress(b"time,signal,value\n" * 99)[:30], "cut|end|Compressed"),
    }
    for name, (content, words) in files.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TableError, match=words) as caught:
            read_table(tmp_path / name)
        assert "\n" not in str(caught.value)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TableError, match="no regular file"):
        read_table(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "none.csv"):
        with pytest.raises(TableError, match="directory"):
            read_table(path)


def test_success_beyond_trials_and_text_values(tmp_path: Path) -> None:
    """Counts that are none, a Parquet column of texts, and labels without bound are refused."""
    header = "time,signal,value,trials"
    for row in ("6,5", "1,-5", "-1,5"):
        value, trials = row.split(",")
        with pytest.raises(TableError, match=f"row 2: .*value {value} of {trials} trials"):
            read_table(text(tmp_path, f"1,acceptance_ratio,1,5\n2,acceptance_ratio,{row}", header))
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(
        pa.table({"time": [1], "signal": ["host_rss"], "value": ["x"]}), path
    )
    with pytest.raises(TableError, match="column 'value' holds string, not numbers"):
        read_table(path)


@pytest.mark.parametrize("kind", [pa.struct([("a", pa.int64())]), pa.list_(pa.string())])
def test_nested_labels_name_the_column(tmp_path: Path, kind: pa.DataType) -> None:
    """A label that is no text but a structure is refused, with its column."""
    path = tmp_path / "t.parquet"
    columns = {"time": [1], "signal": ["host_rss"], "value": [1.0], "pod": pa.nulls(1, kind)}
    pyarrow.parquet.write_table(pa.table(columns), path)
    with pytest.raises(TableError, match=r"column 'pod' holds .*leave it out") as caught:
        read_table(path)
    assert str(path) in str(caught.value)


def test_misspelt_label_is_told(tmp_path: Path, caplog) -> None:
    """A label close to a known one is read as it is, and the log names the nearest right one."""
    read = read_table(text(tmp_path, "1,host_rss,1,a", "time,signal,value,deploymnet"))
    assert read["host_rss"].labels == ({"deploymnet": "a"},)
    assert "unknown label 'deploymnet': did you mean 'deployment'?" in caplog.text


def test_too_many_series_names_the_column(tmp_path: Path, monkeypatch) -> None:
    """A label with a value of its own in each row is named."""
    monkeypatch.setattr("store.table.MAX_SERIES", 10)
    body = "\n".join(f"{i},host_rss,1,decode,r{i}" for i in range(20))
    with pytest.raises(TableError, match="leave out column 'request'"):
        read_table(text(tmp_path, body, "time,signal,value,pool,request"))
