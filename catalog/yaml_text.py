"""YAML from files that others may have written, read so that it neither swells nor gives away.

A few hundred bytes of aliases of aliases stand for more values than memory has, and whoever looks
at all of them hangs in it: such a text is refused before anything is made of it. The parser's own
messages quote the line, and with it a password: only what is wrong and where is told.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

MOST_REPEATED: Final = 100_000
"""Values that aliases may stand for beside those that are written out."""
_QUOTED = re.compile(r"'(?!<)[^']{2,}'?")
_MERGE: Final = "tag:yaml.org,2002:merge"
# What PyYAML raises beside its own errors: `!!int x`, `!!timestamp x`, a month 13.
_OTHERS: Final = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError)


class YamlError(ValueError):
    """A text is no YAML that can be used; one line, without any of its words.

    Attributes:
        line: Where, counted from 1; 0 where nobody knows.
    """

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(f"{reason} (line {line})" if line else reason)
        self.line = line


class _Loader(yaml.SafeLoader):
    """Looks at the whole before it makes values of it."""

    def get_single_node(self) -> Any:
        node = super().get_single_node()
        sizes: dict[int, int] = {}
        if node is not None and _size(node, sizes) - len(sizes) > MOST_REPEATED:
            raise YamlError("aliases stand for too many values")
        return node


def _size(node: Any, sizes: dict[int, int]) -> int:
    """Return how many values a node stands for; *sizes* gets it for each by its identity."""
    known = sizes.get(id(node))
    if known is not None:
        if not known:
            raise YamlError("an alias is a part of what it stands for")
        return known
    sizes[id(node)] = 0  # until it is known: whoever meets it below itself is in a circle
    size = 1
    if isinstance(node, yaml.SequenceNode):
        size += sum(_size(inner, sizes) for inner in node.value)
    elif isinstance(node, yaml.MappingNode):
        size += sum(_size(inner, sizes) for pair in node.value for inner in pair)
    sizes[id(node)] = size
    return size


class _UniqueLoader(_Loader):
    """Refuses a key that is there twice: the parser would take the last and say nothing."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if key.value in seen:
                    raise YamlError("a key is there twice", key.start_mark.line + 1)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read(text: bytes | str, *, unique: bool = False) -> Any:
    """Return what *text* says.

    Args:
        text: As written.
        unique: Whether a key that is there twice is an error.

    Raises:
        YamlError: It is no YAML, or one that swells.
    """
    try:
        return yaml.load(text, _UniqueLoader if unique else _Loader)  # noqa: S506 - it is a SafeLoader
    except YamlError:
        raise
    except RecursionError:
        raise YamlError("too many levels of brackets or keys") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        what = _QUOTED.sub("…", " ".join((error.problem or "syntax").split()))
        raise YamlError(what[:100], line) from None
    except yaml.reader.ReaderError:
        raise YamlError("a character that YAML does not allow") from None
    except _OTHERS:
        raise YamlError("a value that is not of the form that its tag or look says") from None
