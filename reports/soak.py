"""The soak report: what held, what drifts and what nobody can know, in one file."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from catalog.config import Config
from catalog.units import human_duration
from reports import machine, markdown, page
from reports.gather import Progress, Soak, Source, gather
from reports.overview import said_source
from reports.verdict import Summary, Verdict, judge_soak

Renderer = Callable[[Soak, Summary, str, float], str]
FORMATS: Final[dict[str, Renderer]] = {
    "html": page.render,
    "md": markdown.render,
    "json": machine.render,
}
ENDINGS: Final = {
    "": "html", ".html": "html", ".htm": "html", ".md": "md", ".markdown": "md", ".json": "json",
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What was written: the verdict, its first reason, the file."""

    verdict: Verdict
    reason: str
    path: Path


def write(
    source: Source,
    config: Config,
    *,
    start: float,
    end: float,
    output: Path,
    format: str | None = None,  # noqa: A002 - the word that everybody uses for it
    progress: Progress = lambda _: None,
) -> Outcome:
    """Write the soak report of [start, end], the span before beside it; return its verdict.

    Args:
        source: A Prometheus, or panels by signal name; the span before is read from it too.
        config: Limits, SLA and step.
        start: Unix seconds.
        end: Unix seconds.
        output: File to write.
        format: `html`, `md` or `json`; None: by the ending of *output*.
        progress: Is told each step.

    Raises:
        StoreError: Prometheus can't be reached, so that there is nothing to report on.
        ValueError: The span or the format is none, or the file can't be written: before it reads.
        OSError: The file can't be written.
    """
    render = FORMATS[chosen_format(output, format)]
    if not end > start:
        raise ValueError(f"a report needs a span above zero, not {human_duration(end - start)}")
    partial = output.with_name(f".{output.name}.partial")
    _try_out(output, partial)
    soak = gather(source, config, start, end, progress)
    summary = judge_soak(soak.rows, soak.findings, start, end, soak.as_of)
    text = render(soak, summary, said_source(source), time.time())
    progress(f"writing {output}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(output)
    return Outcome(summary.verdict, summary.reasons[0], output)


def _try_out(output: Path, partial: Path) -> None:
    """See that the file can be written, before minutes are spent on reading for it.

    Raises:
        ValueError: It can't; one line.
    """
    if output.is_dir():
        raise ValueError(f"{output} is a folder: name a file in it")
    if not output.parent.is_dir():
        raise ValueError(f"{output}: there is no folder {output.parent}: make it first")
    try:
        partial.touch()
        partial.unlink()
    except OSError as error:
        raise ValueError(f"{output} can't be written: {error.strerror}") from None


def chosen_format(output: Path, asked: str | None) -> str:
    """Return the format that was asked for, else that of the file's ending.

    Raises:
        ValueError: There is none; one line with the remedy.
    """
    known = ", ".join(FORMATS)
    if asked is not None and asked not in FORMATS:
        raise ValueError(f"format {asked!r} is none; known: {known}")
    found = asked or ENDINGS.get(output.suffix.lower())
    if found is None:
        raise ValueError(f"{output}: its ending tells no format; give --format, one of {known}")
    return found


__all__ = ["FORMATS", "Outcome", "write"]
