"""The pages of several servers as one exposition, in the text format and in OpenMetrics.

Families go out under one HELP and TYPE. The first one's words and type hold. Counter, gauge and
untyped differ in the TYPE line only, so another server's samples are kept; where one is a
histogram or summary and the other isn't, the second server's family is dropped.

Sample lines are the same in both formats; what differs is the words around them. In OpenMetrics a
counter is a family without `_total`, whose samples have it. One without `_total`, or whose bare
name another family has, can't be said so: it goes out as `unknown`, under the name of its samples,
so that the same series arrive in either format. The end (`# EOF`) is the writer's of the whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from catalog.exposition import header, open_header
from catalog.splice import PARTS, Block, Page

_TOTAL: Final = "_total"


class Family(NamedTuple):
    """One family of several pages."""

    name: str
    type: str
    help: str
    blocks: list[Block]


def combine(pages: Iterable[Page]) -> list[Family]:
    """Return the families of all *pages*; what conflicts is counted on the page that lost."""
    families: dict[str, Family] = {}
    for page in pages:
        for block in page.blocks:
            family = families.get(block.name)
            if family is None:
                family = families[block.name] = Family(block.name, block.type, block.help, [])
            elif _shape(family.type) != _shape(block.type):
                page.dropped["conflict"] += block.samples
                page.samples -= block.samples
                continue
            family.blocks.append(block)
    return list(families.values())


def text(families: Iterable[Family]) -> str:
    """Return *families* as one exposition in the text format."""
    parts: list[str] = []
    for family in families:
        parts.append(header(family.name, family.type, family.help))
        parts += [block.text for block in family.blocks]
    return "".join(parts)


def merge(pages: Iterable[Page]) -> str:
    """Return one exposition of all *pages* in the text format."""
    return text(combine(pages))


def open_text(families: Sequence[Family]) -> str:
    """Return *families* as part of an exposition in OpenMetrics."""
    names = {family.name for family in families}
    parts: list[str] = []
    for family in families:
        parts.append(open_header(*_named(family, names), family.help))
        parts += [_lines(block) for block in family.blocks]
    return "".join(parts)


def _named(family: Family, names: Collection[str]) -> tuple[str, str]:
    """Return name and type of a family as OpenMetrics has them."""
    if family.type == "counter":
        bare = family.name.removesuffix(_TOTAL)
        if bare != family.name and bare not in names:
            return bare, "counter"
        return family.name, "unknown"
    return family.name, "unknown" if family.type == "untyped" else family.type


def _lines(block: Block) -> str:
    if not block.exemplars:
        return block.text
    lines = block.text.split("\n")
    for number, told in block.exemplars:
        lines[number] += f" # {told}"
    return "\n".join(lines)


def _shape(type_: str) -> str:
    return type_ if type_ in PARTS else "single"
