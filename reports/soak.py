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
from reports.gather import Soak, Source, gather
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
) -> Outcome:
    """Write the soak report of [start, end], the span before beside it; return its verdict.

    Args:
        source: A Prometheus, or panels by signal name; the span before is read from it too.
        config: Limits, SLA and step.
        start: Unix seconds.
        end: Unix seconds.
        output: File to write.
        format: `html`, `md` or `json`; None: by the ending of *output*.

    Raises:
        StoreError: Prometheus can't be reached, so that there is nothing to report on.
        ValueError: The span or the format is none.
        OSError: The file can't be written.
    """
    render = FORMATS[chosen_format(output, format)]
    if not end > start:
        raise ValueError(f"a report needs a span above zero, not {human_duration(end - start)}")
    soak = gather(source, config, start, end)
    summary = judge_soak(soak.rows, soak.findings, start, end, soak.as_of)
    text = render(soak, summary, said_source(source), time.time())
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f".{output.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(output)
    return Outcome(summary.verdict, summary.reasons[0], output)


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
