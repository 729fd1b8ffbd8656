"""Coverage-guided search for bytes that break what reads the outside world: `make fuzz`.

    python tests/fuzz/fuzz_exporters.py --seconds 60 [NAME ...]

Each harness states what must hold for any bytes; whatever else is raised is a finding, and its
input is kept below `build/fuzz`. Seeds are the recorded fixtures. Not collected by pytest, since
atheris is no part of the development environment (dependency group `fuzz`).
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

HERE = Path(__file__).resolve()
FIXTURES = HERE.parent.parent / "fixtures"
FOUND = HERE.parent.parent.parent / "build" / "fuzz"
LONGEST = 4096
Harness = Callable[[bytes], None]

try:
    import atheris
except ImportError:
    print("fuzz: no atheris here: pip install --group fuzz adds it", file=sys.stderr)
    sys.exit(0)

with atheris.instrument_imports(include=["catalog", "exporters"]):
    from catalog import yaml_text
    from catalog.config import ConfigError, load
    from catalog.exposition import parse_line
    from catalog.pages import combine, open_text, text
    from catalog.splice import Splicer
    from exporters.families import Families
    from exporters.fold import Folder
    from exporters.info import _labels as labels_of
    from exporters.logs.count import Said
    from exporters.logs.tail import Lines
    from exporters.node import container, network, pcie, proc
    from exporters.peers import BOUNDS
    from exporters.probe.sse import Events, ProbeError, piece
    from exporters.targets import cmdline, file_sd
    from exporters.targets.discovery import Found, Member
    from exporters.targets.instances import Instance
    from exporters.targets.seen import Told, read
    from exporters.web import config as web_config

SCRATCH = Path(tempfile.mkdtemp(prefix="leadline-fuzz-"))


def exposition(data: bytes) -> None:
    """What is passed on are whole lines that name their server, twice the same; both formats."""
    splicer = Splicer({"server": "s"}, {"model_name": "m"})
    first = text(combine([splicer.splice(data)]))
    page = splicer.splice(data)
    families = combine([page])
    assert text(families) == first
    open_text(families).encode()
    for line in first.encode().decode().split("\n"):
        if line and line[0] != "#":
            assert ("server", "s") in parse_line(line).labels
    read(data)


def peers(data: bytes) -> None:
    """A page can be folded, and what comes out is folded already."""
    for bounds in BOUNDS.values():
        folder = Folder(bounds)
        once = folder.fold(data)
        folder.fold(once)


def command_line(data: bytes) -> None:
    """A command line is a server's or none, and its labels can be written."""
    cmdline.title(data)
    launched = cmdline.launch(b"vllm\0serve\0" + data) or cmdline.Launch()
    cmdline.launch(data)
    found = Found(1, launched, "", (Member(1, "api_server", ""),))
    families = Families()
    labels = labels_of(Instance({"server": "s"}, "n", "", found), Told(), "")
    families.add("leadline_instance_info", labels, 1)
    assert families.write().count(b"\n") == 3


def log(data: bytes) -> None:
    """Lines in any pieces are counted, under few labels."""
    lines, said = Lines(), Said()
    size = 1 + (data[0] if data else 0)
    for at in range(0, len(data), size):
        for line in lines.add(data[at : at + size]):
            said.take(line, 0.0)
    for line in lines.end():
        said.take(line, 0.0)
    page = said.families({"server": "s"}, 1.0).write()
    assert page.count(b"\n") < 500


def kernel(data: bytes) -> None:
    """Files of the kernel give numbers or a named error."""
    for parse in (proc.rows, proc.pressure, proc.number, network.counters, pcie.acs_control):
        with contextlib.suppress(ValueError):
            parse(data)
    parts = data.split(b"\xff")
    names = ("stat", "memory.stat", "memory.current", "memory.max", "memory.usage_in_bytes",
             "memory.limit_in_bytes", "cgroup", "mountinfo")  # fmt: skip
    (SCRATCH / "1").mkdir(exist_ok=True)
    for name, part in zip(names, parts, strict=False):
        (SCRATCH / "1" / name).write_bytes(part)
    for reader in (
        lambda: proc.stat(SCRATCH, 1),
        lambda: container.read_memory(SCRATCH / "1", SCRATCH / "1"),
        lambda: proc.table(SCRATCH / "1" / "memory.stat"),
    ):
        with contextlib.suppress(ValueError, OSError):
            reader()


def stream(data: bytes) -> None:
    """A stream of events is the same in any pieces, or refused."""
    found: list[list[str]] = []
    for size in (len(data) or 1, 1 + (data[0] if data else 0)):
        events, told = Events(), []
        with contextlib.suppress(ProbeError):
            for at in range(0, len(data), size):
                told += events.add(data[at : at + size])
        found.append(told)
    assert found[0] == found[1]
    for event in found[0]:
        with contextlib.suppress(ProbeError):
            piece(event)


def files(data: bytes) -> None:
    """Web configuration, targets and `leadline.yaml` are read or refused in one line."""
    path = SCRATCH / "a.yml"
    path.write_bytes(data)
    for reader in (lambda: web_config.read(path), lambda: load(path, {})):
        try:
            reader()
        except ConfigError as error:
            assert "\n" not in str(error)  # noqa: PT017 - no test of pytest's
    for name in ("a.yml", "a.json"):
        with contextlib.suppress(*file_sd._UNREADABLE):
            file_sd.parse(name, data)
    with contextlib.suppress(yaml_text.YamlError):
        yaml_text.read(data)


def _fixtures(pattern: str) -> Iterable[bytes]:
    for path in sorted(FIXTURES.glob(pattern)):
        data = path.read_bytes()
        yield gzip.decompress(data) if path.suffix == ".gz" else data


def _cut(whole: Iterable[bytes]) -> Iterable[bytes]:
    """Yield pieces of recorded files, at ends of lines, that a mutator can work on."""
    for data in whole:
        for at in range(0, min(len(data), 40 * LONGEST), LONGEST):
            yield data[at : at + LONGEST].rpartition(b"\n")[0] + b"\n"


PAGES = ("vllm/*.gz", "peers/*.prom", "gpu/idle.prom")
HARNESSES: dict[str, tuple[Harness, tuple[str, ...], tuple[bytes, ...]]] = {
    "exposition": (exposition, PAGES, (b'# TYPE a_total counter\na_total{b="c"} 1 # {d="e"} 1\n',)),
    "peers": (peers, PAGES, (b'a{fairness_id="b",pod="c"} 1\n',)),
    "command_line": (
        command_line, (),
        (b"m\0--kv-transfer-config\0{\"kv_role\":\"kv_both\"}\0-tp=8\0--speculative-config.method\0mtp",
         b"VLLM::EngineCore_DP3", b"python3\0-m\0vllm.entrypoints.openai.api_server\0--port\08000"),
    ),
    "log": (log, ("logs/*.log", "logs/*.gz"), (b'{"log":"INFO 01-01 00:00:00 [a] b\\n"}\n',)),
    "kernel": (kernel, ("proc/*.json", "sys/*.json"), (b"1 (a) S 0" + b" 1" * 30,)),
    "stream": (stream, (), (b'data: {"choices":[{"text":"a"}]}\r\n\r\ndata: [DONE]\n\n',)),
    "files": (
        files, (),
        (b"- targets: ['a:1']\n  labels: {pool: decode}\n", b"basic_auth_users: {a: b}\n",
         b"exporter: {targets: [{url: 'http://a:1'}]}\n", b"a: &b [1]\nc: [*b, *b]\n"),
    ),
}  # fmt: skip
"""By name: what must hold, the fixtures that seed it, and seeds written by hand."""


def _seed(name: str) -> Path:
    _, patterns, written = HARNESSES[name]
    folder = SCRATCH / f"seeds-{name}"
    folder.mkdir()
    recorded = _cut(data for pattern in patterns for data in _fixtures(pattern))
    for number, data in enumerate((*written, *recorded)):
        (folder / str(number)).write_bytes(data)
    return folder


def _run(name: str, seconds: int) -> None:
    harness = HARNESSES[name][0]
    found = FOUND / name
    found.mkdir(parents=True, exist_ok=True)
    flags = [f"-max_total_time={seconds}", f"-max_len={2 * LONGEST}", "-timeout=10",
             "-print_final_stats=1", "-verbosity=0", f"-artifact_prefix={found}/"]  # fmt: skip
    atheris.Setup([sys.argv[0], *flags, str(_seed(name))], harness)
    atheris.Fuzz()


def main() -> int:
    """Run one harness here, or each named one (by default all) in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(HARNESSES))
    parser.add_argument("--seconds", type=int, default=60, help="for each harness")
    args = parser.parse_args()
    names = args.names or list(HARNESSES)
    if len(names) == 1:
        _run(names[0], args.seconds)
        return 0
    failed = []
    for name in names:
        print(f"fuzz: {name}, {args.seconds} s", flush=True)
        command = [sys.executable, str(HERE), "--seconds", str(args.seconds), name]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    print(f"fuzz: broken: {', '.join(failed)}" if failed else "fuzz: nothing found")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
