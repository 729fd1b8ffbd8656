"""Writes docs/openapi.json: `python -m detectors.service.openapi` (a part of `make generate`)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from catalog.config import load
from detectors.service.alertmanager import Alertmanagers
from detectors.service.api import create
from detectors.service.snapshot import Snapshot
from detectors.service.view import View

PATH = Path(__file__).resolve().parents[2] / "docs" / "openapi.json"


def document() -> dict[str, Any]:
    """Return the OpenAPI document, the same wherever it is made."""
    config = load(None, {})
    view = View.of(config, Snapshot, Alertmanagers((), config.alertmanager.timeout))
    return create(view).openapi()


def main() -> int:
    """Write the document."""
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(json.dumps(document(), indent=1, ensure_ascii=False) + "\n")
    print(f"wrote {PATH}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
