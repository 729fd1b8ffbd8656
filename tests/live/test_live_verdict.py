"""What a live run counts as the page, and what as a false alarm."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import httpx

from benchmarks.live.alerts import Alert
from benchmarks.live.watch import Said, listen

LABELS = {
    "alertname": "LeadlineLeak",
    "deployment": "live",
    "pool": "decode",
    "kind": "leak",
    "severity": "page",
}
TOLD = {
    "summary": "pool decode of live: EngineCore leaks host memory, 2.3 GiB/h, about 26 min left",
    "description": "EngineCore in pool decode leaks host memory at 2.3 GiB/h.",
    "cause": "The private memory of decode engine_core has grown steadily.",
    "runbook_url": "http://127.0.0.1/runbooks/worker",
}
PAGE = Alert(LABELS, TOLD, "2026-01-01T00:00:00Z")


def _but(labels: dict[str, str] | None = None, **told: str) -> Alert:
    return dataclasses.replace(PAGE, labels=LABELS | (labels or {}), annotations=TOLD | told)


def _finding(pool: str, process: str, state: str = "firing") -> dict[str, Any]:
    labels = {"pool": pool, "process": process}
    return {"state": state, "labels": labels, "signal": "host_anon_swap"}


def test_the_page_names_pool_process_rate_and_time() -> None:
    """Each of them is needed, and links are no part of what is told."""
    assert PAGE.is_the_page()
    assert not _but({"pool": "prefill"}).is_the_page()
    assert not _but({"severity": "ticket"}).is_the_page()
    assert not _but({"kind": "falling"}).is_the_page()
    timeless = {"summary": "EngineCore leaks 2.3 GiB/h", "description": "", "cause": ""}
    assert not _but(None, **timeless).is_the_page()
    rateless = {"summary": "EngineCore leaks, 26 min left", "description": "", "cause": ""}
    assert not _but(None, **rateless).is_the_page()
    assert not _but(None, cause="worker and engine_core leak").is_the_page()


def test_other_alerts_and_findings_about_others_are_false_alarms() -> None:
    """A lower severity of the same leak is not false; prefill, workers and anything else are."""
    said = Said()
    others = [_but({"pool": "prefill"}), _but(None, cause="API server"), _but({"kind": "falling"})]
    said.hear([_but({"severity": "ticket"}), *others], [], now=1.0)
    assert said.page is None
    assert set(said.false) == {alert.key for alert in others}
    said.hear(
        [PAGE], [_finding("decode", "engine_core"), _finding("decode", "worker", "watch")], 2.0
    )
    assert said.paged_at == said.fired_at == 2.0
    assert not said.accused
    said.hear([PAGE], [_finding("prefill", "engine_core")], now=3.0)
    assert (said.paged_at, said.accused) == (2.0, {("prefill", "engine_core")})


def test_listening_outlives_a_busy_server_and_goes_on_after_the_page(monkeypatch: Any) -> None:
    """One failed look is no end; what comes late, within the hold, is still heard."""
    clock = [0.0]
    monkeypatch.setattr("time.time", lambda: clock[0])
    monkeypatch.setattr("time.sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    looks: Iterator[Any] = iter(
        [httpx.ReadTimeout("busy"), ([PAGE], []), ([PAGE, _but({"pool": "prefill"})], [])]
    )

    def look() -> Any:
        got: Any = next(looks, ([PAGE], []))
        if isinstance(got, Exception):
            raise got
        return got

    said = listen(look, lambda: None, deadline=100.0, hold=20.0)
    assert said.paged_at == 5.0
    assert clock[0] == 25.0
    assert len(said.false) == 1
    assert listen(lambda: ([], []), lambda: None, deadline=30.0, hold=5.0).page is None
