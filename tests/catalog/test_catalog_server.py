"""Signals of single servers on a real Prometheus: who is slow, and what was started when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from catalog.signals import SIGNALS

if TYPE_CHECKING:
    from conftest import Server, StartPrometheus

T0 = 1_700_000_040
MINUTES = 12
AT = T0 + 60 * (MINUTES - 1)
TTFT = "vllm:time_to_first_token_seconds"
TPOT = "vllm:request_time_per_output_token_seconds"
ITL = "vllm:inter_token_latency_seconds"
FINISHED = "vllm:request_success_total"
INFO = "leadline_instance_info"
START = "leadline_instance_start_time_seconds"
SETUP = {"image": "vllm:1", "vllm_version": "0.32.0", "arguments": "a1"}


def _row(name: str, values: list[float | None], **labels: str) -> list[str]:
    inner = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return [
        f"{name}{{{inner}}} {value!r} {T0 + 60 * minute}"
        for minute, value in enumerate(values)
        if value is not None
    ]


def _counts(name: str, mean: float, a_minute: float, **labels: str) -> list[str]:
    """Return a histogram of so many observations a minute with this mean, by two engines."""
    rows: list[str] = []
    for engine in ("0", "1"):
        count = [a_minute * minute / 2 for minute in range(MINUTES)]
        rows += _row(f"{name}_sum", [mean * n for n in count], engine=engine, **labels)
        rows += _row(f"{name}_count", [*count], engine=engine, **labels)
    return rows


@pytest.fixture(scope="module")
def fleet(module_prometheus: StartPrometheus) -> Server:
    """Two decode servers of which one is slow and was given a new image, and one prefill server."""
    place: dict[str, Any] = {"deployment": "chat", "model_name": "glm", "node": "n"}
    rows: list[str] = []
    for name, pool, slow in (("d1:8000", "decode", 1.0), ("d2:8000", "decode", 1.5),
                             ("p1:8000", "prefill", 1.0)):  # fmt: skip
        server = {**place, "server": name, "pool": pool}
        rows += _counts(TTFT, 0.2 * slow, 60, **server)
        rows += _counts(TPOT, 0.01 * slow, 60, **server)
        rows += _counts(ITL, 0.03 * slow, 600, **server)
        rows += _row(FINISHED, [30.0 * slow * m for m in range(MINUTES)], **server)
        began = [1000.0] * MINUTES if slow == 1 else [1000.0] * 6 + [float(T0 + 300)] * 6
        for way in ("a", "b"):  # read by two exporters: still one server
            rows += _row(START, [*began], **server, instance=way)
            old = [1.0] * MINUTES if slow == 1 else [1.0] * 6 + [None] * 6
            rows += _row(INFO, [*old], **server, **SETUP, instance=way)
            if slow != 1:
                new = {**SETUP, "image": "vllm:2"}
                rows += _row(INFO, [None] * 6 + [1.0] * 6, **server, **new, instance=way)
    return module_prometheus(openmetrics="\n".join([*rows, "# EOF\n"]))


def _told(fleet: Server, name: str, at: int = AT) -> dict[str, float]:
    found = {}
    for sample in fleet.query(SIGNALS[name].expr, at=at):
        assert set(sample["metric"]) <= set(SIGNALS[name].labels)
        found[sample["metric"]["server"]] = float(sample["value"][1])
    return found


@pytest.mark.parametrize(
    ("name", "mean"),
    [("ttft_mean_by_server", 0.2), ("tpot_mean_by_server", 0.01), ("itl_mean_by_server", 0.03)],
)
def test_a_latency_by_server_is_its_own_engines_mean(fleet: Server, name: str, mean: float) -> None:
    """Engines are one server's; what prefill only pretends to measure is left out."""
    want = {"d1:8000": mean, "d2:8000": 1.5 * mean}
    if name.startswith("ttft"):
        want["p1:8000"] = mean
    assert _told(fleet, name) == pytest.approx(want)
    assert SIGNALS[SIGNALS[name].load].level in {"server", "engine"}


def test_requests_by_server_are_a_second_each(fleet: Server) -> None:
    """The load of a server among its peers."""
    want = {"d1:8000": 0.5, "d2:8000": 0.75, "p1:8000": 0.5}
    assert _told(fleet, "request_rate_by_server") == pytest.approx(want)


def test_a_start_says_what_was_started(fleet: Server) -> None:
    """One series a setup: a new image is a new series with a later start; the others go on."""
    before = {s["metric"]["image"]: s for s in fleet.query(SIGNALS["instance_start"].expr, at=T0)}
    assert set(before) == {"vllm:1"}
    # Five minutes later Prometheus has forgotten the series that is gone.
    now = {
        (s["metric"]["server"], s["metric"]["image"]): float(s["value"][1])
        for s in fleet.query(SIGNALS["instance_start"].expr, at=AT)
    }
    assert now["d1:8000", "vllm:1"] == now["p1:8000", "vllm:1"] == 1000
    assert now["d2:8000", "vllm:2"] == T0 + 300
    assert {len(s["metric"]) for s in before.values()} == {7}
