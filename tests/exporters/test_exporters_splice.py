"""Pages passed through: nothing bad gets out, nothing good is lost, and the cache never shows."""

import math
import re
import string
import subprocess
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from catalog.exposition import BadLine, parse_line, valid_value
from catalog.pages import merge
from catalog.splice import Page, Splicer
from stack import binaries

OURS = {"cluster": "c1", "pool": "decode", "server": "node7:8000"}
FILL = {"model_name": "glm", "engine": "0"}
Series = tuple[str, frozenset[tuple[str, str]]]


def parsed(text: str) -> dict[Series, float]:
    """Return what prometheus_client reads; it must not read a series twice."""
    found: dict[Series, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, frozenset((k, v) for k, v in sample.labels.items() if v)
            assert key not in found
            found[key] = sample.value
    return found


def same(a: float, b: float) -> bool:
    """Whether two values are one, NaN being itself."""
    return a == b or (math.isnan(a) and math.isnan(b))


def test_every_sample_of_a_real_page_passes_with_its_value(page: bytes) -> None:
    """The series are those that prometheus_client reads, with ours added; `_created` is left."""
    splicer = Splicer(OURS, FILL)
    for scrape in range(2):
        spliced = splicer.splice(page)
        assert not spliced.dropped, f"scrape {scrape}"
        out = parsed(merge([spliced]))
        expected = {}
        for (name, labels), value in parsed(page.decode()).items():
            if not name.endswith("_created"):
                whole = {**FILL, **dict(labels), **OURS}
                expected[name, frozenset(whole.items())] = value
        assert out == expected
        assert spliced.samples == len(expected)


def test_created_series_are_kept_on_request(page: bytes) -> None:
    """With `created`, as many series come out as Prometheus would read from the page itself."""
    out = Splicer(OURS, created=True).splice(page)
    assert out.samples == len(parsed(page.decode()))
    assert any(block.name.endswith("_created") for block in out.blocks)


# --- an oracle: slow, character by character, without regular expressions for the series ---


class RefusedError(Exception):
    """The oracle refuses a line."""


def oracle_value(text: str) -> bool:
    """Whether Go's ParseFloat takes *text*, without hexadecimal and underscores."""
    if text.lower() in {"nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"}:
        return True
    if not text or set(text) - set("0123456789+-.eE"):
        return False
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


class OracleLine:
    """A line, taken apart from left to right; label values come out as meant, without escapes."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.at = 0
        if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in line):
            raise RefusedError("encoding")
        self._blanks()
        self.name = self._word(string.ascii_letters + "_:")
        gap = self._blanks()
        pairs = self._labels() if self._next == "{" else []
        if not pairs and not gap and self.line[self.at - 1 : self.at] != "}":
            raise RefusedError("syntax")
        self._blanks()
        self.value = self._token()
        self._end()
        if len({k for k, _ in pairs}) < len(pairs) or "__name__" in dict(pairs):
            raise RefusedError("labels")
        if not oracle_value(self.value):
            raise RefusedError("value")
        self.pairs = {k: v for k, v in pairs if v}

    @property
    def _next(self) -> str:
        return self.line[self.at : self.at + 1]

    def _blanks(self) -> bool:
        start = self.at
        while self._next and self._next in " \t":
            self.at += 1
        return self.at > start

    def _word(self, first: str) -> str:
        start = self.at
        while self._next and self._next in first + ("" if self.at == start else string.digits):
            self.at += 1
        if self.at == start:
            raise RefusedError("syntax")
        return self.line[start : self.at]

    def _expect(self, char: str) -> None:
        if self._next != char:
            raise RefusedError("syntax")
        self.at += 1

    def _quoted(self) -> str:
        self._expect('"')
        read = ""
        while self._next and self._next != '"':
            size = 2 if self._next == "\\" else 1
            part = self.line[self.at : self.at + size]
            if len(part) < size:
                raise RefusedError("syntax")
            read += {"\\\\": "\\", "\\n": "\n", '\\"': '"'}.get(part, part)
            self.at += size
        self._expect('"')
        return read

    def _labels(self) -> list[tuple[str, str]]:
        self._expect("{")
        self._blanks()
        pairs = []
        while self._next != "}":
            label = self._word(string.ascii_letters + "_")
            self._blanks()
            self._expect("=")
            self._blanks()
            pairs.append((label, self._quoted()))
            self._blanks()
            if self._next != "}":
                self._expect(",")
                self._blanks()
        self._expect("}")
        return pairs

    def _token(self) -> str:
        start = self.at
        while self._next and self._next not in "{ \t":
            self.at += 1
        if self.at == start:
            raise RefusedError("syntax")
        return self.line[start : self.at]

    def _end(self) -> None:
        """Take a timestamp, an exemplar or nothing."""
        tail = r"([ \t]+-?\d{1,19}(\.\d*)?([eE][+-]?\d+)?)?([ \t]+#[ \t]*\{.*)?[ \t]*"
        if not re.fullmatch(tail, self.line[self.at :], re.ASCII):
            raise RefusedError("syntax")


def oracle_page(lines: list[str]) -> tuple[dict[Series, str], Counter[str]]:
    """Return series and values of a page without headers, and what is dropped."""
    kept: dict[Series, str] = {}
    dropped: Counter[str] = Counter()
    for line in lines:
        if not line.strip(" \t") or line.strip(" \t")[0] == "#":
            continue
        try:
            read = OracleLine(line)
        except RefusedError as refused:
            dropped[str(refused)] += 1
            continue
        if read.name == "up":
            dropped["reserved"] += 1
            continue
        whole: dict[str, str] = {}
        for label, text in read.pairs.items():
            new = label
            while new in OURS or (new != label and new in {*read.pairs, *whole}):
                new = f"exported_{new}"
            whole[new] = text
        key = read.name, frozenset({**FILL, **whole, **OURS}.items())
        if key in kept:
            dropped["duplicate"] += 1
        else:
            kept[key] = read.value
    return kept, dropped


names = st.sampled_from(["a", "vllm:x_total", "up", "_b:", "9bad", "é", "a-b", ""])
label_names = st.sampled_from(
    ["x", "engine", "server", "exported_server", "model_name", "pool", "le", "__name__", "9", "ä"]
)
label_values = st.one_of(
    st.sampled_from(["", "0", "+Inf", r"a\"b", r"back\\slash", r"new\nline", r"\d", "} # {", "Ä"]),
    st.text(alphabet='ab"\\{},= \t#n1\0\x1c\x85\u2028é', max_size=6),
)
values = st.one_of(
    st.floats().map(repr),
    st.sampled_from(
        [
            "NaN",
            "+Inf",
            "-inf",
            "1e999",
            "0x1p3",
            "1_0",
            "1.",
            ".5",
            "١",
            "+nan",
            "1e",
            "",
            "-",
            "Ⅷ",
        ]
    ),
    st.text(alphabet="0123456789+-.eEinfa_x", max_size=6),
)
blanks = st.sampled_from(["", " ", " ", " ", "\t", "  "])


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Draw a line, mostly close to a valid one."""
    pairs = draw(st.lists(st.tuples(label_names, label_values), max_size=3))
    inside = draw(st.sampled_from([",", ",", ", ", ";", ""])).join(f'{k}="{v}"' for k, v in pairs)
    inside += draw(st.sampled_from(["", "", ",", ",,"]))
    braces = f"{{{inside}}}" if pairs or draw(st.booleans()) else ""
    tail = draw(
        st.sampled_from(["", "", "", "", " 1700000000000", ' # {t="1"} 2', " 1.5e3", " x", " "])
    )
    return (
        draw(st.sampled_from(["", "", "", " "]))
        + draw(names)
        + draw(blanks)
        + braces
        + draw(blanks)
        + draw(values)
        + tail
    )


hostile = st.lists(
    st.one_of(lines(), lines(), st.text(max_size=12), st.just("# EOF")), max_size=12
).map(lambda found: [line.replace("\n", "") for line in found])


@settings(max_examples=80, deadline=None)
@given(st.lists(hostile, min_size=1, max_size=4))
def test_hostile_pages_come_out_as_the_oracle_says(pages: list[list[str]]) -> None:
    """Scrape after scrape: the oracle's series, values and counts; and prometheus_client agrees."""
    splicer = Splicer(OURS, FILL)
    for page in (*pages, *pages):
        spliced = splicer.splice("".join(f"{line}\n" for line in page).encode("utf-8", "replace"))
        kept, dropped = oracle_page([line.encode("utf-8", "replace").decode() for line in page])
        assert spliced.dropped == dropped
        read = parsed(merge([spliced]))
        assert read.keys() == kept.keys()
        assert all(same(read[key], float(kept[key])) for key in kept)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_give_a_page_that_parses(data: bytes) -> None:
    """Nothing that a server sends breaks the page."""
    splicer = Splicer(OURS)
    first = merge([splicer.splice(data)])
    assert merge([splicer.splice(data)]) == first
    parsed(first)


@settings(max_examples=80, deadline=None)
@given(values)
def test_values_are_those_that_go_reads(text: str) -> None:
    """Agree with the oracle, and with Python on what is finite."""
    assert valid_value(text) == oracle_value(text)


def test_a_strict_go_parser_takes_what_comes_out(page: bytes, tmp_path: Path) -> None:
    """Promtool, whose parser is stricter than the scraper's, reads a page mangled at random."""
    random = Random(20)
    text = bytearray(page)
    for _ in range(400):
        text[random.randrange(len(text))] = random.choice(b'\n"{}\\,=# 1a\xff\0')
    spliced = Splicer(OURS).splice(bytes(text))
    assert sum(spliced.dropped.values()) > 50
    (tmp_path / "page").write_text(merge([spliced]))
    with (tmp_path / "page").open() as file:
        done = subprocess.run(
            [str(binaries.find("promtool")), "check", "metrics"],
            stdin=file, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert "error while linting" not in done.stderr, done.stderr[:500]


def spliced(text: str, **options: object) -> Page:
    """Return a page with our labels."""
    return Splicer({"server": "s"}, **options).splice(text.encode())  # type: ignore[arg-type]


def out(*pages: Page) -> list[str]:
    """Return the lines of pages as one."""
    return merge(pages).splitlines()


def test_labels_of_ours_win_and_fillers_give_way() -> None:
    """The page's `server` is renamed as Prometheus does, its model stays."""
    splicer = Splicer({"server": "s", "pool": ""}, {"model_name": 'm"1'})
    page = (
        b'a{server="x",exported_server="y"} 1\nb{model_name="z",pool="p"} 2\nc{model_name=""} 3\n'
    )
    assert [line for line in out(splicer.splice(page)) if line[0] != "#"] == [
        'a{exported_exported_server="x",exported_server="y",server="s",model_name="m\\"1"} 1',
        'b{model_name="z",pool="p",server="s"} 2',
        'c{server="s",model_name="m\\"1"} 3',
    ]


def test_openmetrics_comes_out_as_text() -> None:
    """Counters are named with `_total`, exemplars, units, timestamps and the end are gone."""
    page = spliced(
        '# HELP vllm:tokens Said \\"so\\".\n# TYPE vllm:tokens counter\n# UNIT vllm:tokens t\n'
        'vllm:tokens_total{a="1"} 3 # {id="x"} 1 2\nvllm:tokens_created{a="1"} 1.7e9\n'
        "# TYPE v info\nv_info 1\n# TYPE u unknown\nu 2 1700000000.5\n# EOF\n"
    )
    assert not page.dropped
    assert out(page) == [
        '# HELP vllm:tokens_total Said "so".',
        "# TYPE vllm:tokens_total counter",
        'vllm:tokens_total{a="1",server="s"} 3',
        "# TYPE v_info gauge",
        'v_info{server="s"} 1',
        "# TYPE u untyped",
        'u{server="s"} 2',
    ]


def test_families_of_two_servers_share_one_header() -> None:
    """One HELP and TYPE, the first one's; gauge and counter go together, a histogram does not."""
    first = Splicer({"server": "1"}).splice(b"# HELP a One.\n# TYPE a counter\na 1\n")
    second = Splicer({"server": "2"}).splice(b"# HELP a Two.\n# TYPE a gauge\na 2\nb 3\n")
    third = Splicer({"server": "3"}).splice(
        b'# TYPE a histogram\na_bucket{le="+Inf"} 1\na_count 1\na_sum 1\nb 4\n'
    )
    assert out(first, second, third) == [
        "# HELP a One.", "# TYPE a counter", 'a{server="1"} 1', 'a{server="2"} 2',
        "# TYPE b untyped", 'b{server="2"} 3', 'b{server="3"} 4',
    ]  # fmt: skip
    assert third.dropped == {"conflict": 3}
    assert third.samples == 1


def test_a_series_is_passed_once_however_it_is_written() -> None:
    """Order, blanks and empty labels make no second series; the first value stays."""
    page = spliced('a{x="1",y="2"} 1\na{y="2",x="1"} 2\na{x="1", y="2" ,z=""} 3\n')
    assert page.dropped == {"duplicate": 2}
    assert out(page)[-1] == 'a{x="1",y="2",server="s"} 1'


def test_what_is_dropped_is_counted_by_reason() -> None:
    """Each reason, with the rest of the page intact."""
    page = Splicer({"server": "s"}).splice(
        b'ok 1\nno value\n1bad 1\na{b="\xff"} 1\na{b="1",b="2"} 1\na 0x1p3\na 1e999\n'
        b'# TYPE h histogram\nh 1\nh_bucket 1\nh_bucket{le="x"} 1\nh_bucket{le="2"} 1\n'
        b"# TYPE a bogus\n# HELP\nleadline_a 1\nok 12"
    )
    assert page.dropped == {
        "value": 3, "syntax": 2, "encoding": 1, "labels": 3, "type": 2, "reserved": 1,
        "truncated": 1,
    }  # fmt: skip
    assert [line for line in out(page) if line[0] != "#"] == [
        'ok{server="s"} 1', 'h_bucket{le="2",server="s"} 1',
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "leadline_target_up",
        "server:leadline_ttft:mean5m",
        ":leadline_x",
        "a:b:leadline_x",
        "up",
        "ALERTS",
        "ALERTS_FOR_STATE",
        "scrape_duration_seconds",
        "scrape_x",
    ],
)
def test_a_page_cannot_speak_for_us_or_prometheus(name: str) -> None:
    """Scrape after scrape such a series is dropped and counted, whatever its type; others pass."""
    splicer = Splicer({"server": "s"})
    page = f'# TYPE {name} gauge\n{name} 1\n{name}{{a="b"}} 1\nups 1\nupper_leadline_x 1\n'
    for _ in range(2):
        out = splicer.splice(page.encode())
        assert out.dropped == {"reserved": 2}
        assert [block.name for block in out.blocks] == ["ups", "upper_leadline_x"]


def test_a_page_is_read_to_a_limit_and_the_rest_counted() -> None:
    """The first lines pass, each further one counts as dropped, whatever it was."""
    page = spliced("".join(f"a{i} 1\n" for i in range(50)), max_lines=20)
    assert (page.samples, page.dropped) == (20, {"limit": 30})


def test_series_that_come_and_go_are_forgotten() -> None:
    """A page of ever new series does not grow what is remembered."""
    splicer = Splicer({"server": "s"})
    for scrape in range(50):
        text = "".join(f'a{{x="{scrape}_{i}"}} 1\n' for i in range(100))
        assert splicer.splice(text.encode()).samples == 100
    assert len(splicer._slots) < 1000
    assert len(splicer._by_series) < 1000


@pytest.mark.parametrize("line", ["", "a", "a{", 'a{b="c"', 'a{b="' + "\\" * 50000, "a{" * 9999])
def test_a_broken_line_is_refused_at_once(line: str) -> None:
    """No line makes the grammar search for long."""
    with pytest.raises(BadLine):
        parse_line(line)


def test_a_line_with_a_broken_exemplar_is_the_same_at_each_scrape() -> None:
    """Found by fuzzing: what was refused as new passed once its series was known."""
    splicer = Splicer({"server": "s"})
    page = b'a{b="c"} 2 # {d="\0"} 1\na{b="c"} 1 # {d="e"} 1\n'
    first, second = splicer.splice(page), splicer.splice(page)
    assert first.dropped == second.dropped == {"encoding": 1}
    assert first.blocks == second.blocks
