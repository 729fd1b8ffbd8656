"""The page of vLLM 0.32, family by family and label by label, from captures of real servers."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Final, Literal

Labels = tuple[tuple[str, str], ...]

# Labels that set apart the children of a family; all else is the same for each.
_CHILD: Final = (
    "source", "reason", "stage", "position", "finished_reason", "sleep_state", "generation",
)  # fmt: skip
_SPEC: Final = "vllm:spec_decode_"
_LINE: Final = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Slot:
    """One sample of a page, without its value.

    Attributes:
        name: Sample name, such as `vllm:prompt_tokens_total`.
        labels: Labels as captured, `engine` and `model_name` left out.
        engine: Whether there is one for each engine; else one for the server.
        model: Whether it carries `model_name`.
        captured: The value in the capture.
    """

    name: str
    labels: Labels
    engine: bool
    model: bool
    captured: float

    @property
    def key(self) -> str:
        """Return the name under which the simulation keeps its value."""
        child = [value for name, value in self.labels if name in _CHILD]
        return "|".join((self.name, *child))

    @property
    def le(self) -> float | None:
        """Return the bound of a bucket; None if it is none."""
        return next((float(value) for name, value in self.labels if name == "le"), None)


@dataclass(frozen=True)
class Family:
    """One family of a page: its comment lines and its samples."""

    name: str
    kind: str
    comment: str
    slots: tuple[Slot, ...]


def capture(name: Literal["prefill", "decode", "spec"]) -> str:
    """Return the text of a captured page."""
    packed = resources.files("simulator").joinpath("captures", f"{name}.prom.gz").read_bytes()
    return gzip.decompress(packed).decode()


@cache
def template(pool: Literal["prefill", "decode"], depth: int) -> tuple[Family, ...]:
    """Return the families of a server of *pool* that drafts *depth* tokens a step.

    NIXL and speculative decoding were captured on different servers: a page here has both.
    """
    own = list(families(capture(pool)))
    spec = [f for f in families(capture("spec")) if f.name.startswith(_SPEC)]
    place = next(i for i, f in enumerate(own) if f.name.startswith("vllm:nixl_"))
    own[place:place] = [_cut(family, depth) for family in spec]
    return tuple(own)


def families(text: str) -> Iterator[Family]:
    """Yield the families of a page in its order."""
    for block in re.split(r"(?m)^(?=# HELP )", text):
        lines = block.splitlines()
        comments = [line for line in lines if line.startswith("#")]
        if len(comments) < 2:
            continue
        _, _, name, kind = comments[1].split()
        slots = tuple(_slot(line) for line in lines if line and not line.startswith("#"))
        yield Family(name, kind, "\n".join(comments) + "\n", slots)


def _slot(line: str) -> Slot:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"captured page: not a sample: {line!r}")
    name, inner, value = match.groups()
    labels = dict(_LABEL.findall(inner or ""))
    engine = labels.pop("engine", None) is not None
    model = labels.pop("model_name", None) is not None
    return Slot(name, tuple(labels.items()), engine, model, float(value))


def _cut(family: Family, depth: int) -> Family:
    """Return *family* with as many positions as are drafted."""
    slots = tuple(s for s in family.slots if int(dict(s.labels).get("position", 0)) < depth)
    deepest = [s for s in slots if "position" in dict(s.labels)][-1:]
    for position in range(len(slots), depth) if deepest else ():
        labels = tuple((k, str(position) if k == "position" else v) for k, v in deepest[0].labels)
        slots += (replace(deepest[0], labels=labels),)
    return Family(family.name, family.kind, family.comment, slots)


def bounds(pool: Literal["prefill", "decode"], depth: int) -> dict[str, list[float]]:
    """Return the bucket bounds of each histogram of the page, infinity last."""
    found: dict[str, list[float]] = {}
    for family in template(pool, depth):
        for slot in family.slots:
            if slot.le is not None:
                found.setdefault(slot.name.removesuffix("_bucket"), []).append(slot.le)
    return found
