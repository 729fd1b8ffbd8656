"""The grammar of Prometheus text exposition (0.0.4) and of OpenMetrics: lines read and written.

What counts as valid is what Prometheus' own parser takes, because one line that it refuses loses
the whole scrape: its float syntax (Go's, without hexadecimal and underscores; a value too large is
an error there, not infinity), its escapes, no label twice. OpenMetrics lines are read too; the
timestamp that may follow a value is left out, the exemplar is kept as text.
"""

from __future__ import annotations

import math
import re
from typing import Final, Literal, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
END: Final = "# EOF\n"
LONGEST_LINE: Final = 1 << 16
"""Characters of a line that is read: matching one of megabytes would hold up every other thread."""
LONGEST_EXEMPLAR: Final = 128
"""Characters that names and values of an exemplar's labels may have together, by OpenMetrics."""

Reason = Literal[
    "syntax", "labels", "value", "encoding", "type", "duplicate", "conflict", "truncated",
    "limit", "reserved",
]  # fmt: skip
"""Why a line was dropped.

`syntax`: no sample, HELP or TYPE line; `labels`: a label twice, `__name__`, or a
bucket without a number; `value`: no float as
Go reads it; `encoding`: not UTF-8, or a NUL; `type`: no type, or a sample its family cannot have;
`duplicate`: the series was there already; `conflict`: another server's family of that name has
another shape; `truncated`: no line feed at the end; `limit`: more lines than a page may have, or a
line that is too long;
`reserved`: a name that only this exporter, our rules or Prometheus itself writes.
"""

Labels = tuple[tuple[str, str], ...]

NAME: Final = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL: Final = r"[a-zA-Z_][a-zA-Z0-9_]*"
_STRING: Final = r'"(?:[^"\\\n\0]|\\[^\n\0])*+"'
_PAIR: Final = rf"({_LABEL})[ \t]*=[ \t]*({_STRING})[ \t]*(?:,[ \t]*|(?=\}}))"
_PAIRS: Final = _PAIR.replace("(" + _LABEL, "(?:" + _LABEL).replace("(" + _STRING, "(?:" + _STRING)
# name, labels, value; a timestamp or an exemplar may follow. Repetitions are possessive: linear.
_LINE = re.compile(
    rf"[ \t]*({NAME})(?:[ \t]*\{{[ \t]*((?:{_PAIRS})*+)\}}[ \t]*|[ \t]+)"
    r"([^{ \t\n]+)"
    r"(?:[ \t]+-?[0-9]{1,19}(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)?(?:[ \t]+#[ \t]*(\{.*))?[ \t]*"
)
_EXEMPLAR = re.compile(
    rf"\{{[ \t]*((?:{_PAIRS})*+)\}}[ \t]+([^ \t\n]+)(?:[ \t]+([^ \t\n]+))?[ \t]*"
)
_LABELS = re.compile(_PAIR.replace(r"(?=\})", "$"))
_UNFIT = re.compile("[\ud800-\udfff\0]")
SHORT: Final = re.compile(r"[+-]?[0-9]{1,100}(?:\.[0-9]{0,100})?(?:e[+-]?[0-9]{1,2})?")
"""Nearly every value there is: too short to overflow, so no arithmetic is needed to trust it."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[+-]?inf(?:inity)?|nan", re.IGNORECASE | re.ASCII)
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)


class BadLine(Exception):  # noqa: N818 - it names the line, as the reports that count it do
    """A line that must not be passed on; `reason` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class Sample(NamedTuple):
    """One sample line, taken apart. Label values stay escaped as they are written.

    Attributes:
        name: Name of the sample.
        labels: In the order of the line, without empty values: Prometheus holds those for absent.
        value: As written.
        end: Where the value begins in the line.
        exemplar: What follows `# ` after the value, unread; empty without.
    """

    name: str
    labels: Labels
    value: str
    end: int
    exemplar: str = ""


def valid_value(text: str) -> bool:
    """Whether Prometheus reads *text* as a sample's value."""
    if SHORT.fullmatch(text):
        return True
    if _NUMBER.fullmatch(text):
        return math.isfinite(float(text))
    return _WORD.fullmatch(text) is not None


def normal_escapes(text: str, known: str) -> str:
    r"""Return *text* with a backslash before anything but *known* doubled: Prometheus keeps it so.

    Stricter readers refuse a page for an unknown escape such as `\d`.
    """
    if "\\" not in text:
        return text
    return _ESCAPE.sub(
        lambda m: m[0] if m[1] and m[1] in known else "\\\\" + m[1],
        text,
    )


def parse_line(line: str) -> Sample:
    """Take a sample line apart.

    Raises:
        BadLine: Prometheus would refuse the line, and with it the page.
    """
    if len(line) > LONGEST_LINE:
        raise BadLine("limit")
    match = _LINE.fullmatch(line)
    if _UNFIT.search(line):
        raise BadLine("encoding")
    if match is None:
        raise BadLine("syntax")
    name, inside, value, exemplar = match.groups()
    labels = _labels(inside) if inside else ()
    if not valid_value(value):
        raise BadLine("value")
    return Sample(name, labels, value, match.start(3), exemplar or "")


def _labels(inside: str) -> Labels:
    found = _LABELS.findall(inside)
    names = {label for label, _ in found}
    if len(names) < len(found) or "__name__" in names:
        raise BadLine("labels")
    return tuple(
        (label, normal_escapes(quoted[1:-1], '\\n"')) for label, quoted in found if quoted[2:]
    )


def exemplar(text: str) -> str:
    """Return an exemplar (`{trace_id="x"} 0.5 1700000000`) as it goes out; empty if it is none.

    One that a reader refuses loses the whole page in OpenMetrics, so it is checked as a line is.
    """
    match = _EXEMPLAR.fullmatch(text)
    if match is None or _UNFIT.search(text):
        return ""
    inside, value, instant = match.groups()
    try:
        labels = _labels(inside)
    except BadLine:
        return ""
    size = sum(len(label) + len(worth) for label, worth in labels)
    timed = instant is None or (_NUMBER.fullmatch(instant) and math.isfinite(float(instant)))
    if size > LONGEST_EXEMPLAR or not timed or not valid_value(value):
        return ""
    pairs = ",".join([f'{label}="{worth}"' for label, worth in labels])
    return f"{{{pairs}}} {value}" + (f" {instant}" if instant else "")


def head(page: bytes, lines: int) -> tuple[bytes, int]:
    """Return the first *lines* lines of a page, and how many there are beside them.

    What is beyond is never decoded: of 64 MiB that alone would take several times as much.
    """
    count = page.count(b"\n")
    if count < lines or (count == lines and page.endswith(b"\n")):
        return page, 0
    at = 0
    for _ in range(lines):
        at = page.index(b"\n", at) + 1
    return page[:at], count - lines + (not page.endswith(b"\n"))


def escape(value: str) -> str:
    """Return a label value as it is written between quotes; what no page may hold is replaced.

    A name from a file or the kernel may be no text: it must not cost the page.
    """
    if _UNFIT.search(value):
        value = _UNFIT.sub("\ufffd", value)
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def series(name: str, labels: Labels) -> str:
    """Return `name{labels}`; label values are escaped already."""
    if not labels:
        return name
    return name + "{" + ",".join([f'{label}="{value}"' for label, value in labels]) + "}"


def header(name: str, type_: str, help_: str) -> str:
    """Return the HELP and TYPE lines of a family; *help_* is escaped already."""
    told = f"# HELP {name} {help_}\n" if help_ else ""
    return f"{told}# TYPE {name} {type_}\n"


def open_header(name: str, type_: str, help_: str) -> str:
    """Return the HELP and TYPE lines of a family in OpenMetrics; *help_* as for `header`."""
    quoted = help_.replace('"', r"\"")
    told = f"# HELP {name} {quoted}\n" if help_ else ""
    return f"# TYPE {name} {type_}\n{told}"
