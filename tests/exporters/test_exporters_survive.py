"""A running exporter under attack by targets: what docs/exporter.md says that it survives."""

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

Get = Callable[..., bytes]
Start = Callable[..., Any]
MIB = 1 << 20
PATIENCE = 60.0

_SAMPLE = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)")
_PAIR = re.compile(r'([a-z_]+)="([^"]*)"')


def said(page: bytes, name: str, **labels: str) -> float:
    """The sum of a metric's samples with these labels."""
    total = 0.0
    for line in page.decode().splitlines():
        sample = _SAMPLE.fullmatch(line)
        if sample and sample[1] == name:
            told = dict(_PAIR.findall(sample[2] or ""))
            total += float(sample[3]) * all(told.get(k, "") == v for k, v in labels.items())
    return total


def lines(count: int, width: int = 0) -> bytes:
    """A page of so many series."""
    return b"".join(b'm%d{a="%s%07d"} 1\n' % (n % 100, b"x" * width, n) for n in range(count))


def well(page: bytes, *servers: str) -> bool:
    """Whether the node's own collectors and these servers' pages are there."""
    return said(page, "leadline_collector_success", collector="host", server="") == 1 and all(
        said(page, "leadline_target_up", server=server) == 1 for server in servers
    )


ATTACKS = {
    "bomb": {"bomb": "larger than 8 MiB"},
    "large": {"huge": "larger than 64 MiB"},
    "endless": {"endless": "larger than 64 MiB"},
    "framing": {"extended": "larger than 2 MiB", "continuing": "larger than 2 MiB"},
    "broken": {"cut": "the answer ended early", "redirect": "answered 302 Found"},
    "slow": dict.fromkeys(
        ("drip", "dripping_headers", "stalling", "slow"), "no whole answer within 2 s"
    ),
}
"""By what targets do: what is logged of each."""


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_hostile_target_costs_only_itself(
    fakes: Any, decode_page: bytes, running: Start, get: Get, attack: str
) -> None:
    """Its page is missing, one line says why, and nothing grows from scrape to scrape."""
    fakes.pages = {"good": decode_page}
    reasons = ATTACKS[attack]
    size = re.search(r"\d+ MiB", next(iter(reasons.values())))
    exporter = running(
        targets=[{"url": fakes.url(one), "server": one} for one in ("good", *reasons)],
        target_timeout="2s" if attack == "slow" else "50s", deadline="60s",
        max_page=size[0].replace(" ", "") if size else "64MiB",
    )  # fmt: skip
    url = exporter.wait()
    held = []
    for _ in range(8):
        page = get(url)
        assert well(page, "good")
        for name in reasons:
            assert said(page, "leadline_target_up", server=name) == 0
            assert said(page, "leadline_collector_success", collector="vllm", server=name) == 0
            dropped = said(page, "leadline_dropped_pages_total", server=name)
            assert dropped >= 8 * (size is not None) * (len(held) == 7)
        held.append(exporter.memory())
    assert max(held[4:]) < max(held[:4]) + 8 * MIB
    assert max(held) < 100 * MIB
    assert exporter.memory("VmHWM") < 200 * MIB  # of 128 MiB for pages
    for name, reason in reasons.items():
        [told] = [line for line in exporter.said.splitlines() if f"vllm of {name} (" in line]
        assert reason in told


def test_pages_that_are_too_many_lines_are_cut_and_counted(
    fakes: Any, decode_page: bytes, running: Start, get: Get
) -> None:
    """Of 120,000 series 50,000 are passed on; a dozen such targets are dropped but for a few."""
    fakes.pages = {"good": decode_page, "many": lines(120_000)}
    exporter = running(
        targets=[{"url": fakes.url(one), "server": one} for one in fakes.pages], deadline="60s",
        target_timeout="50s",
    )  # fmt: skip
    url = exporter.wait()
    get(url)
    before = said(get(url), "leadline_dropped_lines_total", server="many", reason="limit")
    held = []
    for scrape in range(1, 9):
        page = get(url)
        assert well(page, "good", "many")
        assert page.count(b'server="many"} 1\n') == 50_000
        dropped = said(page, "leadline_dropped_lines_total", server="many", reason="limit")
        assert dropped == before + scrape * 70_000
        held.append(exporter.memory())
    assert max(held[4:]) < max(held[:4]) + 8 * MIB
    [told] = [line for line in exporter.said.splitlines() if "vllm of many (" in line]
    assert "70000 lines dropped (70000 limit), 50000 passed on" in told


def test_large_pages_of_many_targets_stay_within_the_budget(
    fakes: Any, decode_page: bytes, running: Start, get: Get
) -> None:
    """A dozen pages of 50,000 series at once: most are dropped, all memory is what was allowed."""
    fakes.pages = {"good": decode_page} | {f"many{n}": lines(50_000) for n in range(12)}
    exporter = running(
        targets=[{"url": fakes.url(one), "server": one} for one in fakes.pages], deadline="60s",
        target_timeout="50s",
    )  # fmt: skip
    url = exporter.wait()
    for _ in range(4):
        page = get(url)
        assert well(page, "good")
    up = sum(said(page, "leadline_target_up", server=f"many{n}") for n in range(12))
    dropped = said(page, "leadline_dropped_pages_total")
    assert 0 < up < 12
    assert dropped >= 4 * (12 - up) - 12
    assert exporter.memory("VmHWM") < 45 * MIB + 1.25 * 128 * MIB
    assert "(exporter.page_budget): raise it, or have the target say less" in exporter.said


ODD = rb"""# TYPE waits histogram
waits_bucket{le="1"} 3
waits_sum 2
waits_count 4
# TYPE odd gauge
odd{kind="nan"} NaN
odd{kind="inf"} +Inf
odd{kind="minus"} -Inf
odd{kind="too large"} 1e999
odd{kind="twice"} 1
odd{kind="twice"} 2
odd{kind="a\nb\"c\\d"} 5
odd{kind="cut
odd{kind="e"} f"} 6
"""


def test_odd_series_arrive_in_prometheus_or_are_counted(
    fakes: Any, decode_page: bytes, running: Start, get: Get, prometheus: Any
) -> None:
    """Real Prometheus takes the page in either format; one odd series costs no other."""
    fakes.pages = {"good": decode_page, "odd": ODD}
    exporter = running(targets=[{"url": fakes.url(one), "server": one} for one in fakes.pages])
    url = exporter.wait()
    fakes.pages["text"] = get(url)  # for a Prometheus that asks for text
    server = prometheus(scrapes=[
        {"job_name": "open", "static_configs": [{"targets": [url.split("/")[2]]}]},
        {"job_name": "text", "metrics_path": "/text",
         "static_configs": [{"targets": [fakes.url("").split("/")[2]]}]},
    ])  # fmt: skip
    deadline = time.monotonic() + PATIENCE
    while len(server.query("scrape_samples_scraped > 0")) < 2:
        assert time.monotonic() < deadline, exporter.said
        time.sleep(0.2)
    for job in ("open", "text"):
        odd = f'job="{job}",server="odd"'
        values = {r["metric"]["kind"]: r["value"][1] for r in server.query(f"odd{{{odd}}}")}
        assert values == {
            "nan": "NaN", "inf": "+Inf", "minus": "-Inf", "twice": "1", 'a\nb"c\\d': "5",
        }  # fmt: skip
        [median] = server.query(f"histogram_quantile(0.5, waits_bucket{{{odd}}})")
        assert median["value"][1] == "NaN"  # nobody can tell without the last bucket
        [count] = server.query(f"waits_count{{{odd}}}")
        assert count["value"][1] == "4"
        dropped = server.query(f"leadline_dropped_lines_total{{{odd}}}")
        assert {r["metric"]["reason"] for r in dropped} == {"duplicate", "syntax", "value"}


def test_probe_leads_nowhere_else(fakes: Any, running: Start, get: Get) -> None:
    """No address of a client's is asked, and no redirect of a target's is followed."""
    fakes.pages = {"good": b"a 1\n", "secret": b"secret 1\n"}
    exporter = running(targets=[
        {"url": fakes.url(name), "server": name, "on_request": True}
        for name in ("good", "redirect")
    ])  # fmt: skip
    probe = exporter.wait().replace("/metrics", "/probe?target=")
    assert said(get(f"{probe}good"), "leadline_target_up", server="good") == 1
    before = list(fakes.asked)
    assert said(get(f"{probe}redirect"), "leadline_target_up", server="redirect") == 0
    for target in (
        fakes.url("secret"), "http%3A%2F%2F169.254.169.254%2F", "good%00",
        "good/../secret",
        "file:///etc/passwd", "good&target=redirect",
    ):  # fmt: skip
        with pytest.raises(OSError, match=r"40[03]"):
            get(probe + target)
    assert sorted(fakes.asked[len(before) :]) == ["/redirect", "/redirect/version"]
    assert "answered 302" in exporter.said
