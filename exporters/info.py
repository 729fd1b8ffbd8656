"""Collector `info`: how each vLLM server is set up, as labels of one series."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from exporters.families import Families
from exporters.fetch import Fetch, FetchError
from exporters.instances import Instance
from exporters.look import Look, Result, Task

ASK_AGAIN_SECONDS: Final = 60.0
KEEP_SECONDS: Final = 900.0
_TIMEOUT: Final = 2.0
_MAX_BYTES: Final = 1 << 16
_MAX_VERSION: Final = 64


class Info:
    """Asks each server for its version now and then, and tells the rest from its command line."""

    def __init__(self, fetch: Fetch, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._versions: dict[tuple[str, int], tuple[str, float]] = {}

    def tasks(self, look: Look) -> Mapping[str, Task]:
        """Return one task per server."""
        known = {_incarnation(i) for i in look.instances}
        self._versions = {key: v for key, v in self._versions.items() if key in known}
        return {
            i.server: Task(partial(self.collect, look, i), _info(i, self._known(i)))
            for i in look.instances
        }

    def collect(self, look: Look, instance: Instance) -> Result:
        """Return the info of one server; one that doesn't tell its version has no such label."""
        key = _incarnation(instance)
        version, until = self._versions.get(key, ("", 0.0))
        if instance.url and self._clock() >= until:
            version = self._ask(instance.url, min(_TIMEOUT, look.seconds)) or version
            wait = KEEP_SECONDS if version else ASK_AGAIN_SECONDS
            self._versions[key] = version, self._clock() + wait
        return Result(_info(instance, version))

    def _known(self, instance: Instance) -> str:
        return self._versions.get(_incarnation(instance), ("", 0.0))[0]

    def _ask(self, url: str, timeout: float) -> str:
        try:
            parts = urlsplit(url)
            path = parts.path.rstrip("/").removesuffix("/metrics") + "/version"
            answer = self._fetch(
                urlunsplit((parts.scheme, parts.netloc, path, "", "")), timeout, _MAX_BYTES
            )
            said = json.loads(answer)
        except (FetchError, ValueError, RecursionError):
            return ""  # whether it answers at all is told by the collector of pages
        version = said.get("version") if isinstance(said, dict) else None
        return version[:_MAX_VERSION] if isinstance(version, str) else ""


def _incarnation(instance: Instance) -> tuple[str, int]:
    return instance.server, instance.found.pid if instance.found else 0


def _info(instance: Instance, version: str) -> Families:
    labels = {**instance.place, "vllm_version": version}
    if instance.found is not None:
        launch = instance.found.launch
        labels |= {
            "kv_role": launch.kv_role,
            "kv_connector": launch.kv_connector or "",
            "tensor_parallel": launch.tensor_parallel,
            "pipeline_parallel": launch.pipeline_parallel,
            "data_parallel": launch.data_parallel,
            "expert_parallel": str(launch.expert_parallel).lower(),
        }
    families = Families()
    families.add("leadline_instance_info", labels, 1)
    return families
