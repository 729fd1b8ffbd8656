"""Pages of the programs beside vLLM: identity on every line, and no label without a bound.

Pages of routers and GPUs are written by hand in the names that the projects document; those of NIXL
are live ones of 1.5.1, after one of two agents had given its memory back.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from catalog.config import Config
from catalog.config_targets import KINDS
from catalog.signals import SIGNALS
from exporters.fold import MAX_VALUES, Bounds, Folder
from exporters.peers import BOUNDS
from exporters.scrape import Exporter
from stack.configs import Job

if TYPE_CHECKING:
    from conftest import StartPrometheus

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"

Make = Callable[..., Config]
Samples = dict[str, list[tuple[dict[str, str], float]]]


def epp(tenants: int, *, requests: int = 10, models: int = 1) -> bytes:
    """Return a page of llm-d's router with so many tenants, each with so many requests."""
    name = "llm_d_epp_request_ttft_seconds"
    lines = [
        "# HELP llm_d_epp_request_total [ALPHA] Counter of requests.",
        "# TYPE llm_d_epp_request_total counter",
        f"# TYPE {name} histogram",
        "# TYPE llm_d_epp_flow_control_queue_size gauge",
        "# TYPE llm_d_epp_flow_control_pool_saturation gauge",
        'llm_d_epp_flow_control_pool_saturation{inference_pool="p",stage="decode"} 0.5',
        "# TYPE llm_d_epp_scheduler_attempts_total counter",
        'llm_d_epp_scheduler_attempts_total{status="success",namespace="prod",port="8000"} 7',
    ]
    for model in range(models):
        for tenant in range(tenants):
            labels = (
                f'fairness_id="t{tenant}",model_name="m{model}",priority="0",'
                f'target_model_name="m{model}"'
            )
            lines += [
                f"llm_d_epp_request_total{{{labels}}} {requests}",
                f'{name}_bucket{{{labels},streaming="true",le="0.5"}} {requests // 2}',
                f'{name}_bucket{{{labels},streaming="true",le="+Inf"}} {requests}',
                f'{name}_sum{{{labels},streaming="true"}} {requests * 0.4}',
                f'{name}_count{{{labels},streaming="true"}} {requests}',
                f'llm_d_epp_flow_control_queue_size{{{labels},inference_pool="p"}} 2',
            ]
    return ("\n".join(lines) + "\n").encode()


DCGM = b"""# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",hostname="pod-x",modelName="H200",namespace="prod"} 50
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-1",hostname="pod-x",modelName="H200"} 600
"""


def samples(text: str) -> Samples:
    """Return a page's samples by name."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def targets(fakes: Any, **pages: bytes) -> list[dict[str, str]]:
    """Serve pages, and return a target for each, its kind being its name."""
    fakes.pages = pages
    return [
        {"url": fakes.url(kind), "kind": kind, "deployment": "glm", "server": f"{kind}:9090"}
        for kind in pages
    ]


def test_tenants_are_added_up_and_counted(fakes: Any, config: Make) -> None:
    """A thousand of them are one series; every other label and line is there, with identity."""
    exporter = Exporter(config(targets=targets(fakes, router=epp(1000))))
    found = samples(exporter.page().decode())
    exporter.close()
    ((labels, total),) = found["llm_d_epp_request_total"]
    assert total == 10_000
    assert labels == {
        "cluster": "c1", "deployment": "glm", "pool": "router", "server": "router:9090",
        "model_name": "m0", "target_model_name": "m0", "priority": "0",
    }  # fmt: skip
    name = "llm_d_epp_request_ttft_seconds"
    assert [v for _, v in found[f"{name}_bucket"]] == [5000, 10_000]
    assert found[f"{name}_sum"][0][1] == pytest.approx(4000)
    assert found["llm_d_epp_flow_control_queue_size"][0][1] == 2000
    ((attempts, _),) = found["llm_d_epp_scheduler_attempts_total"]
    assert attempts["namespace"] == "prod"
    folded = {labels["label"]: n for labels, n in found["leadline_folded_series"]}
    assert folded == {"fairness_id": 6000}
    assert ({**base(labels), "kind": "router"}, 1.0) in found["leadline_peer_up"]
    assert "leadline_target_up" not in found


def base(labels: dict[str, str]) -> dict[str, str]:
    """Return the identity among labels."""
    return {k: labels[k] for k in ("cluster", "deployment", "pool", "server")}


def test_names_that_clients_choose_are_capped_for_good(fakes: Any, config: Make) -> None:
    """The first hundred stay themselves, later ones are `other`: no counter falls."""
    exporter = Exporter(config(targets=targets(fakes, router=epp(1, models=90))))
    exporter.page()
    before: dict[str, float] = {}
    for requests in (20, 30):
        lines = epp(1, requests=requests, models=400).decode().split("\n")
        fakes.pages["router"] = "\n".join([*lines[:8], *reversed(lines[8:-1]), ""]).encode()
        found = samples(exporter.page().decode())["llm_d_epp_request_total"]
        now = {labels["model_name"]: value for labels, value in found}
        assert len(now) == MAX_VALUES + 1
        assert {f"m{n}" for n in range(90)} < now.keys()
        assert now["other"] == 300 * requests
        assert all(now[model] >= value for model, value in before.items())
        before = now
    exporter.close()


def test_one_that_is_down_says_so_and_leaves_the_rest(fakes: Any, config: Make) -> None:
    """By its kind; no line of its page stays."""
    exporter = Exporter(config(targets=targets(fakes, router=epp(1), lmcache=b"a 1\n")))
    exporter.page()
    del fakes.pages["router"]
    found = samples(exporter.page().decode())
    exporter.close()
    up = {labels["kind"]: value for labels, value in found["leadline_peer_up"]}
    assert up == {"router": 0, "lmcache": 1}
    assert "llm_d_epp_request_total" not in found
    assert found["a"][0][0]["server"] == "lmcache:9090"


def test_signals_read_the_pages_that_were_passed_on(
    fakes: Any, config: Make, serve: Callable[[Exporter], str], prometheus: "StartPrometheus"
) -> None:
    """A real Prometheus scrapes the exporter: the user's wait from the router, GPUs from DCGM."""
    nixl = (FIXTURES / "peers" / "nixl_151_multi.prom").read_bytes()
    wanted = targets(fakes, router=epp(3), dcgm=DCGM, nixl=nixl)
    url = serve(Exporter(config(targets=wanted)))
    server = prometheus(jobs=[Job("leadline", [url.split("/")[2]])])
    deadline = time.monotonic() + 60
    found: list[dict[str, Any]] = []
    requests = 10
    while not found and time.monotonic() < deadline:
        requests += 10
        fakes.pages["router"] = epp(3, requests=requests)
        found = server.query(SIGNALS["ttft_user_mean"].expr)
        time.sleep(0.5)
    ((labels, value),) = [(f["metric"], float(f["value"][1])) for f in found]
    assert value == pytest.approx(0.4)
    assert labels == {"cluster": "c1", "deployment": "glm", "model_name": "m0", "source": "router"}
    (gpu,) = server.query(SIGNALS["gpu_utilization"].expr)
    assert (gpu["metric"], gpu["value"][1]) == (
        {"cluster": "c1", "node": "node7", "gpu": "0", "uuid": "GPU-1"}, "0.5",
    )  # fmt: skip
    (registered,) = server.query(SIGNALS["nixl_registered"].expr)
    assert float(registered["value"][1]) == 2**20
    assert registered["metric"]["server"] == "nixl:9090"
    (arrived,) = server.query('count({__name__=~"llm_d_epp.*|DCGM.*"})')
    assert float(arrived["value"][1]) == 10


tenant = st.sampled_from(["a", "b", 'with \\" quote', "ü"])
row = st.tuples(st.sampled_from(["x_total", "y_total"]), st.integers(0, 9), tenant,
                st.integers(0, 10**6))  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.tuples(row.map(lambda r: r[:3])), st.integers(0, 10**6), max_size=20))
def test_nothing_is_lost_in_adding_up(rows: dict[Any, int]) -> None:
    """The sum over a counter stays what it was, whatever label goes."""
    lines = [f'{n}{{kept="{k}",gone="{g}"}} {v}' for ((n, k, g),), v in rows.items()]
    folder = Folder(Bounds(dropped=frozenset({"gone"})))
    page = ("# TYPE x_total counter\n" + "\n".join(lines) + "\n").encode()
    after = samples(folder.fold(page).decode())
    before = samples(page.decode())
    for name, values in before.items():
        assert sum(v for _, v in after[name]) == sum(v for _, v in values)
        assert all("gone" not in labels for labels, _ in after[name])
        assert len({labels["kept"] for labels, _ in after[name]}) == len(after[name])


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=120), st.sampled_from(sorted(BOUNDS)))
def test_any_page_can_be_folded(data: bytes, kind: str) -> None:
    """Rubbish stays rubbish for the splicer to count."""
    Folder(BOUNDS[kind]).fold(data)
    Folder(BOUNDS[kind]).fold(b'a{fairness_id="' + data + b'"} 1\nb{cache_salt="1"} NaN\n')


def test_every_kind_has_its_bounds() -> None:
    """A kind that is configured is one whose labels were thought about."""
    assert {"vllm", *BOUNDS} == set(KINDS)
