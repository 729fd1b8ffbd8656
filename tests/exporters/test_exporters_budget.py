"""Pages in flight share one budget: what grows without end costs neither memory nor the others."""

import gc
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from catalog.config import Config
from catalog.pages import combine
from catalog.splice import Splicer
from exporters.budget import Budget, OverBudgetError, Pages
from exporters.families import Families
from exporters.fetch import FetchError
from exporters.fold import Folder
from exporters.peers import BOUNDS
from exporters.scrape import Exporter
from exporters.web.answer import Answer
from exporters.web.on_request import IDLE_SECONDS, OnRequest

Make = Callable[..., Config]
Get = Callable[..., bytes]
Serve = Callable[..., str]
MIB = 1 << 20


def up(page: bytes) -> dict[str, bool]:
    """Whether each target is up, by server."""
    lines = [one for one in page.decode().splitlines() if one.startswith("leadline_target_up{")]
    return {line.split('server="')[1].split('"')[0]: line.endswith(" 1.0") for line in lines}


def dropped(page: bytes) -> dict[str, float]:
    """How many pages were dropped, by server."""
    lines = [
        one for one in page.decode().splitlines() if one.startswith("leadline_dropped_pages_total{")
    ]
    return {line.split('server="')[1].split('"')[0]: float(line.split()[-1]) for line in lines}


def test_pages_that_are_too_large_together_cost_only_themselves(
    fakes: Any, decode_page: bytes, config: Make, serve: Serve, get: Get,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """The rest is whole; the loss is counted and told with its remedy; it ends with its cause."""
    large = b"# " + b"x" * (6 * MIB) + b"\na 1\n"
    fakes.pages = {"good": decode_page} | {f"large{n}": large for n in range(4)}
    targets = [{"url": fakes.url(name), "server": name} for name in fakes.pages]
    url = serve(Exporter(config(targets=targets, page_budget="24MiB", deadline=60.0)))
    for scrape in (1, 2):
        page = get(url)
        assert up(page) == {"good": True} | {f"large{n}": False for n in range(4)}
        assert dropped(page) == {f"large{n}": scrape for n in range(4)}
    [said] = [m for m in caplog.messages if "large0" in m]
    assert "5 targets may take 24 MiB at once (exporter.page_budget): raise it" in said
    fakes.pages = {"good": decode_page, "large0": large[4 * MIB :]} | {
        f"large{n}": b"a 1\n" for n in range(1, 4)
    }
    page = get(url)
    assert up(page) == dict.fromkeys(fakes.pages, True)
    assert dropped(page) == {f"large{n}": 2.0 for n in range(4)}


def test_what_a_target_asked_for_by_itself_takes_counts_too(config: Make) -> None:
    """`/probe` and `/metrics` have one budget."""
    budget = Budget(48 * MIB)
    targets = [{"url": "http://10.0.0.1:1/metrics", "server": "s", "on_request": True}]
    told = config(targets=targets)

    def fetcher(url: str, timeout: float, limit: int, **_: object) -> bytes:
        if url.endswith("/version"):
            raise FetchError("none")
        return b"# " + b"x" * (5 * MIB) + b"\na 1\n"

    probed = OnRequest(told, fetcher, budget)
    with budget.scrape(0, 1) as pages, pages.room("other") as room:
        room.take(28 * MIB)
        assert up(probed.scrape("s").text) == {"s": False}
    assert up(probed.scrape("s").text) == {"s": True}
    probed.close()


def test_a_page_within_its_share_is_never_dropped() -> None:
    """Whatever the others take, at the same time and before."""
    budget = Budget(64)
    with budget.scrape(1, 4) as pages:
        with pages.room("greedy") as greedy:
            greedy.take(40)  # its share of 8, and all that is left for larger ones
        for name in "abc":
            taken = 0
            with pytest.raises(OverBudgetError, match="4 targets"), pages.room(name) as room:  # noqa: PT012
                room.take(8)
                taken = room.size
                room.take(1)
            assert taken == 8
    assert dict(budget.dropped) == {"a": 1, "b": 1, "c": 1}
    with budget.scrape(1, 4) as pages, pages.room("a") as room:
        room.take(40)


def test_a_page_that_comes_too_late_holds_its_bytes_until_it_is_done() -> None:
    """A scrape that is over gives back what it read, not what still is being read for it."""
    budget = Budget(64)
    go, begun = threading.Event(), threading.Event()

    def late(pages: Pages) -> None:
        with pages.room("late") as room:
            room.take(48)
            begun.set()
            go.wait(60)

    with budget.scrape(1, 1) as pages:
        thread = threading.Thread(target=late, args=(pages,))
        thread.start()
        assert begun.wait(60)
    with budget.scrape(1, 1) as again, pytest.raises(OverBudgetError), again.room("n") as room:
        room.take(64)
    go.set()
    thread.join()
    with budget.scrape(1, 1) as again, again.room("n") as room:
        room.take(64)


class Traced:
    """Memory that is taken while it is open: what is there now, and the most there was."""

    def __enter__(self) -> "Traced":
        gc.collect()
        tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]
        return self

    def __exit__(self, *_: object) -> None:
        tracemalloc.stop()

    @property
    def now(self) -> int:
        return tracemalloc.get_traced_memory()[0] - self._before

    @property
    def most(self) -> int:
        return tracemalloc.get_traced_memory()[1] - self._before


def lines(count: int, width: int) -> bytes:
    """A page of so many series, each of about so many bytes."""
    return b"".join(
        b'm%d{fairness_id="1",a="%s%07d"} 1\n' % (n % 50, b"x" * width, n) for n in range(count)
    )


@pytest.mark.parametrize("width", [0, 100, 1000])
@pytest.mark.parametrize("pod", ["p", "a-rather-long-name-of-a-pod-" * 6])
def test_a_page_is_charged_for_the_memory_that_it_takes(width: int, pod: str) -> None:
    """Read, spliced and written out: not less than it is, and not much more."""
    page = lines(4000, width)
    with Traced() as traced:
        splicer = Splicer({"cluster": "c1", "server": f"{pod}:8000"}, {"model_name": "m"})
        answer = Answer(Families(), combine([splicer.splice(page)]))
        assert answer.text
        spliced, remembered = splicer.weigh(page)
        assert 0.6 * (spliced + remembered) < traced.most < 1.1 * (spliced + remembered)
        del answer
        assert 0.7 * remembered < traced.now < 1.1 * remembered


@pytest.mark.parametrize("width", [0, 1000])
def test_a_page_that_is_folded_is_charged_for_that(width: int) -> None:
    """Folding holds its lines several times over."""
    page = lines(4000, width)
    folder = Folder(BOUNDS["router"])
    with Traced() as traced:
        folder.fold(page)
        assert 0.6 * folder.weigh(page) < traced.most < 1.1 * folder.weigh(page)
    assert Folder(BOUNDS["sidecar"]).weigh(page) == 0


def test_what_is_remembered_counts_until_it_is_forgotten(config: Make) -> None:
    """A target that nobody asks for any more gives back its memory and its share."""
    now = 0.0
    budget = Budget(8 * MIB)
    targets = [{"url": f"http://10.0.0.{n}:1/metrics", "server": f"s{n}", "on_request": True}
               for n in range(3)]  # fmt: skip

    def fetcher(url: str, timeout: float, limit: int, **_: object) -> bytes:
        if url.endswith("/version"):
            raise FetchError("none")
        return lines(8000, 0)

    def probe(name: str) -> bool:
        return up(probed.scrape(name).text)[name]

    probed = OnRequest(config(targets=targets), fetcher, budget, lambda: now)
    assert [probe("s0"), probe("s0"), probe("s1")] == [True, True, False]
    now += IDLE_SECONDS + 1
    probed.sweep()
    assert [probe("s1"), probe("s2")] == [True, False]
    probed.close()


def test_a_page_that_was_dropped_is_read_again_once_it_fits(config: Make) -> None:
    """Nothing of it is remembered in the meantime; a failure costs nothing that is remembered."""
    budget = Budget(4 * MIB)
    small, large = lines(100, 0), lines(100_000, 0)
    said: list[bytes | None] = [small, large, small, None, small]

    def fetcher(url: str, timeout: float, limit: int, **_: object) -> bytes:
        if url.endswith("/version"):
            raise FetchError("none")
        if (page := said.pop(0)) is None:
            raise FetchError("connection refused")
        return page

    exporter = Exporter(
        config(targets=[{"url": "http://10.0.0.1:1/metrics", "server": "s"}]),
        fetcher=fetcher, budget=budget,
    )  # fmt: skip
    pages = [exporter.page() for _ in range(5)]
    assert [up(page)["s"] for page in pages] == [True, False, True, False, True]
    assert [dropped(page).get("s", 0.0) for page in pages] == [0.0, 1.0, 1.0, 1.0, 1.0]
    exporter.close()


@pytest.mark.parametrize("kind", ["vllm", "router"])
def test_a_failed_fetch_forgets_nothing(
    config: Make, decode_page: bytes, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The page after it costs what every page costs: no line is taken apart anew."""
    slow: list[str] = []
    slowly = Splicer._slowly
    monkeypatch.setattr(
        Splicer,
        "_slowly",
        lambda self, line, dropped: slow.append(line) or slowly(self, line, dropped),
    )
    said: list[bytes | None] = [decode_page, decode_page, None, decode_page]

    def fetcher(url: str, timeout: float, limit: int, **_: object) -> bytes:
        if url.endswith("/version") or (page := said.pop(0)) is None:
            raise FetchError("connection refused")
        return page

    targets = [{"url": "http://10.0.0.1:1/metrics", "server": "s", "kind": kind}]
    exporter = Exporter(config(targets=targets), fetcher=fetcher)
    taken = []
    for _ in range(4):
        slow.clear()
        exporter.page()
        taken.append(sum(line[:1] not in ("#", "") for line in slow))
    exporter.close()
    assert taken[0] > 300
    assert taken[1:] == [0, 0, 0]
