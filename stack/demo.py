"""`leadline demo`: the stack on a simulated 4P1D cluster, its past filled in before the start."""

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from catalog.config import load
from stack import binaries, servers
from stack.configs import Job
from stack.errors import StackError
from stack.line import Line, lay, ours, start_alerting, start_prometheus, start_service
from stack.programs import Stack, free_port
from stack.watch import Clock, show, until_page, until_quiet

HISTORY = "3d"
HISTORY_WITHIN = 600.0
# The past has this as its instance; live scrapes must go on with the same series.
INSTANCE = "simulator"
INTERVAL = "15s"
EVERY = "15s"

CONFIG = {
    "service": {"every": EVERY, "history": HISTORY},
    # Below this share speculation costs more than it saves; healthy traffic here has two thirds.
    "limits": {"acceptance_ratio": 0.4},
}
PROGRAMS: tuple[binaries.Name, ...] = ("prometheus", "promtool", "alertmanager")


def run(
    *,
    scenario: str,
    title: str,
    expected: Mapping[str, str] | None,
    check: bool,
    state: Path | None,
    deadline: float,
    quiet_for: float,
) -> int:
    """Play a scenario until Ctrl-C, or with `check` until its alert is active.

    Args:
        scenario: Name of it.
        title: What happens in it.
        expected: Labels of the alert that it must lead to; None where it must lead to none.
        check: End with 0 once Alertmanager reports that alert as active, or where none is expected
            once nothing at all was active for `quiet_for`; with 1 if not so by the deadline.
        state: Folder for data and logs, kept; None: a temporary one, removed unless it failed.
        deadline: Seconds from the start.
        quiet_for: Seconds from the first judgement.
    """
    clock = Clock()
    print(f"A simulated 4P1D cluster {title}.", flush=True)
    for name in PROGRAMS:
        binaries.find(name)
    clock.say("programs found")
    with _folder(state) as folder, Stack(folder / "logs") as stack:
        try:
            line = _start(stack, folder, scenario, clock, deadline if check else HISTORY_WITHIN)
            _say(line)
            if not check:
                show(stack, line, clock)
            if expected is None:
                return until_quiet(stack, line, clock, quiet_for=quiet_for, deadline=deadline)
            return until_page(stack, line, clock, wanted=expected, deadline=deadline)
        except KeyboardInterrupt:
            print("stopping", flush=True)
            return 0


def _start(stack: Stack, folder: Path, scenario: str, clock: Clock, within: float) -> Line:
    """Write the past, fill it in, and start the programs; what can be goes on beside it."""
    pages = f"127.0.0.1:{free_port(9850)}"
    until = str(int(time.time()) // 60 * 60)
    how = ("simulate", "--scenario", scenario, "--until", until)
    past = folder / "history.om"
    simulator = stack.spawn(
        ours("simulator", *how, "--listen", pages, health=f"http://{pages}/-/ready")
    )
    writing = ours("history", *how, "--history", past, "--since", HISTORY)
    stack.finish(writing, within=within)
    clock.say(f"the cluster's last {HISTORY} written, {past.stat().st_size / 1e6:.0f} MB")
    servers.fill(stack, past, folder / "prometheus", within=within)
    past.unlink()
    clock.say("filled into Prometheus")
    line = lay(load(None, {}, CONFIG), folder)
    start_alerting(stack, line)
    stack.wait_ready(simulator)
    job = Job("leadline", [pages], {"instance": INSTANCE})
    start_prometheus(stack, line, job, interval=INTERVAL, resend="10s")
    start_service(stack, line)
    clock.say("everything runs")
    return line


def _say(line: Line) -> None:
    print(f"board         {line.service}/")
    print(f"Prometheus    {line.prometheus}")
    print(f"Alertmanager  {line.alertmanager}")
    print(f"data and logs {line.folder}")
    print("Ctrl-C stops it all.", flush=True)


@contextmanager
def _folder(state: Path | None) -> Iterator[Path]:
    """An empty folder; a temporary one goes again, unless its logs tell what failed."""
    if state is not None:
        if state.exists() and any(state.iterdir()):
            raise StackError(f"{state} is not empty: name another folder, or remove it")
        state.mkdir(parents=True, exist_ok=True)
        yield state.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="leadline-demo-"))
    try:
        yield folder
    except StackError:
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
