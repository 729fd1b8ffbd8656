"""The soak report says what is in the data and calls nothing healthy that it can't see."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from catalog.config import load
from catalog.panel import Panel
from reports.soak import Outcome, write
from store.errors import UnreachableError
from store.prometheus import PromStore

GIB = 2.0**30
MIB = 2.0**20
DAY = 86_400.0
VOID = {"meta", "br", "img", "link", "input", "hr"}
Make = Callable[..., dict[str, Panel]]


@dataclass
class Page(HTMLParser):
    """Reads a report back: its lines by section, its texts, its faults as HTML."""

    rows: dict[tuple[str, str], str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    tags: Counter = field(default_factory=Counter)
    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.texts: list[str] = []
        self.section = self.row = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags[tag] += 1
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src"):
                self.links.append(value or "")
            if name.startswith("on"):
                self.faults.append(f"handler {name}")
        if tag == "th" and not {"scope"} & dict(attrs).keys():
            self.faults.append("a heading cell without scope")
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.row = ""
        if tag in ("h2", "section"):
            self.section = ""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element that is closed at once."""
        self.tags[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        """Check that elements nest."""
        if tag not in VOID and (not self.open or self.open.pop() != tag):
            self.faults.append(f"</{tag}> closes nothing")
        if tag == "tr" and self.section:
            self.rows[self.section, self.row.split("|")[0]] = self.row

    def handle_data(self, data: str) -> None:
        """Collect texts."""
        if self.open and self.open[-1] == "h2":
            self.section += data
        if self.open and self.open[-1] not in ("style", "title"):
            self.texts.append(data)
            if data.strip():
                self.row += data.strip() + "|"


@pytest.fixture
def report(tmp_path: Path) -> Callable[..., tuple[Outcome, Page, str]]:
    """Writes the report of a source and reads it back."""

    def make(source: Mapping[str, Panel] | PromStore, start: float = 0, end: float = 0, **limits):
        if not end:
            times = next(iter(source.values())).times
            start, end = float(times[0]), float(times[-1])
        path = tmp_path / "report.html"
        outcome = write(source, load(None, {}, limits), start=start, end=end, output=path)
        text = path.read_text(encoding="utf-8")
        page = Page()
        page.feed(text)
        return outcome, page, text

    return make


def line(page: Page, section: str, title: str) -> str:
    """Return the one line of a section that begins so."""
    (found,) = [row for (place, name), row in page.rows.items()
                if place == section and name.startswith(title)]  # fmt: skip
    return found


def test_a_leak_fails_the_soak(make_soak: Make, report) -> None:
    """The leak is told with pool, process, rate and time left; its neighbours are stable."""
    outcome, page, text = report(make_soak(leak=60 * MIB))
    assert outcome.verdict == "fail"
    assert "Memory leak in chat · decode, engine_core DP1" in outcome.reason
    rate = float(re.search(r"\+([0-9.]+) MiB/h, ([0-9.]+) d left", outcome.reason)[1])
    left = float(re.search(r"([0-9.]+) d left", outcome.reason)[1])
    assert rate == pytest.approx(60, rel=0.03)
    assert left == pytest.approx((20 * 1024 - 62 * 60) / 60 / 24, rel=0.05)
    core = line(page, "chat · decode", "Private host memory (anonymous and swap) · engine_core")
    assert "|drifting|" in core
    for section, kind in (("prefill", "engine_core"), ("decode", "worker"), ("decode", "api")):
        title = f"Private host memory (anonymous and swap) · {kind}"
        assert "|stable|" in line(page, f"chat · {section}", title)
    assert "|drifting|" in line(page, "chat · decode", "Mean KV transfer time")
    assert "|stable|" in line(page, "chat · decode", "Mean time per output token")
    assert 'class="fit"' in text
    assert 'class="since"' in text
    assert "4P1D" in text


def test_leaking_ranks_are_one_incident(make_soak: Make, report) -> None:
    """Two ranks that leak are one reason and one card, which lists them with their rates."""
    outcome, page, text = report(make_soak(leak=60 * MIB, leaking=("DP0", "DP1")))
    rate = re.search(r"engine_core \(2 series\): \+([\d.]+) MiB/h together", outcome.reason)
    assert rate
    assert float(rate[1]) == pytest.approx(120, rel=0.02)
    assert text.count("<h3>Memory leak:") == 1
    assert 'class="members"' in text
    for rank in ("DP0", "DP1"):
        assert f"engine_core {rank} d0:8000" in page.texts


def test_what_was_hardly_seen_is_unknown(make_soak: Make, report) -> None:
    """A signal that is there for the last fifth only did not hold over the span."""
    whole = make_soak()
    e2e = whole["e2e_mean"]
    values = e2e.values.copy()
    values[:, : values.shape[1] * 4 // 5] = np.nan
    outcome, page, _ = report({**whole, "e2e_mean": replace(e2e, values=values)})
    found = line(page, "chat · decode", "Mean end-to-end time")
    assert "|unknown|" in found
    assert "seen in only 20 % of the span" in found
    assert outcome.verdict == "pass"  # no service level hangs on it


def test_a_quiet_soak_passes(make_soak: Make, report) -> None:
    """Noise, a daily season, a restart with warm-up: nothing is found and the soak passes."""
    whole = make_soak()
    ratio = whole["acceptance_ratio"]
    nothing = np.zeros_like(ratio.values)  # prefill could draft, and never does
    whole["acceptance_ratio"] = replace(
        ratio,
        values=np.concatenate([ratio.values, nothing]),
        trials=np.concatenate([ratio.trials, nothing]),
        labels=(*ratio.labels, {**ratio.labels[0], "pool": "prefill"}),
    )
    outcome, page, text = report(whole)
    assert outcome.verdict == "pass"
    assert "no trials, so no share" in line(page, "chat · prefill", "Share of drafted tokens")
    assert (
        Counter(re.findall(r'class="state (\w+)"', text))["drifting"] == 1
    )  # transfers, on purpose
    assert "worth a look" in text
    assert 'class="start"' in text  # the restart of one prefill server is marked
    assert "Not seen at all" in {section for section, _ in page.rows}


def test_missing_memory_is_unknown(make_soak: Make, report) -> None:
    """Without its memory, or with one pool's missing or stopped, a soak can't pass."""
    whole = make_soak()
    without = {name: panel for name, panel in whole.items() if name != "host_anon_swap"}
    outcome, page, _ = report(without)
    assert outcome.verdict == "unknown"
    assert "Private host memory" in outcome.reason
    assert "|unknown|" in line(page, "Not seen at all", "Private host memory")
    assert "|unknown|" in line(page, "chat · decode", "Private host memory")

    memory = whole["host_anon_swap"]
    decode = [at for at, row in enumerate(memory.labels) if row["pool"] == "decode"]
    prefill = [at for at in range(len(memory.labels)) if at not in decode]
    outcome, page, _ = report({**whole, "host_anon_swap": memory.rows(prefill)})
    assert outcome.verdict == "unknown"
    assert "|unknown|" in line(page, "chat · decode", "Private host memory")

    values = memory.values.copy()
    values[decode, -40:] = np.nan
    outcome, page, text = report({**whole, "host_anon_swap": replace(memory, values=values)})
    assert outcome.verdict == "unknown"
    core = line(page, "chat · decode", "Private host memory (anonymous and swap) · engine_core")
    assert "|unknown|" in core
    assert "its samples stopped" in core
    assert 'class="gap"' in text


def test_servers_of_unknown_pool_are_not_judged(make_soak: Make, report) -> None:
    """A leak on a server whose pool nobody knows is no finding, and its soak can't pass."""
    whole = make_soak(leak=60 * MIB)
    unknown = {
        name: replace(
            panel,
            labels=tuple(
                {**row, "pool": "unknown"} if row.get("pool") == "decode" else row
                for row in panel.labels
            ),
        )
        for name, panel in whole.items()
    }
    outcome, page, _ = report(unknown)
    assert outcome.verdict == "unknown"
    assert "its pool is unknown" in outcome.reason
    assert page.tags["article"] == 0
    core = line(page, "chat · unknown", "Private host memory (anonymous and swap) · engine_core")
    assert "|unknown|" in core


def test_a_soak_that_is_over_is_judged_at_its_end(make_soak: Make, report) -> None:
    """Data that ends just before the span does is a soak that is over; well before, a blind end."""
    whole = make_soak()
    times = whole["tpot_mean"].times
    outcome, _, text = report(whole, float(times[0]), float(times[-1]) + 3600)
    assert outcome.verdict == "pass"
    assert "the data ends" in text
    outcome, _, _ = report(whole, float(times[0]), float(times[-1]) + DAY)
    assert outcome.verdict == "unknown"
    assert "nothing is known of the last 24 h" in outcome.reason


def test_a_broken_service_level_fails(make_soak: Make, report) -> None:
    """A tenth of the time above the SLA is said with its share, and fails."""
    whole = make_soak()
    tpot = whole["tpot_mean"]
    values = tpot.values.copy()
    values[:, 100 : 100 + values.shape[1] // 10] = 0.030
    outcome, _, _ = report({**whole, "tpot_mean": replace(tpot, values=values)})
    assert outcome.verdict == "fail"
    assert "Mean time per output token (chat · decode) was above 20.0 ms 10 % of" in outcome.reason
    outcome, _, _ = report({**whole, "tpot_mean": replace(tpot, values=values)}, sla={
        "tpot_mean": "40ms"})  # fmt: skip
    assert outcome.verdict == "pass"


def test_short_and_empty_soaks_cannot_pass(make_soak: Make, report) -> None:
    """Two hours are too short, and no data at all is said to be none."""
    outcome, _, text = report(make_soak(days=2 / 24, step=60.0))
    assert (outcome.verdict, "too short" in outcome.reason) == ("unknown", True)
    assert "nobody can tell it from the daily season" in text
    panel = Panel("host_rss", np.arange(0, DAY, 300.0), np.zeros((0, 288)), ())
    outcome, page, _ = report({"host_rss": panel})
    assert (outcome.verdict, outcome.reason) == ("unknown", "there is no data")
    assert not page.faults


def test_labels_cannot_break_out(make_soak: Make, report) -> None:
    """Names are anybody's: markup in them is text in the page, in attributes and in pictures."""
    evil = "\"><script>alert(1)</script>'{{ 7*7 }}<svg onload=x>"
    base = {"cluster": evil, "namespace": evil, "deployment": evil, "model_name": evil}
    _, page, text = report(make_soak(leak=60 * MIB, base=base))
    assert "script" not in page.tags
    assert not page.faults
    assert evil in "".join(page.texts)
    assert "49" not in re.findall(r"\{\{.*?\}\}|>49<", text)


def test_it_is_one_small_accessible_file(make_soak: Make, report) -> None:
    """A week of minutes: under 3 MB, well nested, every picture named, nothing fetched."""
    _, page, text = report(make_soak(days=7.0, step=60.0, leak=30 * MIB))
    assert len(text.encode()) < 3_000_000
    assert not page.faults
    assert not page.open
    assert page.tags["svg"] == text.count("</title>") - 1 == text.count('role="img"') > 20
    assert len(page.ids) == len(set(page.ids))
    assert all(link.startswith("#place") for link in page.links)
    assert not re.findall(r"url\(|@import|<img|nan|inf\b", text)


def history(start: float, minutes: int) -> str:
    """Return OpenMetrics of one decode server whose first tokens all come too late to measure."""
    place = 'deployment="chat",pool="decode",model_name="m",server="d:1",engine="0"'
    lines = []
    for name, speed in (
        ("request_time_per_output_token_seconds_sum", 0.015),
        ("request_time_per_output_token_seconds_count", 1.0),
        ('time_to_first_token_seconds_bucket{le="0.5"', 0.0),
        ('time_to_first_token_seconds_bucket{le="2.0"', 0.0),
        ('time_to_first_token_seconds_bucket{le="+Inf"', 1.0),
        ("time_to_first_token_seconds_sum", 9.0),
        ("time_to_first_token_seconds_count", 1.0),
        ("num_requests_running", 0.0),
    ):
        head = f"vllm:{name}," if "{" in name else f"vllm:{name}{{"
        lines += [f"{head}{place}}} {speed * 60 * m} {start + 60 * m}" for m in range(minutes)]
    return "\n".join([*lines, "# EOF\n"])


def test_from_prometheus(prometheus, report, free_port: int, tmp_path: Path) -> None:
    """Through PromQL: a quantile at the highest bucket is `above`, what is absent is unknown."""
    start = 1_700_000_040.0
    server = prometheus(openmetrics=history(start, 480))
    store = PromStore(server.url, timeout=30.0)
    outcome, page, _ = report(store, start, start + 479 * 60)
    assert outcome.verdict == "unknown"  # neither memory nor what the user waits for is known
    p99 = line(page, "chat · decode", "Time to first token, p99")
    assert "above 2.00 s" in p99
    assert "|unknown|" in p99
    assert "|stable|" in line(page, "chat · decode", "Mean time per output token")
    assert "|unknown|" in line(page, "chat · decode", "Private host memory")
    assert "|unknown|" in line(page, "chat · as a whole", "Mean time to first token, as the user")
    assert server.url in "".join(page.texts)
    store.close()
    with pytest.raises(UnreachableError):
        write(
            PromStore(f"http://127.0.0.1:{free_port}"), load(None, {}, {}), start=start,
            end=start + DAY, output=tmp_path / "none.html",
        )  # fmt: skip
    assert not (tmp_path / "none.html").exists()
