"""The finding as an interface: keys, JSON, identity, and its table."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.finding import Finding, finding_id
from detectors.finding_table import render

KEYS = (
    "id kind verdict detector signal labels as_of since effect effect_low effect_high effect_unit "
    "limit time_to_breach time_to_breach_low time_to_breach_high severity state cause evidence "
    "runbook"
).split()


def _finding(**changes: object) -> Finding:
    base: dict[str, object] = {
        "id": "f00d", "kind": "leak", "verdict": "leak", "detector": "leak",
        "signal": "host_anon_swap", "as_of": 1.7e9, "since": 1.7e9 - 3600,
        "labels": {"deployment": "chat", "pool": "decode", "server": "n7:8000",
                   "process": "engine_core", "rank": "DP3"},
        "effect": 2.0**30, "effect_low": 0.9 * 2**30, "effect_high": 1.1 * 2**30,
        "effect_unit": "bytes/hour", "limit": 64 * 2.0**30, "time_to_breach": 36000.0,
        "time_to_breach_low": 32000.0, "time_to_breach_high": None, "severity": "page",
        "state": "firing", "cause": "It grows.", "runbook": "LeadlineLeak",
    }  # fmt: skip
    return Finding.from_dict({**base, **changes})


def test_has_exactly_the_keys_of_the_contract_in_order() -> None:
    """Other programs read these keys: none may go or change its name."""
    assert list(_finding().to_dict()) == KEYS


@settings(max_examples=40)
@given(
    number=st.one_of(st.none(), st.floats()),
    text=st.text(),
    items=st.lists(st.floats(), max_size=3),
)
def test_survives_json_and_writes_unknown_numbers_as_null(
    number: float | None, text: str, items: list[float]
) -> None:
    """Whatever the numbers, the JSON is strict and comes back as the same finding."""
    evidence = {"a": np.float64(1.5), "b": np.array([1, 2]), "c": tuple(items), text: {"d": number}}
    data = _finding(effect=number, cause=text, evidence=evidence).to_dict()
    again = json.loads(json.dumps(data, allow_nan=False))
    assert Finding.from_dict(again).to_dict() == data
    assert (data["effect"] is None) == (number is None or not math.isfinite(number))


def test_refuses_words_outside_the_contract() -> None:
    """A kind, verdict, severity or state that nobody knows is an error where it is made."""
    with pytest.raises(ValueError, match="severity 'urgent'"):
        _finding(severity="urgent")


def test_ignores_keys_of_a_later_version() -> None:
    """A ledger written by a newer version can still be read."""
    data = {**_finding().to_dict(), "added_later": 1}
    assert Finding.from_dict(data) == _finding()


def test_id_depends_on_identity_and_start_only() -> None:
    """Order and empty labels don't matter; another start is another finding."""
    one = finding_id("leak", "host_anon_swap", {"pool": "decode", "rank": ""}, 100.2)
    two = finding_id("leak", "host_anon_swap", {"pool": "decode"}, 100.9)
    assert one == two != finding_id("leak", "host_anon_swap", {"pool": "decode"}, 200.0)


def test_table_is_aligned_and_says_what_is_known() -> None:
    """Severity, place, change with interval, time left with interval; unknowns in words."""
    blind = _finding(kind="unknown", verdict="unknown", state="watch", cause="No data.")
    text = render([_finding(), _finding(state="watch", limit=None, time_to_breach=None), blind])
    head, first, second, last = text.splitlines()
    assert head.index("where") == first.index("chat/decode/n7:8000 engine_core DP3")
    assert first.startswith("page")
    assert "1.0 GiB/h [921.6 MiB/h, 1.1 GiB/h]" in first
    assert "10 h [8.9 h, never]" in first
    assert second.startswith("watch")
    assert "no limit known" in second
    assert last == "not judged: chat/decode/n7:8000 engine_core DP3: No data."
    assert render([]) == "No findings."


def test_table_says_who_is_unlike_whom_in_what() -> None:
    """A straggler has its signal, the two that differ, and its share in percent."""
    unlike = _finding(
        kind="straggler", labels={"pool": "decode"}, signal="tpot_mean", effect_unit="ratio",
        effect=0.2, effect_low=0.1, effect_high=0.3, evidence={"between": ["n1:1", "n2:1"]},
    )  # fmt: skip
    _, row = render([unlike]).splitlines()
    assert re.search(r"tpot_mean +decode: n1:1 or n2:1 +\+20 % \[\+10 %, \+30 %\]", row)
    named = replace(unlike, evidence={"odd": "n1:1"})
    assert "decode: n1:1  " in render([named])


def test_labels_cannot_split_a_row_or_reach_the_terminal() -> None:
    """Newlines and escape sequences of a label or cause are shown, not obeyed."""
    evil = {"deployment": "a\nb", "server": "\x1b[2Jn1"}
    blind = _finding(kind="unknown", verdict="unknown", labels=evil, cause="No\r\ndata.")
    text = render([_finding(labels=evil), blind])
    assert len(text.splitlines()) == 3
    assert all(line.isprintable() for line in text.splitlines())
    assert r"a\nb/\x1b[2Jn1" in text
