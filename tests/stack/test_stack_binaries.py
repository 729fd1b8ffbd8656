"""Programs are found on PATH, else unpacked once and whole, else one line says what to install."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stack import binaries
from stack.errors import MissingProgramError

GOOD = "#!/bin/sh\nexit 0\n"
BROKEN = "#!/bin/sh\nexit 1\n"
# An apt-get that notes each download, and a dpkg that unpacks a program that runs.
APT = """#!/bin/sh
case "$*" in *download*) echo download >> "$NOTES"; : > prometheus-alertmanager_1_all.deb;; esac
"""
DPKG = """#!/bin/sh
/bin/mkdir -p "$3/usr/bin" "$3/usr/share/prometheus/alertmanager"
for name in prometheus-alertmanager amtool; do
  echo '#!/bin/sh' > "$3/usr/bin/$name"; /bin/chmod +x "$3/usr/bin/$name"
done
"""
APT_FAILS = """#!/bin/sh
echo 'E: Unable to locate package prometheus-alertmanager' >&2
exit 100
"""

AddTool = Callable[[str, str], None]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AddTool:
    """Puts a script on a PATH that has nothing else, over an empty cache."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    binaries.find.cache_clear()

    def add(name: str, text: str) -> None:
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)

    return add


def test_path_comes_first(tool: AddTool, tmp_path: Path) -> None:
    """A program on PATH that runs is taken as it is, under either of its names."""
    tool("prometheus-alertmanager", GOOD)
    assert binaries.find("alertmanager") == tmp_path / "path" / "prometheus-alertmanager"


def test_two_processes_unpack_once(tool: AddTool, tmp_path: Path) -> None:
    """Two processes at once get the program, from one download; a broken one on PATH is passed."""
    tool("alertmanager", BROKEN)
    tool("apt-get", APT)
    tool("dpkg", DPKG)
    ask = "from stack.binaries import find; print(find('alertmanager'), find('amtool'))"
    asking = [
        subprocess.Popen(
            [sys.executable, "-c", ask],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(binaries.__file__).parents[1])},
        )
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=60)[0].split() for process in asking]

    bin_folder = tmp_path / "cache" / "leadline" / "bin"
    assert answers == [[str(bin_folder / "alertmanager"), str(bin_folder / "amtool")]] * 2
    assert (tmp_path / "notes").read_text().split() == ["download"]


@pytest.mark.parametrize("reason", ["there is no apt-get here", "Unable to locate package"])
def test_failure_is_one_line_and_leaves_nothing(tool: AddTool, tmp_path: Path, reason: str) -> None:
    """Without the package the error is one line that says what to install; the cache is clean."""
    if reason.startswith("Unable"):
        tool("apt-get", APT_FAILS)
        tool("dpkg", DPKG)
    with pytest.raises(MissingProgramError) as raised:
        binaries.find("alertmanager")

    message = str(raised.value)
    assert reason in message
    assert "install it so that `alertmanager or prometheus-alertmanager` is on PATH" in message
    assert "\n" not in message
    packages = tmp_path / "cache" / "leadline" / "packages"
    assert not packages.exists() or not list(packages.iterdir())
