"""`leadline probe`: probes by themselves, once for a person or for ever for Prometheus."""

from __future__ import annotations

from typing import Final

from catalog.config import Config
from exporters.probe.collector import one_round
from exporters.probe.round import Outcome, Prober

NOT_WELL: Final = 1
_SHOWN: Final = 40
_HINTS: Final = {
    400: "does the server know --constrain?",
    401: "is there a key? --api-key-file or LEADLINE_PROBE_API_KEY",
    403: "may this key ask for the model?",
    404: "does the gateway know --model, and does --url end where /completions follows?",
    422: "does the server know --constrain?",
}
"""What to look at first, by status."""


def once(config: Config) -> int:
    """Send each probe once and print what it measured.

    Returns:
        0: all is well; 1: a request failed or an answer is wrong.
    """
    probe = config.exporter.probe
    outcomes = one_round(Prober(probe), answers=probe.answers)
    for outcome in outcomes:
        print(line(outcome))
    well = all(not one.reason and one.right is not False for one in outcomes)
    return 0 if well else NOT_WELL


def line(outcome: Outcome) -> str:
    """Return an outcome as one line for a person."""
    head = f"{outcome.probe}: "
    if outcome.reason:
        http = outcome.status or outcome.code
        failed = f"{head}failed ({outcome.reason}), HTTP {http}, {outcome.duration:.3f} s"
        hint = _HINTS.get(outcome.status)
        return f"{failed}: {hint}" if hint else failed
    parts = [f"HTTP {outcome.code}", f"{outcome.duration:.3f} s"]
    if outcome.right is not None:
        wrong = f"WRONG (expected {outcome.asked!r}, got {outcome.got[:_SHOWN]!r})"
        parts.insert(0, "right" if outcome.right else wrong)
    if outcome.ttft is not None:
        parts.append(f"TTFT {outcome.ttft:.3f} s")
    if outcome.probe == "latency":
        parts += _times(outcome)
    if outcome.usage:
        parts.append(f"{outcome.usage[0]} tokens in, {outcome.usage[1]} out")
    return head + ", ".join(parts)


def _times(outcome: Outcome) -> list[str]:
    parts = [f"TPOT {outcome.tpot * 1e3:.1f} ms" if outcome.tpot is not None else "TPOT unknown"]
    if gaps := sorted(outcome.gaps):
        p50, p99 = (gaps[min(len(gaps) - 1, int(q * len(gaps)))] for q in (0.5, 0.99))
        parts.append(f"ITL p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms")
    return parts
