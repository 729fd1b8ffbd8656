"""Laws that hold for every collector."""

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import exporters
from catalog.config import Config
from catalog.signals import METRICS
from exporters.fetch import FetchError
from exporters.look import Task
from exporters.scrape import Exporter, collectors

ROOM = Path(exporters.__file__).parent


def refuse(url: str, timeout: float, limit: int, **_: object) -> bytes:
    """Answer nothing."""
    raise FetchError("not today")


REGISTERED = collectors(refuse, lambda: 0.0)


def defines_tasks(path: Path) -> bool:
    """Whether a module has a function or a method `tasks`: then it is a collector."""
    tree = ast.parse(path.read_text())
    return any(isinstance(n, ast.FunctionDef) and n.name == "tasks" for n in ast.walk(tree))


def test_every_collector_is_registered_by_its_file_name() -> None:
    """One that is written but not registered would stay silent."""
    collecting = [path for path in ROOM.rglob("*.py") if defines_tasks(path)]
    # A room of its own, such as gpu/, gives its collector its name.
    names = {p.parent.name if p.stem == "collector" else p.stem for p in collecting}
    assert names == REGISTERED.keys()


@pytest.mark.parametrize("name", REGISTERED)
def test_a_collector_that_breaks_leaves_the_page(
    name: str, recorded: Path, config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is 0, with the others at work, whether it fails at once or in its tasks."""

    def broken(*_: object) -> Any:
        raise RuntimeError("secret detail")

    def fetcher(url: str, timeout: float, limit: int, **_: object) -> bytes:
        return b'{"version": "1"}' if url.endswith("/version") else b"a 1\n"

    def run(collect: Callable[..., object]) -> tuple[dict[str, float], str]:
        monkeypatch.setattr(
            "exporters.scrape.collectors", lambda *a: {**collectors(*a), name: collect}
        )
        roots = {"proc": recorded / "proc", "cgroup": recorded / "cgroup"}
        exporter = Exporter(config(discover=True), fetcher=fetcher, **roots)
        text = exporter.page().decode()
        exporter.close()
        worst: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "leadline_collector_success":
                    collector = sample.labels["collector"]
                    worst[collector] = min(worst.get(collector, 1.0), sample.value)
        return worst, text

    whole, _ = run(REGISTERED[name])
    for collect in (broken, lambda _: {"": Task(broken)}):
        success, text = run(collect)
        assert success == {**whole, name: 0.0}
        assert "secret detail" not in text


def test_what_it_survives_is_held_by_tests() -> None:
    """Each row names a test that is there and metrics that there are; no such test lacks a row."""
    tests = ROOM.parent / "tests"
    text = (ROOM.parent / "docs" / "exporter.md").read_text(encoding="utf-8")
    table = text.partition("## What it survives\n")[2].partition("\n## ")[0]
    rows = [line[2:-2].split(" | ") for line in table.splitlines() if line[:1] == "|"][2:]
    assert len(rows) > 20
    named = set()
    for attack, what, counted, test in rows:
        assert what.endswith("."), attack
        assert set(re.findall(r"leadline_[a-z_]+", counted)) <= METRICS.keys(), attack
        file, _, name = test.strip("`").partition("::")
        assert f"\ndef {name}(" in (tests / file).read_text(encoding="utf-8"), attack
        named.add(test.strip("`"))
    for path in (tests / "exporters").glob("test_exporters_survive*.py"):
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            assert f"exporters/{path.name}::{name}" in named
