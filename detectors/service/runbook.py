"""Serves `runbooks/`: a small Markdown renderer that lets no markup through.

It knows what our runbooks use: headings, paragraphs, lists, code, tables, bold, links. Everything
else comes out as the text it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from markupsafe import Markup, escape

FOLDER: Final = Path(__file__).resolve().parents[2] / "runbooks"
"""Beside the packages, in the repository and where it is installed."""
PROMETHEUS: Final = "http://127.0.0.1:9090"
"""What the commands of runbooks ask."""
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{1,63}")
_MAX: Final = 2**20
_INLINE: Final = re.compile(
    r"`(?P<code>[^`]+)`|\*\*(?P<bold>[^*]+)\*\*|\[(?P<text>[^\]]+)\]\((?P<url>[^)\s]+)\)"
)
_ITEM: Final = re.compile(r"\s*(?:[-*]|(?P<number>\d+)[.)])\s+(?P<text>.*)")


def read(alert: str, folder: Path = FOLDER) -> str | None:
    """Return the Markdown of an alert's runbook, or None."""
    if not _NAME.fullmatch(alert):
        return None
    try:
        with (folder / f"{alert}.md").open(encoding="utf-8") as file:
            return file.read(_MAX)
    except (OSError, UnicodeDecodeError):
        return None


def names(folder: Path = FOLDER) -> list[str]:
    """Return the alerts that have a runbook."""
    return sorted(p.stem for p in folder.glob("*.md") if _NAME.fullmatch(p.stem))


def render(text: str) -> Markup:
    """Return Markdown as HTML in which only our own tags are markup."""
    return Markup("\n").join(_blocks(text.splitlines()))


def _blocks(lines: list[str]) -> Iterator[Markup]:
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
        elif line.lstrip().startswith("```"):
            end = _until(lines, at + 1, lambda text: text.lstrip().startswith("```"))
            yield Markup("<pre><code>{}</code></pre>").format("\n".join(lines[at + 1 : end]))
            at = end + 1
        elif heading := re.match(r"(#{1,6})\s+(.*)", line):
            level = len(heading[1])
            yield Markup("<h{0}>{1}</h{0}>").format(level, inline(heading[2]))
            at += 1
        elif line.lstrip().startswith("|"):
            end = _until(lines, at, lambda text: not text.lstrip().startswith("|"))
            yield _table(lines[at:end])
            at = end
        elif _ITEM.match(line):
            end = _until(lines, at, lambda text: not text.strip())
            yield _list(lines[at:end])
            at = end
        else:
            end = _until(lines, at, _ends_paragraph)
            end = max(end, at + 1)
            yield Markup("<p>{}</p>").format(inline(" ".join(lines[at:end])))
            at = end


def _until(lines: list[str], start: int, stop: Callable[[str], bool]) -> int:
    return next((i for i in range(start, len(lines)) if stop(lines[i])), len(lines))


def _ends_paragraph(line: str) -> bool:
    return not line.strip() or bool(re.match(r"\s*(```|#{1,6}\s|\|)", line)) or bool(
        _ITEM.match(line)
    )  # fmt: skip


def _list(lines: list[str]) -> Markup:
    items: list[str] = []
    for line in lines:
        match = _ITEM.match(line)
        if match:
            items.append(match["text"])
        else:
            items[-1] += " " + line.strip()
    first = _ITEM.match(lines[0])
    tag = "ol" if first and first["number"] else "ul"
    rows = Markup("").join(Markup("<li>{}</li>").format(inline(item)) for item in items)
    return Markup("<{0}>{1}</{0}>").format(tag, rows)


def _table(lines: list[str]) -> Markup:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    body = [row for row in rows[1:] if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]
    head = Markup("").join(Markup('<th scope="col">{}</th>').format(inline(c)) for c in rows[0])
    cells = Markup("").join(
        Markup("<tr>{}</tr>").format(
            Markup("").join(Markup("<td>{}</td>").format(inline(c)) for c in row)
        )
        for row in body
    )
    return Markup(
        '<div class="scroll"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    ).format(head, cells)


def inline(text: str) -> Markup:
    """Return a line with code, bold and links marked up and all else escaped."""
    parts: list[Markup] = []
    at = 0
    for match in _INLINE.finditer(text):
        parts += [escape(text[at : match.start()]), _span(match)]
        at = match.end()
    return Markup("").join([*parts, escape(text[at:])])


def _span(match: re.Match[str]) -> Markup:
    if match["code"] is not None:
        return Markup("<code>{}</code>").format(match["code"])
    if match["bold"] is not None:
        return Markup("<strong>{}</strong>").format(inline(match["bold"]))
    url = re.sub(r"\.md(?=$|#)", "", match["url"])
    if not re.match(r"https?://|[\w./#-]+$", url) or url.startswith("//"):
        return escape(match[0])
    return Markup('<a href="{}">{}</a>').format(url, inline(match["text"]))
