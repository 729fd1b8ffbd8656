"""Alerts on what users feel now: service levels broken, and requests that wait for KV blocks."""

from __future__ import annotations

from typing import Final

from alerts.rule import Alert, where
from alerts.slo import sla_signals
from catalog.config import Config
from catalog.labels import LEVELS
from catalog.signal import Signal
from catalog.signals import SIGNALS, target_record

KV_FULL: Final = 0.9
GROUP: Final = "leadline-serving"

_SLA_NAMES: Final = {"ttft_user_mean": "TtftSla", "tpot_mean": "TpotSla"}


def alerts(config: Config) -> tuple[Alert, ...]:
    """Return the alerts of this module; one for every signal with a service level."""
    levels = tuple(_sla_broken(SIGNALS[name]) for name in sla_signals(config))
    return (*levels, _kv_pressure())


def _sla_broken(signal: Signal) -> Alert:
    beyond = "<" if signal.bad == "down" else ">"
    labels = LEVELS[signal.level]
    # For twice the window of the mean: one slow request alone can't hold it that long.
    return Alert(
        f"Leadline{_SLA_NAMES.get(signal.name, 'Sla')}Broken",
        "page",
        f"{signal.record} {beyond} {target_record(signal)}",
        f"{signal.title}: {'below' if signal.bad == 'down' else 'above'} its service level.",
        f"{{{{ $value | {_human(signal)} }}}} over the last 5 minutes (service level "
        f"{_target(signal)}{where(*labels)}).",
        wait="10m",
        keep="5m",
        group=GROUP,
        labels=(("signal", signal.name),),
    )


def _human(signal: Signal) -> str:
    forms = {"seconds": "humanizeDuration", "ratio": "humanizePercentage", "bytes": "humanize1024"}
    return forms.get(signal.unit, "humanize")


def _target(signal: Signal) -> str:
    """Return a template that looks up the target of the series that broke it."""
    labels = signal.labels
    matchers = ",".join(f"{label}=%q" for label in labels)
    values = " ".join(f"$labels.{label}" for label in labels)
    query = f"printf `{target_record(signal)}{{{matchers}}}` {values} | query"
    return f"{{{{ with {query} }}}}{{{{ . | first | value | {_human(signal)} }}}}{{{{ end }}}}"


def _kv_pressure() -> Alert:
    usage, capacity = SIGNALS["kv_usage"].record, SIGNALS["requests_waiting_capacity"].record
    waiting, preempted = SIGNALS["requests_waiting"].record, SIGNALS["preemption_rate"].record
    # Before 0.26 the reason of waiting is unknown, and on decode it may be the network's.
    waits = f'({capacity} or {waiting}{{pool!="decode"}})'
    # Gauges freeze when no step runs any more: without steps the number is of the past.
    steps = f"on ({', '.join(LEVELS['pool'])}) {SIGNALS['tokens_per_step'].record}"
    return Alert(
        "LeadlineKvPressure",
        "ticket",
        f"{usage} > {KV_FULL:g} and ({waits} > 0 or {preempted} > 0) and {steps}",
        "Requests wait for KV cache blocks or are preempted.",
        "KV cache usage is {{ $value | humanizePercentage }} while requests wait for capacity or "
        f"are preempted (limit {KV_FULL:.0%}{where(*LEVELS['engine'])}).",
        wait="10m",
        keep="10m",
        group=GROUP,
    )
