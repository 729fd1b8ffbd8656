"""`leadline detect --input`: what a pipeline sees, by exit code and lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

KEYS = """
id kind verdict detector signal labels as_of since effect effect_low effect_high
effect_unit limit time_to_breach time_to_breach_low time_to_breach_high severity state
cause evidence runbook
""".split()
HOUR = 3600.0


def _detect(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "leadline", "detect", *map(str, arguments)]
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=root
    )


def _memory(growth: float) -> pd.DataFrame:
    """Return two days of an engine core that grows by *growth* bytes an hour since noon."""
    rng = np.random.default_rng(7)
    times = 1_795_000_000 + np.arange(0, 48 * HOUR, 60.0)
    grown = growth / HOUR * np.clip(times - times[0] - 24 * HOUR, 0, None)
    return pd.DataFrame({
        "time": times, "signal": "host_anon_swap",
        "value": 40e9 + grown + rng.normal(0, 2e7, len(times)),
        "deployment": "glm", "pool": "decode", "server": "n4:8000", "process": "engine_core",
        "rank": "DP3",
    })  # fmt: skip


@pytest.fixture
def leak(tmp_path: Path) -> Path:
    """Return a table with a leak of 1 GiB/h."""
    path = tmp_path / "leak.parquet"
    _memory(2.0**30).to_parquet(path)
    return path


def test_a_leak_in_a_file_exits_with_1_and_says_what_is_left(leak: Path) -> None:
    """The keys that other programs rely on, and a time to the limit within its interval."""
    done = _detect("--input", leak, "--limit", "host_anon_swap=96GiB", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    (finding,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert set(KEYS) <= set(finding)
    assert (finding["kind"], finding["state"]) == ("leak", "firing")
    assert finding["labels"]["rank"] == "DP3"
    assert finding["effect_unit"] == "bytes/hour"
    assert finding["effect_low"] < 2.0**30 < finding["effect_high"]
    left = (96 * 2**30 - 40e9 - 24 * 2**30) / 2**30 * HOUR
    assert finding["time_to_breach_low"] * 0.95 < left < finding["time_to_breach_high"] * 1.05
    assert finding["severity"] == "ticket"


def test_without_a_limit_a_leak_is_still_found(leak: Path) -> None:
    """Its rate is known, its time to breach is not: null, and words in the table."""
    done = _detect("--input", leak, "--json")
    assert done.returncode == 1
    finding = json.loads(done.stdout)
    assert finding["limit"] is finding["time_to_breach"] is None
    assert "no limit known" in _detect("--input", leak).stdout


def test_a_quiet_file_exits_with_0(tmp_path: Path) -> None:
    """Judged, nothing found; each series counts once, however many detectors look at it."""
    _memory(0.0).to_csv(tmp_path / "quiet.csv", index=False)
    assert _detect("--input", tmp_path / "quiet.csv").stdout == "No findings.\n1 series judged.\n"
    done = _detect("--input", tmp_path / "quiet.csv", "--json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("rows", [slice(0, 5), slice(0, 0)])
def test_too_little_to_judge_exits_with_3(tmp_path: Path, rows: slice) -> None:
    """Five points, or none at all, are unknown: never healthy."""
    _memory(0.0)[rows].to_csv(tmp_path / "short.csv", index=False)
    done = _detect("--input", tmp_path / "short.csv")
    assert done.returncode in {2, 3}
    assert (done.returncode == 3) == (rows.stop > 0)
    assert done.stderr.strip()


def test_a_signal_that_no_detector_judges_is_not_called_healthy(tmp_path: Path) -> None:
    """A table of another signal alone exits with 3 and says so."""
    for name in ("request_rate", "itl_mean"):  # none, and one that has no limit
        table = _memory(0.0).assign(signal=name, value=0.012)
        table.to_csv(tmp_path / "other.csv", index=False)
        done = _detect("--input", tmp_path / "other.csv")
        assert done.returncode == 3
        assert f"{name}: no detector judges it" in done.stderr
    assert _detect("--input", tmp_path / "other.csv", "--sla", "itl_mean=50ms").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--input", "nowhere.csv"], ["nowhere.csv", "No such file"]),
        (["--input", "{leak}", "--limit", "host_anon_swp=1GiB"], ["did you mean"]),
        (["--input", "{leak}", "--limit", "host_anon_swap"], ["--limit", "SIGNAL=VALUE"]),
        (["--input", "{leak}", "--sla", "tpot_mean=fast"], ["'fast'"]),
        (["--prometheus", "http://127.0.0.1:9", "--last", "1h"], ["127.0.0.1:9"]),
        (["--prometheus", "http://127.0.0.1:9", "--last", "soon"], ["'soon'"]),
    ],
)
def test_what_cannot_run_is_one_line_and_exits_with_2(
    leak: Path, arguments: list[str], words: list[str]
) -> None:
    """The value, and what to do about it."""
    done = _detect(*[a.format(leak=leak) for a in arguments])
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    for word in words:
        assert word in done.stderr
