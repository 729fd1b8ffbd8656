"""The command line: one function a command, each importing what it needs when it runs.

Exit codes of `detect` and `report`: 0 judged, nothing found; 1 found; 2 could not run; 3 could not
judge. Every other command: 0 done, 1 not so (`--check`, a line of `doctor`), 2 could not run.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from catalog.config import Config
    from catalog.panel import Panel
    from detectors.finding import Finding

VERSION: Final = "0.1.0"
Command = Callable[..., argparse.ArgumentParser]
COULD_NOT_RUN: Final = 2
COULD_NOT_JUDGE: Final = 3
SECONDS_OF_SILENCE: Final = 3.0
SOAK_EXIT: Final = {"pass": 0, "fail": 1}


class UsageError(Exception):
    """A wrong flag or value; the message is one line with the remedy."""


def exporter(args: argparse.Namespace) -> int:
    """Serve this node's page of metrics: hosts, vLLM processes and the servers' own pages."""
    from exporters.server import run

    targets = [_target(text) for text in args.target]
    config = _config(
        args,
        exporter={
            "listen": args.listen,
            "vllm": False if args.no_vllm else None,
            "targets": targets or None,
            "logs": [_log(text) for text in args.log] or None,
            "web_config_file": args.web_config_file,
            "proc": args.proc,
            "sys": args.sys,
        },
        cluster=args.cluster,
        namespace=args.namespace,
        deployment=args.deployment,
    )
    return _print_page(config) if args.once else run(config)


def _print_page(config: Config) -> int:
    """Print what Prometheus would scrape now; what is not found or read is told beside it."""
    from exporters.scrape import Exporter

    exporter = Exporter(config)
    try:
        page = exporter.page()
    finally:
        exporter.close()
    sys.stdout.write(page.decode("utf-8", "replace"))
    sys.stdout.flush()
    return 0


def probe(args: argparse.Namespace) -> int:
    """Send requests of our own through the gateway: what a user waits for, and gets."""
    from exporters.probe.run import once
    from exporters.server import run

    given = ("url", "model", "every", "deadline", "prompt_tokens", "output_tokens", "constrain",
             "api_key_file", "ca_file")  # fmt: skip
    asked = {name: getattr(args, name) for name in given}
    config = _config(
        args,
        exporter={
            "probe": {**asked, "answers": False if args.no_answers else None},
            "listen": args.listen,
            # A probe beside a node's exporter says nothing of the node again.
            "discover": False, "vllm": False, "targets": [], "logs": [],
        },
        cluster=args.cluster,
        namespace=args.namespace,
        deployment=args.deployment,
    )  # fmt: skip
    if not config.exporter.probe.url:
        raise UsageError("nothing to probe: name --url http://gateway/v1 and --model")
    return once(config) if args.once else run(config, only=("probe",))


def detect(args: argparse.Namespace) -> int:
    """Print findings once, from Prometheus or from a file."""
    from detectors.drift.judge import judge
    from detectors.finding_table import render

    config = _config(args, **_bounds(args), prometheus={"url": args.prometheus})
    panels, refused = _read_table(args.input) if args.input else _read_prometheus(config, args.last)
    # A server is refused for each of its signals: one line says it.
    findings = [*judge(panels, config), *{one.cause: one for one in refused}.values()]
    judged, rest = _judged(panels, config)
    for name in rest:
        print(f"leadline: {name}: no detector judges it, its SLA is a rule's", file=sys.stderr)
    if not judged:
        print("leadline: nothing could be judged", file=sys.stderr)
    if args.json:
        for finding in findings:
            print(json.dumps(finding.to_dict(), allow_nan=False))
    elif findings or judged:
        print(f"{render(findings)}\n{judged} series judged.")
    return _exit_code(findings, judged=judged, fail_on=args.fail_on)


def serve(args: argparse.Namespace) -> int:
    """Run the detector service: findings, alerts, the board and its API."""
    from detectors.service.server import run

    config = _config(
        args,
        **_bounds(args),
        prometheus={"url": args.prometheus, "step": args.step},
        alertmanager={"urls": args.alertmanager or None},
        service={
            "listen": args.listen,
            "state": args.state,
            "every": args.every,
            "external_url": args.external_url,
        },
    )
    return run(config)


def up(args: argparse.Namespace) -> int:
    """Run the whole stack on this machine until Ctrl-C."""
    from stack.up import run

    return run(_config(args, **_bounds(args)), state=Path(args.state))


def demo(args: argparse.Namespace) -> int:
    """Run the stack on a simulated 4P1D cluster, with a leak in it or another scenario."""
    from simulator.scenario import scenario
    from stack.demo import run

    truth = scenario(args.scenario, live=True)
    return run(
        scenario=truth.name,
        title=truth.title,
        expected=truth.alert,
        check=args.check,
        state=Path(args.state) if args.state else None,
        deadline=_seconds(args.deadline),
        quiet_for=_seconds(args.quiet_for),
    )


def report(args: argparse.Namespace) -> int:
    """Write the soak report: pass or fail by stated rules, each signal beside the span before."""
    from reports.soak import write
    from store.prometheus import PromStore

    config = _config(args, **_bounds(args), prometheus={"url": args.prometheus})
    end = time.time()
    start = end - _seconds(args.last)
    store = _store(PromStore, config)
    output = Path(args.output)
    outcome = write(
        store, config, start=start, end=end, output=output, format=args.format,
        progress=_seldom(),
    )  # fmt: skip
    print(f"{outcome.verdict}: {outcome.reason}\nwrote {outcome.path}")
    return SOAK_EXIT.get(outcome.verdict, COULD_NOT_JUDGE)


def _seldom() -> Callable[[str], None]:
    """Return what says on standard error where a command is, every few seconds of a long one."""
    last = time.monotonic()

    def say(what: str) -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS_OF_SILENCE:
            print(f"leadline: {what}", file=sys.stderr, flush=True)
            last = time.monotonic()

    return say


def rules(args: argparse.Namespace) -> int:
    """Write recording and alerting rules, SLA constants and Alertmanager's configuration."""
    from alerts.generate import write

    write(_config(args), Path(args.output))
    return 0


def dashboards(args: argparse.Namespace) -> int:
    """Write the Grafana dashboards."""
    from dashboards.generate import write

    write(Path(args.output))
    return 0


def simulate(args: argparse.Namespace) -> int:
    """Play a 4P1D cluster: serve its pages, or write its past as OpenMetrics or as a table."""
    if args.table:
        return _write_table(args)
    if args.history:
        from simulator.history import write

        until = float(args.until or time.time())
        since = until - _seconds(args.since)
        scenario = _played(args.scenario)
        write(Path(args.history), scenario, since=since, until=until, seed=args.seed)
        return 0
    from simulator.server import run

    ending = float(args.until) if args.until else None
    return run(args.listen, _played(args.scenario), seed=args.seed, until=ending)


def _write_table(args: argparse.Namespace) -> int:
    """Write the signals of a scenario as a table that `detect --input` reads."""
    from simulator.table import panels
    from simulator.table_file import write

    until = float(args.until or time.time()) // 60 * 60
    found = panels(
        args.scenario, epoch=until, seed=args.seed, span=_seconds(args.since),
        until=_seconds(args.ahead), step=_seconds(args.step),
        signals=args.signals.split(",") if args.signals else None,
    )  # fmt: skip
    count = write(Path(args.table), args.scenario, found, seed=args.seed)
    print(f"wrote {count} samples of {len(found)} signals to {args.table}")
    return 0


def _played(name: str) -> str:
    """Return the name of a scenario that a page can play, or raise with the nearest ones."""
    from simulator.scenario import scenario

    return scenario(name, live=True).name


def _scenarios() -> str:
    """Return the list of scenarios, for the help of commands that play one."""
    try:
        from simulator.scenario import listing
    except ImportError as error:
        return f"scenarios: install leadline[serve] to list them ({error.name} is missing)"
    return listing()


def check_config(args: argparse.Namespace) -> int:
    """Check leadline.yaml and the web configuration it names, and print what it comes to."""
    config = _config(args)
    if config.exporter.web_config_file:
        from exporters.web.listen import Web

        Web(config.exporter.web_config_file)
    print(config.model_dump_json(indent=2))
    return 0


def doctor(args: argparse.Namespace) -> int:
    """Check an installation from its configuration to who is paged: a line each, with a remedy."""
    from alerts.generate import every_rule
    from reports.doctor.examine import run

    given = {"url": args.prometheus}
    config = _config(args, prometheus=given, alertmanager={"urls": args.alertmanager or None})
    return run(config, Path(args.config) if args.config else None, every_rule(config))


def _config(args: argparse.Namespace, **overrides: Any) -> Config:
    from catalog.config import load

    return load(Path(args.config) if args.config else None, None, overrides)


def _seconds(text: str) -> float:
    from catalog.units import duration

    return duration(text)


def _bounds(args: argparse.Namespace) -> dict[str, dict[str, str]]:
    """Return `--limit` and `--sla` flags as the configuration spells them."""
    return {"limits": _pairs(args.limit, "--limit"), "sla": _pairs(args.sla, "--sla")}


_PAIRS: Final = {
    "--target": "write URL,pool=decode",
    "--log": "write PATH,port=8001 (after unit:UNIT or opened as well)",
}


def _pairs(values: Sequence[str], flag: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not value:
            remedy = _PAIRS.get(flag, "write SIGNAL=VALUE, for example tpot_mean=20ms")
            raise UsageError(f"{flag} {text!r}: {remedy}")
        pairs[name.strip()] = value.strip()
    return pairs


def _target(text: str) -> dict[str, str]:
    """Return `URL[,kind=router][,pool=decode][,deployment=x]` as a target of the configuration."""
    url, *rest = text.split(",")
    return {"url": url, **_pairs(rest, "--target")}


def _log(text: str) -> dict[str, str]:
    """Return `PATH|unit:UNIT|opened[,port=P][,server=S]` as a log of the configuration."""
    where, *rest = text.split(",")
    if where == "opened":
        return {"opened": "true", **_pairs(rest, "--log")}
    kind, value = ("unit", where[5:]) if where.startswith("unit:") else ("path", where)
    return {kind: value, **_pairs(rest, "--log")}


def _store(kind: Callable[..., Any], config: Config) -> Any:
    prom = config.prometheus
    return kind(prom.url, timeout=prom.timeout, bearer_token_file=prom.bearer_token_file)


def _read_table(path: str) -> tuple[Mapping[str, Panel], list[Finding]]:
    """Return what can be judged, and a finding for each server whose pool is said to be unknown."""
    from detectors.service.refuse import refuse
    from store.table import read_table

    def progress(share: float) -> None:
        print(f"\rreading {path}: {share:4.0%}", end="", file=sys.stderr, flush=True)

    shown = sys.stderr.isatty()
    panels = read_table(Path(path), progress=progress if shown else None)
    if shown:
        print("\r\033[K", end="", file=sys.stderr)
    return refuse(panels, [], _newest(panels))


def _read_prometheus(config: Config, last: str) -> tuple[Mapping[str, Panel], list[Finding]]:
    """Return what can be judged, and a finding for each server that can't."""
    from catalog.signals import signal
    from detectors.drift.judge import NEEDED
    from detectors.service.refuse import refuse, seen_twice
    from store.prometheus import PromStore

    store = _store(PromStore, config)
    end = time.time()
    start, step = end - _seconds(last), config.prometheus.step
    panels = {name: store.panel(signal(name), start, end, step) for name in NEEDED}
    return refuse(panels, seen_twice(store, end), end)


def _judged(panels: Mapping[str, Panel], config: Config) -> tuple[int, list[str]]:
    """Return how many series a detector could judge, and the signals that none looks at."""
    from detectors.drift.coverage import coverage
    from detectors.drift.judge import (
        BESIDE,
        DETECTORS,
        EACH,
        NEEDED,
        SIGNALS,
        TOWARDS_LIMIT,
        read,
    )

    as_of = _newest(panels)
    looked = {name: read(name, panels, config) for name in DETECTORS}
    judged_of: dict[str, int] = {}  # a series that two detectors look at is one
    for panel in (panel for some in looked.values() for panel in some):
        count = coverage(panel, as_of).judged
        judged_of[panel.signal] = max(judged_of.get(panel.signal, 0), count)
    judged, seen = sum(judged_of.values()), set(judged_of)
    # Without a limit nobody looks at what is only judged against one.
    only = {s for name in (*TOWARDS_LIMIT, *EACH) for s in SIGNALS[name]} - seen
    only |= set() if judged else set(BESIDE)  # loads of nothing
    return judged, [name for name in panels if name not in NEEDED or name in only]


def _newest(panels: Mapping[str, Panel]) -> float:
    return max((float(p.times[-1]) for p in panels.values() if len(p.times)), default=0.0)


def _exit_code(findings: Sequence[Finding], *, judged: int, fail_on: str) -> int:
    """Return 1 for a finding of the asked state, 3 where nothing could be judged, else 0."""
    states = {finding.state for finding in findings if finding.kind != "unknown"}
    if "firing" in states or (fail_on == "watch" and "watch" in states):
        return 1
    return 0 if judged else COULD_NOT_JUDGE


def _add_bounds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limit", action="append", default=[], metavar="SIGNAL=VALUE",
        help="limit of a signal, for example host_anon_swap=64GiB (one server's processes)",
    )  # fmt: skip
    parser.add_argument(
        "--sla", action="append", default=[], metavar="SIGNAL=VALUE",
        help="service level of a signal, for example tpot_mean=20ms",
    )  # fmt: skip


class _Parser(argparse.ArgumentParser):
    """A parser whose help may end with a list that is made only when it is asked for."""

    def format_help(self) -> str:
        """Return the help, and the list behind the default `listing`."""
        listing = self.get_default("listing")
        return super().format_help() + (f"\n{listing()}\n" if listing else "")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="leadline",
        description="Slow drifts of disaggregated vLLM fleets, flagged before SLAs break.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"leadline {VERSION}")
    parser.add_argument(
        "--log-level", default="info", choices=("debug", "info", "warning", "error"),
        help="least severe log lines to print (default: info)",
    )  # fmt: skip
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(
        function: Callable[[argparse.Namespace], int], *examples: str
    ) -> argparse.ArgumentParser:
        text = (function.__doc__ or "").strip()
        sub: argparse.ArgumentParser = commands.add_parser(
            function.__name__.replace("_", "-"),
            help=text.rstrip("."),
            description=text,
            epilog="examples:\n" + "\n".join(f"  leadline {line}" for line in examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        sub.add_argument("--config", metavar="FILE", help="leadline.yaml")
        sub.set_defaults(run=function)
        return sub

    _node_commands(command)
    _fleet_commands(command)
    _made_commands(command)
    return parser


def _node_commands(command: Command) -> None:
    """Add what runs on a node of a fleet."""
    sub = command(
        exporter, "exporter --once", "exporter --listen 0.0.0.0:9840 --deployment glm",
        "exporter --listen 0.0.0.0:9840 --target http://10.0.0.7:8000/metrics,pool=decode",
        "exporter --listen 0.0.0.0:9840 --web.config.file /etc/leadline/web.yml",
    )  # fmt: skip
    sub.add_argument("--once", action="store_true", help="print the page of this moment and exit")
    sub.add_argument("--listen", metavar="HOST:PORT", help="default: 127.0.0.1:9840")
    sub.add_argument(
        "--web.config.file", dest="web_config_file", metavar="FILE",
        help="TLS and passwords, as Prometheus' exporter toolkit has them (docs/exporter.md)",
    )  # fmt: skip
    sub.add_argument("--proc", metavar="DIR", help="where the host's /proc is mounted")
    sub.add_argument("--sys", metavar="DIR", help="where the host's /sys is mounted")
    sub.add_argument(
        "--target", action="append", default=[], metavar="URL[,kind=K][,pool=P][,deployment=D]",
        help="a page that can't be found in the process table, of vLLM unless told "
        "(docs/targets.md); may be repeated; instead of the file's exporter.targets",
    )  # fmt: skip
    sub.add_argument("--no-vllm", action="store_true", help="Prometheus scrapes vLLM itself")
    sub.add_argument(
        "--log", action="append", default=[], metavar="PATH|unit:UNIT|opened[,port=N][,server=S]",
        help="a vLLM log to read, or what the servers found here write to; may be repeated; "
        "instead of the file's exporter.logs",
    )  # fmt: skip
    sub.add_argument("--cluster", metavar="NAME", help="label cluster")
    sub.add_argument("--namespace", metavar="NAME", help="label namespace")
    sub.add_argument(
        "--deployment", metavar="NAME", help="label deployment of the servers found here"
    )

    sub = command(
        probe, "probe --url http://gateway/v1 --model glm --once",
        "probe --url http://gateway/v1 --model glm --every 60s --deployment glm",
        "probe --config leadline.yaml --listen 0.0.0.0:9842",
    )  # fmt: skip
    _add_probe(sub)

    sub = command(up, "up", "up --config leadline.yaml --state /var/lib/leadline")
    sub.add_argument("--state", default="state", metavar="DIR", help="data of all programs")
    _add_bounds(sub)


def _add_probe(sub: argparse.ArgumentParser) -> None:
    """Add the flags of `probe`: they override `exporter.probe`."""
    sub.add_argument("--url", metavar="URL", help="base of the gateway's API, http://gateway/v1")
    sub.add_argument("--model", metavar="NAME", help="model to ask for")
    sub.add_argument("--once", action="store_true", help="print one round; exit 1 if it went wrong")
    sub.add_argument("--every", metavar="SPAN", help="time between probes (default: 60s)")
    sub.add_argument("--deadline", metavar="SPAN", help="for one answer (default: 60s)")
    sub.add_argument("--prompt-tokens", type=int, metavar="N", help="about (default: 512)")
    sub.add_argument("--output-tokens", type=int, metavar="N", help="default: 32")
    sub.add_argument("--no-answers", action="store_true", help="ask no questions, take times only")
    sub.add_argument(
        "--constrain", choices=("structured_outputs", "guided_choice", "none"),
        help="how answers are held to a choice (default: structured_outputs)",
    )  # fmt: skip
    sub.add_argument(
        "--api-key-file", metavar="FILE", help="API key; else the variable LEADLINE_PROBE_API_KEY"
    )
    sub.add_argument("--ca-file", metavar="FILE", help="certificates to trust beside the system's")
    sub.add_argument(
        "--listen", default="127.0.0.1:9842", metavar="HOST:PORT", help="default: 127.0.0.1:9842"
    )
    sub.add_argument("--cluster", metavar="NAME", help="label cluster")
    sub.add_argument("--namespace", metavar="NAME", help="label namespace")
    sub.add_argument("--deployment", metavar="NAME", help="label deployment: the P/D group asked")


def _fleet_commands(command: Command) -> None:
    """Add what reads a whole fleet."""
    sub = command(
        detect, "detect --prometheus http://localhost:9090 --last 7d",
        "detect --input soak.parquet --limit host_anon_swap=64GiB --json",
    )  # fmt: skip
    source = sub.add_mutually_exclusive_group(required=True)
    source.add_argument("--prometheus", metavar="URL", help="read from a Prometheus API")
    source.add_argument("--input", metavar="FILE", help="read a CSV or Parquet table")
    sub.add_argument("--last", default="7d", metavar="SPAN", help="history to read (default: 7d)")
    sub.add_argument("--json", action="store_true", help="one JSON object a line")
    sub.add_argument(
        "--fail-on", default="firing", choices=("firing", "watch"),
        help="least state that makes the exit code 1 (default: firing)",
    )  # fmt: skip
    _add_bounds(sub)

    sub = command(
        serve, "serve --prometheus http://localhost:9090 --alertmanager http://localhost:9093"
    )
    _add_servers(sub)
    sub.add_argument("--listen", metavar="HOST:PORT", help="default: 127.0.0.1:9841")
    sub.add_argument("--state", metavar="DIR", help="folder of the ledger (default: state)")
    sub.add_argument("--every", metavar="SPAN", help="time between cycles (default: 60s)")
    sub.add_argument("--step", metavar="SPAN", help="grid of range queries (default: 60s)")
    sub.add_argument("--external-url", metavar="URL", help="how people reach the board")
    _add_bounds(sub)

    sub = command(
        report, "report --prometheus http://localhost:9090 --last 7d -o report.html",
        "report --prometheus http://localhost:9090 --last 7d -o ticket.md",
    )  # fmt: skip
    sub.add_argument("--prometheus", metavar="URL", help="default: http://127.0.0.1:9090")
    sub.add_argument("--last", default="7d", metavar="SPAN", help="span of it (default: 7d)")
    sub.add_argument("-o", "--output", required=True, metavar="FILE", help="file to write")
    sub.add_argument(
        "--format", choices=("html", "md", "json"),
        help="html, md (for a ticket) or json (default: by the file's ending)",
    )  # fmt: skip
    _add_bounds(sub)


def _add_servers(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--prometheus", metavar="URL", help="default: http://127.0.0.1:9090")
    sub.add_argument(
        "--alertmanager", action="append", default=[], metavar="URL",
        help="may be repeated, once per replica",
    )  # fmt: skip


def _add_scenario(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--scenario", default="leak", metavar="NAME",
        help="what happens (default: leak): --help and docs/scenarios.md list them",
    )  # fmt: skip
    sub.set_defaults(listing=_scenarios)


def _made_commands(command: Command) -> None:
    """Add what writes files, plays a cluster or checks."""
    sub = command(demo, "demo", "demo --scenario none", "demo --check")
    _add_scenario(sub)
    sub.add_argument("--check", action="store_true", help="exit 0 once the alert is active")
    sub.add_argument("--state", metavar="DIR", help="keep data here (default: a temporary folder)")
    sub.add_argument("--deadline", default="10m", metavar="SPAN", help="of --check (default: 10m)")
    sub.add_argument(
        "--quiet-for", default="2m", metavar="SPAN",
        help="how long --check of scenario none listens (default: 2m)",
    )  # fmt: skip

    sub = command(rules, "rules -o /etc/prometheus/leadline")
    sub.add_argument("-o", "--output", required=True, metavar="DIR", help="folder to write to")
    sub = command(dashboards, "dashboards -o /var/lib/grafana/dashboards")
    sub.add_argument("-o", "--output", required=True, metavar="DIR", help="folder to write to")

    sub = command(
        simulate, "simulate --listen 127.0.0.1:9850 --scenario leak",
        "simulate --history past.om --since 3d --scenario leak",
        "simulate --table week.parquet --since 7d --scenario agents",
    )  # fmt: skip
    sub.add_argument(
        "--listen", default="127.0.0.1:9850", metavar="HOST:PORT", help="default: 127.0.0.1:9850"
    )
    _add_scenario(sub)
    sub.add_argument("--seed", type=int, default=1, metavar="N", help="of all chance (default: 1)")
    to = sub.add_mutually_exclusive_group()
    to.add_argument("--history", metavar="FILE", help="write the past instead of serving")
    to.add_argument(
        "--table", metavar="FILE", help="write signals as .csv, .csv.gz or .parquet instead"
    )
    sub.add_argument("--since", default="3d", metavar="SPAN", help="length of the past")
    sub.add_argument("--until", metavar="UNIX", help="end of the past (default: now)")
    sub.add_argument("--signals", metavar="A,B", help="of the table (default: all)")
    sub.add_argument("--step", default="60s", metavar="SPAN", help="of the table (default: 60s)")
    sub.add_argument(
        "--ahead", default="0s", metavar="SPAN", help="go on after the past's end in the table"
    )

    command(check_config, "check-config --config leadline.yaml")
    sub = command(
        doctor, "doctor --config leadline.yaml",
        "doctor --prometheus http://localhost:9090 --alertmanager http://localhost:9093",
    )  # fmt: skip
    _add_servers(sub)


def _known_errors() -> tuple[type[Exception], ...]:
    """Return the errors whose message is one line for the user, of the rooms that are loaded."""
    names = (
        ("catalog.config", "ConfigError"),
        ("store.prometheus", "StoreError"),
        ("store.table", "TableError"),
        ("stack.errors", "StackError"),
    )
    found = [getattr(sys.modules[m], n, None) for m, n in names if m in sys.modules]
    return (UsageError, ValueError, OSError, *(e for e in found if e is not None))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    args = _parser().parse_args(argv)
    logging.basicConfig(
        level=args.log_level.upper(), stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )  # fmt: skip
    # A shell starts background jobs with SIGINT ignored; asked to stop, we stop all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return int(args.run(args))
    except ImportError as error:
        extra = "dashboards" if args.command == "dashboards" else "serve"
        hint = f"pip install 'leadline[{extra}]'"
        print(f"leadline: {error.name} is not installed: {hint}", file=sys.stderr)
    except BrokenPipeError:
        # A reader such as `head` went away: that is its right.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except _known_errors() as error:
        print(f"leadline: {error}", file=sys.stderr)
    return COULD_NOT_RUN


if __name__ == "__main__":
    sys.exit(main())
