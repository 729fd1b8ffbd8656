"""Holds the four peers that are written in PromQL to a real Prometheus, on a few series.

Their numpy form serves thousands of series; here both are asked about the same samples, once with
the expression as Prometheus evaluates it. Ranges of Prometheus 2 hold both ends, those of 3 one.
"""

from __future__ import annotations

import json
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.detect_cases import leak
from benchmarks.detect_real import LIMIT, Hosts
from benchmarks.peers import grafana, predict_linear, static
from benchmarks.peers.peer import DAY, HOUR, View
from benchmarks.peers.rolling import predicted
from catalog.panel import FloatArray
from stack import configs, programs, servers
from stack.errors import StackError

ORIGIN = 1_700_006_400.0  # a whole day, so that subqueries meet the samples
CLOSE = 1e-7
SHOWN = 4
MINUTE = 60.0


def check(hosts: Hosts, seed: int) -> list[str]:
    """Return a line for the results: how many answers were compared, and how many differ."""
    if hosts.step != MINUTE:
        return []
    values = _series(hosts, seed)
    ends = np.arange(3000, values.shape[1], 1045) // 5 * 5 + 1  # known points: newest is at :00
    ours = _ours(View(values, MINUTE, ends, LIMIT))
    try:
        with _prometheus(values) as url:
            version = str(_get(url, "/api/v1/status/buildinfo")["data"]["version"])
            if not version.startswith("2."):
                return [f"Emulation of PromQL: not compared, Prometheus {version} is no 2.x."]
            theirs = {name: _theirs(url, text, len(values), ends)
                      for name, text in EXPRESSIONS.items()}  # fmt: skip
    except StackError as error:
        return [f"Emulation of PromQL: not compared, {error}."]
    differ = {
        name: int((~np.isclose(ours[name], theirs[name], rtol=CLOSE, equal_nan=True)).sum())
        for name in EXPRESSIONS
    }
    fired = int(sum(np.nansum(theirs[name]) for name in ALERTS))
    wrong = ", ".join(f"{name}: {count}" for name, count in differ.items() if count)
    known = sum(int(np.isfinite(v).sum()) for v in theirs.values())
    return [
        f"The peers in PromQL are evaluated in numpy; beside a real Prometheus {version}: "
        f"{known} answers of {len(EXPRESSIONS)} expressions on "
        f"{len(values)} series ({fired} of them alerts), "
        + (f"**that differ: {wrong}**." if wrong else f"all equal within {CLOSE:g}.")
    ]


ALERTS: Mapping[str, str] = {
    "static threshold": static.EXPRESSION.format(limit=LIMIT, share=0.9),
    "node-mixin": predict_linear.EXPRESSION.format(limit=LIMIT, share=0.4, ahead=DAY),
    "kubernetes-mixin": predict_linear.EXPRESSION.format(limit=LIMIT, share=0.15, ahead=4 * DAY),
}
EXPRESSIONS: Mapping[str, str] = {
    **ALERTS,
    "predict_linear": "predict_linear(memory_bytes[6h], 86400)",
    "Grafana adaptive, upper band": grafana.ADAPTIVE_UPPER,
    "Grafana robust, upper band": grafana.ROBUST_UPPER,
}


def _series(hosts: Hosts, seed: int) -> FloatArray:
    """Return a few series: as they are, leaking, and lively enough for every band."""
    rng = np.random.default_rng([seed, 3])
    some = Hosts(hosts.name, hosts.step, hosts.values[:2])
    lively = some.values[:1] * rng.uniform(0.05, 1.9, (1, some.values.shape[1]))
    leaking = leak(48)(some, rng).values
    return np.concatenate([some.values[:1], leaking, lively])[:SHOWN]


def _ours(view: View) -> dict[str, FloatArray]:
    """Return what the numpy form says."""
    at = view.looks - 1
    found = {}
    peers = {"static threshold": static.PEER, "node-mixin": predict_linear.NODE,
             "kubernetes-mixin": predict_linear.KUBE}  # fmt: skip
    for name, peer in peers.items():
        found[name] = peer.run(view, (peer.default,)).fires[0].astype(float)
    found["predict_linear"] = predicted(
        view.values, view.points(6 * HOUR), DAY / view.step
    )[:, at]  # fmt: skip
    margin = grafana.MARGIN
    found["Grafana adaptive, upper band"] = grafana.adaptive(view).upper(margin)[:, at]
    found["Grafana robust, upper band"] = grafana.robust(view).upper(margin)[:, at]
    return found


def _theirs(url: str, expression: str, series: int, ends: np.ndarray[Any, Any]) -> FloatArray:
    """Return the answers of Prometheus, NaN where it has none."""
    out = np.full((series, len(ends)), np.nan)
    for i, end in enumerate(ends):
        at = ORIGIN + MINUTE * (float(end) - 1)
        answer = _get(url, "/api/v1/query", query=expression, time=str(at))
        for sample in answer["data"]["result"]:
            out[int(sample["metric"]["series"]), i] = float(sample["value"][1])
    return out


@contextmanager
def _prometheus(values: FloatArray) -> Iterator[str]:
    """Run a Prometheus that has *values*."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        history = home / "history.om"
        with history.open("w") as file:
            file.write("# TYPE memory_bytes gauge\n")
            for row, line in enumerate(values):
                file.writelines(
                    f'memory_bytes{{series="{row}"}} {float(value)!r} {ORIGIN + MINUTE * i:.0f}\n'
                    for i, value in enumerate(line)
                    if np.isfinite(value)
                )
            file.write("# EOF\n")
        with programs.Stack(home / "logs", grace=5.0) as stack:
            servers.fill(stack, history, home / "data")
            config = configs.write_prometheus(home / "prometheus.yml", (), rules=())
            port = programs.free_port()
            stack.start(servers.prometheus(config, home / "data", port))
            yield f"http://127.0.0.1:{port}"


def _get(url: str, path: str, **parameters: str) -> Any:
    """Return the JSON at a path of our own program; proxies are not used."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    query = urllib.parse.urlencode(parameters)
    with opener.open(f"{url}{path}?{query}", timeout=120) as reply:
        return json.load(reply)
