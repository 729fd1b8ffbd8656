"""Finds the real programs: on PATH, else in our cache, else in the distribution's packages.

No root is needed: packages are downloaded by apt with private folders and unpacked with dpkg into
`${XDG_CACHE_HOME:-~/.cache}/leadline`. A program counts as found once `--version` runs.
"""

import fcntl
import functools
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from stack import debian
from stack.errors import MissingProgramError, StackError
from stack.place import place

log = logging.getLogger("leadline.stack")

Name = Literal[
    "prometheus",
    "promtool",
    "alertmanager",
    "amtool",
    "victoria-metrics",
    "prometheus-process-exporter",
    "chromium-headless-shell",
]


@dataclass(frozen=True)
class Source:
    """Where a program comes from: its names on PATH, and its Debian package."""

    package: str
    path_in_package: str
    on_path: tuple[str, ...]
    with_needs: bool = False  # also the packages it depends on
    compiled_in: str = ""  # a folder that it wants to find below /


SOURCES: dict[Name, Source] = {
    # Its own web pages need the JavaScript packages.
    "prometheus": Source("prometheus", "usr/bin/prometheus", ("prometheus",), with_needs=True),
    "promtool": Source("prometheus", "usr/bin/promtool", ("promtool",), with_needs=True),
    "alertmanager": Source(
        "prometheus-alertmanager",
        "usr/bin/prometheus-alertmanager",
        ("alertmanager", "prometheus-alertmanager"),
        compiled_in="usr/share/prometheus/alertmanager",
    ),
    "amtool": Source(
        "prometheus-alertmanager",
        "usr/bin/amtool",
        ("amtool",),
        compiled_in="usr/share/prometheus/alertmanager",
    ),
    "victoria-metrics": Source(
        "victoria-metrics",
        "usr/bin/victoria-metrics",
        ("victoria-metrics", "victoria-metrics-prod"),
    ),
    "prometheus-process-exporter": Source(
        "prometheus-process-exporter",
        "usr/bin/prometheus-process-exporter",
        ("prometheus-process-exporter", "process-exporter"),
    ),
    "chromium-headless-shell": Source(
        "chromium-headless-shell",
        "usr/lib/chromium/chromium-headless-shell",
        ("chromium-headless-shell", "chrome-headless-shell", "chromium", "google-chrome"),
        with_needs=True,
    ),
}


def cache_folder() -> Path:
    """Leadline's own cache, `${XDG_CACHE_HOME:-~/.cache}/leadline`."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "leadline"


@functools.cache
def find(name: Name) -> Path:
    """The program's path; downloads it if need be, raises MissingProgramError with a remedy."""
    source = SOURCES[name]
    for alias in source.on_path:
        found = shutil.which(alias)
        if found is not None and runs(Path(found)):
            return Path(found)
    cached = cache_folder() / "bin" / name
    if not runs(cached):
        _fetch(name, source, cached)
    return cached


def runs(program: Path) -> bool:
    """Whether `PROGRAM --version` ends well, which finds missing libraries and foreign builds."""
    try:
        done = subprocess.run(
            [program, "--version"],
            check=False,
            capture_output=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _fetch(name: Name, source: Source, cached: Path) -> None:
    """Unpack the package into the cache, under a lock, so that two processes do it once."""
    try:
        with _locked(cache_folder() / "lock"):
            if runs(cached):  # another process was faster
                return
            cached.parent.mkdir(parents=True, exist_ok=True)
            packages = cache_folder() / "packages"
            tree = packages / source.package
            # A browser that lacks libraries doesn't run by itself, so it is unpacked again.
            if not runs(tree / source.path_in_package):
                log.info("unpacking package %s into %s", source.package, packages)
                tree = debian.unpack(source.package, packages, source.with_needs)
            place(tree, source.path_in_package, cached, source.compiled_in)
    except (StackError, OSError) as error:
        raise MissingProgramError(_advice(name, source, str(error))) from error
    if not runs(cached):
        raise MissingProgramError(_advice(name, source, f"{cached} --version does not run"))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock, freed by the kernel even if this process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _advice(name: Name, source: Source, reason: str) -> str:
    names = " or ".join(dict.fromkeys(source.on_path))
    return (
        f"{name} is not on PATH and could not be unpacked from the package {source.package} "
        f"({' '.join(reason.split())}): install it so that `{names}` is on PATH"
    )


def names() -> tuple[Name, ...]:
    """Every program that can be asked for."""
    return get_args(Name)


def main(wanted: list[str]) -> int:
    """Find programs, all if none is named; one line for each that can't be had."""
    missing = 0
    for name in names():
        if wanted and name not in wanted:
            continue
        try:
            print(f"{name}: {find(name)}", flush=True)
        except MissingProgramError as error:
            print(error, file=sys.stderr)
            missing += 1
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
