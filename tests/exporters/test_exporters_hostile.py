"""What hostile targets, files and name servers may not do to the exporter."""

from __future__ import annotations

import contextlib
import gc
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog import yaml_text
from catalog.config import Config, ConfigError, load
from catalog.splice import Splicer
from exporters.fetch import FetchError, fetch
from exporters.look import Look, Task
from exporters.scrape import Exporter, collectors
from exporters.targets import vllm_config
from exporters.targets.file_sd import FileSd
from exporters.targets.instances import Instance

Make = Callable[..., Config]

BOMB = "".join(
    f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9 if n else ['lol'] * 9)}]\n" for n in range(9)
)
"""A kilobyte that stands for a billion words."""


def success(page: bytes) -> dict[tuple[str, str], bool]:
    """How each collector fared, by name and server."""
    found = {}
    for line in page.decode().splitlines():
        if line.startswith("leadline_collector_success{"):
            labels, _, value = line.rpartition(" ")
            name = labels.partition('collector="')[2].partition('"')[0]
            server = labels.partition('server="')[2].partition('"')[0]
            found[name, server] = value == "1.0"
    return found


def test_hundreds_of_targets_that_hang_hold_up_nothing_else(config: Make) -> None:
    """A name server that is down costs neither the node's own series nor a healthy server's."""
    go = threading.Event()

    def fetcher(url: str, timeout: float, limit: int, **_: object) -> bytes:
        if "hang" in url:
            go.wait(60)
            raise FetchError("name or service not known")
        return b"a 1\n"

    hung = [{"url": f"http://hang{n}:1/metrics", "server": f"h{n}"} for n in range(300)]
    good = {"url": "http://10.0.0.1/metrics", "server": "good"}
    exporter = Exporter(config(targets=[*hung, good], deadline=300.0), fetcher=fetcher)
    healthy = False
    try:
        for _ in range(8):  # as many as it takes to try them all; no thread comes back meanwhile
            told = success(exporter.page(1.5))
            assert told["host", ""]
            healthy = told["vllm", "good"]
        assert healthy
    finally:
        go.set()
        exporter.close()


def test_what_changes_with_every_scrape_is_forgotten() -> None:
    """Neither series told by tabs nor families without a header pile up."""
    splicer = Splicer({"server": "s"})
    sizes = []
    for scrape in range(12):
        page = b"".join(b'a{b="%d_%d"}\t1\nc%d_%d 1\n' % (scrape, n, scrape, n) for n in range(400))
        assert splicer.splice(page).samples == 800
        known = (splicer._slots, splicer._by_series, splicer._families)
        sizes.append(sum(map(len, known)))
    assert max(sizes[6:]) <= max(sizes[:6])


@pytest.mark.parametrize("name", ["bomb", "huge", "endless", "stalling"])
def test_a_page_that_is_refused_is_let_go_of(fakes: Any, name: str) -> None:
    """No circle of references holds the megabytes that were read of it."""
    gc.collect()
    gc.disable()
    tracemalloc.start(8)
    most = 0

    def take(count: int) -> None:
        nonlocal most
        most += count

    try:
        with pytest.raises(FetchError):
            fetch(fakes.url(name), 30.0 if name != "stalling" else 2.0, 8 << 20, take=take)
        ours = tracemalloc.Filter(True, fetch.__code__.co_filename, all_frames=True)
        taken = tracemalloc.take_snapshot().filter_traces([ours])
    finally:
        tracemalloc.stop()
        gc.enable()
    assert most > 2 << 20
    assert sum(trace.size for trace in taken.traces) < 1 << 19


@pytest.mark.parametrize("name", ["extended", "continuing"])
def test_words_around_a_page_have_an_end(fakes: Any, name: str) -> None:
    """A server that sends for ever and says nothing is left long before the time is up."""
    with pytest.raises(FetchError, match="larger than 1 MiB"):
        fetch(fakes.url(name), 300.0, 1 << 20)


class _Interrupted(str):
    """A name; whenever it is looked up, another thread has its turn, as may happen anywhere."""

    __slots__ = ()
    turn: Callable[[], None] = staticmethod(lambda: None)

    def __hash__(self) -> int:
        _Interrupted.turn()
        return super().__hash__()


@pytest.mark.parametrize("name", ["vllm", "info", "peers"])
def test_a_task_that_is_late_may_run_into_the_next_scrape(
    config: Make, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What it remembers then does not break the scrape that looks for what is remembered."""
    collector = collectors(lambda *_, **__: b"a 1\n", lambda: 0.0)[name]

    def tasks(*names: str) -> dict[str, Task]:
        targets = [
            Instance({"server": server}, "n", f"http://10.0.0.1/{server}",
                     kind="router" if name == "peers" else "vllm")
            for server in names
        ]  # fmt: skip
        peers = targets if name == "peers" else []
        servers = [] if peers else targets
        return dict(collector(Look(config(), "n", servers, Path(), Path(), 0.0, peers=peers)))

    late = [*tasks(*(f"late{n}" for n in range(9))).values()]
    here = [_Interrupted(f"s{n}") for n in range(3)]
    for task in tasks(*here).values():
        task.run()

    def turn() -> None:
        _Interrupted.turn = staticmethod(lambda: None)
        if late:
            with contextlib.suppress(KeyError):  # its target is gone: nobody waits for it
                late.pop().run()
            _Interrupted.turn = staticmethod(turn)

    monkeypatch.setattr(_Interrupted, "turn", staticmethod(turn))
    assert [*tasks(*here)] == ["s0", "s1", "s2"]
    assert len(late) < 9


def test_a_line_of_megabytes_is_dropped_unread() -> None:
    """Matching it would hold up all threads; it is counted, and the rest passes."""
    page = Splicer({"server": "s"}).splice(
        b"# HELP a " + b"x" * (4 << 20) + b"\n"
        b'a{b="' + b"x" * (4 << 20) + b'"} 1\nc' + b" " * (4 << 20) + b"1\nd 1\n"
    )
    assert page.dropped == {"limit": 3}
    assert page.samples == 1


def test_no_name_costs_the_page(tmp_path: Path, config: Make) -> None:
    """A label that is no text, as JSON and file names may have it, is written with a mark."""
    path = tmp_path / "a.json"
    path.write_text(r'[{"targets": ["127.0.0.1:1"], "labels": {"server": "a\ud800\u0000b"}}]')
    exporter = Exporter(config(file_sd=[str(path)]))
    page = exporter.page()
    exporter.close()
    assert 'leadline_target_up{cluster="c1",pool="unknown",server="a��b"} 0.0'.encode() in page


@pytest.mark.parametrize("group", ["server: *x8", "pool: [*x8, *x8]", "<<: [{a: *x8}]"])
def test_aliases_of_aliases_are_refused(tmp_path: Path, group: str) -> None:
    """A file of targets, a container's own or ours: none is followed to the billion."""
    text = "- targets: [x]\n  labels:\n    " + BOMB.replace("\n", "\n    ") + group + "\n"
    path = tmp_path / "a.yml"
    path.write_text(text)
    source = FileSd([str(path)])
    source.refresh()
    assert "aliases stand for too many values" in source.problem
    (tmp_path / "root").symlink_to("/")
    path.write_text(BOMB)
    assert vllm_config.words(tmp_path, str(path)) is None
    with pytest.raises(ConfigError, match="aliases stand for too many values"):
        load(path, {})


@pytest.mark.parametrize(
    "text",
    [
        "exporter:\n  targets:\n    - {url: http://u:SECRET@h:1/metrics, pool: [}\n",
        "exporter:\n  targets:\n    - url: http://u:SECRET@h:1/metrics: x\n",
        "a: *SECRET\n",
        "a: !SECRET x\n",
        "a: !!int SECRET\n",
        "a: 'SECRET\n",
        "a: [SECRET, &SECRET\n",
    ],
)
def test_a_broken_file_is_told_without_its_words(tmp_path: Path, text: str) -> None:
    """The parser's own message would quote the line, and with it a password."""
    path = tmp_path / "leadline.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert str(caught.value).startswith(f"{path}: no valid YAML: ")
    assert "SECRET" not in str(caught.value)


def test_a_circle_of_aliases_is_refused() -> None:
    """A list that holds itself has no end for whoever looks through it."""
    with pytest.raises(yaml_text.YamlError, match="part of what it stands for"):
        yaml_text.read("a: &a [*a]")
