"""The page in the format that is asked for: the same series in both, and exemplars in one."""

import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as open_families,
)
from prometheus_client.parser import text_string_to_metric_families as text_families

from catalog.config import Config
from catalog.exposition import CONTENT_TYPE, OPENMETRICS, exemplar
from catalog.pages import combine, open_text, text
from catalog.splice import Splicer
from exporters.scrape import Exporter
from exporters.web.negotiation import takes_gzip, wants_openmetrics
from stack.binaries import find

Make = Callable[..., Config]
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
EXEMPLARS = b"""\
# HELP vllm:time_to_first_token_seconds Time to "first" token.
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"} 3 # {trace_id="abc"} 0.05 %(now)s
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 4 # {trace_id="d # {e"} 7
vllm:time_to_first_token_seconds_count{engine="0"} 4
vllm:time_to_first_token_seconds_sum{engine="0"} 7.2
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{engine="0"} 9 # {trace_id="xyz"} 2 %(now)s
# TYPE vllm:odd gauge
vllm:odd{a="b # {c}"} 1
# TYPE vllm:load gauge
vllm:load 1 # {trace_id="no gauge has one"} 1
# EOF
"""


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (PROMETHEUS_3, True), (PROMETHEUS_2, True), ("", False), ("*/*", False),
        ("application/openmetrics-text", True), ("application/*", False), ("text/html", False),
        ("application/openmetrics-text;q=0", False),
        ("text/plain, APPLICATION/OpenMetrics-Text", False),
        ("text/plain;q=0.5,application/openmetrics-text; version=0.0.1; q=0.6", True),
        ("text/plain;q=0.7,application/openmetrics-text;q=0.6", False),
        ("application/openmetrics-text;version=2.0.0,text/plain;q=0.1", False),
        ('application/openmetrics-text;version="1.0.0"', True),
        ("application/openmetrics-text;q=nan", False), ("application/openmetrics-text;q=2", False),
        (",;=,;;q=,", False), ("a," * 1000 + "application/openmetrics-text", False),
    ],
)  # fmt: skip
def test_the_format_is_negotiated(accept: str, expected: bool) -> None:
    """By name and quality; nothing and rubbish get the text format."""
    assert wants_openmetrics(accept) is expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("gzip", True), ("deflate, GZIP;q=0.5", True), ("gzip;q=0", False), ("", False),
        ("*", True), ("*;q=0", False), ("gzip;q=0, *", False), ("bzip2, notgzip", False),
    ],
)  # fmt: skip
def test_packing_is_negotiated(header: str, expected: bool) -> None:
    """Only those who take gzip get it."""
    assert takes_gzip(header) is expected


def samples(families: Any) -> set[tuple[str, tuple[tuple[str, str], ...], str]]:
    """Return series and value of each sample."""
    return {
        (s.name, tuple(sorted(s.labels.items())), repr(s.value))
        for f in families
        for s in f.samples
    }


def both(pages: list[bytes]) -> tuple[str, str]:
    """Return pages of several servers in both formats."""
    spliced = [Splicer({"server": str(n)}).splice(page) for n, page in enumerate(pages)]
    families = combine(spliced)
    return text(families), open_text(families) + "# EOF\n"


def test_a_real_page_is_the_same_in_both_formats(page: bytes) -> None:
    """To a strict reader of OpenMetrics; counters are families without `_total`."""
    plain, opened = both([page, page])
    families = list(open_families(opened))
    assert samples(families) == samples(text_families(plain))
    assert len(samples(families)) > 500
    types = {family.name: family.type for family in families}
    assert types["vllm:prompt_tokens"] == "counter"
    assert types["vllm:iteration_tokens_total"] == "histogram"
    assert "unknown" not in types.values()
    assert not [n for n, type_ in types.items() if n.endswith("_total") and type_ == "counter"]


def test_the_nodes_own_families_are_the_same_in_both_formats(
    recorded: Path, page: bytes, config: Make
) -> None:
    """To a strict reader, beside a page passed through; a fleet's history goes on in either."""
    roots = {"proc": recorded / "proc", "cgroup": recorded / "cgroup"}
    exporter = Exporter(config(discover=True), fetcher=lambda *_, **__: page, **roots)
    whole = exporter.scrape()
    exporter.close()
    found = samples(open_families(whole.openmetrics.decode()))
    assert found == samples(text_families(whole.text.decode()))
    names = {name for name, _, _ in found}
    assert {"leadline_process_cpu_seconds_total", "leadline_target_up"} <= names
    assert "vllm:prompt_tokens_total" in names


def test_a_counter_that_openmetrics_has_no_word_for_arrives_all_the_same() -> None:
    """One without `_total`, and one whose bare name is another family's, are unknown."""
    page = b"# TYPE a counter\na 1\n# TYPE b gauge\nb 2\n# TYPE b_total counter\nb_total 3\nc 4\n"
    plain, opened = both([page])
    families = list(open_families(opened))
    assert [s.name for f in families for s in f.samples] == ["a", "b", "b_total", "c"]
    assert [line for line in plain.split("\n") if line[:1] not in ("", "#")] == [
        line for line in opened.split("\n") if line[:1] not in ("", "#")
    ]
    assert {f.name: f.type for f in families} == {
        "a": "unknown", "b": "gauge", "b_total": "unknown", "c": "unknown",
    }  # fmt: skip


def test_exemplars_are_kept_where_a_page_has_them() -> None:
    """On buckets and counters, on every scrape; the text format has none and loses no series."""
    page = EXEMPLARS % {b"now": b"1700000000.5"}
    # A mark within a label, right as it is, is more than this reader of OpenMetrics can read.
    page = page.replace(b"d # {e", b"d#e").replace(b" # {c}", b"")
    splicer = Splicer({"server": "s"})
    for _ in range(3):
        whole = splicer.splice(page)
        assert not whole.dropped
        families = list(open_families(open_text(combine([whole])) + "# EOF\n"))
        told = {
            (s.name, s.labels.get("le")): (s.exemplar.labels["trace_id"], s.exemplar.value)
            for family in families for s in family.samples if s.exemplar
        }  # fmt: skip
        assert told == {
            ("vllm:time_to_first_token_seconds_bucket", "0.1"): ("abc", 0.05),
            ("vllm:time_to_first_token_seconds_bucket", "+Inf"): ("d#e", 7.0),
            ("vllm:prompt_tokens_total", None): ("xyz", 2.0),
        }
        plain = text(combine([splicer.splice(page)]))
        assert samples(text_families(plain)) == samples(families)
        assert "trace_id" not in plain


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ('{a="b"} 1', '{a="b"} 1'), ('{a="b" , c="d"}  1  2 ', '{a="b",c="d"} 1 2'),
        ("{} 1", "{} 1"),
        ('{a="b"}', ""), ('{a="b",a="c"} 1', ""), ('{a="b"} one', ""), ('{a="b"} 1 NaN', ""),
        ('{a="b"} 1 2 3', ""), ('{a="\udc80"} 1', ""), ('{a="' + 128 * "x" + '"} 1', ""),
        ('{a="b"} 1 # {c="d"} 1', ""), ('{a="\\d"} 1', '{a="\\\\d"} 1'), ("{", ""),
    ],
)  # fmt: skip
def test_a_bad_exemplar_is_left_out_alone(told: str, expected: str) -> None:
    """One that readers refuse would lose the whole page."""
    assert exemplar(told) == expected
    page = f"# TYPE a counter\na_total 1 # {told}\n".encode("utf-8", "surrogateescape")
    _, opened = both([page])
    assert ("# {" in opened) == bool(expected)


PIECES = ("{", "}", "a", "=", '"', "\\", "\\n", "é", " ", "\t", ",", "1", "0.5", "NaN", "#", "\x85")
LABEL_NAMES = ("a", "b_c", "0a", "")
VALUES = ("1", "-0.5", "NaN", "+Inf", "1e400", "1_0", "0x1", "x", "")
INSTANTS = ("", " 5", " 1700000000.123", " NaN", " 1e400", " -3.5 ", " 5 5")


def test_prometheus_reads_every_exemplar_that_is_let_pass(tmp_path: Path) -> None:
    """A few thousand odd ones, through the real parser: one that it refuses loses the page."""
    random = Random(1)
    passed = set()
    for _ in range(20_000):
        inside = "".join(random.choices(PIECES, k=random.randrange(6)))
        pair = f'{random.choice(LABEL_NAMES)}="{inside}"'
        labels = random.choice((pair, f'{pair},z="1"', inside, ""))
        told = f"{{{labels}}} {random.choice(VALUES)}{random.choice(INSTANTS)}"
        passed.add(exemplar(told))
    passed.discard("")
    assert len(passed) > 1000
    lines = [f'a_total{{n="{n}"}} 1 1700000000 # {told}' for n, told in enumerate(sorted(passed))]
    (tmp_path / "page").write_text("\n".join(["# TYPE a counter", *lines, "# EOF", ""]))
    done = subprocess.run(
        [find("promtool"), *"tsdb create-blocks-from openmetrics".split(), "page", "data"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_prometheus_reads_every_line_that_is_let_pass_in_openmetrics(tmp_path: Path) -> None:
    """Its parser of OpenMetrics is another than that of text, and no less strict."""
    random = Random(2)
    odd = (*PIECES, "\x01", "\r", "\u2028", "\U0001f600", "{a", "# ")
    lines = ['# HELP a An "odd" \\ one.', "# TYPE a counter", "# TYPE b histogram"]
    for number in range(6000):
        inside = "".join(random.choices(odd, k=random.randrange(6)))
        name = random.choice(("a_total", "a", "b_bucket", "b_sum", "c", "d:e"))
        gap = random.choice(("", " ", "\t", "  "))
        tail = random.choice(("", " 5", "\t5 ", " # {a="))
        labels = f'n="{number}",le="{random.choice(VALUES)}",x{gap}="{inside}"{gap}'
        lines.append(f"{name}{gap}{{{labels}}}{gap}{random.choice(VALUES)}{tail}")
    page = Splicer({"server": "s"}).splice(("\n".join(lines) + "\n").encode())
    assert page.samples > 1000
    opened = [
        line if line[:1] in ("#", "") else f"{line} 1700000000"
        for line in open_text(combine([page])).split("\n")
    ]
    (tmp_path / "page").write_bytes(("\n".join(opened) + "# EOF\n").encode())
    done = subprocess.run(
        [find("promtool"), *"tsdb create-blocks-from openmetrics".split(), "page", "data"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


NAMES = st.sampled_from(["vllm:a", "vllm:a_total", "b", "b_total", "c_count", "c", "d_info"])
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
LABELS = st.dictionaries(st.sampled_from(["engine", "x"]), TEXTS, max_size=2)
TYPES = st.sampled_from(["counter", "gauge", "untyped", "summary", "info", "unknown"])


def quoted(value: str) -> str:
    """Return a label value as it is written."""
    return json.dumps(value, ensure_ascii=False)[1:-1] if value.isprintable() else "odd"


@st.composite
def pages(draw: st.DrawFn) -> bytes:
    """Pages of single-valued families, some lines with exemplars, timestamps or rubbish."""
    lines: list[str] = []
    for name in draw(st.lists(NAMES, unique=True, min_size=1, max_size=5)):
        lines.append(f"# TYPE {name} {draw(TYPES)}")
        for _ in range(draw(st.integers(0, 3))):
            labels = ",".join(f'{k}="{quoted(v)}"' for k, v in draw(LABELS).items())
            tail = draw(
                st.sampled_from(["", " 5", ' # {t="u"} 1', " # {t=} 1", " # {", ' # {t="#'])
            )
            lines.append(f"{name}{{{labels}}} {draw(st.integers(0, 9))}{tail}")
    return ("\n".join(lines) + "\n").encode()


@settings(deadline=None)
@given(st.lists(pages(), min_size=1, max_size=3))
def test_any_page_has_the_same_series_in_both_formats(some: list[bytes]) -> None:
    """What one format says the other says, and one end stands at the end."""
    plain, opened = both(some)

    def lines(page: str) -> list[str]:
        kept = [x for x in page.split("\n") if x and x[0] != "#"]
        return [re.sub(r' # \{t="u"\} 1$', "", x) for x in kept]

    assert lines(plain) == lines(opened)
    assert opened.count("# EOF") == 1
    assert opened.endswith("# EOF\n")
    types = [x.split(" ")[2] for x in opened.split("\n") if x.startswith("# TYPE")]
    assert len(types) == len(set(types))


def asked(url: str, accept: str) -> tuple[str, str]:
    """Return type and text of a page as asked for."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers={"Accept": accept})  # noqa: S310
    with opener.open(request, timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_a_real_prometheus_gets_the_same_series_in_both_formats(
    fakes: Any, decode_page: bytes, config: Make, serve: Callable[..., str], prometheus: Any
) -> None:
    """As many as the page has lines, with every label; exemplars arrive in OpenMetrics."""
    fakes.pages = {"vllm": decode_page, "exemplars": EXEMPLARS % {b"now": b"%.3f" % time.time()}}
    targets = [{"url": fakes.url(name), "server": name} for name in fakes.pages]
    url = serve(Exporter(config(targets=targets)))
    assert asked(url, PROMETHEUS_2)[0] == OPENMETRICS
    kind, plain = asked(url, "text/plain")
    assert kind == CONTENT_TYPE
    lines = sum(1 for line in plain.splitlines() if line[0] != "#")
    fakes.pages["text"] = plain.encode()  # a Prometheus that asks for text gets this
    server = prometheus(
        scrapes=[
            {"job_name": "open", "static_configs": [{"targets": [url.split("/")[2]]}]},
            {
                "job_name": "text", "metrics_path": "/text",
                "static_configs": [{"targets": [fakes.url("").split("/")[2]]}],
            },
        ],
        features=("exemplar-storage",),
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while len(server.query("scrape_samples_scraped > 0")) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    arrived = {}
    for job in ("open", "text"):
        rows = server.query(f'{{job="{job}",__name__!~"up|scrape_.*"}}')
        arrived[job] = {
            tuple(sorted((k, v) for k, v in r["metric"].items() if k not in ("job", "instance")))
            for r in rows
        }
        assert len(rows) == lines
    assert arrived["open"] == arrived["text"]
    answer = server.get(
        "/api/v1/query_exemplars", query='{__name__=~"vllm:.*"}',
        start=time.time() - 3600, end=time.time() + 60,
    )  # fmt: skip
    told = {
        (row["seriesLabels"]["__name__"], row["seriesLabels"]["server"], e["labels"]["trace_id"])
        for row in answer["data"]
        for e in row["exemplars"]
        if row["seriesLabels"]["job"] == "open"
    }
    assert told == {
        ("vllm:time_to_first_token_seconds_bucket", "exemplars", "abc"),
        ("vllm:time_to_first_token_seconds_bucket", "exemplars", "d # {e"),
        ("vllm:prompt_tokens_total", "exemplars", "xyz"),
    }
