"""`leadline up`: the whole stack on this machine, real vLLM servers found by the exporter."""

import time
from pathlib import Path

from catalog.config import Config
from stack import binaries
from stack.configs import Job
from stack.line import (
    Line,
    lay,
    reachable,
    start_alerting,
    start_prometheus,
    start_service,
    with_exporter,
)
from stack.programs import Stack

INTERVAL = "15s"


def run(config: Config, *, state: Path) -> int:
    """Start everything, say where it is, and stay until Ctrl-C or SIGTERM; returns 0."""
    for name in ("prometheus", "alertmanager"):
        binaries.find(name)
    line = lay(with_exporter(config), state.resolve())
    with Stack(line.folder / "logs") as stack:
        try:
            _start(stack, line)
            _say(line)
            while True:
                stack.check()
                time.sleep(1.0)
        except KeyboardInterrupt:
            print("stopping", flush=True)
    return 0


def _start(stack: Stack, line: Line) -> None:
    exporter = reachable(line.config.exporter.listen)
    start_alerting(stack, line)
    stack.start(line.ours("exporter", "exporter", health=f"http://{exporter}/healthz"))
    start_prometheus(stack, line, Job("leadline", [exporter]), interval=INTERVAL, resend="1m")
    start_service(stack, line)


def _say(line: Line) -> None:
    print(f"board         {line.service}/")
    print(f"exporter      http://{reachable(line.config.exporter.listen)}/metrics")
    print(f"Prometheus    {line.prometheus}")
    print(f"Alertmanager  {line.alertmanager}")
    print(f"receivers     {line.folder / 'alertmanager.yml'} (yours to edit)")
    print(f"data and logs {line.folder}")
    print("Ctrl-C stops it all.", flush=True)
