"""Logs are read as they are written: every form counted once, whatever happens to the file."""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

import leadline
from catalog.config import Config, load
from catalog.config_words import Log
from catalog.signals import SIGNALS
from catalog.signals_probe import LOGS as SIGNALS_OF_LOGS
from exporters.families import Families
from exporters.fetch import FetchError
from exporters.logs import count as logs_count
from exporters.logs.count import Said
from exporters.logs.lines import MAX_LINE
from exporters.logs.tail import Lines, Tail
from exporters.scrape import Exporter
from exporters.targets.discovery import Discovery

if TYPE_CHECKING:
    from conftest import StartPrometheus

LOGS = Path(__file__).parents[1] / "fixtures" / "logs"
SERVER = "d0:8001"
INFO = b"(APIServer pid=7) INFO 11-29 14:02:45 [x.py:1] "
EXPIRED = INFO.replace(b"INFO", b"WARNING") + (
    b"Releasing expired KV blocks for request r which were retrieved by 1 remote worker(s) "
    b"before lease expired.\n"
)


def refuse(url: str, timeout: float, limit: int, **_: object) -> bytes:
    """Give no page."""
    raise FetchError("not today")


class Clock:
    """Monotonic seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Reader:
    """An exporter that reads logs, scraped by hand."""

    def __init__(self, config: Config, clock: Clock, **roots: Path) -> None:
        self.clock = clock
        self.exporter = Exporter(config, fetcher=refuse, clock=clock, **roots)
        self.text = ""

    def scrape(self, seconds: float = 15.0) -> dict[str, float]:
        """Return what logs said, by name and the labels beside the identity."""
        self.clock.now += seconds
        self.text = self.exporter.page().decode()
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(self.text):
            for sample in family.samples:
                if sample.name.startswith("leadline_log_"):
                    assert sample.labels["server"] == SERVER
                    more = _beside(sample.labels)
                    found[sample.name.removeprefix("leadline_log_") + more] = sample.value
        return found

    @property
    def success(self) -> bool:
        """Whether the collector had no problem."""
        return 'leadline_collector_success{collector="logs"} 1.0' in self.text


def _beside(labels: Mapping[str, str]) -> str:
    known = ("cluster", "namespace", "deployment", "pool", "model_name", "server")
    rest = {name: value for name, value in labels.items() if name not in known}
    return "".join(f" {value}" for _, value in sorted(rest.items()))


@pytest.fixture
def read(config: Callable[..., Config]) -> Iterator[Callable[..., Reader]]:
    """Makes readers of logs of one server."""
    made: list[Reader] = []

    def make(*logs: dict[str, Any], roots: Mapping[str, Path] | None = None, **more: Any) -> Reader:
        target = {"url": "http://10.0.0.1:8001/metrics", "server": SERVER, "pool": "decode"}
        settings = {"targets": [target], "logs": [*logs], **more}
        made.append(Reader(config(**settings), Clock(), **(roots or {})))
        return made[-1]

    yield make
    for one in made:
        one.exporter.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """An empty log."""
    path = tmp_path / "vllm.log"
    path.touch()
    return path


def append(path: Path, data: bytes) -> None:
    """Write on at the end of a file."""
    with path.open("ab") as file:
        file.write(data)


def entry(path: Path) -> dict[str, str]:
    """The configuration of one file of the server."""
    return {"path": str(path), "server": SERVER}


def test_a_real_decode_server_is_read_from_its_log(read: Callable[..., Reader], log: Path) -> None:
    """As vLLM 0.32 wrote it: transfers add up over windows, readings are the last line's."""
    reader = read(entry(log))
    assert "transfers_total succeeded" not in reader.scrape()
    append(log, (LOGS / "vllm_032_pd_decode.log").read_bytes())
    said = reader.scrape()
    assert reader.success
    assert said["transfers_total succeeded"] == 12
    assert said["transfers_total failed"] == 0
    assert said["transfer_bytes_total"] == pytest.approx((4 * 0.234 + 8 * 0.266) * 2**20)
    assert said["transfer_seconds_total"] == pytest.approx((4 * 6.489 + 8 * 1.257) / 1e3)
    assert said["transfer_p90_seconds"] == pytest.approx(3.249e-3)
    assert said["external_hit_ratio 0"] == 1.0
    assert said["generation_tokens_per_second 0"] == 0.0
    assert said["kv_cache_tokens"] == 2097152
    assert said["messages_total info"] == 14
    assert said["messages_total warning"] == 2
    assert said["events_total handshake"] == 1
    assert said["stats_lines_total engine"] == 3
    assert said["stats_lines_total kv_transfer"] == 2
    # Idle engines stop saying it: a reading of a minute ago is none.
    later = reader.scrape(61)
    assert "external_hit_ratio 0" not in later
    assert later["kv_cache_tokens"] == 2097152


def test_a_log_comes_to_what_the_servers_own_page_counted(
    read: Callable[..., Reader], log: Path
) -> None:
    """A real decode server while it was probed; what came after the last window is missing."""
    reader = read(entry(log))
    reader.scrape()
    append(log, gzip.decompress((LOGS / "vllm_032_probed_decode.log.gz").read_bytes()))
    said = reader.scrape()
    page = (LOGS.parent / "probe" / "vllm_032_pair.prom").read_text()

    def counted(name: str) -> float:
        [value] = re.findall(rf'^vllm:{name}{{.*pool="decode".*}} (\S+)$', page, re.MULTILINE)
        return float(value)

    assert said["accepted_tokens_total"] == counted("spec_decode_num_accepted_tokens_total")
    for ours, theirs in {
        "drafted_tokens_total": "spec_decode_num_draft_tokens_total",
        "transfers_total succeeded": "nixl_xfer_time_seconds_count",
        "transfer_seconds_total": "nixl_xfer_time_seconds_sum",
        "transfer_bytes_total": "nixl_bytes_transferred_sum",
    }.items():
        assert 0.9 * counted(theirs) <= said[ours] <= counted(theirs) * 1.001
    assert (said["messages_total error"], said["tracebacks_total"]) == (0, 0)
    assert not [key for key in said if key.startswith("unread")]


def test_drafts_are_counted(read: Callable[..., Reader], log: Path) -> None:
    """A real line of a speculating server."""
    reader = read(entry(log))
    reader.scrape()
    append(log, (LOGS / "vllm_032_ngram_spec.log").read_bytes())
    said = reader.scrape()
    assert (said["accepted_tokens_total"], said["drafted_tokens_total"]) == (228, 456)


FORMS = {
    "prompt_tokens_per_second 0": 7.2,
    "running_requests 0": 2,
    "kv_cache_usage_ratio 0": 0.125,
    "prefix_hit_ratio 0": 0.4,
    "kv_cache_usage_ratio 3": 0.904,
    "external_hit_ratio 3": 1.0,
    "waiting_requests 1": 5,
    "kv_cache_usage_ratio 1": 0.01,
    "generation_tokens_per_second": 3000.5,
    "preemptions_total": 5,
    "corrupted_requests_total": 1,
    "accepted_tokens_total": 0,
    "transfers_total succeeded": 2028,
    "transfers_total failed": 1,
    "transfers_total expired": 2,
    "transfers_total late": 3,
    "transfer_bytes_total": (2018 * 167.0 + 10 * 1.5) * 2**20,
    "transfer_seconds_total": (2018 * 38.7 + 10 * 2.5) / 1e3,
    "transfer_p90_seconds": 4e-3,
    "kv_cache_tokens": 2097152,
    "iterations_total 0": 1,
    "iteration_seconds_total 0": 0.0255,
    "jit_compilations_total Triton": 1,
    "jit_compilations_total CuTeDSL": 1,
    "nixl_failures_total transfer_failed 10.0.0.7:5600": 1,
    "nixl_failures_total handshake_setup_failed unknown": 1,
    "leases_expired_total": 2,
    "reads_after_expiry_total": 1,
    "tracebacks_total": 1,
    "events_total read_declined": 1,
    "events_total peer_invalidated": 1,
    "events_total peer_evicted": 1,
    "events_total store_refused": 1,
    "events_total output_handler_failed": 1,
    "events_total stats_not_logged": 1,
    # Two failures, the late read, the output handler; a traceback belongs to its message.
    "messages_total error": 4,
    "messages_total warning": 8,
    "stats_lines_total engine": 4,
    "stats_lines_total iteration": 2,
}


def _wrapped_cri(line: bytes) -> bytes:
    return b"2026-11-29T14:02:45.123456789Z stdout F " + line


def _wrapped_docker(line: bytes) -> bytes:
    said = {"log": line.decode() + "\n", "stream": "stdout", "time": "2026-11-29T14:02:45Z"}
    return json.dumps(said).encode()


def _coloured(line: bytes) -> bytes:
    head, colon, rest = line.partition(b"INFO")
    return b"\x1b[0;36m" + head + b"\x1b[0m" + colon + rest


def _prefixed(line: bytes) -> bytes:
    return line.replace(b"INFO 11", b"[vllm-0] INFO 11").replace(b"ERROR 11", b"[vllm-0] ERROR 11")


@pytest.mark.parametrize(
    "wrap", [bytes, _wrapped_cri, _wrapped_docker, _coloured, _prefixed], ids=lambda f: f.__name__
)
def test_every_form_of_every_version_is_understood(
    read: Callable[..., Reader], log: Path, wrap: Callable[[bytes], bytes]
) -> None:
    """0.11 to 0.33, plain, coloured, prefixed, and as Kubernetes and Docker wrap it.

    Built by hand from the formats in vLLM's sources; the request that quotes a failure is none.
    """
    reader = read(entry(log))
    reader.scrape()
    lines = (LOGS / "versions.log").read_bytes().splitlines()
    append(log, b"".join(wrap(line) + b"\n" for line in lines))
    said = reader.scrape()
    assert {key: said.get(key) for key in FORMS} == pytest.approx(FORMS)
    assert not [key for key in said if key.startswith("unread")]
    assert sum(v for k, v in said.items() if k.startswith("nixl_failures")) == 2


def test_json_lines_of_vllm_are_understood(read: Callable[..., Reader], log: Path) -> None:
    """`--logging-config.formatter json` of 0.33."""
    reader = read(entry(log))
    reader.scrape()
    message = EXPIRED.partition(b"] ")[2].decode().rstrip()
    record = {
        "asctime": "11-29 14:02:45", "levelname": "WARNING", "name": "vllm", "process": 7,
        "processName": "EngineCore", "message": message,
    }  # fmt: skip
    append(log, json.dumps(record).encode() + b"\n")
    said = reader.scrape()
    assert (said["leases_expired_total"], said["messages_total warning"]) == (1, 1)


def test_a_form_that_nobody_knows_is_told(read: Callable[..., Reader], log: Path) -> None:
    """A line that begins as statistics and says nothing we understand."""
    reader = read(entry(log))
    reader.scrape()
    append(log, INFO + b"KV Transfer metrics: moved=many\n")
    assert reader.scrape()["unread_stats_lines_total kv_transfer"] == 1


def test_reading_starts_at_the_end(read: Callable[..., Reader], log: Path) -> None:
    """History is counted neither at the start nor by the next exporter."""
    append(log, EXPIRED * 3)
    reader = read(entry(log))
    assert "leases_expired_total" not in reader.scrape()
    append(log, EXPIRED * 2)
    assert reader.scrape()["leases_expired_total"] == 2
    assert "leases_expired_total" not in read(entry(log)).scrape()


def test_a_line_in_two_pieces_is_one(read: Callable[..., Reader], log: Path) -> None:
    """Whether it was cut before the start or between two scrapes."""
    append(log, EXPIRED[:80])
    reader = read(entry(log))
    reader.scrape()
    append(log, EXPIRED[80:] + EXPIRED[:90])
    assert reader.scrape().get("leases_expired_total", 0) == 0
    append(log, EXPIRED[90:])
    assert reader.scrape()["leases_expired_total"] == 1


def _renamed(log: Path) -> None:
    log.rename(log.with_suffix(".log.1"))
    log.write_bytes(EXPIRED)


def _copied_and_cut(log: Path) -> None:
    log.with_suffix(".log.1").write_bytes(log.read_bytes())
    os.truncate(log, 0)
    append(log, EXPIRED)


def _cut_and_grown(log: Path) -> None:
    size = log.stat().st_size
    os.truncate(log, 0)
    append(log, EXPIRED + (INFO + b"another life\n") * (size // 20))


@pytest.mark.parametrize("rotate", [_renamed, _copied_and_cut, _cut_and_grown])
@pytest.mark.parametrize("pattern", ["vllm.log", "vllm.log*"])
def test_rotation_neither_loses_nor_repeats(
    read: Callable[..., Reader], log: Path, rotate: Callable[[Path], None], pattern: str
) -> None:
    """Replaced, or cut; with the old file matched by the pattern too, and a packed one."""
    append(log, INFO + b"long ago\n")
    log.with_suffix(".log.2.gz").write_bytes(EXPIRED * 50)
    reader = read(entry(log.parent / pattern))
    reader.scrape()
    append(log, EXPIRED * 4)
    assert reader.scrape()["leases_expired_total"] == 4
    unread = 2 if rotate is _renamed else 0  # what copytruncate cuts away before it is read is lost
    append(log, EXPIRED * unread)
    rotate(log)
    said = reader.scrape()
    assert said["leases_expired_total"] == 5 + unread
    assert said["rotations_total"] == 1
    append(log, EXPIRED)
    assert reader.scrape()["leases_expired_total"] == 6 + unread


def test_a_file_may_go_and_come(read: Callable[..., Reader], log: Path) -> None:
    """Gone it is a problem, back it is read from its start."""
    reader = read(entry(log))
    reader.scrape()
    append(log, EXPIRED)
    log.unlink()
    assert reader.scrape()["leases_expired_total"] == 1
    reader.scrape()
    assert not reader.success
    log.write_bytes(EXPIRED)
    assert reader.scrape()["leases_expired_total"] == 2
    assert reader.success


def test_a_file_that_comes_later_is_read_from_its_start(
    read: Callable[..., Reader], log: Path
) -> None:
    """One more rank, one more file."""
    reader = read(entry(log.parent / "*.log"))
    reader.scrape()
    (log.parent / "rank1.log").write_bytes(EXPIRED)
    assert reader.scrape()["leases_expired_total"] == 1


def test_what_is_no_file_is_refused(read: Callable[..., Reader], log: Path) -> None:
    """A pipe would wait for its writer, a folder is none."""
    os.mkfifo(log.parent / "pipe")
    reader = read(entry(log.parent / "pipe"), entry(log.parent), entry(log))
    reader.scrape()
    append(log, EXPIRED)
    assert reader.scrape()["leases_expired_total"] == 1
    assert not reader.success


def test_reading_is_bounded_and_says_how_far_behind_it_is(
    read: Callable[..., Reader], log: Path
) -> None:
    """A flood is read at the rate that was allowed, and its readings are of the past."""
    reader = read(entry(log), log_rate="10kB")
    reader.scrape()
    lines = 4000
    engine = (LOGS / "vllm_032_pd_decode.log").read_bytes().splitlines(keepends=True)[-1]
    append(log, EXPIRED * lines + engine)
    whole = len(EXPIRED) * lines + len(engine)
    said = reader.scrape(10.0)
    assert said["read_bytes_total"] == pytest.approx(100_000, rel=0.01)
    assert said["lag_bytes"] == whole - said["read_bytes_total"]
    while said["lag_bytes"]:
        assert "external_hit_ratio 0" not in said
        said = reader.scrape()
    assert (said["lag_bytes"], said["leases_expired_total"]) == (0, lines)
    assert said["external_hit_ratio 0"] == 1.0
    # However long nobody asked, one scrape reads no more than fifteen seconds' worth.
    append(log, EXPIRED * lines)
    before = said["read_bytes_total"]
    assert reader.scrape(3600.0)["read_bytes_total"] - before <= 150_000


def test_what_is_hopelessly_behind_is_passed_over(tmp_path: Path) -> None:
    """A sparse gigabyte costs neither time nor memory, and is told."""
    log = tmp_path / "log"
    log.write_bytes(b"")
    tail = Tail(log, from_start=True)
    lines: list[bytes] = []
    tail.read(1 << 20, lines.append)
    with log.open("ab") as file:
        file.truncate(1 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\nend\n")
    skipped = tail.read(1 << 20, lines.append).skipped
    assert skipped == (1 << 30) + 5 - (64 << 20)
    assert sum(map(len, lines)) <= MAX_LINE + (1 << 16)
    tail.close()


def test_a_log_belongs_to_the_server_that_writes_it(
    read: Callable[..., Reader], recorded: Path, log: Path
) -> None:
    """By the descriptor of any of its processes; by `opened` without a name at all."""
    found = Discovery(recorded / "proc").find()
    [first, *_] = found
    descriptors = recorded / "proc" / str(first.members[-1].pid) / "fd"
    descriptors.mkdir(exist_ok=True)
    for name in ("1", "2"):
        (descriptors / name).unlink(missing_ok=True)
        (descriptors / name).symlink_to(log)
    roots = {"proc": recorded / "proc", "cgroup": recorded / "cgroup"}
    for how in ({"path": str(log)}, {"opened": True}, {"path": str(log), "opened": False}):
        reader = read(how, roots=roots, discover=True, targets=[])
        reader.clock.now += 1
        reader.exporter.page()
        append(log, EXPIRED)
        reader.clock.now += 1
        page = reader.exporter.page().decode()
        [line] = [n for n in page.splitlines() if n.startswith("leadline_log_leases_expired_total")]
        assert f'server="node7:{first.launch.port}"' in line
        assert line.endswith(" 1.0")


def test_what_was_there_before_its_server_is_history(
    read: Callable[..., Reader], recorded: Path, log: Path
) -> None:
    """A file of an earlier life is not counted when its server comes later."""
    append(log, EXPIRED * 5)
    found = Discovery(recorded / "proc").find()
    descriptors = recorded / "proc" / str(found[0].pid) / "fd"
    descriptors.mkdir(exist_ok=True)
    (descriptors / "1").unlink(missing_ok=True)
    roots = {"proc": recorded / "proc", "cgroup": recorded / "cgroup"}
    for how in ({"path": str(log)}, {"path": str(log.parent / "*.log")}, {"opened": True}):
        reader = read(how, roots=roots, discover=True, targets=[])
        reader.exporter.page()
        (descriptors / "1").symlink_to(log)
        for written in (b"", EXPIRED):
            reader.clock.now += 1
            append(log, written)
            page = reader.exporter.page().decode()
        [line] = [n for n in page.splitlines() if n.startswith("leadline_log_leases_expired_total")]
        assert line.endswith(" 1.0")
        (descriptors / "1").unlink()


def test_flags_say_the_same_as_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    """`--log` in its three forms; a wrong one is one line."""
    flags = ["/a/*.log,port=8001", "unit:vllm.service,server=d0:8001", "opened"]
    logs = load(None, {}, {"exporter": {"logs": [leadline._log(flag) for flag in flags]}})
    assert logs.exporter.logs == (
        Log(path="/a/*.log", port=8001), Log(unit="vllm.service", server="d0:8001"),
        Log(opened=True),
    )  # fmt: skip
    assert leadline.main(["exporter", "--log", "unit:--help"]) == 2
    assert "exporter.logs.0.unit" in capsys.readouterr().err
    assert leadline.main(["exporter", "--log", "/a,prot=1"]) == 2
    assert "unknown key 'prot': did you mean 'port'?" in capsys.readouterr().err


def test_a_flood_does_not_starve_the_other_file(read: Callable[..., Reader], log: Path) -> None:
    """They take turns in being read first."""
    quiet = log.parent / "other.log"
    quiet.touch()
    reader = read(entry(log), entry(quiet), log_rate="1kB")
    reader.scrape()
    append(log, (INFO + b"noise\n") * 5000)
    append(quiet, EXPIRED)
    reader.scrape()
    assert reader.scrape()["leases_expired_total"] == 1


def test_a_log_of_nobody_is_a_problem_with_its_remedy(
    read: Callable[..., Reader], log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line that names the entry."""
    reader = read({"path": str(log)}, {"path": str(log), "port": 9}, {"opened": True})
    reader.scrape()
    assert not reader.success
    [text] = [r.getMessage() for r in caplog.records if "collector logs" in r.getMessage()]
    assert f"exporter.logs.0: no server writes to {log}: name its port" in text
    assert "exporter.logs.1: no server here has port 9" in text
    assert "exporter.logs.2: no server found here writes to a file" in text


def test_without_configuration_nothing_is_read(read: Callable[..., Reader], log: Path) -> None:
    """It is off unless told."""
    reader = read()
    assert reader.scrape() == {}
    assert 'collector="logs"' not in reader.text


def test_a_peer_by_ipv6_can_be_read(read: Callable[..., Reader], log: Path) -> None:
    """In brackets, as in any address."""
    reader = read(entry(log))
    reader.scrape()
    lines = (LOGS / "versions.log").read_bytes().splitlines(keepends=True)
    [failure, *_] = [line for line in lines if b"'remote_host'" in line]
    append(log, failure.replace(b"10.0.0.7", b"fd00::7"))
    assert reader.scrape()["nixl_failures_total transfer_failed [fd00::7]:5600"] == 1


def test_labels_stay_few_whatever_is_logged(read: Callable[..., Reader], log: Path) -> None:
    """Peers beyond the limit are one; kinds that nobody knows are one; no text gets out."""
    reader = read(entry(log))
    reader.scrape()
    failure = (
        INFO.replace(b"INFO", b"ERROR")
        + b"NIXL transfer failure: %s | Context: {'request_id': 'sk-secret', "
        b"'remote_host': '10.0.%d.%d', 'remote_port': 5600}\n"
    )
    append(log, b"".join(failure % (b"my_kind_%d" % n, n // 256, n % 256) for n in range(500)))
    said = reader.scrape()
    peers = [key for key in said if key.startswith("nixl_failures_total")]
    assert len(peers) == logs_count.MAX_PEERS + 1
    assert said["nixl_failures_total other other"] == 500 - logs_count.MAX_PEERS
    assert "secret" not in reader.text
    assert "my_kind" not in reader.text


def test_signals_read_logs_on_a_real_prometheus(
    read: Callable[..., Reader],
    log: Path,
    prometheus: StartPrometheus,
    serve: Callable[[Exporter], str],
) -> None:
    """Errors, compilations, failures by peer: from the exporter's own page."""
    reader = read(entry(log))
    reader.scrape()
    address = serve(reader.exporter).removeprefix("http://").removesuffix("/metrics")
    server = prometheus(scrapes=[{
        "job_name": "leadline", "scrape_interval": "1s", "static_configs": [{"targets": [address]}],
    }])  # fmt: skip
    lines = (LOGS / "versions.log").read_bytes()
    names = [signal.name for signal in SIGNALS_OF_LOGS]
    limit = time.monotonic() + 60
    found: dict[str, Any] = {}
    while set(found) != set(names) and time.monotonic() < limit:
        append(log, lines)
        reader.clock.now += 5
        time.sleep(1)
        answers = {name: server.query(SIGNALS[name].expr) for name in names}
        found = {n: a for n, a in answers.items() if a and float(a[0]["value"][1]) > 0}
    identity = {"cluster": "c1", "pool": "decode", "server": SERVER}
    assert [s["metric"] for s in found["log_errors_rate"]] == [identity]
    assert [s["metric"] for s in found["log_jit_rate"]] == [identity]
    pairs = {(s["metric"]["kind"], s["metric"]["peer"]) for s in found["log_nixl_failures_rate"]}
    assert pairs == {
        ("transfer_failed", "10.0.0.7:5600"),
        ("handshake_setup_failed", "unknown"),
    }


FRAGMENTS = st.sampled_from(
    [*(LOGS / "versions.log").read_bytes().splitlines(keepends=True), EXPIRED, b"\n", b"\x1b[31m",
     b'{"log": "', b"(APIServer pid=1) ", b"2026-11-29T14:02:45.1Z stdout F ", b"\xff\xfe", b"nan"]
)  # fmt: skip


@given(st.lists(st.one_of(st.binary(max_size=200), FRAGMENTS), max_size=30), st.integers(1, 400))
def test_any_bytes_are_survived(pieces: list[bytes], size: int) -> None:
    """Whatever is written, in whatever pieces: finite values, few series, the page is valid."""
    data = b"".join(pieces)
    said, lines = Said(), Lines()
    for start in range(0, len(data), size):
        for line in lines.add(data[start : start + size]):
            said.take(line, 0.0)
    for line in lines.end():
        said.take(line, 0.0)
    families: Families = said.families({"server": SERVER}, 0.0)
    whole = text_string_to_metric_families(families.write().decode())
    samples = [sample for family in whole for sample in family.samples]
    assert len(samples) < 200
    assert all(abs(s.value) < float("inf") for s in samples)
    assert all(len(v) < 300 for s in samples for v in s.labels.values())


@given(st.binary(min_size=0, max_size=3 * MAX_LINE), st.lists(st.integers(1, MAX_LINE), max_size=6))
def test_cutting_into_lines_keeps_every_byte_of_short_ones(data: bytes, cuts: list[int]) -> None:
    """As `split` would have it in one piece, long lines cut, memory bounded."""
    lines, found, at = Lines(), [], 0
    for cut in [*cuts, len(data)]:
        found += lines.add(data[at : at + cut])
        at += cut
    found += lines.add(data[at:]) + lines.end()
    wanted = [line[:MAX_LINE] for line in data.split(b"\n")]
    wanted = wanted[:-1] if wanted[-1] == b"" else wanted
    assert [line[:MAX_LINE] for line in found] == wanted


JOURNALCTL = """\
#!{python}
import json, os, sys
folder = {folder!r}
with open(folder + "/argv", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
mode = open(folder + "/mode").read()
if mode == "fail":
    sys.exit(1)
if mode == "recorded":
    sys.stdout.write(open({recorded!r}).read())
    sys.exit(0)
if mode == "hang":
    import time
    time.sleep(60)
after = [a.partition("=")[2] for a in sys.argv if a.startswith("--after-cursor=")]
start = int(after[0][2:]) if after and after[0][2:].isdigit() else 0
entries = open(folder + "/entries").read().splitlines()
if "--lines=1" in sys.argv:
    start = max(0, len(entries) - 1)
for number, message in enumerate(entries[start:], start + 1):
    print(json.dumps({{"__CURSOR": f"s={{number}}", "MESSAGE": json.loads(message)}}), flush=True)
"""


RECORDED = LOGS / "journal_252.json"
"""What the journalctl of systemd 252 said of text, bytes, 10 kB, two lines and colours."""


@pytest.fixture
def journal(tmp_path: Path) -> Callable[..., None]:
    """A stand-in for journalctl that answers as its manual says; writes its messages and mode."""
    program = tmp_path / "bin" / "journalctl"
    program.parent.mkdir()
    program.write_text(
        JOURNALCTL.format(python=sys.executable, folder=str(tmp_path), recorded=str(RECORDED))
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def write(*messages: Any, mode: str = "good") -> None:
        (tmp_path / "mode").write_text(mode)
        with (tmp_path / "entries").open("a") as file:
            file.writelines(json.dumps(message) + "\n" for message in messages)

    write()
    return write


def test_a_unit_is_read_from_the_journal(
    read: Callable[..., Reader],
    journal: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the newest entry on, by cursor; what is no text comes as numbers, or as null."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    said = EXPIRED.decode().rstrip()
    journal(said)
    reader = read({"unit": "vllm@decode.service", "server": SERVER})
    assert "leases_expired_total" not in reader.scrape()
    journal(said, list(EXPIRED), None, f"{said}\n{said}")
    assert reader.scrape()["leases_expired_total"] == 4
    assert reader.scrape()["leases_expired_total"] == 4
    first, second, *_ = map(json.loads, (tmp_path / "argv").read_text().splitlines())
    assert "--unit=vllm@decode.service" in first
    assert "--after-cursor=s=1" in second


def test_what_a_real_journalctl_says_is_understood(
    read: Callable[..., Reader],
    journal: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four leases in three messages, and a failure in colours; what is too large is passed over."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    reader = read({"unit": "vllm-decode.service", "server": SERVER})
    reader.scrape()
    journal(mode="recorded")
    said = reader.scrape()
    assert said["leases_expired_total"] == 4
    assert said["nixl_failures_total transfer_failed 10.0.0.7:5600"] == 1
    journal(mode="good")
    reader.scrape()
    last = json.loads((tmp_path / "argv").read_text().splitlines()[-1])
    newest = json.loads(RECORDED.read_text().splitlines()[-1])["__CURSOR"]
    assert f"--after-cursor={newest}" in last


@pytest.mark.parametrize("mode", ["fail", "hang"])
def test_a_journal_that_fails_is_left_alone_for_a_while(
    read: Callable[..., Reader],
    journal: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    """A problem with its reason, asked again later, and nothing lost meanwhile."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    journal("old")
    reader = read({"unit": "vllm.service", "server": SERVER}, deadline="1s")
    reader.scrape()
    journal(EXPIRED.decode(), mode=mode)
    reader.scrape()
    assert not reader.success
    journal(mode="good")
    asked = len((tmp_path / "argv").read_text().splitlines())
    reader.scrape(1.0)
    assert len((tmp_path / "argv").read_text().splitlines()) == asked
    assert reader.scrape(20.0)["leases_expired_total"] == 1
    assert reader.success
