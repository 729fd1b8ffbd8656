"""The event simulation gives S3's tables: 10 % where it was fitted, 20 % where it predicts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from simulator.calibration import CASES, COSTS, Case, play, read
from simulator.events import KV_BYTES, Cluster, Outcome, Setup
from simulator.station import Cache, Decode, Request

FITTED, PREDICTED = 0.10, 0.20


@cache
def played(case_name: str) -> Outcome:
    return play(next(case for case in CASES if case.name == case_name))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tables_are_reproduced(case: Case) -> None:
    """Both columns are printed; with `-s` they are seen."""
    ours = read(played(case.name))
    bar = FITTED if case.fitted else PREDICTED
    errors = {what: ours[what] / told - 1.0 for what, told in case.told.items()}
    for what, error in errors.items():
        said = f"S3 {case.told[what]:8g} ours {ours[what]:8.4g} {error:+.1%}"
        print(f"{case.name:20} {what:7} {said} (bar {bar:.0%})")
    assert {what: error for what, error in errors.items() if abs(error) > bar} == {}


def test_drafts_and_width_do_what_s3_says() -> None:
    """MTP halves the time per token; a second decoder raises output, more prefill the first."""
    off, on = (read(played(f"1P1D {name} c128")) for name in ("offload", "MTP"))
    assert on["tpot"] / off["tpot"] == pytest.approx(0.48, abs=0.06)
    one, two, more = (read(played(f"{name} c128")) for name in ("3P1D", "2P2D", "3P2D"))
    assert more["output"] > 1.1 * one["output"]
    assert more["ttft"] < two["ttft"]
    assert played("1P1D MTP c128").hit_ratio == pytest.approx(0.91, abs=0.04)


def test_a_full_cache_restores_or_computes_anew() -> None:
    """Where prompts outgrow the GPU's cache the tier restores them; without it they queue."""
    case = next(case for case in CASES if case.name == "1P1D MTP c64")
    small = replace(case.setup, room=120_000.0)
    tier = play(replace(case, setup=small), count=1500)
    none = play(replace(case, setup=replace(small, offload=False)), count=1500)
    assert tier.restored > 1e9
    assert none.restored == 0.0
    assert tier.hit_ratio < 0.7 * played(case.name).hit_ratio
    assert np.median(none.ttft) > 2 * np.median(tier.ttft)
    assert none.waiting > tier.waiting
    assert none.output_rate < 0.8 * tier.output_rate
    assert np.median(none.tpot) == pytest.approx(np.median(tier.tpot), rel=0.35)


def test_one_request_alone_costs_what_its_parts_cost() -> None:
    """Router, prefill, transfer, hand-over and steps of a batch of one, to the last digit."""
    setup = Setup(drafts=3)
    one = Request(session=0, prompt=40_000.0, reused=0.0, output=300.0, arrived=5.0)
    outcome = Cluster(setup, COSTS).run([one], lambda *_: None, count=1, warm=0)
    [done] = outcome.requests
    prefill = COSTS.fixed + 40_000.0 / COSTS.speed
    first = COSTS.base + prefill + 40_000.0 * KV_BYTES / COSTS.link
    assert done.first - 5.0 == pytest.approx(first)
    step = COSTS.step_time(setup)(1, 40_150.0)
    assert done.done - done.first == pytest.approx(COSTS.hand + 300.0 * step / 2.97)


def test_a_decoder_without_free_blocks_lets_requests_wait() -> None:
    """The second of two that don't fit together begins when the first is done."""
    decoder = Decode(lambda _batch, _context: 0.05, length=1.0, most=64, room=1_000.0)
    one, two = (Request(i, prompt=800.0, reused=0.0, output=10.0, arrived=0.0) for i in (1, 2))
    decoder.add(one, 0.0)
    decoder.add(two, 0.0)
    assert decoder.active == 2
    assert decoder.next() == pytest.approx(0.5)
    assert decoder.pop(0.5) is one
    assert decoder.next() == pytest.approx(1.0)
    assert decoder.pop(1.0) is two


def test_the_least_recently_used_prefix_leaves_first() -> None:
    """What leaves the GPU is found in the tier, what leaves the tier nowhere; nothing is lost."""
    cache = Cache(room=100.0, tier=100.0)
    for session in (1, 2, 3):
        cache.keep(session, 40.0)
    assert cache.find(1, 30.0) == (0.0, 30.0)
    assert cache.find(2, 50.0) == (40.0, 0.0)
    cache.keep(4, 40.0)
    assert cache.find(3, 40.0) == (0.0, 40.0)
    for session in (5, 6, 7, 8):
        cache.keep(session, 40.0)
    assert cache.find(1, 30.0) == (0.0, 0.0)
    assert cache.used <= 100.0
    assert cache.stored <= 100.0


def test_the_same_seed_is_the_same_run() -> None:
    """Twice the same; another seed is another run."""
    case = CASES[3]
    a, b, other = (read(play(case, seed=seed, count=300)) for seed in (5, 5, 6))
    assert a == b
    assert a != other
