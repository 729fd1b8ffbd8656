"""Programs from Debian and Ubuntu packages without root: apt with private folders, then dpkg -x."""

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from stack.errors import StackError

# The loader of the running system and another C library do not mix.
NEVER_UNPACKED = ("libc6", "libc-bin", "libgcc-s1")
LISTS_FRESH_SECONDS = 3600.0


def unpack(package: str, folder: Path, with_needs: bool) -> Path:
    """Download and unpack a package into `folder/package`; whole or not at all."""
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            raise StackError(f"there is no {tool} here")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=folder) as temporary:
        work = Path(temporary)
        tree = work / "tree"
        for deb in _download(package, folder.parent / "apt", work / "debs", with_needs):
            _run(["dpkg", "-x", str(deb), str(tree)], work)
        _mend_links(tree)
        target = folder / package
        shutil.rmtree(target, ignore_errors=True)  # a tree whose program no longer runs
        tree.rename(target)
    return target


def _download(package: str, apt_folder: Path, into: Path, with_needs: bool) -> list[Path]:
    """Fetch the package, and with its needs also what this system lacks of them."""
    apt = _private_apt(apt_folder)
    complaint = _update(apt, apt_folder)
    into.mkdir()
    try:
        wanted = _missing(apt, apt_folder, package) if with_needs else [package]
        _run([*apt, "download", *wanted], into)
    except StackError as error:
        (apt_folder / "updated").unlink(missing_ok=True)
        raise StackError(f"{error}; {complaint}" if complaint else str(error)) from None
    return sorted(into.glob("*.deb"))


def _update(apt: list[str], apt_folder: Path) -> str:
    """Bring the package lists, at most once an hour; returns apt's complaint, if any.

    A broken third-party source or hook fails `update` though the lists we need arrived, so only
    the download decides.
    """
    stamp = apt_folder / "updated"
    if stamp.exists() and 0 <= time.time() - stamp.stat().st_mtime < LISTS_FRESH_SECONDS:
        return ""
    complaint = _run([*apt, "update"], apt_folder, check=False)
    stamp.touch()
    return _last_line(complaint)


def _mend_links(tree: Path) -> None:
    """Point links at the system's files where the package they lead to is installed already."""
    for path in tree.rglob("*"):
        if path.is_symlink() and not path.exists():
            wanted = os.path.normpath(path.parent / path.readlink())
            inside = Path(wanted).relative_to(tree) if Path(wanted).is_relative_to(tree) else None
            if inside is not None and (Path("/") / inside).exists():
                path.unlink()
                path.symlink_to(Path("/") / inside)


def _private_apt(work: Path) -> list[str]:
    """An apt-get that writes only under `work`, as any user."""
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    options = {
        "Dir::State": str(work / "state"),
        "Dir::State::status": "/var/lib/dpkg/status",
        "Dir::Cache": str(work / "cache"),
        "Dir::Log": str(work),
        # As root apt would become _apt, which may not write in this user's folders.
        "APT::Sandbox::User": "root",
        "Acquire::Retries": "3",
        "Acquire::http::Timeout": "20",
        "Acquire::https::Timeout": "20",
        "Acquire::Languages": "none",
    }
    return ["apt-get", "-q", *(f"-o{key}={value}" for key, value in options.items())]


def _missing(apt: list[str], work: Path, package: str) -> list[str]:
    """The package and what it needs that this system lacks, as apt itself resolves it."""
    plan = [*apt, "--yes", "--no-install-recommends", "--print-uris", "install", package]
    found = re.findall(r"^'[^']*' ([^_\s]+)_\S+ \d+", _run(plan, work), re.MULTILINE)
    return [name for name in dict.fromkeys([package, *found]) if name not in NEVER_UNPACKED]


def _run(argv: list[str], cwd: Path, check: bool = True) -> str:
    """Run one step in C locale; the error is its last line of complaint."""
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            argv,
            check=False,
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=300,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StackError(f"{argv[0]} failed: {error.__class__.__name__}") from error
    if check and done.returncode != 0:
        raise StackError(_last_line(done.stderr) or f"{argv[0]} ended with {done.returncode}")
    return done.stdout if check else ("" if done.returncode == 0 else done.stderr)


def _last_line(text: str) -> str:
    """The first error apt names, else its last line; credentials in addresses are cut."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E:")]
    line = (errors or lines or [""])[-1]
    return re.sub(r"(https?://)[^/@\s]*@", r"\1", line)
