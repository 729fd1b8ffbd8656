"""A running exporter under attack by clients, logs and its own host; a probe by its gateway."""

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.config import Config
from exporters.scrape import Exporter

Get = Callable[..., bytes]
Make = Callable[..., Config]
Start = Callable[..., Any]
MIB = 1 << 20
PATIENCE = 60.0


def said(page: bytes, name: str, **labels: str) -> float:
    """The sum of a metric's samples with these labels."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    found = [
        line.rpartition(" ")[2] for line in page.decode().splitlines()
        if line.startswith((f"{name}{{", f"{name} ")) and all(one in line for one in wanted)
    ]  # fmt: skip
    return sum(map(float, found))


@pytest.fixture
def connect() -> Iterator[Callable[[str], socket.socket]]:
    """Opens connections that read as little at once as can be."""
    with contextlib.ExitStack() as stack:

        def open_one(url: str) -> socket.socket:
            host, _, port = url.split("/")[2].rpartition(":")
            one = stack.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            one.settimeout(PATIENCE)
            one.connect((host, int(port)))
            return one

        yield open_one


@pytest.fixture
def large(fakes: Any, running: Start) -> Any:
    """An exporter whose page is 4 MB, of which 12 MiB may be on their way."""
    fakes.pages = {"large": b"".join(b'm{a="%020d"} 1\n' % n for n in range(50_000))}
    return running(
        targets=[{"url": fakes.url("large"), "server": "s"}], page_budget="48MiB",
        target_timeout="50s", deadline="60s",
    )  # fmt: skip


def test_clients_that_read_slowly_hold_neither_memory_nor_places(
    large: Any, connect: Callable[[str], socket.socket], get: Get
) -> None:
    """Of many that ask for a large page and don't read it the oldest are hung up on."""
    url = large.wait()
    for _ in range(3):
        page = get(url)
    assert said(page, "leadline_target_up") == 1
    before = large.memory()
    for _ in range(50):
        connect(url).sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        time.sleep(0.05)
    page = get(url)
    assert said(page, "leadline_closed_connections_total", reason="crowded") > 0
    assert large.memory("VmHWM") < before + 64 * MIB


def test_clients_that_leave_or_say_nothing_keep_nobody_out(
    large: Any, connect: Callable[[str], socket.socket], get: Get
) -> None:
    """Silent, slow to ask, gone in the middle of an answer: each is counted."""
    url = large.wait()
    for _ in range(40):
        one = connect(url)
        one.sendall(b"GET /metrics HTTP/1.0\r\nX: ")
    deadline = time.monotonic() + PATIENCE
    while True:
        gone = connect(url)
        gone.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        gone.recv(1)
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        gone.close()
        page = get(url)
        if said(page, "leadline_closed_connections_total", reason="unread"):
            break
        assert time.monotonic() < deadline
    assert said(page, "leadline_closed_connections_total", reason="displaced") >= 8


@pytest.mark.parametrize("output", ["unread", "full", "gone"])
def test_a_log_that_nobody_takes_stops_nothing(
    fakes: Any, running: Start, get: Get, free_port: int, output: str
) -> None:
    """Standard error as a pipe that is full, a disk that is full, a reader that left."""
    names = [f"t{n}" for n in range(30)]
    mine, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
    disk = os.open("/dev/full", os.O_WRONLY)
    exporter = running(
        {"stderr": disk if output == "full" else theirs}, listen=f"127.0.0.1:{free_port}",
        targets=[{"url": fakes.url(name), "server": name} for name in names],
    )  # fmt: skip
    os.close(disk)
    os.close(theirs)
    if output == "gone":
        os.close(mine)
    url = f"http://127.0.0.1:{free_port}/metrics"
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError):
            get(url)
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for turn in range(8):  # each target changes each time, and is a line of more than 100 bytes
        fakes.pages = dict.fromkeys(names, b"a 1\n") if turn % 2 else {}
        page = get(url)
        assert said(page, "leadline_target_up") == turn % 2 * 30
    assert exporter.stop() == 0
    if output != "gone":
        os.close(mine)


def test_a_process_table_that_cannot_be_read_is_one_failed_collector(
    fakes: Any, running: Start, get: Get, tmp_path: Path
) -> None:
    """Each of those that need it says so by its file; servers and the page are there."""
    fakes.pages = {"good": b"a 1\n"}
    exporter = running(
        discover=True, proc=str(tmp_path / "nowhere"),
        targets=[{"url": fakes.url("good"), "server": "good"}],
    )  # fmt: skip
    url = exporter.wait()
    for _ in range(3):
        page = get(url)
    assert said(page, "leadline_target_up", server="good") == 1
    assert said(page, "leadline_collector_success", collector="vllm") == 1
    for name in ("discovery", "host"):
        assert f'leadline_collector_success{{collector="{name}"}} 0' in page.decode()
        [told] = [line for line in exporter.said.splitlines() if f"collector {name}: " in line]
        assert f"{tmp_path}/nowhere" in told
        assert "No such file or directory" in told


def test_hostile_logs_cost_neither_memory_nor_the_page(
    fakes: Any, running: Start, get: Get, tmp_path: Path
) -> None:
    """A line of 48 MiB, bytes that are no text, cut, replaced, gone: counted, and read on."""
    fakes.pages = {"good": b"a 1\n"}
    log = tmp_path / "vllm.log"
    log.write_bytes(b"")
    exporter = running(
        targets=[{"url": fakes.url("good"), "server": "s"}], log_rate="8MiB",
        logs=[{"path": str(log), "server": "s"}], deadline="60s",
    )  # fmt: skip
    url = exporter.wait()
    get(url)
    before = exporter.memory()
    line = b"INFO 01-02 03:04:05 [a.py:1] b\n"

    def read_on() -> bytes:
        deadline = time.monotonic() + PATIENCE
        while True:
            page = get(url)
            assert said(page, "leadline_target_up") == 1
            if not said(page, "leadline_log_lag_bytes"):
                return page
            assert time.monotonic() < deadline
            time.sleep(0.1)

    with log.open("ab") as file:
        file.write(b"x" * (48 * MIB) + b"\n" + line + b"\xff\xfe\x80INFO \xc3\n\0\0\n" + line)
    page = read_on()
    assert said(page, "leadline_log_long_lines_total") == 1
    assert said(page, "leadline_log_messages_total", level="info") == 2
    log.write_bytes(line)  # cut, and written anew
    assert said(read_on(), "leadline_log_messages_total", level="info") == 3
    log.rename(tmp_path / "old")
    log.write_bytes(line * 2)
    page = read_on()
    assert said(page, "leadline_log_messages_total", level="info") == 5
    assert said(page, "leadline_log_rotations_total") == 2
    log.unlink()
    log.mkdir()
    page = get(url)
    assert said(page, "leadline_target_up") == 1
    assert said(page, "leadline_collector_success", collector="logs") == 0
    assert exporter.memory() < before + 16 * MIB
    assert f"{log}" in exporter.said


def test_clocks_that_go_back_stop_no_collector(
    recorded: Path, fakes: Any, decode_page: bytes, config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wall clock by a day; and the other one, which should not, by an hour: no series ends."""
    fakes.pages = {"good": decode_page}
    now = 1e6
    wall = time.time()
    monkeypatch.setattr("time.time", lambda: wall)
    exporter = Exporter(
        config(discover=True, targets=[{"url": fakes.url("good"), "server": "good"}]),
        proc=recorded / "proc", cgroup=recorded / "cgroup", clock=lambda: now,
    )  # fmt: skip
    pages = []
    for step, back in ((0, 0), (10, 0), (-3600, 86400), (10, 0), (10, 0)):
        now, wall = now + step, wall - back
        pages.append(exporter.page())
    exporter.close()
    series = [
        {line.rpartition(" ")[0] for line in page.decode().splitlines() if line[0] != "#"}
        for page in pages
    ]
    assert series[2] >= series[1]
    assert series[4] >= series[1]
    good = [said(page, "leadline_collector_success") for page in pages]
    assert good[1:] == [good[1]] * 4


GATEWAYS = {
    "pouring": "too_large", "continuing": "too_large", "bomb": "packed", "huge": "no_stream",
    "redirect": "redirect", "dripping_headers": "timeout", "slow": "timeout",
    "failing": "http_5xx",
}  # fmt: skip
"""By what a gateway answers: the reason that a probe tells."""


@pytest.mark.parametrize("name", GATEWAYS)
def test_a_hostile_gateway_is_told_in_one_line(fakes: Any, name: str) -> None:
    """`leadline probe` ends in time with the reason, follows nothing and holds no more memory."""
    patience = "1s" if GATEWAYS[name] == "timeout" else "50s"
    command = ["probe", "--once", "--no-answers", "--model", "m", "--url", fakes.url(name),
               "--deadline", patience]  # fmt: skip
    measured = (
        f"import leadline; code = leadline.main({command!r}); "
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]); exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", measured], capture_output=True, text=True, check=False,
        timeout=2 * PATIENCE, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")
    line, memory = done.stdout.splitlines()
    assert line.startswith(f"latency: failed ({GATEWAYS[name]}), HTTP ")
    assert fakes.asked == [f"/{name}/completions"]
    assert int(memory) << 10 < 80 * MIB
