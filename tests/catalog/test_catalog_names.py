"""Laws of the catalogue: names, levels and records are what other programs rely on."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.labels import LEVELS, POOLS, pool_of
from catalog.metric import Metric
from catalog.own import OWN
from catalog.signal import Signal
from catalog.signals import METRICS, SIGNALS, signal
from catalog.units import Unit, human, human_duration, parse, spelled

# Other programs rely on these: the list grows and nothing in it is ever renamed.
PROMISED = """
ttft_user_mean ttft_mean ttft_p50 ttft_p90 ttft_p99 tpot_mean tpot_p50 tpot_p99 itl_mean itl_p99
e2e_mean queue_mean prefill_time_mean decode_time_mean request_rate error_ratio input_tokens_rate
output_tokens_rate computed_tokens_rate tokens_per_step requests_running requests_waiting
requests_waiting_capacity kv_fetch_waiting kv_usage prefix_hit_ratio external_hit_ratio
preemption_rate acceptance_ratio acceptance_length acceptance_by_position drafts_rate
transfer_time_mean transfer_bytes_rate transfer_failures_rate leases_expired_rate
restore_bytes_rate host_rss host_anon_swap host_shmem host_threads host_fds container_working_set
container_limit host_memory_used host_memory_total gpu_utilization gpu_memory_activity
gpu_memory_used gpu_power gpu_power_limit gpu_sm_clock gpu_temperature gpu_sm_active
gpu_sm_occupancy gpu_tensor_active gpu_dram_active probe_ttft probe_tpot
""".split()


def test_promised_signals_are_there() -> None:
    """No signal that other programs rely on has gone."""
    assert set(PROMISED) <= set(SIGNALS)


@pytest.mark.parametrize("s", SIGNALS.values(), ids=lambda s: s.name)
def test_a_signal_is_whole(s: Signal) -> None:
    """Known metrics, a recorded name of three parts, and the level's labels in its expression."""
    assert re.fullmatch(r"[a-z]+:leadline_[a-z0-9_]+:[a-z]+(_rate)?(5m)?", s.record)
    assert all(m.name in METRICS for m in s.metrics)
    assert all(m.exposed[-1].split("{")[0] in s.expr or m.name in s.expr for m in s.metrics)
    for label in LEVELS[s.level]:
        assert label in s.expr
    assert s.load == "" or s.load in SIGNALS


@pytest.mark.parametrize("metric", OWN, ids=lambda m: m.name)
def test_our_own_names_follow_the_guidelines(metric: Metric) -> None:
    """Base units, `_total` on counters and nowhere else, a sentence of help."""
    assert metric.name.startswith("leadline_")
    assert metric.name.endswith("_total") == (metric.type == "counter")
    assert metric.help.endswith(".")


def test_no_label_of_ours_is_prometheus_own() -> None:
    """`instance` and `job` are the scrape's: ours would replace them, or be renamed."""
    for metric in OWN:
        assert not {"instance", "job"} & {*metric.labels}, metric.name


def test_an_unknown_signal_names_the_nearest() -> None:
    """One line with the right name."""
    with pytest.raises(ValueError, match=r"unknown signal 'tpot_men': did you mean 'tpot_mean'\?"):
        signal("tpot_men")


@pytest.mark.parametrize(
    ("known", "pool"),
    [
        ({"configured": "prefill", "kv_role": "kv_consumer"}, "prefill"),
        ({"role_label": "decode", "kv_role": "kv_producer"}, "decode"),
        ({"kv_role": "kv_producer"}, "prefill"),
        ({"kv_role": "kv_consumer"}, "decode"),
        ({"kv_role": "kv_both"}, "unknown"),
        ({"kv_connector": False}, "aggregate"),
        # Without a connector no KV comes or goes, whatever the label of a pod says.
        ({"role_label": "decode", "kv_connector": False}, "aggregate"),
        ({"role_label": "decode", "kv_connector": True}, "decode"),
        ({"role_label": "encode", "kv_connector": False}, "encode"),
        ({"role_label": "decode", "kv_connector": False, "configured": "decode"}, "decode"),
        ({}, "unknown"),
    ],
)
def test_a_pool_is_known_or_unknown_but_never_guessed(known: dict[str, str], pool: str) -> None:
    """Configuration, then the pod's label, then kv_role, in that order."""
    assert pool_of(**known) == pool  # type: ignore[arg-type]
    assert pool in POOLS


@given(st.floats(1e-3, 1e15), st.sampled_from(["GiB", "MB", "KiB", "B"]))
def test_sizes_survive_writing_and_reading(value: float, suffix: str) -> None:
    """What is parsed is the number times its unit."""
    factor = {"GiB": 2**30, "MB": 1e6, "KiB": 1024, "B": 1}[suffix]
    assert parse(f"{value!r}{suffix}", "bytes") == pytest.approx(value * factor)


@given(st.floats(1e-9, 1e15), st.sampled_from(["seconds", "bytes", "ratio"]))
def test_what_is_spelled_is_read_back_exactly(value: float, unit: Unit) -> None:
    """A configuration that is written by a program is the one that it has."""
    assert parse(spelled(value, unit), unit) == value


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.02, "seconds", "20ms"), (2.5, "seconds", "2.5s"), (90.0, "seconds", "90s"),
        (604800.0, "seconds", "1w"), (64 * 2.0**30, "bytes", "64GiB"), (0.4, "ratio", "0.4"),
    ],
)  # fmt: skip
def test_amounts_are_spelled_as_people_write_them(value: float, unit: Unit, text: str) -> None:
    """The shortest of the exact ways."""
    assert spelled(value, unit) == text


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_any_number_can_be_said(value: float) -> None:
    """NaN and infinity are words, never a crash or an empty string."""
    assert human_duration(value)
    assert human(value, "bytes/hour")
    assert human(value, "ratio")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.702e9, "hertz", "1,702 MHz"), (450.81, "watts", "450.8 W"),
        (111_694.0, "tokens_per_second", "111,694 tokens/s"), (13.84, "per_second", "13.84 /s"),
        (47.72, "celsius", "47.72 °C"),
    ],
)  # fmt: skip
def test_numbers_are_said_as_people_write_them(value: float, unit: str, text: str) -> None:
    """No exponents, and a unit's sign."""
    assert human(value, unit) == text
