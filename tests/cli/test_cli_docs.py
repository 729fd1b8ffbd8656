"""What is written about the commands and keys is what they are."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

import leadline

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = (ROOT / "docs" / "commands.md").read_text()
README = (ROOT / "README.md").read_text()


def _generator() -> object:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["configuration", "commands", "scenarios"])
def test_the_reference_is_up_to_date(name: str) -> None:
    """The committed file is what `make generate` writes."""
    written = (ROOT / "docs" / f"{name}.md").read_text()
    assert written == getattr(_generator(), name)()


def _lines(text: str) -> list[str]:
    """Return the commands in the shell blocks of a page, comments and continuations joined."""
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    return [line for line in blocks.splitlines() if line.startswith("leadline ")]


@pytest.mark.parametrize("line", sorted({*_lines(README), *_lines(COMMANDS)}))
def test_every_command_that_is_shown_parses(line: str) -> None:
    """README and reference show only commands and flags that exist."""
    leadline._parser().parse_args(shlex.split(line, comments=True)[1:])


def test_every_command_is_documented_with_examples() -> None:
    """A command without a description, help of a flag or an example is no finished command."""
    for section in COMMANDS.split("\n## ")[1:]:
        head, *rest = section.splitlines()
        assert rest[1].strip(), head
        assert re.search(r"```sh\nleadline ", section), head
        assert not re.search(r"\| `[^`]+` \| *\|", section), section


def test_make_targets_of_the_readme_exist() -> None:
    """Every `make target` of README and CONTRIBUTING is one of the Makefile's."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    shown = set(re.findall(r"make ([a-z]+)", README + (ROOT / "CONTRIBUTING.md").read_text()))
    assert shown <= targets
