"""The report as one HTML file with its pictures inside."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from catalog.signals import SIGNALS
from catalog.units import human_duration
from reports import overview, places, words
from reports.cards import card
from reports.gather import Soak
from reports.incidents import incidents
from reports.verdict import Summary

MOST_CARDS: Final = 40


def render(soak: Soak, summary: Summary, source: str, made: float) -> str:
    """Return the report as HTML."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    told = incidents(soak.findings)
    return environment.get_template("soak.html").render(
        summary=summary,
        shape=soak.fleet.shape,
        names=overview.names(soak),
        start=words.instant(soak.start),
        end=words.instant(soak.end),
        before=words.instant(soak.before),
        name=words.span_name(soak.span),
        span=human_duration(soak.span),
        ended=words.instant(soak.as_of) if soak.end - soak.as_of > 2 * soak.step else "",
        step=human_duration(soak.step),
        source=source,
        made=words.instant(made),
        version=overview.release(),
        pools=overview.pools(soak),
        sections=overview.sections(soak),
        cards=[card(one, soak.judged, soak.config) for one in told[:MOST_CARDS]],
        more_cards=max(0, len(told) - MOST_CARDS),
        unjudged=[f.cause for f in soak.findings if f.kind == "unknown"],
        absent=[(signal, why) for signal, why in soak.absent if signal.name in places.SHOWN],
        meaning=places.meaning(SIGNALS.values()),
        share=words.share,
        value=words.value,
        moved=words.change,
    )
