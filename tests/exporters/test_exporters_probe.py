"""Probes measure what a user sees, judge answers, and survive whatever a gateway does."""

from __future__ import annotations

import gzip
import json
import random
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

import leadline
from catalog.config import Config, ConfigError, load
from catalog.signals import SIGNALS
from exporters.families import Families
from exporters.probe.collector import labels
from exporters.probe.count import Counts
from exporters.probe.round import Outcome, Prober
from exporters.probe.sse import Events, ProbeError, piece
from exporters.scrape import Exporter

if TYPE_CHECKING:
    from conftest import StartPrometheus

RECORD = Path(__file__).parents[1] / "fixtures" / "probe"
PAUSE = 0.02
FIRST = 0.1
KEY = "sk-very-secret"


class _Gateway(BaseHTTPRequestHandler):
    """Streams completions as vLLM does; the first part of the path says what goes wrong."""

    protocol_version = "HTTP/1.1"
    server: Gateway

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        asked = json.loads(body)
        self.server.asked.append((dict(self.headers), asked))
        mode = self.path.split("/")[1]
        assert self.path == f"/{mode}/v1/completions"
        with suppress(OSError):
            getattr(self, f"_{mode}")(asked)
        self.close_connection = True

    def _start(self, *headers: tuple[str, str], kind: str = "text/event-stream") -> None:
        self.send_response(200)
        for header in (("Content-Type", kind), ("Transfer-Encoding", "chunked"), *headers):
            self.send_header(*header)
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _event(self, said: Any) -> bytes:
        return b"data: " + json.dumps(said).encode() + b"\n\n"

    def _token(self, text: str, finish: str | None = None) -> bytes:
        return self._event({"choices": [{"index": 0, "text": text, "finish_reason": finish}]})

    def _events(self, asked: dict[str, Any], texts: list[str]) -> list[bytes]:
        usage = {"prompt_tokens": len(asked["prompt"].split()), "completion_tokens": len(texts)}
        tokens = [self._token(text) for text in texts[:-1]]
        return [
            *tokens, self._token(texts[-1], "length"),
            self._event({"choices": [], "usage": usage}), b"data: [DONE]\n\n",
        ]  # fmt: skip

    def _texts(self, asked: dict[str, Any]) -> list[str]:
        if asked.get("ignore_eos"):
            return [" word"] * asked["max_tokens"]
        return [solve(asked["prompt"])]

    def _good(self, asked: dict[str, Any]) -> None:
        self._start()
        time.sleep(FIRST)
        for event in self._events(asked, self._texts(asked)):
            self._chunk(event)
            time.sleep(PAUSE)
        self._chunk(b"")

    def _garbage(self, asked: dict[str, Any]) -> None:
        self._start()
        texts = self._texts(asked) if asked.get("ignore_eos") else [" \ufffd!! the the"]
        self._chunk(b"".join(self._events(asked, texts)))
        self._chunk(b"")

    def _bytewise(self, asked: dict[str, Any]) -> None:
        self._start()
        events = b": ping\r\n\r\n".join(
            event.replace(b"\n", b"\r\n") for event in self._events(asked, self._texts(asked))
        )
        for at in range(len(events)):
            self._chunk(events[at : at + 1])
        self._chunk(b"")

    def _no_usage(self, asked: dict[str, Any]) -> None:
        self._start()
        events = self._events(asked, self._texts(asked))
        self._chunk(b"".join([*events[:-2], events[-1]]))
        self._chunk(b"")

    def _no_done(self, asked: dict[str, Any]) -> None:
        self._start()
        self._chunk(b"".join(self._events(asked, self._texts(asked))[:-1]))
        self._chunk(b"")

    def _cut(self, asked: dict[str, Any]) -> None:
        self._start()
        self._chunk(self._token(" one"))

    def _ended(self, asked: dict[str, Any]) -> None:
        self._start()
        self._chunk(self._token(" one"))
        self._chunk(b"")

    def _error_event(self, asked: dict[str, Any]) -> None:
        self._start()
        self._chunk(self._token(" one"))
        self._chunk(self._event({"error": {"message": KEY, "code": 500}}))
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _aborted(self, asked: dict[str, Any]) -> None:
        self._start()
        self._chunk(self._token(" one", "abort") + b"data: [DONE]\n\n")
        self._chunk(b"")

    def _empty(self, asked: dict[str, Any]) -> None:
        self._start()
        self._chunk(self._token("", "stop") + b"data: [DONE]\n\n")
        self._chunk(b"")

    def _no_json(self, asked: dict[str, Any]) -> None:
        self._start()
        self._chunk(b"data: {oops\n\n")
        self._chunk(b"")

    def _html(self, asked: dict[str, Any]) -> None:
        self._start(kind="text/html")
        self._chunk(b"<p>Please log in.</p>")
        self._chunk(b"")

    def _bomb(self, asked: dict[str, Any]) -> None:
        self._start(("Content-Encoding", "gzip"))
        self._chunk(gzip.compress(bytes(1 << 22)))
        self._chunk(b"")

    def _long_event(self, asked: dict[str, Any]) -> None:
        self._start()
        self._chunk(b"data: " + b"x" * (1 << 20))
        self._chunk(b"")

    def _endless(self, asked: dict[str, Any]) -> None:
        self._start()
        while not self.server.release.is_set():
            self._chunk(self._token(" word") * 100)

    def _loris(self, asked: dict[str, Any]) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not self.server.release.wait(0.02):
            self.wfile.write(b"a")

    def _pinging(self, asked: dict[str, Any]) -> None:
        self._start()
        while not self.server.release.wait(0.02):
            self._chunk(b": keep-alive\n\n")

    def _silent(self, asked: dict[str, Any]) -> None:
        self.server.release.wait(30)

    def _hangs_up(self, asked: dict[str, Any]) -> None:
        """Answer nothing at all."""

    def _nonsense(self, asked: dict[str, Any]) -> None:
        self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")

    def _status(self, code: int, *headers: tuple[str, str]) -> None:
        self.send_response(code)
        for header in (("Content-Length", "0"), *headers):
            self.send_header(*header)
        self.end_headers()

    def _missing(self, asked: dict[str, Any]) -> None:
        self._status(404)

    def _overloaded(self, asked: dict[str, Any]) -> None:
        self._status(503)

    def _elsewhere(self, asked: dict[str, Any]) -> None:
        self._status(307, ("Location", f"{self.server.url('good')}/completions"))

    def log_message(self, *_: Any) -> None:
        """Stay quiet."""


class Gateway(ThreadingHTTPServer):
    """A gateway that keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Gateway)
        self.asked: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.release = threading.Event()

    def url(self, mode: str) -> str:
        """The base of an API that behaves so."""
        return f"http://127.0.0.1:{self.server_address[1]}/{mode}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients are meant to hang up."""


def solve(prompt: str) -> str:
    """Answer a question as a model would."""
    hidden = re.search(r"code word is (\w+)\.", prompt)
    if hidden:
        assert prompt.endswith("The code word is")
        return f" {hidden[1]}"
    one, two = map(int, re.findall(r"(\d+) \+ (\d+) =$", prompt)[0])
    return f" {one + two}"


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    """A gateway that behaves as its path says."""
    server = Gateway()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.release.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def prober(gateway: Gateway) -> Callable[..., Prober]:
    """Makes probers of a gateway that behaves as named."""

    def make(mode: str = "good", environ: dict[str, str] | None = None, **more: Any) -> Prober:
        settings = {"url": gateway.url(mode), "model": "m", "prompt_tokens": 40, **more}
        config = load(None, {}, {"exporter": {"probe": settings}})
        return Prober(config.exporter.probe, environ=environ or {})

    return make


def counted(*outcomes: Outcome) -> Families:
    """What outcomes come to."""
    counts = Counts(answers=True)
    for outcome in outcomes:
        counts.take(outcome)
    return counts.families({"deployment": "chat"})


def total(families: Families, name: str, **wanted: str) -> float:
    """The sum of a metric's samples with these labels."""
    samples = families.samples(f"leadline_probe_{name}")
    return sum(v for labels, v in samples if wanted.items() <= labels.items())


def test_a_latency_probe_takes_the_times_a_user_sees(prober: Callable[..., Prober]) -> None:
    """First token, tokens after it, gaps and the whole, each in its place."""
    one = prober(output_tokens=8).latency()
    assert (one.reason, one.code, one.usage) == ("", "2xx", (40, 8))
    assert one.ttft is not None
    assert one.tpot is not None
    assert one.ttft >= FIRST
    assert len(one.gaps) == 7
    assert one.tpot == pytest.approx(sum(one.gaps) / 7)
    assert one.tpot >= PAUSE
    assert one.duration >= one.ttft + sum(one.gaps)
    families = counted(one)
    for name, count in (("ttft", 1), ("tpot", 1), ("itl", 7), ("duration", 1)):
        assert total(families, f"{name}_seconds_count") == count
        assert total(families, f"{name}_seconds_bucket", le="+Inf") == count
    assert total(families, "ttft_seconds_sum") == one.ttft
    assert total(families, "ttft_seconds_bucket", le="0.05") == 0
    assert total(families, "tokens_total", kind="completion") == 8
    assert total(families, "requests_total", probe="latency", result="ok") == 1
    assert total(families, "requests_total", result="failed") == 0


def test_bytes_may_come_in_any_pieces(prober: Callable[..., Prober]) -> None:
    """One at a time, with CRLF, and comments that keep the connection alive."""
    one = prober("bytewise", output_tokens=4).latency()
    assert (one.reason, one.usage, len(one.gaps)) == ("", (40, 4), 3)
    assert prober("bytewise").answer().right is True


def test_without_usage_tokens_are_unknown(prober: Callable[..., Prober]) -> None:
    """Times that need no count stay; nothing is guessed."""
    one = prober("no_usage").latency()
    assert one.reason == ""
    assert one.ttft is not None
    assert (one.tpot, one.usage) == (None, None)
    families = counted(one)
    assert total(families, "tpot_seconds_count") == 0
    assert total(families, "tokens_total") == 0
    # A finish reason is an end too.
    assert prober("no_done").latency().usage == (40, 32)


FAILURES = {
    "cut": ("ended_early", "2xx"),
    "ended": ("ended_early", "2xx"),
    "error_event": ("stream_error", "2xx"),
    "aborted": ("aborted", "2xx"),
    "empty": ("empty", "2xx"),
    "no_json": ("bad_event", "2xx"),
    "html": ("no_stream", "2xx"),
    "bomb": ("packed", "2xx"),
    "long_event": ("too_large", "2xx"),
    "endless": ("too_large", "2xx"),
    "loris": ("timeout", "none"),
    "pinging": ("timeout", "2xx"),
    "silent": ("timeout", "none"),
    "hangs_up": ("connection", "none"),
    "nonsense": ("bad_http", "none"),
    "missing": ("http_4xx", "4xx"),
    "overloaded": ("http_5xx", "5xx"),
    "elsewhere": ("redirect", "3xx"),
}


@pytest.mark.parametrize("mode", FAILURES)
def test_a_failed_probe_has_a_reason_and_is_no_latency(
    prober: Callable[..., Prober], gateway: Gateway, mode: str
) -> None:
    """Whatever goes wrong: bounded, counted by reason and class, in no histogram."""
    patience = "500ms" if FAILURES[mode][0] == "timeout" else "30s"
    one = prober(mode, deadline=patience).latency()
    assert (one.reason, one.code) == FAILURES[mode]
    assert len(gateway.asked) == 1  # no redirect was followed, nothing tried again
    families = counted(one)
    for name in ("ttft", "tpot", "itl", "duration"):
        assert total(families, f"{name}_seconds_count") == 0
    assert total(families, "errors_total", probe="latency", reason=one.reason) == 1
    assert total(families, "responses_total", code=one.code) == 1
    assert total(families, "requests_total", probe="latency", result="failed") == 1
    assert total(families, "answers_total") == 0
    assert KEY not in families.write().decode()


def test_nobody_there_and_no_tls_are_told_apart(
    prober: Callable[..., Prober], gateway: Gateway, free_port: int
) -> None:
    """The remedies differ."""
    assert prober(url=f"http://127.0.0.1:{free_port}/v1").latency().reason == "connection"
    secure = gateway.url("good").replace("http:", "https:")
    assert prober(url=secure).latency().reason == "tls"
    assert prober(ca_file="/nowhere/ca.pem", url=secure).latency().reason == "setup"


def test_a_gateway_over_tls_is_trusted_by_its_authority(
    prober: Callable[..., Prober], gateway: Gateway, tmp_path: Path
) -> None:
    """By `ca_file`; without it, and for another name, there is no trust and nothing is sent."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    gateway.socket = context.wrap_socket(gateway.socket, server_side=True)
    secure = gateway.url("good").replace("http:", "https:")
    trusting = {"ca_file": str(tmp_path / "ca.pem"), "output_tokens": 4}
    assert prober(url=secure, **trusting).latency().usage == (40, 4)
    assert prober(url=secure).latency().reason == "tls"
    other = secure.replace("127.0.0.1", "localhost")
    assert prober(url=other, **trusting).latency().reason == "tls"
    assert len(gateway.asked) == 1


def test_answers_are_judged(prober: Callable[..., Prober]) -> None:
    """Right, wrong with status 200, and failed: a request without an answer is neither."""
    good, bad = prober("good"), prober("garbage")
    outcomes = [good.answer() for _ in range(4)] + [bad.answer() for _ in range(3)]
    outcomes.append(prober("overloaded").answer())
    assert [one.right for one in outcomes] == [True] * 4 + [False] * 3 + [None]
    families = counted(*outcomes)
    assert total(families, "answers_total", result="right") == 4
    assert total(families, "answers_recent", result="wrong") == 3
    assert total(families, "requests_total", probe="answer", result="ok") == 7
    assert total(families, "ttft_seconds_count") == 0
    # Only the last twenty are remembered.
    families = counted(*outcomes, *[Outcome("answer", right=True)] * 20)
    assert total(families, "answers_recent", result="wrong") == 0
    assert total(families, "answers_recent", result="right") == 20


@pytest.mark.parametrize("constrain", ["structured_outputs", "guided_choice", "none"])
def test_answers_are_held_to_choices_in_the_servers_way(
    prober: Callable[..., Prober], gateway: Gateway, constrain: str
) -> None:
    """The right one is among four, and asked for at temperature 0."""
    one = prober(constrain=constrain)
    for _ in range(8):
        assert one.answer().right is True
    for _, asked in gateway.asked:
        choices = asked.get("guided_choice") or asked.get("structured_outputs", {}).get("choice")
        assert (choices is None) == (constrain == "none")
        assert choices is None or (len(set(choices)) == 4 and solve(asked["prompt"]) in choices)
        assert (asked["temperature"], asked["seed"]) == (0.0, 0)
        assert asked["max_tokens"] <= 8


def test_every_prompt_begins_afresh_and_every_request_is_marked(
    prober: Callable[..., Prober], gateway: Gateway
) -> None:
    """No prefix cache can know it; gateways and logs can tell it from a user's."""
    one = prober(output_tokens=2, prompt_tokens=300)
    for _ in range(5):
        one.latency()
        one.answer()
    for headers, asked in gateway.asked:
        kind = "latency" if asked.get("ignore_eos") else "answer"
        assert headers["X-Leadline-Probe"] == kind
        assert asked["user"] == "leadline-probe"
        assert asked["stream_options"] == {"include_usage": True}
        assert kind == "answer" or len(asked["prompt"].split()) == 300
    starts = [tuple(asked["prompt"].split()[:4]) for _, asked in gateway.asked]
    assert len(set(starts)) == len(starts)


def test_the_key_is_sent_and_never_shown(
    prober: Callable[..., Prober], gateway: Gateway, tmp_path: Path, caplog: Any, capsys: Any
) -> None:
    """From a file, else from the environment; one that can't be read is said so."""
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    environ = {"LEADLINE_PROBE_API_KEY": "other"}
    prober(api_key_file=str(file), environ=environ, output_tokens=2).latency()
    prober(environ=environ, output_tokens=2).latency()
    sent = [headers["Authorization"] for headers, _ in gateway.asked]
    assert sent == [f"Bearer {KEY}", "Bearer other"]
    for text in (f"{KEY}\nX-Injected: 1", "sk-\xe9"):
        file.write_text(text)
        outcome = prober(api_key_file=str(file)).latency()
        assert outcome.reason == "key"
    assert prober(api_key_file="/nowhere/key").latency().reason == "key"
    assert len(gateway.asked) == 2
    with pytest.raises(ConfigError) as caught:
        load(None, {}, {"exporter": {"probe": {"url": f"http://u:{KEY}@h/v1", "model": "m"}}})
    assert KEY not in str(caught.value) + caplog.text + "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("every", "5s", "must be 10s or more"),
        ("deadline", "10m", "must be 5 min or less"),
        ("prompt_tokens", 100_000, "less than or equal to 32768"),
        ("output_tokens", 4096, "less than or equal to 512"),
        ("model", "", "needs model"),
    ],
)
def test_what_a_probe_may_cost_is_bounded(key: str, value: object, remedy: str) -> None:
    """Rate, length and time, at load."""
    settings = {"url": "http://gateway/v1", "model": "m", key: value}
    with pytest.raises(ConfigError, match=remedy):
        load(None, {}, {"exporter": {"probe": settings}})


def test_once_prints_what_was_measured(gateway: Gateway, capsys: Any) -> None:
    """Exit 0 when all is well, 1 when an answer is wrong or a request failed."""

    def run(mode: str) -> tuple[int, list[str]]:
        line = ["probe", "--url", gateway.url(mode), "--model", "m", "--once"]
        return leadline.main([*line, "--output-tokens", "4"]), capsys.readouterr().out.splitlines()

    code, [latency, answer] = run("good")
    assert code == 0
    assert re.fullmatch(
        r"latency: HTTP 2xx, [0-9.]+ s, TTFT [0-9.]+ s, TPOT [0-9.]+ ms, "
        r"ITL p50 [0-9.]+ ms, p99 [0-9.]+ ms, 512 tokens in, 4 out", latency
    )  # fmt: skip
    assert answer.startswith("answer: right, HTTP 2xx")
    code, [_, answer] = run("garbage")
    assert code == 1
    assert re.match(r"answer: WRONG \(expected '\w+', got '.+'\), HTTP 2xx", answer)
    code, [latency, _] = run("overloaded")
    assert (code, latency[:36]) == (1, "latency: failed (http_5xx), HTTP 503")


def _recorded(name: str, pool: str = "") -> float:
    """A value of the page of an exporter beside a real pair, by its name and pool."""
    page = (RECORD / "vllm_032_pair.prom").read_text().splitlines()
    where = f'pool="{pool}"' if pool else ""
    return sum(float(n.split()[-1]) for n in page if n.partition("{")[0] == name and where in n)


def test_a_real_pair_counted_exactly_what_probes_tell() -> None:
    """Prefill and decode with NIXL on two starved cores: tokens can be taken off to the last one.

    Nobody else asked; four rounds were asked by hand, the rest by the exporter.
    """
    once = (RECORD / "vllm_032_pair_once.txt").read_text()
    by_hand = [(int(a), int(b)) for a, b in re.findall(r"(\d+) tokens in, (\d+) out", once)]
    told = {kind: _by_kind(kind) for kind in ("prompt", "completion")}
    assert told["prompt"] + sum(a for a, _ in by_hand) == _recorded(
        "vllm:prompt_tokens_total", "prefill"
    )
    assert told["completion"] + sum(b for _, b in by_hand) == _recorded(
        "vllm:generation_tokens_total", "decode"
    )
    requests = _recorded("leadline_probe_requests_total") + len(by_hand)
    assert requests == _recorded("vllm:e2e_request_latency_seconds_count", "prefill")
    # The user waits for both stages and what lies between them.
    stages = sum(
        _recorded(f"vllm:{name}_sum", pool) / requests
        for name, pool in (
            ("e2e_request_latency_seconds", "prefill"), ("time_to_first_token_seconds", "decode")
        )
    )  # fmt: skip
    latency = _recorded("leadline_probe_ttft_seconds_sum") / _recorded(
        "leadline_probe_ttft_seconds_count"
    )
    assert stages < latency < 1.5 * stages  # questions are half of the requests, and shorter


def _by_kind(kind: str) -> float:
    page = (RECORD / "vllm_032_pair.prom").read_text()
    return float(re.findall(rf'leadline_probe_tokens_total{{.*kind="{kind}".*}} (\S+)', page)[0])


class Hasty(random.Random):
    """Chance that leaves no pauses."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0


def _exporter(gateway: Gateway, mode: str) -> tuple[Config, Exporter]:
    probe = {"url": gateway.url(mode), "model": "m", "deployment": "chat", "output_tokens": 4}
    settings = {"discover": False, "vllm": False, "probe": probe}
    config = load(None, {}, {"cluster": "c1", "exporter": settings})
    return config, Exporter(config, only=("probe",))


def test_signals_read_probes_on_a_real_prometheus(
    gateway: Gateway,
    monkeypatch: pytest.MonkeyPatch,
    prometheus: StartPrometheus,
    serve: Callable[[Exporter], str],
) -> None:
    """The exporter's own page: the user's TTFT is the probe's where no router tells it."""
    monkeypatch.setattr("exporters.probe.collector.random.Random", Hasty)
    config, exporter = _exporter(gateway, "garbage")
    address = serve(exporter).removeprefix("http://").removesuffix("/metrics")
    scrape = {"job_name": "leadline", "scrape_interval": "1s",
              "static_configs": [{"targets": [address]}]}  # fmt: skip
    server = prometheus(scrapes=[scrape])
    identity = labels(config)
    assert identity == {"cluster": "c1", "deployment": "chat", "model_name": "m"}
    limit = time.monotonic() + 60
    while not (found := server.query(SIGNALS["probe_wrong_ratio"].expr)):
        assert time.monotonic() < limit
        time.sleep(0.5)
    assert [(s["metric"], s["value"][1]) for s in found] == [(identity, "1")]
    [user] = server.query(SIGNALS["ttft_user_mean"].expr)
    assert user["metric"] == {**identity, "source": "probe"}
    values = {
        n: s for n in SIGNALS if n.startswith("probe_") for s in server.query(SIGNALS[n].expr)
    }
    assert {n for n in SIGNALS if n.startswith("probe_")} == set(values)
    assert values["probe_error_ratio"]["value"][1] == "0"
    assert float(values["probe_ttft"]["value"][1]) == pytest.approx(float(user["value"][1]))
    assert float(values["probe_request_rate"]["value"][1]) > 0


def test_the_probes_share_can_be_taken_off_as_the_page_says(prometheus: StartPrometheus) -> None:
    """Tokens and requests of users alone, by the PromQL in docs/probe-and-logs.md."""
    start, minutes = 1_600_000_000, 10
    place = 'cluster="c1",namespace="n",deployment="chat",model_name="m"'
    growth = {
        f'vllm:generation_tokens_total{{{place},pool="decode",server="d0",engine="0"}}': 6000,
        f'vllm:request_success_total{{{place},pool="decode",server="d0",engine="0"}}': 60,
        f'vllm:request_success_total{{{place},pool="prefill",server="p0",engine="0"}}': 60,
        f'leadline_probe_tokens_total{{{place},kind="completion"}}': 60,
        f'leadline_probe_tokens_total{{{place},kind="prompt"}}': 600,
        f'leadline_probe_requests_total{{{place},probe="latency",result="ok"}}': 6,
    }
    lines = [f"{series} {by * minute} {start + 60 * minute}"
             for series, by in growth.items() for minute in range(minutes)]  # fmt: skip
    server = prometheus(openmetrics="\n".join([*lines, "# EOF\n"]))
    page = (Path(__file__).parents[2] / "docs" / "probe-and-logs.md").read_text()
    tokens, requests = re.findall(r"```promql\n(.*?)```", page, re.DOTALL)
    for signal in SIGNALS.values():
        tokens, requests = (
            re.sub(
                rf"{re.escape(signal.record)}(\{{[^}}]*\}})?", partial(_spelled, signal.expr), query
            )
            for query in (tokens, requests)
        )
    at = start + 60 * (minutes - 1)
    assert [float(s["value"][1]) for s in server.query(tokens, at=at)] == pytest.approx([99.0])
    assert [float(s["value"][1]) for s in server.query(requests, at=at)] == pytest.approx([0.9])


def _spelled(expr: str, match: re.Match[str]) -> str:
    """Return a recorded name with its condition as an expression: nothing is recorded here."""
    wanted = dict(re.findall(r'(\w+)="(\w+)"', match[1] or ""))
    for label, value in wanted.items():
        only = f'label_replace(vector(1), "{label}", "{value}", "", "")'
        expr = f"({expr}) and on ({label}) {only}"
    return f"({expr})"


def test_a_scrape_never_waits_for_a_probe(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in flight, and the page is there with zeros meanwhile; without a url there is nothing."""
    monkeypatch.setattr("exporters.probe.collector.random.Random", Hasty)
    _, exporter = _exporter(gateway, "silent")
    for _ in range(3):
        page = exporter.page().decode()
        assert 'leadline_collector_success{collector="probe"} 1.0' in page
    limit = time.monotonic() + 20
    while not gateway.asked:
        assert time.monotonic() < limit
        time.sleep(0.01)
    for _ in range(20):
        page = exporter.page().decode()
    assert len(gateway.asked) == 1
    assert 'probe="latency",result="failed"} 0.0' in page
    exporter.close()
    silent = Exporter(load(None, {}, {"exporter": {"discover": False}}), only=("probe",))
    assert b"leadline_probe" not in silent.page()
    silent.close()


EVENT = b'data: {"choices":[{"text":" a","finish_reason":null}]}\n\n'
BITS = st.sampled_from(
    [EVENT, b"data: [DONE]\n\n", b"data: ", b": ping\n\n", b"\r\n", b"\r", b"\n", b"\n\n", b"{}",
     b'{"choices":[{"text":', b'{"usage":{"prompt_tokens":1e400}}', b"event: x\n", b"\xff\x00"]
)  # fmt: skip


@given(st.lists(st.one_of(st.binary(max_size=60), BITS), max_size=30), st.integers(1, 50))
def test_any_stream_is_read_or_refused(bits: list[bytes], size: int) -> None:
    """The same events whatever the pieces; each is read or is an error with a known reason."""
    data = b"".join(bits)
    whole = Events().add(data)
    events = Events()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert [said for part in pieces for said in events.add(part)] == whole
    for said in whole:
        usage, reason = None, ""
        try:
            usage = piece(said).usage
        except ProbeError as error:
            reason = error.reason
        assert reason in {"", "bad_event", "stream_error"}
        assert usage is None or all(0 <= n <= 10_000_000 for n in usage)


@given(st.binary(max_size=200), st.integers(0, 3))
def test_an_event_is_the_same_wherever_it_is_cut(noise: bytes, at: int) -> None:
    """Comments and other fields change nothing."""
    comment = b":" + noise.replace(b"\n", b"").replace(b"\r", b"") + b"\n"
    ends = (b"\n", b"\r\n", b"\r", b"\n")
    data = comment + EVENT.replace(b"\n", ends[at])
    events = Events()
    found = [said for byte in data for said in events.add(bytes([byte]))]
    assert [piece(said).text for said in found] == [" a"]
