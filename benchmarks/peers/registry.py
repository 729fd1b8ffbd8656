"""All peers. Adding one touches its own file and one line here."""

from __future__ import annotations

from benchmarks.peers import (
    breaks,
    focus,
    grafana,
    holt,
    local_trend,
    mann_kendall,
    predict_linear,
    prophet_daily,
    river_drift,
    static,
    stl,
)
from benchmarks.peers.peer import Peer

PEERS: tuple[Peer, ...] = (
    static.PEER,
    predict_linear.NODE,
    predict_linear.KUBE,
    grafana.ADAPTIVE,
    grafana.ROBUST,
    mann_kendall.PEER,
    local_trend.PEER,
    holt.PEER,
    stl.PEER,
    river_drift.ADWIN,
    river_drift.PAGE_HINKLEY,
    focus.PEER,
    breaks.PEER,
    prophet_daily.PEER,
)
