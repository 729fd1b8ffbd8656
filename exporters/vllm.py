"""Collector `vllm`: the pages of the vLLM servers, passed through with their identity."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from catalog.splice import Page, Splicer
from exporters.budget import OverBudgetError, Room
from exporters.families import Families
from exporters.fetch import Fetch
from exporters.look import Look, Result, Task
from exporters.targets.instances import Instance
from exporters.targets.seen import Seen

_MODEL = re.compile(rb'[{,]model_name="((?:[^"\\\n]|\\.)+)"')
_UNESCAPED: Final = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


@dataclass
class _Splicing:
    """The splicer of one server, the labels that it was made for, and the memory it takes."""

    labels: tuple[Mapping[str, str], Mapping[str, str]]
    splicer: Splicer
    memory: Room


class Vllm:
    """Reads pages by *fetch*, remembers per server how to splice, tells *seen* what they say."""

    def __init__(self, fetch: Fetch, seen: Seen | None = None) -> None:
        self._fetch = fetch
        self._seen = seen
        self._splicing: dict[str, _Splicing] = {}

    def tasks(self, look: Look) -> Mapping[str, Task]:
        """Return one task per server that has a page."""
        if not look.config.exporter.vllm:
            return {}
        paged = {i.server: i for i in look.instances if i.url}
        # Of a copy: a task of an earlier scrape may still be at it.
        known = self._splicing.copy()
        self._splicing = {server: known[server] for server in paged if server in known}
        return {
            server: Task(partial(self.collect, look, instance), _up(instance, 0))
            for server, instance in paged.items()
        }

    def collect(self, look: Look, instance: Instance) -> Result:
        """Read one page and splice the identity of its server into it.

        Raises:
            FetchError: There is no page.
        """
        exporter = look.config.exporter
        timeout = min(exporter.target_timeout, look.seconds)
        fetch = instance.access.through(self._fetch)
        text = b""
        with look.pages.room(instance.server) as room:
            try:
                text = room.fetch(fetch, instance.url, timeout, int(exporter.max_page))
            finally:
                if self._seen is not None:
                    self._seen.tell(instance.incarnation, text)
            page = self._splice(look, instance, text, room)
        return Result(_up(instance, 1), page)

    def _splice(self, look: Look, instance: Instance, text: bytes, room: Room) -> Page:
        """Splice a page if there is memory for it, and for what is remembered of it.

        Raises:
            OverBudgetError: There is not.
        """
        known = self._known(look, instance, text)
        spliced, remembered = known.splicer.weigh(text)
        try:
            known.memory.hold(remembered)
            room.take(spliced)
        except OverBudgetError:
            self._splicing.pop(instance.server, None)
            raise
        return known.splicer.splice(text)

    def _known(self, look: Look, instance: Instance, text: bytes) -> _Splicing:
        ours = {name: v for name, v in instance.labels.items() if name != "model_name"}
        model = instance.labels.get("model_name") or _model(text)
        labels = ours, {"model_name": model}
        known = self._splicing.get(instance.server)
        if known is None or known.labels != labels:
            splicer = Splicer(*labels)
            memory = look.pages.memory(instance.server, splicer)
            known = self._splicing[instance.server] = _Splicing(labels, splicer, memory)
        return known


def _up(instance: Instance, value: float) -> Families:
    families = Families()
    families.add("leadline_target_up", instance.labels, value)
    return families


def _model(text: bytes) -> str:
    """Return the model that a page names first: its series without the label get it too."""
    match = _MODEL.search(text)
    if match is None:
        return ""
    escaped = match[1].decode("utf-8", "replace")
    return re.sub(r'\\[n"\\]', lambda m: _UNESCAPED[m[0]], escaped)
