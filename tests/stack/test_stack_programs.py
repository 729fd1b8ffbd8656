"""What we start we stop, in reverse, whole groups, whatever ends us; and nothing else."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stack.errors import NotReadyError, ProgramDiedError
from stack.programs import Program, Stack, free_port

# Notes its end; on request starts a grandchild or does not listen to SIGTERM.
CHILD = """
import os, signal, subprocess, sys, time
name, folder = sys.argv[1:]
def end(*_):
    with open(folder + "/order", "a") as order: order.write(name + " ")
    sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if name == "deaf" else end)
family = [os.getpid()]
if name == "parent":
    family.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid)
with open(folder + "/" + name + ".part", "w") as file: file.write(" ".join(map(str, family)))
os.rename(folder + "/" + name + ".part", folder + "/" + name + ".pids")
time.sleep(600)
"""
# A command line like ours: runs a stack until something ends it.
OWNER = """
import sys, time
from pathlib import Path
from stack.programs import Program, Stack
folder, child, names = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
with Stack(folder / "logs", grace=0.5) as stack:
    for name in names:
        stack.spawn(Program(name, [sys.executable, "-c", child, name, str(folder)]))
    time.sleep(600)
"""

StartOwner = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[StartOwner]:
    """Starts a process that owns children of the given names, once all of them run."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*names: str) -> "subprocess.Popen[bytes]":
        argv = [sys.executable, "-c", OWNER, str(tmp_path), CHILD, *names]
        root = str(Path(__file__).parents[2])
        started.append(subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": root}))
        _until(lambda: all((tmp_path / f"{name}.pids").exists() for name in names))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_everything_in_reverse_and_nothing_else(
    owner: StartOwner, tmp_path: Path, number: signal.Signals
) -> None:
    """Children end last started first; deaf ones and grandchildren are killed; others live."""
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        process = owner("first", "deaf", "parent", "last")
        process.send_signal(number)
        process.wait(timeout=30)

        assert (tmp_path / "order").read_text().split() == ["last", "parent", "first"]
        assert not _alive(tmp_path)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_children_die_with_a_parent_that_is_killed(owner: StartOwner, tmp_path: Path) -> None:
    """Kill -9 leaves us no time to stop anything, so the kernel does."""
    owner("first", "deaf").kill()
    _until(lambda: not _alive(tmp_path))


def test_early_death_is_one_line(tmp_path: Path) -> None:
    """The error names the program, its status, its log and its last words."""
    code = "import sys; print('loading'); print('no such file: x.yml'); sys.exit(3)"
    url = f"http://127.0.0.1:{free_port()}/"
    with Stack(tmp_path) as stack, pytest.raises(ProgramDiedError) as raised:
        stack.start(Program("prometheus", [sys.executable, "-c", code], url))
    log = tmp_path / "prometheus.log"
    assert str(raised.value) == (
        f"prometheus ended with status 3 ({log}): loading | no such file: x.yml"
    )


def test_a_missing_program_is_said(tmp_path: Path) -> None:
    """A path that can't be run ends like any early death."""
    with Stack(tmp_path) as stack, pytest.raises(ProgramDiedError, match="cannot run /no/such"):
        stack.finish(Program("absent", ["/no/such"]), within=30)


def test_never_ready_is_one_line(tmp_path: Path) -> None:
    """A program that runs but never answers is given up at its deadline, and stopped."""
    url = f"http://127.0.0.1:{free_port()}/"
    code = "print('still loading', flush=True); import time; time.sleep(600)"
    slow = Program("service", [sys.executable, "-c", code], url, ready_within=2.0)
    with Stack(tmp_path) as stack:
        with pytest.raises(NotReadyError, match=r"service did not answer at .* within 2 s"):
            stack.start(slow)
        (running,) = stack.running
    assert running.process.returncode == -signal.SIGTERM


def _alive(folder: Path) -> list[int]:
    pids = [int(pid) for file in folder.glob("*.pids") for pid in file.read_text().split()]
    return [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # whoever adopted it may not have reaped it yet


def _until(condition: Callable[[], bool], within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within} s"
        time.sleep(0.05)


def test_a_preferred_port_is_given_once() -> None:
    """Two processes that prefer one port get two, though neither listens yet."""
    wanted = free_port()
    assert free_port(wanted) == wanted
    code = f"from stack.programs import free_port; print(free_port({wanted}))"
    root = str(Path(__file__).parents[2])
    argv = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run(
        argv, env=environment, check=True, capture_output=True, text=True, timeout=60
    )
    assert int(done.stdout) != wanted
