"""What a message of a vLLM log means: the forms of vLLM 0.11 to 0.33, and never its free text.

A message counts only where it begins as vLLM begins it, after vLLM's own prefix: a prompt that
quotes a failure is none. File names and line numbers in the prefix change with every release and
are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from exporters.logs.lines import Line


class Event(NamedTuple):
    """Something to add to a counter, or a reading.

    Attributes:
        name: Of the metric, without `leadline_log_`.
        value: To add or to set.
        labels: Beside the server's, each value from a short list or checked in form.
    """

    name: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


_NUMBER: Final = r"-?[0-9]{1,15}(?:\.[0-9]{1,9})?(?:[eE][+-]?[0-9]{1,2})?"
_ENGINE = re.compile(r"(?:Engine (?P<rank>\d{3,5})|\d{1,5} Engines Aggregated): ")
_READINGS: Final = {
    "Avg prompt throughput": ("prompt_tokens_per_second", 1.0),
    "Avg generation throughput": ("generation_tokens_per_second", 1.0),
    "Running": ("running_requests", 1.0),
    "Waiting": ("waiting_requests", 1.0),
    "KV cache usage": ("kv_cache_usage_ratio", 0.01),
    "Prefix cache hit rate": ("prefix_hit_ratio", 0.01),
    "External prefix cache hit rate": ("external_hit_ratio", 0.01),
}
_COUNTS: Final = {"Preemptions": "preemptions_total", "Corrupted": "corrupted_requests_total"}
_PART = re.compile(rf"(?:^|, )([A-Z][A-Za-z0-9 ]{{2,40}}): ({_NUMBER})")
_ITERATION = re.compile(
    r"(?:Engine (?P<rank>\d{3,5}): )?Iteration\(\d{1,15}\): .{0,200}?"
    rf"iteration elapsed time: (?P<ms>{_NUMBER}) ms(?P<dummy> \(dummy\))?"
)
_KV_SIZE = re.compile(r"[A-Za-z]{2,10} KV cache size: ([0-9,]{1,24}) tokens")
_TRANSFER = re.compile(rf"'?([A-Z][A-Za-z0-9 ()/]{{2,40}})'?(?:=|: )(?:np\.float64\()?({_NUMBER})")
_MIB: Final = 2.0**20
_LONGEST: Final = 4096
"""Characters of a line of statistics that are searched; several connectors fit."""
_RESULTS: Final = {
    "Num successful transfers": "succeeded",
    "Num failed transfers": "failed",
    "Num KV expired reqs": "expired",
    "Num notifs after expiry": "late",
}

# Where a message begins so, it is this event.
_EVENTS: Final = (
    ("Local NIXL metadata for remote engine ", "peer_invalidated"),
    ("Evicted stale remote engine ", "peer_evicted"),
    ("Declining expired remote read for ", "read_declined"),
    ("AsyncLLM output_handler failed", "output_handler_failed"),
    ("AsyncLLM created with api_server_count more than 1", "stats_not_logged"),
    ("NIXL compatibility check passed", "handshake"),
    ("EngineCore encountered a fatal error", "engine_failed"),
    ("EngineCore failed to start", "engine_failed"),
)
_CANNOT_STORE = re.compile(r"Request \S{1,200}: cannot store chunks")
_JIT = re.compile(
    r"(Triton|CuTeDSL|TileLang|[A-Za-z]{1,20}) (?:kernel )?JIT compilation during inference"
)
_BACKENDS: Final = ("Triton", "CuTeDSL", "TileLang")
_FAILURE: Final = "NIXL transfer failure: "
KINDS: Final = frozenset(
    {
        "handshake_failed", "handshake_setup_failed", "transfer_failed", "transfer_exception",
        "transfer_setup_failed", "notification_failed", "push_handshake_failed",
        "transfer_release_failed", "push_reg_handshake_failed", "push_reg_notif_failed",
    }
)  # fmt: skip
_KIND = re.compile(r"[a-z_]{1,40}")
_HOST = re.compile(r"'remote_host': '([A-Za-z0-9._:-]{1,253})'")
_PORT = re.compile(r"'remote_port': '?([0-9]{1,5})\b")


def meaning(line: Line) -> Iterator[Event]:
    """Yield what a message says; nothing for most."""
    if not line.level:
        return
    text = line.message
    yield from _statistics(text)
    if text.startswith(_FAILURE):
        yield Event("nixl_failures_total", 1, _failure(text[len(_FAILURE) :]))
    elif text.startswith("Releasing expired KV blocks for request "):
        yield Event("leases_expired_total", 1)
    elif text.startswith("Potentially invalid KV blocks for unrecognized request "):
        yield Event("reads_after_expiry_total", 1)
    elif (jit := _JIT.match(text)) is not None:
        backend = jit[1] if jit[1] in _BACKENDS else "other"
        yield Event("jit_compilations_total", 1, (("backend", backend),))
    elif (size := _KV_SIZE.match(text)) is not None and (digits := size[1].replace(",", "")):
        yield Event("kv_cache_tokens", float(digits))
    elif _CANNOT_STORE.match(text):
        yield Event("events_total", 1, (("event", "store_refused"),))
    else:
        for start, event in _EVENTS:
            if text.startswith(start):
                yield Event("events_total", 1, (("event", event),))


def _failure(text: str) -> tuple[tuple[str, str], ...]:
    """Return kind and peer of a NIXL failure; what is not of the known form is not passed on."""
    kind = _KIND.match(text)
    name = kind[0] if kind and kind[0] in KINDS else "other"
    context = text.rpartition("Context: ")[2]
    host, port = _HOST.search(context), _PORT.search(context)
    name_or_ip = f"[{host[1]}]" if host and ":" in host[1] else host[1] if host else ""
    peer = f"{name_or_ip}:{port[1]}" if host and port else "unknown"
    return ("kind", name), ("peer", peer)


def _statistics(text: str) -> Iterator[Event]:
    """Yield the statistics of a line, and that it was read, or that it could not be."""
    found = list(_parsed(text))
    if not found:
        return
    kind, events = found[0], found[1:]
    name = "stats_lines_total" if events else "unread_stats_lines_total"
    yield Event(name, 1, (("kind", str(kind)),))
    yield from (event for event in events if isinstance(event, Event) and event.name)


_NOTHING: Final = Event("", 0)
"""Said of lines that are known and hold nothing that we keep."""


def _parsed(text: str) -> Iterator[str | Event]:
    """Yield the kind of a line of statistics, then what it says."""
    if (iteration := _ITERATION.match(text)) is not None:
        yield "iteration"
        yield from _iteration(iteration)
    elif (engine := _ENGINE.match(text)) is not None and "throughput" in text:
        yield "engine"
        yield from _engine(text[engine.end() :], engine["rank"])
    elif text.startswith("SpecDecoding metrics: "):
        yield "spec"
        yield from _drafts(text)
    elif text.startswith("KV Transfer metrics: "):
        yield "kv_transfer"
        yield from _transfers(text)
    elif text.startswith("DiffusionDecoding metrics: "):
        yield from ("diffusion", _NOTHING)
    elif text.startswith("EC Transfer metrics: "):
        yield from ("ec_transfer", _NOTHING)
    elif text.startswith("**CUDAGraph Stats:**"):
        yield from ("cudagraph", _NOTHING)
    elif "MFU: " in text[:40]:
        yield from ("mfu", _NOTHING)


def _iteration(match: re.Match[str]) -> Iterator[Event]:
    labels = _rank(match["rank"])
    if match["dummy"]:
        yield _NOTHING
    else:
        yield Event("iterations_total", 1, labels)
        yield Event("iteration_seconds_total", float(match["ms"]) / 1e3, labels)


def _rank(text: str | None) -> tuple[tuple[str, str], ...]:
    """Return the label `engine` as vLLM's page has it; none for several engines together."""
    return (("engine", str(int(text))),) if text else ()


def _engine(text: str, rank: str | None) -> Iterator[Event]:
    labels = _rank(rank)
    for key, number in _PART.findall(text[:_LONGEST]):
        # GPU, CPU, XPU, ...: the name of the device stands before it.
        name = "KV cache usage" if key.endswith(" KV cache usage") else key
        if name in _READINGS:
            reading, scale = _READINGS[name]
            yield Event(reading, float(number) * scale, labels)
        elif name in _COUNTS:
            yield Event(_COUNTS[name], max(0.0, float(number)))


def _drafts(text: str) -> Iterator[Event]:
    # A rate in between may be `nan`, and rates by position are joined by commas: look for two keys.
    for key, name in (("Accepted", "accepted"), ("Drafted", "drafted")):
        match = re.search(rf", {key}: ([0-9]{{1,15}}) tokens", text)
        if match:
            yield Event(f"{name}_tokens_total", float(match[1]))


def _transfers(text: str) -> Iterator[Event]:
    """Yield the window's transfers; totals are its count times its means."""
    said = {key: float(number) for key, number in _TRANSFER.findall(text[:_LONGEST])}
    for key, result in _RESULTS.items():
        if key in said:
            yield Event("transfers_total", max(0.0, said[key]), (("result", result),))
    count = max(0.0, said.get("Num successful transfers", 0.0))
    if "Avg MB per transfer" in said:
        yield Event("transfer_bytes_total", count * max(0.0, said["Avg MB per transfer"]) * _MIB)
    if "Avg xfer time (ms)" in said:
        yield Event("transfer_seconds_total", count * max(0.0, said["Avg xfer time (ms)"]) / 1e3)
    if "P90 xfer time (ms)" in said and count:
        yield Event("transfer_p90_seconds", said["P90 xfer time (ms)"] / 1e3)
    if "vllm:" in text:
        yield _NOTHING  # an offloading connector alone: its keys are metrics of the page
