"""Writes every dashboard as the JSON that Grafana provisions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from dashboards import beside, drafts, drift, fleet, hosts, pool, transfer
from dashboards.adapter import to_grafana
from dashboards.panel import Board

HERE: Final = Path(__file__).parent / "json"

BOARDS: Final[dict[str, Board]] = {
    module.BOARD.uid: module.BOARD
    for module in (fleet, pool, drafts, transfer, beside, hosts, drift)
}
"""The one place where a dashboard is registered."""


def files() -> dict[str, str]:
    """Return the text of every file by its name."""
    return {
        f"{uid}.json": json.dumps(to_grafana(board), indent=2, ensure_ascii=False) + "\n"
        for uid, board in BOARDS.items()
    }


def write(directory: Path = HERE) -> list[Path]:
    """Write all dashboards into *directory* and return their paths.

    Raises:
        OSError: The folder can't be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in files().items():
        path = directory / name
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written
