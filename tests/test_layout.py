"""The arrows between the rooms, and that our package names are ours alone."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

ARROWS: dict[str, set[str]] = {
    "catalog": set(),
    "exporters": {"catalog"},
    "alerts": {"catalog"},
    "dashboards": {"catalog"},
    "simulator": {"catalog"},
    "store": {"catalog"},
    "stack": {"catalog"},
    "detectors": {"catalog"},
    "detectors.drift": {"catalog", "detectors"},
    "detectors.service": {"catalog", "store", "detectors", "detectors.drift"},
    "reports": {"catalog", "store", "detectors", "detectors.drift"},
}
"""What each room may import of ours, beside itself."""

HEAVY = {"numpy", "pandas", "scipy", "statsmodels", "matplotlib", "fastapi", "grafanalib", "httpx"}


def _room(module: str) -> str:
    parts = module.split(".")
    pair = ".".join(parts[:2])
    return pair if pair in ARROWS else parts[0]


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
    return found


def _modules() -> list[Path]:
    return sorted(p for room in ARROWS if "." not in room for p in (ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_follow_the_arrows(path: Path) -> None:
    """Each module imports only what the design lets its room import."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    own = _room(name)
    ours = {_room(m) for m in _imports(path) if m.split(".")[0] in {*ARROWS, "leadline"}}
    assert ours - ARROWS[own] - {own} == set()


def test_what_a_node_installs_stays_light() -> None:
    """The exporter runs without the heavy packages of the extras."""
    seen: set[Path] = set()
    todo = [*(ROOT / "exporters").rglob("*.py")]
    heavy: set[str] = set()
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for module in _imports(path):
            heavy |= {module.split(".")[0]} & HEAVY
            file = ROOT.joinpath(*module.split(".")).with_suffix(".py")
            if file.exists():
                todo.append(file)
    assert heavy == set()


@pytest.mark.parametrize("room", [r for r in ARROWS if "." not in r])
def test_names_resolve_into_this_project(room: str) -> None:
    """A package of ours is found here, and no other installed distribution claims its name."""
    spec = importlib.util.find_spec(room)
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).is_relative_to(ROOT)
    claimed = importlib.metadata.packages_distributions().get(room, [])
    assert set(claimed) <= {"leadline"}
