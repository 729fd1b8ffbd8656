"""Our metrics of our own requests."""

from __future__ import annotations

from typing import Final

from catalog.labels import LEVELS
from catalog.metric import Metric, MetricType, ours
from catalog.units import Unit

RECENT_ANSWERS: Final = 20
"""So many answers are remembered by `leadline_probe_answers_recent`."""


def _counted(
    name: str, unit: Unit, text: str, *labels: str, kind: MetricType = "counter", traps: str = ""
) -> Metric:
    return Metric(
        f"leadline_probe_{name}", kind, unit, text, (*LEVELS["deployment"], *labels),
        traps=(traps,) if traps else (),
    )  # fmt: skip


PROBE: Final[tuple[Metric, ...]] = (
    ours("deployment", "probe_ttft_seconds", "seconds",
         "Time to first token of our own requests, sent as a user sends them.", "histogram",
         traps="Of requests that were answered to the end: a failed one is no latency."),
    ours("deployment", "probe_tpot_seconds", "seconds",
         "Mean time per output token of our own requests.", "histogram",
         traps="Needs the usage that the last chunk tells: a gateway that drops it has none."),
    ours("deployment", "probe_itl_seconds", "seconds",
         "Time between pieces of text of our own requests.", "histogram",
         traps="Per piece, as vLLM's inter-token latency: with speculative decoding one holds "
               "several tokens, and a proxy may join several."),
    ours("deployment", "probe_duration_seconds", "seconds",
         "Time of our own requests from the first byte sent to the last one read.", "histogram",
         traps="The output has a fixed length, so it moves with TTFT and TPOT alone."),
    _counted("requests_total", "requests", "Our own requests, by probe and result (ok, failed).",
             "probe", "result"),
    _counted("responses_total", "requests",
             "Our own requests by class of the HTTP status; none: no answer.", "probe", "code",
             traps="2xx is no success: a stream can break after its status."),
    _counted("errors_total", "requests", "Our own requests that failed, by reason.", "probe",
             "reason"),
    _counted("tokens_total", "tokens",
             "Tokens of our own requests as their usage tells, by kind (prompt, completion).",
             "kind",
             traps="Requests that failed, and gateways that drop the usage, are not in it."),
    _counted("answers_total", "count", "Answers to our own questions, by result (right, wrong).",
             "result", traps="A request that failed gave no answer: it is neither."),
    _counted("answers_recent", "count",
             f"Of the last {RECENT_ANSWERS} answers to our own questions, those right and wrong.",
             "result", kind="gauge"),
    _counted("last_success_timestamp_seconds", "seconds", "When a probe last succeeded.", "probe",
             kind="gauge"),
)  # fmt: skip
