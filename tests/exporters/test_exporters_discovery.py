"""vLLM servers are told from everything else, with their processes, cheaply and without secrets."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from catalog.config import Config
from catalog.labels import without_credentials
from catalog.pages import merge
from catalog.splice import Splicer
from exporters.node import proc
from exporters.scrape import Exporter
from exporters.targets.cmdline import Launch, Title, launch, title
from exporters.targets.discovery import LOOK_AGAIN_SECONDS, Discovery

KEY = "sk-do-not-tell-0123456789"
Grow = Callable[[Path, dict[str, str]], Path]


def words(text: str) -> bytes:
    """Return a command line as /proc shows it."""
    return b"".join(word.encode() + b"\0" for word in text.split())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/usr/bin/python3 /opt/bin/vllm serve zai-org/GLM-5.2", Launch("zai-org/GLM-5.2")),
        ("vllm serve m --port 81 --host ::", Launch("m", port=81, host="::")),
        (
            "python -u -X dev -m vllm.entrypoints.openai.api_server --model=m --port=9001",
            Launch("m", port=9001),
        ),
        ("python3.12 -m vllm.entrypoints.cli.main serve m", Launch("m")),
        (
            f"vllm serve m --api-key {KEY} --served-model-name a b -tp 8 -dp=16 -ep",
            Launch("a", tensor_parallel="8", data_parallel="16", expert_parallel=True),
        ),
        (
            'vllm serve m --kv_transfer_config {"kv_connector":"Nixl","kv_role":"kv_producer"}',
            Launch("m", kv_connector="Nixl", kv_role="kv_producer"),
        ),
        (
            "vllm serve m --kv-transfer-config.kv_connector Nixl "
            "--kv-transfer-config.kv_role=kv_consumer",
            Launch("m", kv_connector="Nixl", kv_role="kv_consumer"),
        ),
        (
            f'vllm serve m --kv-transfer-config {{"kv_connector":"a/{KEY}","kv_role":"{KEY}"}}',
            Launch("m", kv_connector=None),
        ),
        (
            f"vllm serve m --kv-transfer-config.kv_connector {'x' * 65} "
            "--kv-transfer-config.kv_role kv_both",
            Launch("m", kv_connector=None, kv_role="kv_both"),
        ),
        ("vllm serve m --kv-transfer-config {broken", Launch("m", kv_connector=None)),
        (
            "vllm serve --config x.yaml -tp 4",
            Launch(kv_connector=None, tensor_parallel="4", pipeline_parallel="", data_parallel=""),
        ),
        (f"vllm serve --model --api-key={KEY} -tp x", Launch(tensor_parallel="")),
        ("vllm serve m --port none --headless", Launch("m", headless=True)),
        ("vllm serve m --ssl-keyfile k", Launch("m", tls=True)),
        ('vllm serve m --ec-transfer-config {"ec_role":"ec_producer"}', Launch("m", encoder=True)),
        ("bash -c vllm_serve_m", None),
        ("grep vllm serve", None),
        ("timeout 60 vllm serve m", None),
        ("python3 -c vllm serve m", None),
        ("python3 tool.py vllm serve m", None),
        ("vllm bench serve", None),
        ("vllm", None),
        ("", None),
    ],
)
def test_a_command_line_tells_a_server(line: str, expected: Launch | None) -> None:
    """Its options as vLLM's own parser reads them; what merely names vLLM is none."""
    assert launch(words(line)) == expected


option_words = st.sampled_from(
    ["--port", "--model", "-tp", "--kv-transfer-config", "--kv-transfer-config.a", "--headless",
     "--served_model_name=", "--host", "-", "--", "{}", "[1]", '{"kv_role": []}', "8", "x", ""]
)  # fmt: skip
secrets = st.sampled_from([["--api-key", KEY], [f"--api-key={KEY}"], ["--api_key", KEY]])


@settings(max_examples=150, deadline=None)
@given(st.lists(option_words, max_size=6), secrets, st.lists(option_words, max_size=6))
def test_no_command_line_confuses_or_gives_a_key_away(
    before: list[str], secret: list[str], after: list[str]
) -> None:
    """Whatever stands around it: a launch is read, without the key."""
    line = "\0".join(["vllm", "serve", *before, *secret, *after]).encode() + b"\0"
    assert KEY not in repr(launch(line))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_command_line_or_none(data: bytes) -> None:
    """Titles and command lines are anything that a process writes there."""
    title(data)
    launch(data)
    launch(b"vllm\0serve\0" + data)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"VLLM::EngineCore\0\0\0\0", Title("engine_core", "")),
        (b"VLLM::EngineCore_DP3\0\0", Title("engine_core", "DP3")),
        (b"VLLM::Worker_DP3_TP0", Title("worker", "DP3_TP0")),
        (b"VLLM::APIServer_0", Title("api_server", "0")),
        (b"glm-prod::DPCoordinator", Title("dp_coordinator", "")),
        (b"VLLM::EngineCores", None),
        (b"VLLM::EngineCore\0--flag", None),
        (b"/usr/bin/x::Worker", None),
        (b"std::Worker_" + b"9" * 80, None),
        (b"", None),
    ],
)
def test_a_title_tells_kind_and_rank(line: bytes, expected: Title | None) -> None:
    """As vLLM sets them, with any prefix."""
    assert title(line) == expected


def test_the_recorded_pair_is_found_with_its_processes(recorded: Path) -> None:
    """Two servers of three processes each: workers belong to them through their EngineCore."""
    found = Discovery(recorded / "proc").find()
    assert [(f.launch.port, f.launch.kv_role) for f in found] == [
        (8100, "kv_producer"), (8101, "kv_consumer"),
    ]  # fmt: skip
    for server in found:
        assert [m.kind for m in server.members] == ["api_server", "engine_core", "worker"]
        assert len({m.pid for f in found for m in f.members}) == 6


def process(pid: int, parent: int, line: str) -> dict[str, str]:
    """Return the files of a process."""
    fields = f"{pid} (a) b) S {parent} " + " ".join("0" for _ in range(17)) + " 77 0 0"
    return {
        f"{pid}/stat": fields + "\n",
        f"{pid}/cmdline": words(line).decode(),
        f"{pid}/cgroup": "0::/\n",
    }


def test_processes_belong_to_the_server_above_them(tmp_path: Path, grow: Grow) -> None:
    """Through wrappers and tools; untitled children are no servers, orphans belong to none."""
    serve = "vllm serve m --api-server-count 2 -dp 2"
    grow(
        tmp_path,
        process(1, 0, "init")
        | process(10, 1, "bash -c x")
        | process(20, 10, serve)
        | process(21, 20, "VLLM::APIServer_0")
        | process(22, 20, serve)  # forked, about to take its title
        | process(23, 20, "VLLM::EngineCore_DP0")
        | process(24, 23, "python -c spawn")
        | process(25, 24, "glm::Worker_DP0_TP1")
        | process(26, 20, "VLLM::DPCoordinator")
        | process(30, 1, "VLLM::EngineCore_DP7"),
    )
    (found,) = Discovery(tmp_path).find()
    assert {(m.pid, m.kind, m.rank) for m in found.members} == {
        (20, "api_server", ""), (21, "api_server", "0"), (23, "engine_core", "DP0"),
        (25, "worker", "DP0_TP1"), (26, "dp_coordinator", ""),
    }  # fmt: skip


def test_a_pod_of_its_own_network_goes_by_its_address(tmp_path: Path, grow: Grow) -> None:
    """Two pods on port 8000 are two servers, and are reached by their addresses."""
    trie = "Local:\n  +-- 127.0.0.1\n     |-- 127.0.0.1\n        /32 host LOCAL\n"
    for pid, address in ((20, "10.1.0.7"), (30, "10.1.0.8"), (40, "")):
        grow(tmp_path, process(pid, 1, "vllm serve m"))
        routes = f"     |-- {address}\n        /32 host LOCAL\n"
        grow(tmp_path, {f"{pid}/net/fib_trie": trie + (routes if address else "")})
        (tmp_path / f"{pid}/ns").mkdir()
        (tmp_path / f"{pid}/ns/net").symlink_to(f"net:[{pid if address else 1}]")
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/net").symlink_to("net:[1]")
    assert [f.address for f in Discovery(tmp_path).find()] == ["10.1.0.7", "10.1.0.8", ""]


def test_many_other_processes_cost_little(
    tmp_path: Path, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known others are read ever more seldom; one that becomes a server is still found in time."""
    for pid in range(100, 500):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / f"{pid}/cmdline").write_bytes(b"sleep\0infinity\0")
    reads = 0
    real = proc.read

    def counting(path: Path, limit: int = proc.MAX_BYTES) -> bytes:
        nonlocal reads
        reads += 1
        return real(path, limit)

    monkeypatch.setattr(proc, "read", counting)
    now = 0.0
    discovery = Discovery(tmp_path, lambda: now)
    assert discovery.find() == []
    scrapes = 0
    grow(tmp_path, process(5, 1, "vllm serve fresh"))
    assert [f.pid for f in discovery.find()] == [5]
    while now < 3600:
        now += 15
        scrapes += 1
        discovery.find()
    assert reads < 0.15 * 400 * scrapes
    grow(tmp_path, process(150, 1, "vllm serve by-exec --port 9"))
    now += LOOK_AGAIN_SECONDS
    assert [f.pid for f in discovery.find()] == [5, 150]


@pytest.fixture
def real_server(tmp_path: Path) -> Iterator[tuple[int, psutil.Process, psutil.Process]]:
    """Real processes that look like `vllm serve` with an EngineCore; port, server, EngineCore."""
    script = tmp_path / "vllm"
    script.write_text(
        "import subprocess, sys\n"
        "core = subprocess.Popen(['VLLM::EngineCore_DP0'], executable='/bin/cat',"
        " stdin=subprocess.PIPE)\n"
        "print(core.pid, flush=True)\n"
        "sys.stdin.read()\n"
        "core.stdin.close()\n"
        "core.wait()\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["serve", "real-model", "--port", str(port), "--api-key", KEY]
    with subprocess.Popen(
        [sys.executable, str(script), *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        assert server.stdout is not None
        core = psutil.Process(int(server.stdout.readline()))
        deadline = time.monotonic() + 20
        while not core.cmdline() or core.cmdline()[0] != "VLLM::EngineCore_DP0":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield port, psutil.Process(server.pid), core
        server.communicate("")


def test_real_processes_read_as_psutil_reads_them(
    real_server: tuple[int, psutil.Process, psutil.Process],
    config: Callable[..., Config],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Memory, threads, descriptors, start and CPU agree; the key is neither served nor logged."""
    port, *processes = real_server
    caplog.set_level("DEBUG")
    exporter = Exporter(config(discover=True))
    text = exporter.page().decode()
    exporter.close()
    read = {
        (sample.name, sample.labels["process"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("server") == f"node7:{port}" and "process" in sample.labels
    }
    for process_, kind in zip(processes, ("api_server", "engine_core"), strict=True):
        memory = process_.memory_info()
        with process_.oneshot():
            cpu = process_.cpu_times()
            expected = {
                "threads": process_.num_threads(),
                "open_fds": process_.num_fds(),
                "start_time_seconds": pytest.approx(process_.create_time(), abs=1.1),
                "cpu_seconds_total": pytest.approx(cpu.user + cpu.system, abs=0.2),
                # The kernel's per-process counts lag by some pages per thread.
                "resident_bytes": pytest.approx(memory.rss, abs=2**20),
                "swap_bytes": 0,
            }
        for name, value in expected.items():
            assert read[f"leadline_process_{name}", kind] == value, (name, kind)
        parts = [read[f"leadline_process_{n}_bytes", kind] for n in ("anonymous", "shared")]
        assert sum(parts) == read["leadline_process_resident_bytes", kind]
    assert f'server="node7:{port}"' in text
    assert 'model_name="real-model"' in text
    assert KEY not in text
    assert KEY not in caplog.text


def test_a_model_named_by_a_url_keeps_no_credentials() -> None:
    """Neither the command line nor the server's own page brings a password into a label."""
    page = b'# TYPE a gauge\na{model_name="https://u:SECRET@hub/m",at="a@b"} 1\n'
    text = merge([Splicer({"pool": "decode"}).splice(page)])
    assert "SECRET" not in text
    assert 'model_name="https://hub/m"' in text
    assert 'at="a@b"' in text
    assert without_credentials("https://u:SECRET@hub/m") == "https://hub/m"
