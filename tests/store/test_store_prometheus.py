"""`PromStore` on a real Prometheus, on history with every misfortune that it must survive."""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

import numpy as np
import pytest
import requests

from catalog.signals import SIGNALS
from stack import binaries
from stack.programs import Program, Stack
from store.errors import BadAnswerError, BadQueryError, UnreachableError
from store.grid import grid
from store.history import extend
from store.prometheus import PromStore

T0 = 1_700_000_040.0  # a multiple of 60 s
SCRAPE = 15.0
HOURS = 3
TIMES = T0 + SCRAPE * np.arange(HOURS * 240)
BASE = {"cluster": "c", "namespace": "n", "deployment": "d", "model_name": "m"}
DECODE = {**BASE, "pool": "decode", "server": "d1:8000"}

Wave = Callable[[float], float | None]


def line(name: str, labels: Mapping[str, str], value: float, at: float) -> str:
    """Return one sample in OpenMetrics text."""
    inner = ",".join(f'{key}="{text}"' for key, text in labels.items())
    number = repr(float(value)).replace("nan", "NaN").replace("inf", "+Inf")
    return f"{name}{{{inner}}} {number} {at:.3f}"


def samples(name: str, labels: Mapping[str, str], wave: Wave) -> Iterator[str]:
    """Yield a series' samples; where *wave* gives None there is none."""
    for at in TIMES:
        value = wave(at - T0)
        if value is not None:
            yield line(name, labels, value, at)


def counter(per_second: float, *, restart: float = 1e9, gap: tuple[float, float] = (0, 0)) -> Wave:
    """Return a counter that begins at 1,000, starts anew at *restart* and misses scrapes."""

    def wave(t: float) -> float | None:
        if gap[0] < t < gap[1]:
            return None
        return per_second * (t - restart) if t >= restart else 1000 + per_second * t

    return wave


def history() -> str:
    """Return three hours: a restart, a gap, a renamed metric, a late engine, NaN and infinity."""
    lines: list[str] = []

    def add(name: str, labels: Mapping[str, str], wave: Wave) -> None:
        lines.extend(samples(name, labels, wave))

    engines = [("0", {"restart": 3607.0}), ("1", {"gap": (5400.0, 6300.0)})]
    for name, speed in (("num_accepted_tokens", 6.0), ("num_draft_tokens", 10.0)):
        for engine, trouble in engines:
            labels = {**DECODE, "engine": engine}
            add(f"vllm:spec_decode_{name}_total", labels, counter(speed, **trouble))
    prefill = {**BASE, "pool": "prefill", "server": "p1:8000", "engine": "0"}
    for name, speed in (("hits", 3.0), ("queries", 5.0)):
        old, new = f"vllm:gpu_prefix_cache_{name}_total", f"vllm:prefix_cache_{name}_total"
        # The new version counts faster, so that its counter has passed the old value at once.
        add(old, prefill, lambda t, s=speed: s * t / 1e3 if t < 5400 else None)
        add(new, prefill, lambda t, s=speed: s * (t - 5380) if t >= 5400 else None)
    process = {**DECODE, "node": "node1", "process": "engine_core", "rank": "0"}
    add("leadline_process_anonymous_bytes", process, lambda t: 1e9 + 1e5 * t)
    add("leadline_process_swap_bytes", process, lambda t: np.nan if t == 3600 else 1e6)
    add("leadline_process_start_time_seconds", process, lambda t: T0 if t < 7200 else T0 + 7190)
    for pool, speed in (("prefill", 4.0), ("decode", 2.0)):
        for engine in ("0", "1"):
            labels = {**BASE, "pool": pool, "server": f"{pool[0]}1:8000", "engine": engine}
            add("vllm:request_success_total", labels, counter(speed))
    for engine in ("0", "1"):
        labels = {**DECODE, "engine": engine}
        add("vllm:num_requests_running", labels, lambda _, e=engine: 5.0 + int(e))
        add("vllm:kv_cache_usage_perc", labels, lambda t: np.inf if t > 7200 else 0.5)
        for part, speed in (("sum", 0.03), ("count", 2.0)):
            add(f"vllm:request_time_per_output_token_seconds_{part}", labels, counter(speed))
    return "\n".join([*lines, "# EOF\n"])


@pytest.fixture(scope="module")
def store(module_prometheus) -> Iterator[PromStore]:
    """A client of a Prometheus that holds the history."""
    server = module_prometheus(openmetrics=history())
    store = PromStore(server.url, timeout=30.0)
    yield store
    store.close()


END = T0 + HOURS * 3600 - 60


def test_counts_lose_nothing_and_double_nothing(store: PromStore) -> None:
    """Counts over a restart and a gap sum up to what the counters say was counted."""
    panel = store.panel(SIGNALS["acceptance_ratio"], T0, END, 60)
    assert panel.trials is not None
    assert [dict(labels) for labels in panel.labels] == [{**BASE, "pool": "decode"}]
    span = END - T0
    lost = 7.0  # seconds from the last sample before the restart, 3,600 s, to the restart itself
    for counts, speed in ((panel.values, 6.0), (panel.trials, 10.0)):
        assert np.nansum(counts) == pytest.approx(speed * (2 * span - lost), rel=1e-9)
    ratio = panel.values / panel.trials
    assert np.nanmax(abs(ratio - 0.6)) < 1e-9
    assert np.isnan(panel.trials[0, 0])  # nothing is known of before the first sample


def test_read_in_pieces_equals_read_at_once(store: PromStore) -> None:
    """Successive reads joined by `extend` are the one long read, counts, joins and all."""
    for name in ("acceptance_ratio", "host_anon_swap", "tpot_mean"):
        signal = SIGNALS[name]
        whole = store.panel(signal, T0, END, 60)
        edges = [T0 - 60, T0 + 1800, T0 + 3600, T0 + 5700, T0 + 6000, END]
        joined = store.panel(signal, edges[0] + 60, edges[1], 60)
        for first, last in pairwise(edges[1:]):
            joined = extend(joined, store.panel(signal, first + 60, last, 60))
        assert joined.labels == whole.labels
        for array in ("times", "values", "trials", "load", "starts"):
            one, other = getattr(joined, array), getattr(whole, array)
            assert (one is None) == (other is None)
            if one is not None:
                np.testing.assert_allclose(one, other, err_msg=f"{name} {array}")


def test_renamed_counter_is_one_series(store: PromStore) -> None:
    """An upgrade that renames a counter restarts it, though its new value is the higher one."""
    panel = store.panel(SIGNALS["prefix_hit_ratio"], T0, END, 60)
    assert panel.trials is not None
    assert len(panel.labels) == 1
    upgrade = int((5400 - 0) / 60)
    assert panel.trials[0, upgrade] == pytest.approx(5.0 * 20)
    assert panel.values[0, upgrade] == pytest.approx(3.0 * 20)


def test_joins(store: PromStore) -> None:
    """A process brings its incarnations and its pool's load; a pool the sum over its engines."""
    memory = store.panel(SIGNALS["host_anon_swap"], T0, END, 60)
    assert memory.starts is not None
    assert memory.load is not None
    assert set(memory.starts[0]) == {T0, T0 + 7190}
    assert memory.starts[0, 119] == T0
    assert np.nanmedian(memory.load) == pytest.approx(4.0, rel=1e-3)  # two engines at 2/s
    tpot = store.panel(SIGNALS["tpot_mean"], T0 + 600, END, 60)
    assert tpot.load is not None
    assert set(tpot.load[0]) == {11.0}
    assert np.allclose(tpot.values, 0.015)


def test_not_a_number_is_missing(store: PromStore) -> None:
    """NaN and infinite samples are gaps, never values."""
    memory = store.panel(SIGNALS["host_anon_swap"], T0, END, 60)
    assert np.isnan(memory.values[0, 60])
    assert np.isfinite(memory.values[0, [59, 61]]).all()
    usage = store.panel(SIGNALS["kv_usage"], T0, END, 60)
    assert np.isfinite(usage.values[:, :121]).all()
    assert np.isnan(usage.values[:, 121:]).all()


def test_selector_narrows_every_series(store: PromStore) -> None:
    """A shard's condition reaches plain signals, counts and loads."""
    other = 'deployment="elsewhere"'
    for name in ("tpot_mean", "acceptance_ratio", "host_anon_swap", "ttft_user_mean"):
        assert store.panel(SIGNALS[name], T0, END, 60, other).labels == ()
    mine = store.panel(SIGNALS["kv_usage"], T0, END, 60, 'deployment="d", engine="1"')
    assert [labels["engine"] for labels in mine.labels] == ["1"]


def test_a_failing_load_keeps_the_panel(store: PromStore, monkeypatch, caplog) -> None:
    """Without its load a signal is judged all the same, and the log says so once."""
    fresh = PromStore(store.url)
    real = fresh.range

    def broken(query: str, *rest: float):
        if "request_success" in query:
            raise UnreachableError("gone")
        return real(query, *rest)

    monkeypatch.setattr(fresh, "range", broken)
    panel = fresh.panel(SIGNALS["host_anon_swap"], T0, END, 60)
    assert panel.load is None
    assert panel.starts is not None
    assert "request_rate can't be read" in caplog.text


def test_long_reads_are_cut_and_joined(store: PromStore, monkeypatch) -> None:
    """A span of more points than a request may have comes in pieces, without a seam."""
    query = "sum(leadline_process_anonymous_bytes)"
    found = store.range(query, T0, T0 + 10800 - 15, 0.5)
    assert len(found.times) == 21571  # Prometheus refuses more than 11,000
    assert np.isfinite(found.values).all()
    assert np.all(np.diff(found.values[0]) >= 0)
    monkeypatch.setattr("store.prometheus.FIRST_POINTS", 7)
    monkeypatch.setattr("store.prometheus.MAX_SAMPLES", 11)
    small = store.range(query, T0, T0 + 1800, 15)
    np.testing.assert_array_equal(small.values, store.range(query, T0, T0 + 1800, 15).values)
    assert np.isfinite(small.values).all()


def test_instant_reads_vectors_and_scalars(store: PromStore) -> None:
    """Both kinds of answer come as samples."""
    (one,) = store.instant("count(vllm:num_requests_running)", T0 + 600)
    assert (one.value, one.time) == (2.0, T0 + 600)
    assert store.instant("scalar(vector(3))", T0)[0].value == 3.0
    assert store.instant("nothing_of_this_name", T0) == []


def test_errors_are_one_line_without_secrets(store: PromStore, free_port: int) -> None:
    """A refused query, a dead server and a wrong path each say what to do, on one line."""
    host = store.url.removeprefix("http://")
    cases = [
        (f"http://me:hush@{host}", "sum(", BadQueryError, "parse error"),
        (f"http://me:hush@127.0.0.1:{free_port}", "up", UnreachableError, "refused"),
        (f"http://me:hush@{host}/no/such", "up", BadAnswerError, "base address"),
    ]
    for url, query, kind, words in cases:
        with pytest.raises(kind) as caught:
            PromStore(url).instant(query, T0)
        message = str(caught.value)
        assert words in message
        assert "hush" not in message
        assert "\n" not in message
    with pytest.raises(BadAnswerError, match="no address of a Prometheus"):
        PromStore("file:///etc/passwd")


def test_victoria_metrics_answers_alike(store: PromStore, tmp_path, free_port: int) -> None:
    """The same history in VictoriaMetrics gives the same counts, joins and gauges."""
    url = f"http://127.0.0.1:{free_port}"
    argv = [
        binaries.find("victoria-metrics"),
        f"-storageDataPath={tmp_path / 'data'}",
        f"-httpListenAddr=127.0.0.1:{free_port}",
        "-retentionPeriod=100y",
        "-memory.allowedBytes=64MB",
    ]
    with Stack(tmp_path) as stack:
        stack.start(Program("victoria-metrics", argv, f"{url}/health"))
        text = "\n".join(milliseconds(row) for row in history().splitlines() if row[0] != "#")
        for path, body in (("api/v1/import/prometheus", text), ("internal/force_flush", "")):
            requests.post(f"{url}/{path}", data=body, timeout=30).raise_for_status()
        other = PromStore(url, timeout=30.0)
        # From 10 minutes on, and without the gap and what follows it: there the engines' rules of
        # staleness differ.
        for name in ("acceptance_ratio", "prefix_hit_ratio", "host_anon_swap", "tpot_mean"):
            mine = store.panel(SIGNALS[name], T0 + 600, T0 + 5280, 60)
            theirs = other.panel(SIGNALS[name], T0 + 600, T0 + 5280, 60)
            assert mine.labels == theirs.labels
            for array in ("times", "values", "trials", "load", "starts"):
                if (one := getattr(mine, array)) is not None:
                    both = np.isfinite(one)
                    assert both.mean() > 0.98
                    there = getattr(theirs, array)[both]
                    np.testing.assert_allclose(there, one[both], rtol=0.15, err_msg=name + array)
        other.close()


def milliseconds(row: str) -> str:
    """Return an OpenMetrics line as exposition text, whose instants are in milliseconds."""
    body, _, at = row.rpartition(" ")
    return f"{body} {round(float(at) * 1000)}"


def test_grid_joins() -> None:
    """Two neighbouring spans give the grid of both, no point twice and none missing."""
    whole = grid(1000.3, 5000.0, 7)
    parts = np.concatenate([grid(1000.3, 2500.0, 7), grid(2500.0 + 1e-3, 5000.0, 7)])
    np.testing.assert_array_equal(whole, parts)
    assert np.all(whole % 7 == 0)
