"""Pages in flight share one budget: what grows without end costs neither memory nor the others."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from catalog.config import Config
from exporters.budget import Budget, OverBudgetError, Pages
from exporters.fetch import FetchError
from exporters.scrape import Exporter
from exporters.web.on_request import OnRequest

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
    url = serve(Exporter(config(targets=targets, page_budget="8MiB", deadline=60.0)))
    for scrape in (1, 2):
        page = get(url)
        assert up(page) == {"good": True} | {f"large{n}": False for n in range(4)}
        assert dropped(page) == {f"large{n}": scrape for n in range(4)}
    [said] = [m for m in caplog.messages if "large0" in m]
    assert "5 targets may take 8 MiB at once (exporter.page_budget): raise it" in said
    fakes.pages = {"good": decode_page, "large0": b"a 1\n" * MIB} | {
        f"large{n}": b"a 1\n" for n in range(1, 4)
    }
    page = get(url)
    assert up(page) == dict.fromkeys(fakes.pages, True)
    assert dropped(page) == {f"large{n}": 2.0 for n in range(4)}


def test_what_a_target_asked_for_by_itself_takes_counts_too(config: Make) -> None:
    """`/probe` and `/metrics` have one budget."""
    budget = Budget(8 * MIB)
    targets = [{"url": "http://10.0.0.1:1/metrics", "server": "s", "on_request": True}]
    told = config(targets=targets)

    def fetcher(url: str, timeout: float, limit: int, **_: object) -> bytes:
        if url.endswith("/version"):
            raise FetchError("none")
        return b"# " + b"x" * (5 * MIB) + b"\na 1\n"

    probed = OnRequest(told, fetcher, budget)
    with budget.scrape(0, 1) as pages, pages.room("other") as room:
        room.take(4 * MIB)
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
            with pages.room(name) as room:
                room.take(8)
                with pytest.raises(OverBudgetError, match="4 targets"):
                    room.take(1)
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
