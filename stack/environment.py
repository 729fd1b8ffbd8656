"""Makes `.venv` with all that working on Leadline needs; `make setup` runs it. No dependencies.

Debian's Python comes without ensurepip. Then pip is taken, without root, from the distribution's
own wheel of it, as our other programs are.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

from stack import debian
from stack.binaries import cache_folder
from stack.errors import StackError

ROOT = Path(__file__).resolve().parents[1]
# The first pip that installs dependency groups.
PIP = "pip>=25.1"


def make(folder: Path) -> None:
    """Make or complete the environment in a folder.

    Raises:
        StackError: It can't be made; one line that says what to install.
    """
    python = folder / "bin" / "python"
    if not _runs(python, "-m", "pip", "--version"):
        _say(f"making {folder} with Python {sys.version.split()[0]}")
        _venv(folder)
    _pip(python, f"of {PIP}", PIP)
    _say("installing Leadline and its tools (minutes, the first time)")
    _pip(python, "of Leadline", "-e", f"{ROOT}[serve,dashboards]", "--group", "dev")


def _venv(folder: Path) -> None:
    if importlib.util.find_spec("venv") is None:
        raise StackError(f"{sys.executable} has no venv: install python3-venv")
    if importlib.util.find_spec("ensurepip") is not None:
        _check([sys.executable, "-m", "venv", folder], "making the environment failed")
        return
    _check([sys.executable, "-m", "venv", "--without-pip", folder], "making the environment failed")
    try:
        tree = debian.unpack("python3-pip-whl", cache_folder() / "packages", with_needs=False)
        wheel = next(tree.glob("usr/share/python-wheels/pip-*.whl"))
    except (StackError, StopIteration, OSError) as error:
        raise StackError(
            f"{sys.executable} has no ensurepip and pip could not be unpacked ({error}): "
            "install python3-venv"
        ) from error
    _check(
        [folder / "bin" / "python", wheel / "pip", "install", "-q", PIP], "installing pip failed"
    )


def _pip(python: Path, what: str, *arguments: str) -> None:
    argv: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        *arguments,
    ]
    _check(argv, f"installation {what} failed, see pip's message above")


def _check(argv: list[str | Path], failed: str) -> None:
    if subprocess.run(argv, check=False, cwd=ROOT, timeout=3600).returncode != 0:
        raise StackError(failed)


def _runs(*argv: str | Path) -> bool:
    try:
        done = subprocess.run(argv, check=False, capture_output=True, timeout=120)
    except OSError:
        return False
    return done.returncode == 0


def _say(line: str) -> None:
    print(f"setup: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        make(Path(sys.argv[1]).absolute())
    except StackError as error:
        sys.exit(f"setup: {error}")
