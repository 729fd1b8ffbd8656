"""The past as OpenMetrics: promtool takes it, the live page goes on from it, signals are there."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from catalog.panel import Panel
from catalog.signals import SIGNALS
from simulator.history import JUDGED, TARGET, write
from simulator.page import Page
from simulator.table import KNOWN, panels
from simulator.world import World

if TYPE_CHECKING:
    from conftest import Server, StartPrometheus

# Not the present: Prometheus keeps ten years.
NOW = 1_700_000_040.0
SPAN = 46 * 3600.0

PAGE = Page(World("none", seed=3, span=3600.0), NOW).text(NOW)
EXPOSED = {re.split(r"[ {]", line, maxsplit=1)[0] for line in PAGE.splitlines()}
# Its counters are there, but nothing to hit: no offloading in this deployment.
MEANINGLESS = {"external_hit_ratio"}
PLAYED = sorted(
    name
    for name, signal in SIGNALS.items()
    if any(EXPOSED & set(m.exposed) for m in signal.metrics) and name not in MEANINGLESS
)
# No router, no probe, no cache beside vLLM; of hosts and GPUs the main readings alone.
BESIDE = (
    "probe_", "log_", "restore", "router_", "pd_share", "cache_", "nixl_", "gpu_", "host_", "numa_",
    "network_", "rdma_", "pcie_", "huge_pages", "container_", "context_switches", "major_faults",
)  # fmt: skip


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("past") / "history.om"
    write(path, "leak", since=NOW - SPAN, until=NOW, step=120.0, seed=3)
    return path


@pytest.fixture(scope="module")
def filled(past: Path, module_prometheus: StartPrometheus) -> Server:
    return module_prometheus(openmetrics=past)


def test_the_live_page_goes_on_where_history_ends(past: Path) -> None:
    """The last value of every series is what the page says at that instant, restarts included.

    Three days are below three million samples, every family is there once, the end is marked.
    """
    end = f" {NOW:.0f}"
    target = ",".join(f'{name}="{value}"' for name, value in TARGET.items()) + ","
    last: dict[str, str] = {}
    families: list[str] = []
    count = 0
    with past.open(encoding="utf-8") as file:
        for line in map(str.rstrip, file):
            count += 1
            if line.endswith(end):
                series, value, _ = line.rsplit(" ", 2)
                last[series.replace(target, "")] = value
            elif line.startswith("# TYPE"):
                families.append(line)
    assert line == "# EOF"
    assert count < 3_000_000 * SPAN / (72 * 3600)
    assert len(families) == len(set(families)) > 40

    # Another length has the same counters: they began with the deployment 44 h ago.
    text = Page(World("leak", seed=3, span=50 * 3600.0), NOW).text(NOW)
    page = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert len(last) > 3000
    assert not [s for s in last if not math.isclose(float(last[s]), float(page[s]), rel_tol=1e-12)]


@pytest.mark.parametrize("name", PLAYED)
def test_every_signal_has_a_past(filled: Server, name: str) -> None:
    """On a real Prometheus each signal that is played has data at the end; judged ones, days."""
    instants = [NOW - 600, NOW] + ([NOW - 45 * 3600, NOW - 20 * 3600] if name in JUDGED else [])
    for at in instants:
        assert filled.query(SIGNALS[name].expr, at=at), f"nothing {NOW - at:.0f} s before the end"


# What a table says otherwise than PromQL, on purpose: it counts events where rates extrapolate.
ROUGH = {"counter_resets", "gauges_frozen", "preemption_rate"}
TABLED = sorted(set(KNOWN) & set(PLAYED) - ROUGH)


@pytest.fixture(scope="module")
def tabled() -> dict[str, Panel]:
    return panels(World("leak", seed=3, span=SPAN), epoch=NOW, since=-1200.0, step=120.0)


@pytest.mark.parametrize("name", TABLED)
def test_a_table_says_what_prometheus_makes_of_the_pages(
    filled: Server, tabled: dict[str, Panel], name: str
) -> None:
    """The same series with the same values, but for what `rate` extrapolates."""
    panel = tabled[name]
    at = NOW - 600.0
    column = int(np.searchsorted(panel.times, at))
    found = {
        frozenset(r["metric"].items()): float(r["value"][1])
        for r in filled.query(SIGNALS[name].expr, at=at)
    }
    values = panel.values[:, column]
    if panel.trials is not None:
        window = slice(column - 2, column + 1)
        values = panel.values[:, window].sum(axis=1) / panel.trials[:, window].sum(axis=1)
    for labels, value in zip(panel.labels, values, strict=True):
        key = frozenset(labels.items())
        if key in found:
            assert value == pytest.approx(found[key], rel=0.06, abs=0.06), labels
    assert found.keys() <= {frozenset(la.items()) for la in panel.labels}


def test_counters_fall_only_where_a_server_began_anew(filled: Server) -> None:
    """The deployment 44 h ago reset every engine once, the second one prefill once more."""
    resets = filled.query(
        "max by (pool) (resets(vllm:time_to_first_token_seconds_count[46h]))", at=NOW
    )
    assert {r["metric"]["pool"]: r["value"][1] for r in resets} == {"prefill": "2", "decode": "1"}
    changes = filled.query(
        "max by (pool) (changes(leadline_process_start_time_seconds[46h]))", at=NOW
    )
    assert {r["metric"]["pool"]: r["value"][1] for r in changes} == {"prefill": "2", "decode": "1"}


def test_all_signals_of_vllm_are_played() -> None:
    """A new one must not go missing unseen, nor one that other programs rely on."""
    missing = set(SIGNALS) - set(PLAYED) - MEANINGLESS
    assert not [m for m in missing if not m.startswith(BESIDE)]
    assert len(PLAYED) > 65


@pytest.mark.parametrize(
    ("since", "step", "message"),
    [(NOW, 60.0, "must begin before it ends"), (NOW - 3600, 1.0, "20 s or more")],
)
def test_a_history_that_is_none_is_refused(
    tmp_path: Path, since: float, step: float, message: str
) -> None:
    """A span or a step that makes no sense is one line that says so, and no file."""
    path = tmp_path / "none.om"
    with pytest.raises(ValueError, match=message):
        write(path, "none", since=since, until=NOW, step=step)
    assert not path.exists()


def test_an_unknown_scenario_is_named(tmp_path: Path) -> None:
    """A typing error says what there is."""
    with pytest.raises(ValueError, match="'leek': did you mean leak"):
        write(tmp_path / "none.om", "leek", since=NOW - 3600, until=NOW)
