"""Writes `docs/metrics.md` and `docs/traps.md`: signals, metrics, and what they don't mean.

`python -m catalog.docs` writes both; `python -m catalog.docs -` prints the former.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from catalog.labels import LEVELS
from catalog.metric import Metric
from catalog.signal import Signal
from catalog.signals import METRICS, SIGNALS
from catalog.traps import TRAPS, Trap
from catalog.vllm import VERSIONS

PATH: Final = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"
TRAPS_PATH: Final = PATH.with_name("traps.md")

_INTRO: Final = """\
# Signals and metrics

Generated from `catalog/` by `make generate`; change it there.

A **signal** is what an operator thinks in. Its expression is evaluated by a recording rule, whose
name is `<level>:leadline_<signal>:<operation>`, and asked for by detectors as it stands; alerts and
dashboards use the recorded name. A **metric** is what a page exposes; upstream names are kept, and
what nobody upstream measures begins with `leadline_`.

No data is no zero: a mean or ratio without requests in its window has no value. What each number
does not mean, and what keeps it from being read so: [traps.md](traps.md).

vLLM's families are those of its releases 0.11, 0.18, 0.26, 0.32 and 0.33, its Rust front end as of
0.33. "In vLLM 0.26 to 0.33" says that 0.18 had none; versions between were not read.
"""


_TRAPS: Final = """\
# Traps of vLLM's numbers

Generated from `catalog/traps.py` by `make generate`; change it there.

vLLM's metrics were made for one server that does all. Here is each way in which they mislead on a
disaggregated fleet, what keeps Leadline's expressions out of it, and the test that springs it, most
of them on a real Prometheus without anything of ours before it: a fleet whose Prometheus scrapes
vLLM directly is guarded alike. Where no expression can see a trap, the last column is empty and
the middle one says what to do.
"""


def traps() -> str:
    """Return the whole list of traps."""
    parts = [_TRAPS]
    for title, group in TRAPS.items():
        parts += [f"## {title}\n", "| trap | guard | signals | test |", "| --- | --- | --- | --- |"]
        parts += [_trap(trap) for trap in group]
        parts.append("")
    return "\n".join(parts)


def _trap(trap: Trap) -> str:
    signals = ", ".join(f"[{name}](metrics.md#{name})" for name in trap.signals)
    test = f"`{trap.test}`" if trap.test else ""
    return f"| **{trap.name}.** {trap.what} | {trap.guard} | {signals} | {test} |"


def text() -> str:
    """Return the whole reference."""
    parts = [_INTRO, *_index(), "## Levels\n", *_levels(), "## Signals\n"]
    for signal in SIGNALS.values():
        parts.extend(_signal(signal))
    parts.append("## Metrics\n")
    for metric in METRICS.values():
        parts.extend(_metric(metric))
    return "\n".join(parts)


def _index() -> Iterator[str]:
    """Yield each signal with its name, and where the metrics of each program begin."""
    yield "## Index\n"
    yield "| signal | what it is | unit | level |\n| --- | --- | --- | --- |"
    for signal in SIGNALS.values():
        what = f"{signal.title} | {signal.unit} | {signal.level}"
        yield f"| [{signal.name}](#{signal.name}) | {what} |"
    programs: dict[str, list[str]] = {}
    for name in METRICS:
        programs.setdefault(re.split(r"[:_]", name, maxsplit=1)[0], []).append(name)
    yield "\n| metrics that begin with | number | first |\n| --- | --- | --- |"
    for prefix, names in programs.items():
        yield f"| `{prefix}` | {len(names)} | [{names[0]}](#{_anchor(names[0])}) |"
    yield ""


def _anchor(name: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^a-z0-9_-]", "", name.lower())


def _code(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _levels() -> Iterator[str]:
    yield "| level | labels kept |\n| --- | --- |"
    for level, labels in LEVELS.items():
        yield f"| {level} | {_code(labels)} |"
    yield ""


def _signal(signal: Signal) -> Iterator[str]:
    yield f"### {signal.name}\n"
    yield f"{signal.title}.{_sentence(signal.note)}\n"
    yield f"- Recorded as `{signal.record}`"
    yield f"- Unit: {signal.unit}; level: {signal.level}{_extra(signal)}"
    if signal.bad:
        yield f"- Hurts when it goes {signal.bad}"
    if signal.load:
        yield f"- Depends on: `{signal.load}`"
    if signal.counts:
        yield f"- Counted as `{signal.counts.successes.name}` of `{signal.counts.trials.name}`"
    yield f"- Reads: {_code([metric.name for metric in signal.metrics])}\n"
    yield f"```promql\n{signal.expr}\n```\n"


def _extra(signal: Signal) -> str:
    return f" and {_code(signal.extra)}" if signal.extra else ""


def _sentence(note: str) -> str:
    return f" {note}" if note else ""


def _metric(metric: Metric) -> Iterator[str]:
    yield f"### {metric.name}\n"
    yield f"{metric.help}\n"
    yield from _facts(metric)
    for trap in metric.traps:
        yield f"- Trap: {trap}"
    used = [signal.name for signal in SIGNALS.values() if metric in signal.metrics]
    if used:
        yield f"- Read by: {', '.join(f'[{name}](#{name})' for name in used)}"
    yield ""


def _facts(metric: Metric) -> Iterator[str]:
    yield f"- Type: {metric.type}; unit: {metric.unit}"
    if metric.since:
        yield f"- In vLLM {metric.since} to {metric.until or VERSIONS[-1]}{_rust(metric)}"
    if str(metric.gate):
        yield f"- Only with: {metric.gate}"
    if metric.labels:
        more = ", and more that change with the version" if metric.open_labels else ""
        yield f"- Labels: {_code(metric.labels)}{more}"
    if metric.former:
        yield f"- Older names: {_code(metric.former)}"
    if metric.pools:
        yield f"- Means something in pools: {', '.join(metric.pools)}"
    if metric.lazy:
        yield "- Absent until first used: absence is neither zero nor a fault"
    if metric.bounds:
        low, high = metric.bounds
        yield f"- Buckets end at {low:g} and {high:g} unless a server sets its own"
    if metric.merge:
        apart = f"; apart by `pid` in {', '.join(metric.by_pid)}" if metric.by_pid else ""
        yield f"- Processes of one server: {metric.merge}{apart}"


def _rust(metric: Metric) -> str:
    """Return whether vLLM's Rust front end has it; nothing for what is gone."""
    if metric.until:
        return ""
    return "; Rust front end too" if metric.rust else "; not in the Rust front end"


def write(folder: Path = PATH.parent) -> tuple[Path, ...]:
    """Write the reference and the traps into *folder* and return their files.

    Raises:
        OSError: A file can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = {PATH.name: text(), TRAPS_PATH.name: traps()}
    for name, content in written.items():
        (folder / name).write_text(content, encoding="utf-8")
    return tuple(folder / name for name in written)


if __name__ == "__main__":
    if sys.argv[1:] == ["-"]:
        sys.stdout.write(text())
    else:
        write()
