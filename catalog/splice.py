"""Pages passed through: identity labels spliced into every line, bad lines dropped and counted.

A page is text in and text out; no sample becomes an object. What is known of a series (its labels
as they go out, its family) is remembered from scrape to scrape under the text before the value, so
that a line costs one look-up and one check of its value. Memory is bounded by the page: what the
last pages did not name is forgotten.

Decisions:

- Labels of ours win over the page's (`server`, `pool`, …): the page's become `exported_<name>`, as
  Prometheus itself does. Labels that only fill in (`model_name`, `engine`) leave the page's alone.
- Series that Prometheus, our rules and this exporter write themselves are refused: a page that
  brings them would speak for those.
- `_created` series are left out unless asked for: they are instants, which careless readers take
  for bytes or counts, and a third of a page. They are not counted as dropped.
- Timestamps and comments are left out. Exemplars of buckets and counters are kept for OpenMetrics,
  the only format that has them; one that readers would refuse is left out by itself.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from catalog.exposition import (
    LONGEST_LINE,
    NAME,
    SHORT,
    BadLine,
    Labels,
    Reason,
    escape,
    exemplar,
    head,
    normal_escapes,
    parse_line,
    series,
    valid_value,
)
from catalog.labels import without_credentials

MAX_LINES: Final = 50_000
_PIECE: Final = 1 << 20
"""Bytes of a page that are text at once."""
_LINE_BYTES: Final = 30
_SLOT_BYTES: Final = 330

RESERVED: Final = re.compile(r"(?:.*:)?leadline_.*|scrape_.*|up|ALERTS|ALERTS_FOR_STATE")
"""Names that a page must not use: what this exporter, our rules and Prometheus itself write."""
_EXEMPLAR: Final = " # {"
_HEADER = re.compile(rf"#[ \t]+(HELP|TYPE)[ \t]+({NAME})(?:[ \t]+(.*))?")
_CLAIMS_HEADER = re.compile(r"#[ \t]+(?:HELP|TYPE)(?:[ \t]|$)")
_TYPES: Final = {
    "counter": "counter", "gauge": "gauge", "histogram": "histogram", "summary": "summary",
    "untyped": "untyped", "unknown": "untyped", "info": "gauge", "stateset": "gauge",
    "gaugehistogram": "untyped",
}  # fmt: skip
"""Types of both formats, as text 0.0.4 names them."""
_OPEN_SUFFIXES: Final = (("_total", "counter"), ("_info", "info"))
PARTS: Final = {
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("_sum", "_count"),
}
_FLOAT_LABELS: Final = {"histogram": "le", "summary": "quantile"}
_BORN: Final = ("counter", "histogram", "summary")


class Block(NamedTuple):
    """The samples of one family on one page, as text; exemplars by the number of their line."""

    name: str
    type: str
    help: str
    text: str
    samples: int
    exemplars: tuple[tuple[int, str], ...] = ()


@dataclass
class Page:
    """A page with the identity spliced in.

    Attributes:
        blocks: Its families in the order of the page.
        dropped: Lines that were not passed on, by reason.
        samples: Lines that were.
    """

    blocks: list[Block]
    dropped: Counter[Reason] = field(default_factory=Counter)
    samples: int = 0


class _Family:
    __slots__ = ("exemplars", "help", "lines", "name", "type")

    def __init__(self, name: str, type_: str, help_: str) -> None:
        self.name = name
        self.type = type_
        self.help = help_
        self.lines: list[str] = []
        self.exemplars: list[tuple[int, str]] = []

    def add(self, line: str, told: str) -> None:
        """Add a line and the exemplar that was told with it, if a series of its kind has any."""
        bucket = self.type == "histogram" and line.startswith(f"{self.name}_bucket{{")
        counter = self.type == "counter" and self.name.endswith("_total")
        if told and (bucket or counter) and (whole := exemplar(told)):
            self.exemplars.append((len(self.lines), without_credentials(whole)))
        self.lines.append(line)


class _Slot:
    """A series as it goes out, and the last scrape that had it."""

    __slots__ = ("family", "scrape", "text")

    def __init__(self, text: str, family: _Family | None) -> None:
        self.text = text
        self.family = family  # None: known, and left out on purpose
        self.scrape = 0


class Splicer:
    """Splices one target's identity into its pages. Not safe for two threads at once.

    Args:
        ours: Labels that win over the page's.
        fill: Labels that are set where the page has none.
        created: Keep `_created` series.
        max_lines: Lines of a page that are read; the rest is dropped and counted.
    """

    def __init__(
        self,
        ours: Mapping[str, str],
        fill: Mapping[str, str] | None = None,
        *,
        created: bool = False,
        max_lines: int = MAX_LINES,
    ) -> None:
        self._ours: Labels = tuple((k, escape(v)) for k, v in ours.items() if v)
        self._names = frozenset(k for k, _ in self._ours)
        self._fill: Labels = tuple((k, escape(v)) for k, v in (fill or {}).items() if v)
        self._created = created
        self._max_lines = max_lines
        self._scrape = 0
        self._identity = sum(len(k) + len(v) + 4 for k, v in (*self._ours, *self._fill))
        self._headers: list[str] = []
        self._bad_headers: Counter[Reason] = Counter()
        self._declared: dict[str, tuple[str, str]] = {}
        self._slots: dict[str, _Slot] = {}
        self._by_series: dict[bytes, _Slot] = {}
        self._families: dict[str, _Family] = {}

    def splice(self, page: bytes) -> Page:
        """Return *page* with the labels in every line, without the lines that are no good."""
        page, dropped = self._whole(page)
        # A large page is decoded twice, piece by piece: its lines at once take thrice its size.
        small = [_lines(page)] if len(page) <= _PIECE else None
        headers = [line for lines in small or _pieces(page) for line in lines if line[:1] == "#"]
        if headers != self._headers:
            self._declare(headers)
        dropped.update(self._bad_headers)
        self._scrape += 1
        scrape, slot_of, plain = self._scrape, self._slots.get, SHORT.fullmatch
        marked = _EXEMPLAR.encode() in page
        for lines in small or _pieces(page):
            for line in lines:
                if marked and _EXEMPLAR in line:
                    self._with_exemplar(line, dropped)
                    continue
                before, _, value = line.rpartition(" ")
                slot = slot_of(before)
                if (
                    slot is None
                    or slot.scrape == scrape
                    or not (plain(value) or valid_value(value))
                ):
                    self._slowly(line, dropped)
                    continue
                slot.scrape = scrape
                if slot.family is not None:
                    slot.family.lines.append(slot.text + value)
        return self._finish(dropped)

    def weigh(self, page: bytes) -> tuple[int, int]:
        """Return the bytes of memory that *page* takes: while spliced and written, and remembered.

        As measured, per line: its text with the identity as lines, as a block and as an answer;
        then its text before and after, a digest, and the tables that lead to them.
        """
        page, _ = head(page, self._max_lines)
        lines = page.count(b"\n")
        spliced = 3 * len(page) + lines * (3 * self._identity + _LINE_BYTES)
        return spliced, 2 * len(page) + lines * (self._identity + _SLOT_BYTES)

    def _with_exemplar(self, line: str, dropped: Counter[Reason]) -> None:
        """Take in a line that seems to end in an exemplar.

        A known text before the mark is a whole series, so the mark is in no label value.
        """
        head, _, told = line.partition(_EXEMPLAR)
        before, _, value = head.rpartition(" ")
        slot = self._slots.get(before)
        plain = told.isascii() and "\0" not in told and len(line) <= LONGEST_LINE
        if slot is None or slot.scrape == self._scrape or not (plain and valid_value(value)):
            self._slowly(line, dropped)
            return
        slot.scrape = self._scrape
        if slot.family is not None:
            slot.family.add(slot.text + value, "{" + told)

    def _whole(self, page: bytes) -> tuple[bytes, Counter[Reason]]:
        """Return the lines of a page that are read and whole, and what is dropped with the rest."""
        dropped: Counter[Reason] = Counter()
        page, beyond = head(page, self._max_lines)
        if beyond:
            dropped["limit"] += beyond
        if not page.endswith(b"\n"):
            at = page.rfind(b"\n") + 1
            rest, page = page[at:], page[:at]
            if rest.strip(b" \t") and not rest.startswith(b"# EOF"):
                dropped["truncated"] += 1
        return page, dropped

    def _declare(self, headers: list[str]) -> None:
        """Read the HELP and TYPE lines anew; what was known of series rests on them."""
        self._headers, self._bad_headers, self._declared = headers, Counter(), {}
        self._slots, self._by_series, self._families = {}, {}, {}
        types: dict[str, str] = {}
        helps: dict[str, str] = {}
        for line in headers:
            if len(line) > LONGEST_LINE:
                self._bad_headers["limit"] += 1
                continue
            match = _HEADER.fullmatch(line)
            if match is None:
                self._bad_headers["syntax"] += _CLAIMS_HEADER.match(line) is not None
            elif any("\ud800" <= char <= "\udfff" or char == "\0" for char in line):
                self._bad_headers["encoding"] += 1
            elif match[1] == "HELP":
                text = (match[3] or "").replace('\\"', '"')  # OpenMetrics escapes quotes here too
                helps.setdefault(match[2], normal_escapes(text, "\\n"))
            elif (type_ := (match[3] or "").rstrip(" \t")) in _TYPES:
                types.setdefault(match[2], type_)
            else:
                self._bad_headers["type"] += 1
        self._bad_headers += Counter()  # drops the zeros
        self._declared = {name: (type_, helps.get(name, "")) for name, type_ in types.items()}
        for name in helps.keys() - types.keys():
            self._declared[name] = ("untyped", helps[name])

    def _slowly(self, line: str, dropped: Counter[Reason]) -> None:
        """Take in a line that is new, odd or bad."""
        bare = line.strip(" \t")
        if not bare or bare[0] == "#":
            return
        try:
            sample = parse_line(line)
            text = series(sample.name, self._labels(sample.labels)) + " "
            slot = self._slot(sample.name, self._labels(sample.labels), text)
            if slot.scrape == self._scrape:
                raise BadLine("duplicate")
        except BadLine as bad:
            dropped[bad.reason] += 1
            return
        slot.scrape = self._scrape
        if line[sample.end - 1] == " ":
            self._slots[line[: sample.end - 1]] = slot
        if slot.family is not None:
            slot.family.add(slot.text + sample.value, sample.exemplar)

    def _labels(self, labels: Labels) -> Labels:
        """Return the labels of a series with ours."""
        taken = {name for name, _ in labels}
        kept: list[tuple[str, str]] = []
        for name, value in labels:
            new = name
            while new in self._names or (new != name and new in taken):
                new = f"exported_{new}"
            taken.add(new)
            kept.append((new, without_credentials(value)))
        filled = tuple(pair for pair in self._fill if pair[0] not in taken)
        return (*kept, *self._ours, *filled)

    def _slot(self, name: str, labels: Labels, text: str) -> _Slot:
        """Return the one slot of a series, however its labels are ordered."""
        # A digest: the text of a large page's series is held twice already.
        written = series(name, tuple(sorted(labels))).encode("utf-8", "surrogatepass")
        key = hashlib.blake2b(written, digest_size=16).digest()
        slot = self._by_series.get(key)
        if slot is None:
            if RESERVED.fullmatch(name):
                raise BadLine("reserved")
            family = self._family(name)
            if family is not None and family.type in PARTS:
                _check_part(name, family, dict(labels))
            slot = self._by_series[key] = _Slot(text, family)
        return slot

    def _family(self, name: str) -> _Family | None:
        """Return the family that a sample belongs to; None: a `_created` that is left out.

        Raises:
            BadLine: Its family is of a type that has no such sample.
        """
        if name.endswith("_created") and not self._created:
            base = name.removesuffix("_created")
            if any(self._type(whole) in _BORN for whole in (base, f"{base}_total")):
                return None
        found = self._find(name)
        return self._families.setdefault(found.name, found)

    def _find(self, name: str) -> _Family:
        if name in self._declared:
            type_, help_ = self._declared[name]
            if type_ == "histogram":
                raise BadLine("type")
            return _Family(name, _TYPES[type_], help_)
        for type_, suffixes in PARTS.items():
            for suffix in suffixes:
                base = name.removesuffix(suffix)
                if base != name and self._type(base) == type_:
                    return _Family(base, type_, self._declared[base][1])
        for suffix, type_ in _OPEN_SUFFIXES:
            base = name.removesuffix(suffix)
            if base != name and self._type(base) == type_:
                return _Family(name, _TYPES[type_], self._declared[base][1])
        return _Family(name, "untyped", "")

    def _type(self, name: str) -> str:
        return self._declared.get(name, ("", ""))[0]

    def _finish(self, dropped: Counter[Reason]) -> Page:
        blocks = []
        samples = 0
        for family in self._families.values():
            if family.lines:
                text = "\n".join(family.lines) + "\n"
                count, exemplars = len(family.lines), tuple(family.exemplars)
                blocks.append(Block(family.name, family.type, family.help, text, count, exemplars))
                samples += count
                family.lines, family.exemplars = [], []
        # A series may be known by its labels alone, a family by a name that never comes again.
        known = max(len(self._slots), len(self._by_series), len(self._families))
        if known > samples + samples // 4 + 64:
            self._forget()
        return Page(blocks, dropped, samples)

    def _forget(self) -> None:
        """Forget the series that this scrape did not have."""
        now = self._scrape
        self._slots = {k: slot for k, slot in self._slots.items() if slot.scrape == now}
        self._by_series = {k: slot for k, slot in self._by_series.items() if slot.scrape == now}
        used = [slot.family for slot in self._by_series.values() if slot.family is not None]
        self._families = {family.name: family for family in used}


def _lines(page: bytes) -> list[str]:
    """Return the lines of a page, or of a piece of one, that ends with a line."""
    return page.decode("utf-8", "surrogateescape").split("\n")[:-1]


def _pieces(page: bytes) -> Iterator[list[str]]:
    """Yield the lines of a page, some at a time."""
    at = 0
    while at < len(page):
        end = page.rfind(b"\n", at, at + _PIECE) + 1 or page.index(b"\n", at + _PIECE) + 1
        yield _lines(page[at:end])
        at = end


def _check_part(name: str, family: _Family, labels: Mapping[str, str]) -> None:
    """Refuse a bucket or quantile that is no number, as strict readers do with the whole page.

    Raises:
        BadLine: It is none.
    """
    label = _FLOAT_LABELS[family.type]
    needed = name == f"{family.name}_bucket"
    if (needed or name == family.name) and not valid_value(
        labels.get(label, "" if needed else "0")
    ):
        raise BadLine("labels")
