"""Makes an unpacked program callable where it was never meant to be: away from /usr."""

import os
import shlex
from pathlib import Path

from stack.errors import StackError

# A folder that is compiled in is reached through an open file of the script that starts the
# program, as a path of the same length.
_OPEN_FOLDER = "/proc/self/fd/9"

_WRAPPER = """#!/bin/sh
# Runs a program with the files that were unpacked with it.
{setup}exec {program} "$@"
"""

_LIBRARIES = """LD_LIBRARY_PATH={folders}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
export LD_LIBRARY_PATH
[ -e /etc/fonts/fonts.conf ] || {{ FONTCONFIG_FILE={fonts}; export FONTCONFIG_FILE; }}
"""

_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{tree}/usr/share/fonts</dir><dir>/usr/share/fonts</dir></fontconfig>
"""


def place(tree: Path, program: str, at: Path, compiled_in: str = "") -> None:
    """Make `tree/program` callable at a path: a link, or a script that says where its files are.

    Args:
        tree: Where the package was unpacked.
        program: The program's path in it.
        at: Where it shall be called; replaced at one stroke.
        compiled_in: A folder below / that the program expects and can't be told otherwise.
    """
    if not (tree / program).exists():
        raise StackError(f"the package has no {program}")
    fresh = at.with_name(f".{at.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    if compiled_in and (tree / compiled_in).is_dir() and not (Path("/") / compiled_in).exists():
        moved = _without_folder(tree / program, f"/{compiled_in}")
        _script(fresh, f"exec 9<{_quoted(tree / compiled_in)}\n", moved)
    elif folders := ":".join(_library_folders(tree)):
        fonts = tree / "fonts.conf"
        fonts.write_text(_FONTS.format(tree=tree))
        setup = _LIBRARIES.format(folders=_quoted(folders), fonts=_quoted(fonts))
        _script(fresh, setup, tree / program)
    else:
        fresh.symlink_to(tree / program)
    fresh.replace(at)


def _script(path: Path, setup: str, program: Path) -> None:
    path.write_text(_WRAPPER.format(setup=setup, program=_quoted(program)))
    path.chmod(0o755)


def _quoted(path: Path | str) -> str:
    return shlex.quote(str(path))


def _without_folder(program: Path, folder: str) -> Path:
    """A copy of the program that looks for a compiled-in folder at the open file instead.

    Debian's Alertmanager reads its default templates from /usr/share and has no flag for it.
    """
    old = folder.encode()
    content = program.read_bytes()
    if old not in content:
        return program
    moved = program.with_name(f"{program.name}.moved")
    moved.write_bytes(content.replace(old, _OPEN_FOLDER.encode().ljust(len(old), b"/")))
    moved.chmod(0o755)
    return moved


def _library_folders(tree: Path) -> list[str]:
    found = {path.parent for path in tree.rglob("*.so*")}
    return [str(folder) for folder in sorted(found)]
