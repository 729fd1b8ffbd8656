"""The span before stands beside each line, the verdict follows stated rules, in three formats."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leadline
from catalog.config import load
from catalog.panel import Panel
from reports.soak import chosen_format, write
from store.prometheus import PromStore

DOCS = Path(__file__).resolve().parents[2] / "docs" / "report.md"
MIB = 2.0**20
DAY = 86_400.0
Make = Callable[..., dict[str, Panel]]
Read = Callable[..., dict[str, Any]]


@pytest.fixture
def as_json(tmp_path: Path) -> Read:
    """Writes a report as JSON and reads it back."""

    def make(
        source: Mapping[str, Panel] | PromStore, start: float, end: float, **limits: Any
    ) -> Any:
        path = tmp_path / "report.json"
        outcome = write(source, load(None, {}, limits), start=start, end=end, output=path)
        read = json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
        assert outcome.verdict == read["verdict"]
        return read

    return make


def line(report: dict[str, Any], signal: str, pool: str = "decode", part: str = "") -> Any:
    """Return the one line of a signal in a pool."""
    (found,) = [
        one for one in report["signals"]
        if (one["signal"], one["labels"].get("pool", ""), one["part"]) == (signal, pool, part)
    ]  # fmt: skip
    return found


def two_weeks(make_soak: Make) -> tuple[dict[str, Panel], int]:
    """Return panels of two spans of three days, and where the second begins."""
    panels = make_soak(days=6.0, step=600.0)
    return panels, len(panels["tpot_mean"].times) // 2


def test_each_line_has_the_span_before_beside_it(make_soak: Make, as_json: Read) -> None:
    """Values and changes are those of the two spans; what one of them lacks is never invented."""
    panels, half = two_weeks(make_soak)
    rng = np.random.default_rng(1)
    tpot, ratio = panels["tpot_mean"], panels["acceptance_ratio"]
    tpot.values[:, half:] *= 1.12
    assert ratio.trials is not None
    # Few trials when the share is high, many when it is low: a median of shares is far off.
    ratio.trials[:] = np.where(rng.random(ratio.trials.shape) < 0.6, 10.0, 9000.0)
    ratio.values[:] = ratio.trials * np.where(ratio.trials > 10, 0.5, 0.9)
    panels["e2e_mean"].values[:, :half] = np.nan
    panels["queue_mean"].values[:, : half * 4 // 5] = np.nan
    gone = panels["request_rate"].values[:1].copy()
    gone[:, half:] = np.nan
    rate = panels["request_rate"]
    panels["request_rate"] = replace(
        rate,
        values=np.concatenate([rate.values, gone]),
        labels=(*rate.labels, {**rate.labels[0], "pool": "encode"}),
    )
    times = tpot.times
    report = as_json(panels, float(times[half]), float(times[-1]))

    assert report["before"]["end"] == report["span"]["start"] == times[half]
    one = line(report, "tpot_mean")
    assert one["value"] == pytest.approx(np.median(tpot.values[:, half:]))
    assert one["value_before"] == pytest.approx(np.median(tpot.values[:, :half]), rel=1e-3)
    assert one["change_relative"] == pytest.approx(0.12, abs=0.005)
    assert one["change"] == pytest.approx(one["value"] - one["value_before"])
    one = line(report, "acceptance_ratio")
    assert one["value"] == pytest.approx(
        ratio.values[:, half:].sum() / ratio.trials[:, half:].sum(), abs=1e-9
    )
    assert one["value"] < 0.51
    for signal, why in (("e2e_mean", "no data"), ("queue_mean", "seen in only 20 % of it")):
        one = line(report, signal)
        assert one["value"] is not None
        assert (one["value_before"], one["change"], one["change_relative"]) == (None, None, None)
        assert one["change_unknown_because"] == why
    one = line(report, "request_rate", "encode")
    assert (one["state"], one["value"], one["change"]) == ("unknown", None, None)
    assert one["value_before"] is not None
    assert "worse than in the span before: Mean time per output token (chat · decode) +1" in str(
        report["reasons"]
    )
    assert report["verdict"] == "pass"  # a pool that was drained is missed by nobody

    assert keys(report) == documented()


def keys(report: Mapping[str, Any], path: str = "") -> set[str]:
    """Return the keys of a report as its reference spells them; findings have their own."""
    found = set()
    for name, value in report.items():
        here = f"{path}{name}"
        inner = (
            [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
        )
        if isinstance(value, Mapping) and name != "labels":
            found |= keys(value, f"{here}.")
            continue
        found.add(here)
        for one in inner if name != "findings" else ():
            found |= keys(one, f"{here}[].")
    return found


def documented() -> set[str]:
    """Return the keys in the first column of the reference."""
    table = DOCS.read_text(encoding="utf-8").partition("## JSON")[2]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    return {key.removesuffix("[]") for cell in cells for key in re.findall(r"`(.+?)`", cell)}


def without_memory(panels: dict[str, Panel]) -> None:
    """Take the processes' memory away."""
    del panels["host_anon_swap"]


def without_limit(panels: dict[str, Panel]) -> None:
    """Take the containers' limits away."""
    del panels["container_limit"]


def above_sla(panels: dict[str, Panel]) -> None:
    """Put a tenth of the time above the SLA of TPOT."""
    panels["tpot_mean"].values[:, 100 : 100 + len(panels["tpot_mean"].times) // 10] = 0.03


def without_tpot(panels: dict[str, Panel]) -> None:
    """Take TPOT away."""
    del panels["tpot_mean"]


@pytest.mark.parametrize(
    ("leak", "change", "sla", "outcomes"),
    [
        (0.0, None, {}, ("pass", "pass", "pass", "pass")),
        (60 * MIB, None, {}, ("fail", "fail", "pass", "pass")),
        (60 * MIB, without_limit, {}, ("fail", "unknown", "pass", "pass")),
        (0.0, without_memory, {}, ("unknown", "unknown", "pass", "unknown")),
        (0.0, above_sla, {}, ("pass", "pass", "fail", "pass")),
        (0.0, without_tpot, {}, ("pass", "unknown", "unknown", "unknown")),
        (0.0, None, {"ttft_p90": "3s"}, ("pass", "unknown", "unknown", "unknown")),
    ],
    ids=[
        "quiet",
        "leak",
        "leak without limit",
        "no memory",
        "above SLA",
        "no TPOT",
        "SLA on what is absent",
    ],
)
def test_rules_fail_and_keep_silent_one_by_one(
    make_soak: Make,
    as_json: Read,
    leak: float,
    change: Callable[[dict[str, Panel]], None] | None,
    sla: dict[str, str],
    outcomes: tuple[str, ...],
) -> None:
    """Each rule has its own outcome with its reasons; the verdict is that of the worst."""
    panels = make_soak(leak=leak, step=600.0)
    times = panels["request_rate"].times
    if change is not None:
        change(panels)
    report = as_json(panels, float(times[0]), float(times[-1]), sla=sla)
    assert tuple(rule["outcome"] for rule in report["rules"]) == outcomes
    assert report["verdict"] == next(o for o in ("fail", "unknown", "pass") if o in outcomes)
    for rule in report["rules"]:
        assert bool(rule["reasons"]) == (rule["outcome"] != "pass")
        assert set(rule["reasons"]) <= set(report["reasons"]) or report["verdict"] == "fail"
    # No data of the span before is no value of it, and no reason against the soak.
    assert {one["value_before"] for one in report["signals"]} == {None}


def test_the_ticket_is_plain_markdown(make_soak: Make, tmp_path: Path) -> None:
    """Verdict, rules, the leak and both spans are in it; what labels hold can't be markup."""
    evil = "a|b*c*`d`<script>[x](http://y)@all\n# head"
    base = {"cluster": evil, "namespace": evil, "deployment": evil, "model_name": evil}
    panels = make_soak(days=6.0, step=600.0, leak=60 * MIB, base=base)
    times = panels["tpot_mean"].times
    middle = float(times[len(times) // 2])
    path = tmp_path / "ticket.md"
    write(panels, load(None, {}, {}), start=middle, end=float(times[-1]), output=path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Soak report: Failed · ")
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1
    assert not re.findall(r"<|@|(?<!\\)`|(?<!\\)\[|nan|inf\b", text)
    assert "| **Failed** | Memory leak in " in text
    assert "engine\\_core | **drifting**: +" in text
    row = next(one for one in text.splitlines() if one.startswith("| Mean time per output token |"))
    cells = [cell.strip() for cell in row.strip("| ").split("|")]
    assert [bool(re.fullmatch(r"15\.\d ms", cells[at])) for at in (3, 4)] == [True, True]
    assert cells[-1] == "20.0 ms"
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", one)) for one in table.splitlines()}) == 1


def test_the_ending_tells_the_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """html, md, json by ending; the flag overrides it; what tells nothing is one line with help."""
    named = {"a.html": "html", "a.HTM": "html", "a": "html", "a.md": "md", "a.json": "json"}
    assert {name: chosen_format(Path(name), None) for name in named} == named
    assert chosen_format(Path("a.html"), "json") == "json"
    assert leadline.main(["report", "-o", str(tmp_path / "a.pdf")]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert "--format, one of html, md, json" in told[0]
    assert not list(tmp_path.iterdir())


def test_a_file_that_cant_be_written_is_told_before_anything_is_read(
    tmp_path: Path, free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """No folder, or a folder for a file: one line, though no Prometheus is there either."""
    url = f"http://127.0.0.1:{free_port}"
    for output, words in (
        (tmp_path / "nope" / "x.html", "there is no folder"),
        (tmp_path, "is a folder"),
    ):
        assert leadline.main(["report", "--prometheus", url, "-o", str(output)]) == 2
        (told,) = capsys.readouterr().err.splitlines()
        assert told.startswith(f"leadline: {output}")
        assert words in told
    assert not list(tmp_path.iterdir())


def test_a_long_report_says_where_it_is(
    make_soak: Make,
    tmp_path: Path,
    prometheus: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each signal of both spans is counted; on standard error, and never in a short report."""
    panels = make_soak(days=1.0, step=600.0)
    times = panels["tpot_mean"].times
    said: list[str] = []
    write(
        panels, load(None, {}), start=float(times[0]), end=float(times[-1]),
        output=tmp_path / "a.html", progress=said.append,
    )  # fmt: skip
    for span in ("this span", "the span before"):
        of = [one for one in said if one.endswith(span)]
        total = len(of)
        assert of == [f"reading signal {n} of {total} of {span}" for n in range(1, total + 1)]
    assert any(re.fullmatch(r"judging \d+ series", one) for one in said)

    flags = ["report", "--last", "1h", "-o", str(tmp_path / "b.html")]
    flags += ["--prometheus", prometheus().url]
    monkeypatch.setattr(leadline, "SECONDS_OF_SILENCE", 3600.0)
    assert leadline.main(flags) == 3
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(leadline, "SECONDS_OF_SILENCE", 0.0)
    assert leadline.main(flags) == 3
    told = capsys.readouterr()
    assert "leadline: reading signal 1 of" in told.err
    assert "reading" not in told.out


def history(start: float, minutes: int) -> str:
    """Return OpenMetrics of a decode server that is slower and rejects more in its second half."""
    place = 'deployment="chat",pool="decode",model_name="m",server="d:1",engine="0"'
    half = minutes // 2
    lines = []
    for name, first, second in (
        ("request_time_per_output_token_seconds_sum", 0.010, 0.012),
        ("request_time_per_output_token_seconds_count", 1.0, 1.0),
        ("spec_decode_num_draft_tokens_total", 100.0, 100.0),
        ("spec_decode_num_accepted_tokens_total", 70.0, 55.0),
    ):
        for m in range(minutes):
            value = 60 * (first * min(m, half) + second * max(m - half, 0))
            lines.append(f"vllm:{name}{{{place}}} {value} {start + 60 * m}")
    return "\n".join([*lines, "# EOF\n"])


def test_both_spans_are_read_from_prometheus(prometheus: Any, as_json: Read) -> None:
    """Through PromQL and raw counters: each span has its own mean and its own ratio of sums."""
    start = 1_700_000_040.0
    store = PromStore(prometheus(openmetrics=history(start, 481)).url, timeout=30.0)
    report = as_json(store, start + 240 * 60, start + 480 * 60)
    store.close()
    tpot, accepted = line(report, "tpot_mean"), line(report, "acceptance_ratio")
    assert (tpot["value"], tpot["value_before"]) == pytest.approx((0.012, 0.010))
    assert tpot["change_relative"] == pytest.approx(0.2)
    # Each step's count is what grew up to it: the first of the later span is the earlier's last.
    assert (accepted["value"], accepted["value_before"]) == pytest.approx((0.55, 0.7), abs=1e-3)
    assert report["verdict"] == "unknown"


def test_a_container_is_never_called_stable_beside_the_leak_in_it(
    make_soak: Make, as_json: Read
) -> None:
    """What leaks is a small part of it, so its own line shows nothing; the other pool's stays."""
    panels = make_soak(leak=25 * MIB, step=600.0)
    times = panels["request_rate"].times
    span = float(times[0]), float(times[-1])
    report = as_json(panels, *span)
    inside, other = (line(report, "container_working_set", pool) for pool in ("decode", "prefill"))
    assert (inside["state"], other["state"]) == ("drifting", "stable")
    assert inside["why"] == "see the finding: leak of processes in it"
    assert inside["slope"] * 3600 == pytest.approx(25 * MIB, rel=0.2)
    (leak,) = [one for one in report["findings"] if one["state"] == "firing"]
    assert inside["time_to_limit"] == leak["time_to_breach"]
    # Without the processes' memory nobody knows of the leak, and the line is what it was.
    without_memory(panels)
    assert line(as_json(panels, *span), "container_working_set")["state"] == "stable"
