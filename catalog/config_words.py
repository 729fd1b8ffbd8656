"""The parts of `leadline.yaml` about words: the servers' logs, and requests of our own."""

from __future__ import annotations

import re
from typing import Final, Literal

from pydantic import Field, field_validator, model_validator

from catalog.address import http_address, shown
from catalog.section import Section
from catalog.values import Duration

SHORTEST_EVERY: Final = 10.0
LONGEST_DEADLINE: Final = 300.0
MAX_PROMPT: Final = 32768
MAX_OUTPUT: Final = 512

_UNIT = re.compile(r"[A-Za-z0-9:_.@\\][A-Za-z0-9:_.@\\-]{0,254}")


class Log(Section):
    """Where a vLLM server's log is: files, a unit of systemd, or what it holds open itself.

    Without `server` and `port` a file belongs to the server that has it as its output, a unit to
    the server that runs in it.
    """

    path: str = Field("", description="File, or a pattern such as /var/log/vllm/*.log.")
    unit: str = Field("", description="Unit of systemd, read from the journal.")
    opened: bool = Field(
        False, description="Of each server found here: the files that its output goes to."
    )
    port: int = Field(0, ge=0, lt=1 << 16, description="Port of the server's API; 0: found.")
    server: str = Field("", description="The server's label; empty: found.")

    @field_validator("unit")
    @classmethod
    def _is_unit(cls, value: str) -> str:
        if value and not _UNIT.fullmatch(value):
            raise ValueError(f"{shown(value)} is no unit of systemd (write vllm.service)")
        return value

    @model_validator(mode="after")
    def _one_place(self) -> Log:
        if sum(map(bool, (self.path, self.unit, self.opened))) != 1:
            raise ValueError("needs one of path, unit and opened: true")
        return self


class Probe(Section):
    """Requests of our own, sent as a user sends them; off without `url`."""

    url: str = Field(
        "", description="Base of the gateway's API, http://gateway/v1; empty: no probe."
    )
    model: str = Field("", description="Model to ask for; needed with url.")
    deployment: str = Field("", description="P/D group behind the gateway; empty: the default.")
    every: Duration = Field(60.0, description="Time between probes, 10s at least; a tenth varies.")
    deadline: Duration = Field(60.0, description="Longest time for one answer, 5 min at most.")
    prompt_tokens: int = Field(
        512, ge=16, le=MAX_PROMPT,
        description="Length of the prompt, about; above what your router decodes without prefill.",
    )  # fmt: skip
    output_tokens: int = Field(32, ge=2, le=MAX_OUTPUT, description="Tokens asked for.")
    answers: bool = Field(True, description="Ask questions with known answers too.")
    constrain: Literal["structured_outputs", "guided_choice", "none"] = Field(
        "structured_outputs",
        description="How answers are held to a choice: structured_outputs, guided_choice "
        "(vLLM before 0.12), none.",
    )
    api_key_file: str = Field(
        "", description="File with the API key, read each time; else LEADLINE_PROBE_API_KEY."
    )
    ca_file: str = Field("", description="Certificates to trust beside the system's.")

    @field_validator("every")
    @classmethod
    def _not_often(cls, value: float) -> float:
        if value < SHORTEST_EVERY:
            raise ValueError("must be 10s or more: each probe takes a place from a user")
        return value

    @field_validator("deadline")
    @classmethod
    def _not_long(cls, value: float) -> float:
        if value > LONGEST_DEADLINE:
            raise ValueError("must be 5 min or less")
        return value

    @field_validator("url")
    @classmethod
    def _no_credentials(cls, value: str) -> str:
        if value:
            http_address(value, "http://gateway/v1")
        if "@" in value or "?" in value or "#" in value:
            raise ValueError("is a bare address; a key belongs into api_key_file")
        return value

    @model_validator(mode="after")
    def _asks_for_a_model(self) -> Probe:
        if self.url and not self.model:
            raise ValueError("needs model, the name that the gateway knows")
        return self
