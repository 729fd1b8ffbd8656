"""The file that `vllm serve --config` names, read as vLLM reads it: as more arguments.

It stands before the command line's own options, so that those win.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from catalog import yaml_text
from exporters.node import rooted

MAX_BYTES: Final = 1 << 18


def words(process: Path, path: str) -> list[str] | None:
    """Return the arguments in a file as the process *process* (its folder in /proc) sees it.

    None if it can't be read: the process is another user's, the file is gone or no YAML.
    """
    try:
        where = PurePosixPath(path)
        if not where.is_absolute():
            where = PurePosixPath(str((process / "cwd").readlink())) / where
        text = rooted.read(process / "root", where, MAX_BYTES)
        read = yaml_text.read(text)
        return _arguments(read) if isinstance(read, dict) else None
    except (OSError, ValueError, TypeError, RecursionError):  # also a key that JSON has no word for
        return None


def _arguments(read: Mapping[Any, Any]) -> list[str]:
    found: list[str] = []
    for key, value in read.items():
        option = f"--{key}"
        if isinstance(value, bool):
            # vLLM looks for --no-KEY where its subcommand's options aren't: false says nothing.
            found += [option] if value else []
        elif isinstance(value, list):
            found += [option, *map(str, value)] if value else []
        elif isinstance(value, dict):
            found += [option, json.dumps(value, default=str)]
        else:
            found += [option, str(value)]
    return found
