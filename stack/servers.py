"""Prometheus and Alertmanager as programs of a stack, on loopback."""

from collections.abc import Sequence
from pathlib import Path

from stack import binaries
from stack.programs import Program, Stack

# Told to Prometheus, whose default of 15 days would drop older blocks that were filled in.
RETENTION = "10y"


def prometheus(
    config: Path, data: Path, port: int, *, resend: str = "1m", features: Sequence[str] = ()
) -> Program:
    """Prometheus with its data in a folder, ready once it would answer queries.

    It discovers its Alertmanagers after some five seconds, an alert that fires before is sent
    with the next resend, and lapses in Alertmanager after four of them.
    """
    program = binaries.find("prometheus")
    argv: list[str | Path] = [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        f"--storage.tsdb.retention.time={RETENTION}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--rules.alert.resend-delay={resend}",
        "--log.level=warn",
    ]
    if features:
        argv.append(f"--enable-feature={','.join(features)}")
    assets = program.resolve().parents[1] / "share/prometheus/web"
    # Debian keeps the web pages outside the program; other builds don't know the flag.
    if assets.is_dir() and assets.is_relative_to(binaries.cache_folder().resolve()):
        argv.append(f"--web.local-assets={assets}")
    return Program("prometheus", argv, f"http://127.0.0.1:{port}/-/ready")


def alertmanager(config: Path, data: Path, port: int) -> Program:
    """One Alertmanager without peers."""
    argv: list[str | Path] = [
        binaries.find("alertmanager"),
        f"--config.file={config}",
        f"--storage.path={data}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]
    return Program("alertmanager", argv, f"http://127.0.0.1:{port}/-/ready")


def fill(stack: Stack, openmetrics: Path, data: Path, *, within: float = 600.0) -> None:
    """Turn an OpenMetrics file into blocks of a Prometheus that does not run yet.

    Prometheus accepts scrapes only after the newest of these samples, so the file must end
    before the first scrape. Blocks of a week cost a tenth of the default's two hours.
    """
    data.mkdir(parents=True, exist_ok=True)
    argv: list[str | Path] = [
        binaries.find("promtool"),
        *("tsdb", "create-blocks-from", "openmetrics", "--quiet"),
        "--max-block-duration=168h",
        openmetrics,
        data,
    ]
    stack.finish(Program("backfill", argv), within=within)
