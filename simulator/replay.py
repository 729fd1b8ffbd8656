"""Real traces of LLM requests, by path: when they came, how long they were, what was seen before.

Known are the Azure trace (TIMESTAMP, ContextTokens, GeneratedTokens), Mooncake's lines of JSON
(timestamp in ms, input_length, output_length, hash_ids of 512 tokens) and tables of agentic
sessions (trace, t, in_tokens, out_tokens, with t since the conversation began).
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, TextIO

import numpy as np

from simulator.change import DAY, FloatArray

CELL: Final = 20.0
HASHED: Final = 512.0
"""Tokens that one of Mooncake's hashes stands for."""


@dataclass(frozen=True)
class Trace:
    """Requests in cells, for ever repeated.

    Attributes:
        requests: Requests in each cell.
        prompt: Prompt tokens in each cell.
        output: Output tokens in each cell.
        seen: Prompt tokens that an earlier request had; None where the trace doesn't tell.
    """

    requests: FloatArray
    prompt: FloatArray
    output: FloatArray
    seen: FloatArray | None


def read(path: Path) -> Trace:
    """Return the trace in *path*; `.gz` is unpacked.

    Raises:
        ValueError: It has none of the known forms, or no request.
    """
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        start = file.read(1)
        file.seek(0)
        rows = list(_mooncake(file) if start == "{" else _table(file, path))
    if not rows:
        raise ValueError(f"{path}: no request in it")
    at, prompt, output, seen = np.array(rows, dtype=np.float64).T
    at = at - at.min()
    cells = max(int(at.max() // CELL), 1)  # the last cell is not full
    cell = np.minimum((at // CELL).astype(np.int64), cells)

    def added(weight: FloatArray) -> FloatArray:
        return np.bincount(cell, weight, cells + 1)[:cells].astype(np.float64)

    told = None if np.isnan(seen).all() else added(np.nan_to_num(seen))
    return Trace(added(np.ones_like(at)), added(prompt), added(output), told)


def _mooncake(file: TextIO) -> Iterator[tuple[float, float, float, float]]:
    known: set[int] = set()
    for line in file:
        one = json.loads(line)
        hashes = one.get("hash_ids", [])
        length = float(one["input_length"])
        seen = 0
        while seen < len(hashes) and hashes[seen] in known:
            seen += 1
        known.update(hashes)
        yield (float(one["timestamp"]) / 1000, length, float(one["output_length"]),
               min(seen * HASHED, length))  # fmt: skip


def _table(file: TextIO, path: Path) -> Iterator[tuple[float, float, float, float]]:
    rows = csv.DictReader(file)
    names = set(rows.fieldnames or ())
    if {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} <= names:
        for row in rows:
            at = datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp()
            yield at, float(row["ContextTokens"]), float(row["GeneratedTokens"]), np.nan
        return
    if not {"trace", "t", "in_tokens", "out_tokens"} <= names:
        raise ValueError(
            f"{path}: no known trace: columns TIMESTAMP, ContextTokens, GeneratedTokens, or "
            "trace, t, in_tokens, out_tokens, or lines of JSON with timestamp and input_length"
        )
    begun: dict[str, float] = {}
    last: dict[str, float] = {}
    for row in rows:
        if not (row["in_tokens"] and row["out_tokens"] and row["t"]):
            continue
        trace, length = row["trace"], float(row["in_tokens"])
        # Conversations began at unknown times: here evenly over a day.
        begin = begun.setdefault(trace, (len(begun) * 0.618_034) % 1.0 * DAY)
        seen = min(last.get(trace, 0.0), length)
        last[trace] = length
        yield (begin + float(row["t"])) % DAY, length, float(row["out_tokens"]), seen
