"""The whole page as real Prometheus sees it, whatever the servers behind it do."""

import gzip
import logging
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from catalog.address import listen_address
from catalog.config import Config
from catalog.config_targets import Target
from exporters.scrape import Exporter
from exporters.targets.cmdline import Launch
from exporters.targets.discovery import Discovery, Found
from stack import binaries
from stack.configs import Job

Make = Callable[..., Config]
Get = Callable[..., bytes]
Serve = Callable[[Exporter], str]
PASSWORD = "hunter2-never-shown"  # noqa: S105 - made up


def names(text: str) -> Counter[str]:
    """Return how many sample lines each name has, by counting lines alone."""
    lines = [line for line in text.splitlines() if line and line[0] != "#"]
    return Counter(line.partition("{")[0].partition(" ")[0] for line in lines)


def own(text: str) -> str:
    """Return the families that are ours."""
    parts = (line.split(" ") for line in text.splitlines())
    return "".join(
        f"{' '.join(words)}\n"
        for words in parts
        if any(word.startswith("leadline_") for word in (words[0], *words[2:3]))
    )


def outcomes(text: str, collector: str = "vllm") -> dict[str, float]:
    """Return success by server of a collector."""
    return {
        sample.labels.get("server", ""): sample.value
        for family in text_string_to_metric_families(own(text))
        if family.name == "leadline_collector_success"
        for sample in family.samples
        if sample.labels["collector"] == collector
    }


def test_all_series_of_eight_engines_arrive_in_prometheus(
    fakes: Any, dp8_page: bytes, decode_page: bytes, config: Make, serve: Serve, prometheus: Any
) -> None:
    """As many as the pages have lines, under one header a family, with the identity on each."""
    fakes.pages = {"dp8": dp8_page, "one": decode_page}
    targets = [
        {"url": fakes.url("dp8"), "pool": "decode", "deployment": "glm", "server": "n:1"},
        {"url": fakes.url("one"), "pool": "prefill", "deployment": "glm", "server": "n:2"},
    ]
    url = serve(Exporter(config(targets=targets)))
    server = prometheus(jobs=[Job("leadline", [url.split("/")[2]])], interval="5s")
    deadline = time.monotonic() + 60
    while len(server.query("leadline_collector_success{collector='vllm'} == 1")) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    for name, page in (("n:1", dp8_page), ("n:2", decode_page)):
        lines = {n: c for n, c in names(page.decode()).items() if not n.endswith("_created")}
        got = {
            row["metric"]["__name__"]: int(row["value"][1])
            for row in server.query(f'count by (__name__) ({{server="{name}"}})')
        }
        assert {n: c for n, c in got.items() if not n.startswith("leadline_")} == lines
    assert len(dp8_page) > 4 * len(decode_page)
    (engines,) = server.query('count(vllm:num_requests_running{server="n:1"})')
    assert engines["value"][1] == "8"
    ours = '__name__!~"leadline_.*",server="n:1"'
    for label in ('cluster!="c1"', 'pool!="decode"', 'deployment!="glm"', 'model_name!="tiny"'):
        assert server.query(f"{{{ours},{label}}}") == []
    (scraped,) = server.query("scrape_samples_scraped")
    (stored,) = server.query('count({job="leadline",__name__!~"up|scrape_.*"})')
    assert scraped["value"][1] == stored["value"][1]


@pytest.fixture
def bad_targets(fakes: Any, decode_page: bytes) -> list[dict[str, str]]:
    """One good server among every kind of bad one; each of them named by what it does."""
    fakes.pages = {
        "good": decode_page,
        "malformed": b"vllm:ok 1\nvllm:not a number\n",
        "empty": b"",
    }
    bad = [
        "malformed", "empty", "slow", "drip", "dripping_headers", "huge", "bomb", "cut",
        "redirect", "failing", "html", "gone",
    ]  # fmt: skip
    targets = [{"url": fakes.url(name), "server": name} for name in ("good", *bad)]
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = f"http://user:{PASSWORD}@127.0.0.1:{unused.getsockname()[1]}/metrics?key={PASSWORD}"
    return [*targets, {"url": dead, "server": "dead"}]


def test_bad_servers_leave_the_rest_of_the_page(
    bad_targets: list[dict[str, str]], decode_page: bytes, config: Make, serve: Serve, get: Get,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Each is 0 with one line that says why; good ones are whole; the page is there in time."""
    url = serve(
        Exporter(config(targets=bad_targets, deadline=10.0, target_timeout=5.0, page_budget="1GiB"))
    )
    begun = time.monotonic()
    text = get(url).decode()
    assert time.monotonic() - begun < 30  # a busy machine; 10 s are asked for
    success = outcomes(text)
    assert {server for server, value in success.items() if value} == {"good"}
    assert len(success) == len(bad_targets)
    lines = [line for line in text.splitlines() if 'server="good"' in line]
    passed = [line for line in lines if not line.startswith("leadline_")]
    expected = names(decode_page.decode())
    assert len(passed) == sum(c for n, c in expected.items() if not n.endswith("_created"))
    assert 'vllm:ok{cluster="c1",pool="unknown",server="malformed"} 1' in text
    assert 'leadline_dropped_lines_total{reason="syntax",server="malformed"} 1.0' in text
    up = {line.partition('server="')[2].partition('"')[0]: line[-3:] for line in
          text.splitlines() if line.startswith("leadline_target_up{")}  # fmt: skip
    assert {server for server, value in up.items() if value == "1.0"} == {
        "good", "malformed", "empty", "html",
    }  # fmt: skip
    said = {server: [m for m in caplog.messages if f" of {server} (" in m] for server in success}
    assert {server for server, messages in said.items() if not messages} == {"good"}
    reasons = {
        "malformed": "1 lines dropped (1 syntax), 1 passed on", "empty": "no samples",
        "slow": "within 5 s", "drip": "within 5 s", "dripping_headers": "within 5 s",
        "huge": "larger than 64 MiB", "bomb": "larger than 64 MiB", "cut": "ended early",
        "redirect": "answered 302", "failing": "answered 500", "html": "0 passed on",
        "gone": "answered 404", "dead": "connection refused",
    }  # fmt: skip
    for server, reason in reasons.items():
        assert len(said[server]) == 1
        assert said[server][0].startswith(f"collector vllm of {server} (http://127.0.0.1:")
        assert reason in said[server][0], said[server]
    assert PASSWORD not in text
    assert PASSWORD not in caplog.text


def test_a_log_line_comes_with_a_change_of_state_only(
    fakes: Any, config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """One when it fails, none while it does, one when it works again."""
    caplog.set_level(logging.INFO)
    exporter = Exporter(config(targets=[{"url": fakes.url("page"), "server": "s"}]))
    for page in (None, None, b"a 1\n", b"a 2\n", None):
        fakes.pages = {} if page is None else {"page": page}
        exporter.page()
    exporter.close()
    said = [m for m in caplog.messages if "collector vllm" in m]
    assert [m.rpartition(": ")[2] if "answered" in m else m[:13] + m[-11:] for m in said] == [
        "answered 404 Not Found", "collector vllworks again", "answered 404 Not Found",
    ]  # fmt: skip


def test_the_page_is_there_before_prometheus_gives_up(
    fakes: Any, config: Make, serve: Serve, get: Get
) -> None:
    """The scrape's own timeout holds, scrape after scrape."""
    fakes.pages = {"good": b"a 1\n"}
    targets = [{"url": fakes.url(n), "server": n} for n in ("slow", "good")]
    exporter = Exporter(config(targets=targets, deadline=300.0, target_timeout=200.0))
    url = serve(exporter)
    for _ in range(2):
        text = get(url, X_Prometheus_Scrape_Timeout_Seconds="4").decode()
        assert outcomes(text) == {"slow": 0.0, "good": 1.0}
        assert 'a{cluster="c1",pool="unknown",server="good"} 1' in text


def test_what_others_write_does_not_reach_the_terminal(
    fakes: Any, config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """A reason phrase with escape sequences is logged with those escaped."""
    exporter = Exporter(config(targets=[{"url": fakes.url("colourful"), "server": "a\x1bb"}]))
    exporter.page()
    exporter.close()
    [said] = [m for m in caplog.messages if m.startswith("collector vllm")]
    assert r"answered 503 \x1b[31mall\x9b is\x07 well" in said
    assert said.startswith(r"collector vllm of a\x1bb (http://")
    assert said.isprintable()


@pytest.mark.parametrize("url", ["http://h:99999/metrics", "http://[::1", "http://u:pw/x@h/"])
def test_a_target_without_an_address_costs_only_itself(
    fakes: Any, config: Make, decode_page: bytes, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    """A configuration is checked when loaded; made otherwise, the rest of the page is there."""
    fakes.pages = {"good": decode_page}
    whole = config(targets=[{"url": fakes.url("good"), "server": "good"}])
    targets = (Target.model_construct(url=url), *whole.exporter.targets)
    broken = whole.exporter.model_copy(update={"targets": targets})
    exporter = Exporter(whole.model_copy(update={"exporter": broken}))
    text = exporter.page().decode()
    exporter.close()
    assert outcomes(text) == {"good": 1.0}
    assert 'leadline_collector_success{collector="discovery"} 0.0' in text
    assert "exporter.targets.0.url is no http address" in caplog.text
    assert "pw" not in caplog.text


def test_a_command_line_with_a_senseless_host_costs_only_its_server(
    config: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its address can be asked by nobody, and is told as such."""
    odd = Found(1 << 22, Launch("m", host="a]b"), "", ())
    monkeypatch.setattr(Discovery, "find", lambda _: [odd])
    exporter = Exporter(config(discover=True))
    assert outcomes(exporter.page().decode()) == {"node7:8000": 0.0}
    exporter.close()
    assert "collector vllm of node7:8000 (no http address): its address is no" in caplog.text


def test_what_still_hangs_is_not_asked_again(
    config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """It holds one thread, not one more with each scrape, and is read again once it lets go."""
    asked: list[str] = []
    go = threading.Event()

    def fetcher(url: str, timeout: float, limit: int, **_: object) -> bytes:
        asked.append(url)
        go.wait(60)
        return b"a 1\n"

    exporter = Exporter(
        config(targets=[{"url": "http://10.0.0.1/metrics", "server": "s"}], deadline=300.0),
        fetcher=fetcher,
    )
    for _ in range(3):
        assert outcomes(exporter.page(0.2).decode()) == {"s": 0.0}
    assert asked.count("http://10.0.0.1/metrics") == 1
    assert caplog.text.count("collector vllm of s") == 1  # late is late, however it is put
    go.set()
    deadline = time.monotonic() + 30
    while outcomes(exporter.page(5.0).decode()) != {"s": 1.0}:
        assert time.monotonic() < deadline
    exporter.close()


def test_requests_at_once_share_one_scrape(fakes: Any, config: Make) -> None:
    """Replicas of Prometheus that ask together cost one scrape."""
    asked = 0

    def fetcher(url: str, timeout: float, limit: int, **_: object) -> bytes:
        nonlocal asked
        if url.endswith("/metrics"):
            asked += 1
            started.set()
            go.wait(20)
        return b"a 1\n"

    started, go = threading.Event(), threading.Event()
    targets = [{"url": "http://10.0.0.1:8000/metrics"}]
    exporter = Exporter(config(targets=targets, deadline=30.0), fetcher=fetcher)
    pages: list[bytes] = []
    threads = [threading.Thread(target=lambda: pages.append(exporter.page())) for _ in range(5)]
    threads[0].start()
    assert started.wait(20)
    for thread in threads[1:]:
        thread.start()
    while threading.active_count() < 6:
        time.sleep(0.01)
    time.sleep(0.2)
    go.set()
    for thread in threads:
        thread.join(20)
    exporter.close()
    assert asked == 1
    assert len(pages) == 5
    assert len(set(pages)) == 1


def test_our_own_families_pass_promtool(
    recorded: Path, fakes: Any, decode_page: bytes, config: Make, serve: Serve, get: Get
) -> None:
    """Help, units and suffixes are as its linter wants them."""
    fakes.pages = {"good": decode_page, "bad": b"x\n"}
    targets = [{"url": fakes.url(n), "server": n} for n in fakes.pages]
    exporter = Exporter(
        config(discover=True, targets=targets), proc=recorded / "proc", cgroup=recorded / "cgroup"
    )
    text = own(get(serve(exporter)).decode())
    assert len({line.split(" ")[2] for line in text.splitlines() if line[0] == "#"}) >= 16
    done = subprocess.run(
        [str(binaries.find("promtool")), "check", "metrics"],
        input=text, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_configured_target_that_runs_here_is_read_once(
    recorded: Path, fakes: Any, decode_page: bytes, config: Make
) -> None:
    """The configuration names it, the process table adds its processes and its connector."""
    asked: list[str] = []

    def fetcher(url: str, timeout: float, limit: int, **_: object) -> bytes:
        asked.append(url)
        return b'{"version": "0.32.0"}' if url.endswith("/version") else decode_page

    targets = [{"url": "http://localhost:8101/metrics", "pool": "aggregate", "deployment": "x"}]
    exporter = Exporter(
        config(discover=True, targets=targets),
        proc=recorded / "proc", cgroup=recorded / "cgroup", fetcher=fetcher,
    )  # fmt: skip
    text = exporter.page().decode()
    exporter.page()
    exporter.close()
    assert sorted(asked) == sorted(
        [
            *["http://localhost:8101/metrics", "http://127.0.0.1:8100/metrics"] * 2,
            "http://localhost:8101/version", "http://127.0.0.1:8100/version",
        ]
    )  # fmt: skip
    (info,) = [
        line for line in text.splitlines()
        if line.startswith("leadline_instance_info{") and 'server="node7:8101"' in line
    ]  # fmt: skip
    for label in ('pool="aggregate"', 'deployment="x"', 'kv_role="kv_consumer"', '"0.32.0"'):
        assert label in info
    assert 'process="worker",server="node7:8101"' in text


def test_two_targets_of_one_name_are_said_and_read_once(
    fakes: Any, config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Their series would be the same and vanish silently."""
    fakes.pages = {"a": b"a 1\n", "b": b"a 2\n"}
    targets = [{"url": fakes.url(name), "server": "same"} for name in "ab"]
    exporter = Exporter(config(targets=targets))
    text = exporter.page().decode()
    exporter.close()
    assert text.count("\na{") == 1
    assert outcomes(text, "discovery") == {"": 0.0}
    assert "same is there twice" in caplog.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:1", ("127.0.0.1", 1)), ("[::1]:2", ("::1", 2)), (":3", ("", 3)),
        ("h:70000", None), ("h", None), ("::1:4", None), ("h:", None), ("h:x", None),
    ],
)  # fmt: skip
def test_addresses_to_listen_on(text: str, expected: tuple[str, int] | None) -> None:
    """Host and port, IPv6 in brackets; anything else is refused by name."""
    if expected:
        assert listen_address(text) == expected
    else:
        with pytest.raises(ValueError, match="is no address"):
            listen_address(text)


def test_gzip_pages_are_read(fakes: Any, config: Make, decode_page: bytes) -> None:
    """A server that packs its page gives the same series."""
    fakes.pages = {"plain": decode_page}
    body = gzip.compress(decode_page)
    fakes.RequestHandlerClass._packed = lambda self: self._send(
        body, ("Content-Encoding", "gzip"), ("Content-Length", str(len(body)))
    )
    texts = []
    for name in ("plain", "packed"):
        exporter = Exporter(config(targets=[{"url": fakes.url(name), "server": "s"}]))
        texts.append([x for x in exporter.page().decode().splitlines() if "leadline_" not in x])
        exporter.close()
    del fakes.RequestHandlerClass._packed
    assert texts[0] == texts[1]
    assert len(texts[0]) > 300
