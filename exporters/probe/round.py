"""One probe from the request to its outcome: times of a latency probe, judgement of an answer."""

from __future__ import annotations

import os
import random
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from catalog.config_words import Probe
from exporters.node import proc
from exporters.probe.ask import answer_body, is_right, latency_body, question, words
from exporters.probe.connection import MARK, Exchange
from exporters.probe.sse import Events, Piece, ProbeError, piece

KEY_VARIABLE: Final = "LEADLINE_PROBE_API_KEY"
MAX_PIECES: Final = 8192
_MAX_KEY: Final = 4096
_MAX_TEXT: Final = 4096

Kind = Literal["latency", "answer"]


@dataclass
class Outcome:
    """How a probe went.

    Attributes:
        probe: Which one.
        reason: Why it failed; empty: it did not.
        code: Class of the HTTP status.
        status: The HTTP status itself, for a person; 0 before there is one.
        ttft: Seconds to the first text.
        tpot: Mean seconds per output token after the first; None where the tokens are not told.
        gaps: Seconds between pieces of text.
        duration: Seconds of all of it.
        usage: Tokens of prompt and answer, where they are told.
        right: Whether the answer was right; None for a latency probe or a failed one.
        asked, got: The right answer and the one that came, for a person.
    """

    probe: Kind
    reason: str = ""
    code: str = "none"
    status: int = 0
    ttft: float | None = None
    tpot: float | None = None
    gaps: list[float] = field(default_factory=list)
    duration: float = 0.0
    usage: tuple[int, int] | None = None
    right: bool | None = None
    asked: str = ""
    got: str = ""


class Prober:
    """Sends probes, one at a time.

    Args:
        probe: As configured.
        source: Of chance; seeded by the system, so that no two probers ask the same.
        clock: Monotonic seconds.
        environ: Where the key may be.
    """

    def __init__(
        self,
        probe: Probe,
        source: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._probe = probe
        self._source = source or random.Random()
        self._clock = clock
        self._environ = environ

    def latency(self) -> Outcome:
        """Ask for so many tokens and take the times."""
        prompt = words(self._source, self._probe.prompt_tokens)
        body = latency_body(self._probe.model, prompt, self._probe.output_tokens)
        outcome, _ = self._send("latency", body)
        return outcome

    def answer(self) -> Outcome:
        """Ask a question and judge the answer."""
        asked = question(self._source, self._probe.prompt_tokens)
        body = answer_body(self._probe.model, asked, self._probe.constrain)
        outcome, text = self._send("answer", body)
        if not outcome.reason:
            outcome.right = is_right(text, asked.right)
            outcome.asked, outcome.got = asked.right, text
        return outcome

    def _send(self, kind: Kind, body: Mapping[str, Any]) -> tuple[Outcome, str]:
        outcome, reading = Outcome(kind), _Reading()
        begun = self._clock()
        exchange: Exchange | None = None
        try:
            headers = {MARK: kind, **self._key()}
            context = self._trust()
            begun = self._clock()
            exchange = Exchange(self._probe.url, self._probe.deadline, context, self._clock)
            events = Events()
            for data in exchange.stream(body, headers):
                now = self._clock()
                for said in events.add(data):
                    reading.add(piece(said), now)
                if reading.done:
                    break
            reading.check(needs_text=kind == "latency")
        except ProbeError as error:
            outcome.reason = error.reason
        except (OSError, ValueError):
            outcome.reason = "setup"
        if exchange:
            outcome.code, outcome.status = exchange.code, exchange.status
        outcome.duration = self._clock() - begun
        if not outcome.reason:
            reading.tell(outcome, begun)
        return outcome, reading.text

    def _key(self) -> dict[str, str]:
        """Return the header that holds the key.

        Raises:
            ProbeError: There is one that can't be read or sent.
        """
        key = self._environ.get(KEY_VARIABLE, "")
        if self._probe.api_key_file:
            try:
                key = proc.read(Path(self._probe.api_key_file), _MAX_KEY).decode("ascii")
            except (OSError, ValueError):
                raise ProbeError("key") from None
        key = key.strip()
        if not key.isascii() or not key.isprintable() or " " in key:
            raise ProbeError("key")
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _trust(self) -> ssl.SSLContext | None:
        """Return whom to trust; made before the clock runs, for it takes tens of milliseconds."""
        if not self._probe.url.startswith("https:"):
            return None
        context = ssl.create_default_context()
        if self._probe.ca_file:
            context.load_verify_locations(self._probe.ca_file)
        return context


class _Reading:
    """Gathers the pieces of one answer with the instants of their coming."""

    def __init__(self) -> None:
        self.done = False
        self.text = ""
        self._times: list[float] = []
        self._last = 0.0
        self._finish = ""
        self._usage: tuple[int, int] | None = None
        self._pieces = 0

    def add(self, said: Piece, now: float) -> None:
        self._pieces += 1
        if self._pieces > MAX_PIECES:
            raise ProbeError("too_large")
        self.done = self.done or said.done
        self._finish = said.finish or self._finish
        self._usage = said.usage or self._usage
        if said.text:
            self._times.append(now)
            self.text += said.text if len(self.text) < _MAX_TEXT else ""
        if said.text or said.finish:
            self._last = now

    def check(self, *, needs_text: bool) -> None:
        """Raise ProbeError unless the answer is whole."""
        if not self.done and not self._finish:
            raise ProbeError("ended_early")
        if self._finish in ("abort", "error"):
            raise ProbeError("aborted")
        if needs_text and not self._times:
            raise ProbeError("empty")

    def tell(self, outcome: Outcome, begun: float) -> None:
        """Set what was measured."""
        outcome.usage = self._usage
        if not self._times:
            return
        first = self._times[0]
        outcome.ttft = first - begun
        outcome.gaps = [b - a for a, b in zip(self._times, self._times[1:], strict=False)]
        if self._usage and self._usage[1] > 1:
            outcome.tpot = max(0.0, self._last - first) / (self._usage[1] - 1)
