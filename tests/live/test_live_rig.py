"""The rig's own parts, as far as they can be held without a vLLM."""

from __future__ import annotations

import asyncio
import importlib
import json
import random
import socket
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

from benchmarks.live import install, leak_plugin, pace, servers, traffic
from benchmarks.live.errors import LiveError
from benchmarks.live.measure import History, breach_at
from benchmarks.live.plugin import lay_plugin
from benchmarks.live.processes import Reading, kind
from benchmarks.live.recorder import Recorder
from benchmarks.live.rig import Pair
from benchmarks.live.scrapes import ScrapeWriter, openmetrics, read_scrapes


class _Scheduler:
    """Stands where vLLM's scheduler stands, and counts its steps."""

    steps = 0

    def schedule(self, budget: int = 0) -> int:
        self.steps += 1
        return budget


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> type[_Scheduler]:
    fresh = type("Scheduler", (_Scheduler,), {"schedule": _Scheduler.schedule})
    module = types.SimpleNamespace(Scheduler=fresh)
    monkeypatch.setattr(importlib, "import_module", lambda _name: module)
    monkeypatch.setattr(leak_plugin, "_kept", [])
    return fresh


def test_the_plugin_leaks_at_each_step_and_stops_when_told(
    scheduler: type[_Scheduler], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The scheduler still does its work, and the bytes kept follow the file."""
    wanted = tmp_path / "leak"
    wanted.write_text("1000")
    monkeypatch.setenv(leak_plugin.VARIABLE, str(wanted))
    leak_plugin.register()
    engine = scheduler()
    assert [engine.schedule(budget=7) for _ in range(leak_plugin.STEPS_PER_LOOK)][-1] == 7
    assert sum(map(len, leak_plugin._kept)) == 1000 * leak_plugin.STEPS_PER_LOOK
    wanted.write_text("half wri")
    engine.schedule()
    assert sum(map(len, leak_plugin._kept)) == 1000 * leak_plugin.STEPS_PER_LOOK


def test_the_plugin_leaves_other_servers_alone(
    scheduler: type[_Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the variable the scheduler stays as it was."""
    monkeypatch.delenv(leak_plugin.VARIABLE, raising=False)
    leak_plugin.register()
    assert scheduler.schedule is _Scheduler.schedule


def test_the_plugin_is_found_by_its_entry_point(tmp_path: Path) -> None:
    """A Python with the folder on its path finds and loads it as vLLM does."""
    code = (
        "from importlib.metadata import entry_points\n"
        "(p,) = entry_points(group='vllm.general_plugins')\n"
        "p.load()()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(lay_plugin(tmp_path))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_only_decode_is_asked_to_leak() -> None:
    """The environment and the command line differ between the pools as they must."""
    prefill, decode = (servers.Plan(p, 1, 2, 0) for p in ("prefill", "decode"))
    assert leak_plugin.VARIABLE not in servers.environment(prefill, None, None)
    env = servers.environment(decode, Path("plugin"), Path("leak"))
    assert (env["PYTHONPATH"], env[leak_plugin.VARIABLE]) == ("plugin", "leak")
    for plan, role in ((prefill, "kv_producer"), (decode, "kv_consumer")):
        line = servers.command(plan, Path("cache"))
        config = json.loads(line[line.index("--kv-transfer-config") + 1])
        assert config["kv_role"] == role
        assert ("--speculative-config" in line) == (plan.pool == "decode")


def test_titles_tell_kind_and_rank() -> None:
    """EngineCore and Worker are told by their bare titles, helpers of Python by nothing."""
    assert kind("VLLM::EngineCore") == ("engine_core", "")
    assert kind("VLLM::EngineCore_DP3") == ("engine_core", "DP3")
    assert kind("VLLM::Worker_DP3_TP1") == ("worker", "DP3_TP1")
    assert kind("python -c from multiprocessing.resource_tracker import main") is None


def test_prompts_vary_and_repeat_themselves() -> None:
    """A seed fixes the prompts; some repeat a phrase, all fit the model."""
    one, two = ([traffic.prompt(random.Random(s)) for s in range(40)] for _ in range(2))
    assert one == two
    assert len(set(one)) == 40
    assert max(map(len, one)) <= 3500
    tails = [text[-30:] for text in one]
    repeated = sum(text.count(tail) > 1 for text, tail in zip(one, tails, strict=True))
    assert 10 < repeated < 35


def test_the_leak_is_paced_by_the_steps_counted() -> None:
    """Bytes a step follow from the wanted rate; no step at all is an error with a remedy."""
    page = 'x_total{a="b"} 3\nx_total{a="c"} 4\nx_total_created 9\n'
    assert pace.counted(page, "x_total") == 7
    assert pace.bytes_for(1e6, steps=100, seconds=10) == 100_000
    assert pace.bytes_for(1.0, steps=100, seconds=10) == pace.SMALLEST
    with pytest.raises(LiveError, match="--rate"):
        pace.bytes_for(1e6, steps=0, seconds=10)


def test_the_pace_follows_the_steps_without_a_jump(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Half the steps bring more bytes each, by at most half at a time; no steps change nothing."""
    counts = iter([0.0, 100.0, 150.0, 200.0, 200.0])
    clock = iter([0.0, 10.0, 20.0, 30.0, 40.0])
    monkeypatch.setattr(pace, "read_steps", lambda _url: next(counts))
    monkeypatch.setattr("time.time", lambda: next(clock))
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    both = [types.SimpleNamespace(plan=plan) for plan in servers.plans(1)]
    recorder = Recorder(tmp_path)
    recorder.close()
    pair = Pair(both, recorder, tmp_path / "leak")  # type: ignore[arg-type]
    pacer = pace.Pacer(pair, rate=1e6)
    pacer.begin(10.0)
    told = [int(pair.leak_file.read_text())]
    for _ in range(3):
        pacer.adjust()
        told.append(int(pair.leak_file.read_text()))
    assert told == [100_000, 150_000, 200_000, 200_000]


def test_growth_and_breach_are_measured_on_the_private_memory() -> None:
    """Swap counts, processes of one kind are summed, and only decode's tree meets the limit."""
    history = History()
    for second in range(0, 100, 5):
        engine = _reading("engine_core", anon=1000 + second * 2, swap=second)
        history.add(second, "decode", [engine, _reading("worker", anon=500, swap=0)])
        history.add(second, "prefill", [_reading("worker", anon=9999, swap=0)])
    assert history.growth("decode", "engine_core", since=0) == pytest.approx(3.0)
    assert history.level("decode") == 1000 + 95 * 3 + 500
    assert breach_at(history, limit=2085, rate=3.0, now=95) == pytest.approx(195.0)
    assert breach_at(history, limit=1, rate=3.0, now=95) == 95


def test_scrapes_come_back_as_they_were_and_as_openmetrics(tmp_path: Path) -> None:
    """Labels with spaces and braces survive, comments and stamped lines are not passed on."""
    page = '# TYPE a gauge\na 1\nb{x="} 2 {"} 2.5\nc{} 3\nd 4 1700000000000\n'
    writer = ScrapeWriter(tmp_path / "s.xz")
    writer.add(10.0, page)
    writer.add(15.5, page)
    writer.close()
    kept = list(read_scrapes(tmp_path / "s.xz"))
    assert kept == [(10.0, page), (15.5, page)]
    lines = list(openmetrics(kept[:1], {"job": "j"}))
    assert lines == [
        'a{job="j"} 1 10.000\n',
        'b{x="} 2 {",job="j"} 2.5 10.000\n',
        'c{job="j"} 3 10.000\n',
        "# EOF\n",
    ]


def test_a_taken_port_is_said_before_anything_starts() -> None:
    """One line that names the port and the flag."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(LiveError, match=r"port \d+ is taken.*--port"):
            servers.check_ports(taken.getsockname()[1])


def test_a_missing_python_or_index_is_one_line_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What a fresh machine lacks is named, with what to do."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "version_info", (3, 13))
    with pytest.raises(LiveError, match=r"python3\.11.*install Python 3\.11"):
        install.install(tmp_path / "cache", lambda _line: None)
    nothing = "ERROR: No matching distribution found for torch"
    assert "network" in install._reason(f"WARNING: Retrying (Retry(total=4\n{nothing}")
    assert "x86-64" in install._reason(nothing)


def test_traffic_stops_by_itself_and_counts_failures() -> None:
    """With nobody answering, requests fail, are counted, and the loop ends when told."""

    async def run() -> traffic.Tally:
        tally, stop = traffic.Tally(), threading.Event()
        url = "http://127.0.0.1:9"
        drive = asyncio.create_task(traffic.drive(url, url, tally, stop, rate=50.0, seed=1))
        async with asyncio.timeout(30):
            while tally.failed < 4:
                await asyncio.sleep(0.02)
        stop.set()
        await asyncio.wait_for(drive, 10)
        return tally

    tally = asyncio.run(run())
    assert tally.done == 0
    assert "ConnectError" in tally.errors[0]


def _reading(process: str, anon: int, swap: int) -> Reading:
    return Reading(1, process, "", 0.0, anon, anon, swap, 0, 1, 1, 0.0)
