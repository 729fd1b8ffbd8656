"""What a live run can be told."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from catalog.units import duration, parse


@dataclass(frozen=True)
class Options:
    """How a live run goes; sizes in bytes, times in seconds."""

    limit: float | None
    horizon: float
    leak: float
    rate: float
    seed: int
    port: int
    deadline: float
    hold: float
    folder: Path | None

    @classmethod
    def parse(cls, arguments: list[str]) -> Options:
        """Read the command line."""
        parser = argparse.ArgumentParser(
            prog="python -m benchmarks.live",
            description="Watch a real leak in a real vLLM prefill and decode pair until it pages.",
        )
        parser.add_argument(
            "--limit",
            type=_size,
            help="limit on decode's private memory, such as 4GiB; without it, one that the leak "
            "meets after --horizon at the rate measured",
        )
        parser.add_argument("--horizon", type=duration, default=duration("45m"))
        parser.add_argument(
            "--leak",
            type=_size_or_none,
            default=_size("30MB"),
            help="wanted, a minute; 0 leaks nothing and expects silence until --deadline",
        )
        parser.add_argument("--rate", type=float, default=1.0, help="requests a second")
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--port", type=int, default=8100, help="first of four ports")
        parser.add_argument("--deadline", type=duration, default=duration("60m"))
        parser.add_argument(
            "--hold",
            type=duration,
            default=duration("2m"),
            help="how long to go on looking for false alarms after the page",
        )
        parser.add_argument("--folder", type=Path, help="where the record and the logs are kept")
        return cls(**vars(parser.parse_args(arguments)))


def _size_or_none(text: str) -> float:
    return 0.0 if text == "0" else _size(text)


def _size(text: str) -> float:
    return parse(text, "bytes")
