"""Collector `info`: how each vLLM server is set up, since when, and in which group of ranks.

Command line, its file and environment say what was asked for; the server's page what is in force
(`vllm:cache_config_info`), which wins; `/version` the version, asked for now and then.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from exporters.families import Families
from exporters.fetch import Fetch, FetchError
from exporters.look import Look, Result, Task
from exporters.node import proc
from exporters.targets.instances import Instance
from exporters.targets.seen import KEEP_SECONDS, Seen, Told

_TICK: Final = os.sysconf("SC_CLK_TCK")
ASK_AGAIN_SECONDS: Final = 60.0
_TIMEOUT: Final = 2.0
_MAX_BYTES: Final = 1 << 16
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}")


class Info:
    """Asks each server for its version now and then, and tells the rest from what is known.

    Args:
        fetch: Reads versions, and pages where no other collector does.
        seen: What the pages said.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        fetch: Fetch,
        seen: Seen | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._seen = seen or Seen(clock)
        self._clock = clock
        self._versions: dict[tuple[str, int], tuple[str, float, float | None]] = {}
        self._booted: float | None = None

    def tasks(self, look: Look) -> Mapping[str, Task]:
        """Return one task per server."""
        known = {i.incarnation for i in look.instances}
        self._seen.keep(known)
        # Of a copy: a task of an earlier scrape may still be at it.
        self._versions = {k: v for k, v in self._versions.copy().items() if k in known}
        return {
            i.server: Task(partial(self.collect, look, i), self._families(look, i))
            for i in look.instances
        }

    def collect(self, look: Look, instance: Instance) -> Result:
        """Return the info of one server; what it doesn't tell is no label."""
        key = instance.incarnation
        version, until, since = self._versions.get(key, ("", 0.0, None))
        # Of a server elsewhere the page alone tells that it was started anew.
        if instance.url and (self._clock() >= until or self._seen.last(key).started != since):
            timeout = min(_TIMEOUT, look.seconds / 2)
            version = self._version(instance, timeout) or version
            wait = KEEP_SECONDS if version else ASK_AGAIN_SECONDS
            if look.config.exporter.vllm:
                self._seen.wait(key, timeout)
            else:
                self._seen.tell(key, self._page(look, instance, timeout))
            began = self._seen.last(key).started
            self._versions[key] = version, self._clock() + wait, began
        return Result(self._families(look, instance))

    def _page(self, look: Look, instance: Instance, timeout: float) -> bytes:
        try:
            with look.pages.room(instance.server) as room:
                fetch = instance.access.through(self._fetch)
                return room.fetch(fetch, instance.url, timeout, int(look.config.exporter.max_page))
        except FetchError:
            return b""

    def _version(self, instance: Instance, timeout: float) -> str:
        try:
            parts = urlsplit(instance.url)
            path = parts.path.rstrip("/").removesuffix("/metrics") + "/version"
            address = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
            fetch = instance.access.through(self._fetch)
            said = json.loads(fetch(address, timeout, _MAX_BYTES))
        except (FetchError, ValueError, RecursionError):
            return ""  # whether it answers at all is told by the collector of pages
        version = said.get("version") if isinstance(said, dict) else None
        return version if isinstance(version, str) and _VERSION.fullmatch(version) else ""

    def _families(self, look: Look, instance: Instance) -> Families:
        families = Families()
        version = self._versions.get(instance.incarnation, ("", 0.0, None))[0]
        told = self._seen.last(instance.incarnation)
        families.add("leadline_instance_info", _labels(instance, told, version), 1)
        started = self._started(look.proc, instance)
        started = told.started if started is None else started
        if started is not None:
            families.add("leadline_instance_start_time_seconds", instance.place, started)
        if instance.found is not None:
            _add_ranks(families, instance)
        if instance.draining is not None:
            labels = {**instance.labels, "kind": "vllm"}
            families.add("leadline_target_draining", labels, float(instance.draining))
        return families

    def _started(self, root: Path, instance: Instance) -> float | None:
        """Return when the server's process was started; the boot time is read once only."""
        if instance.found is None:
            return None
        try:
            if self._booted is None:
                self._booted = proc.boot_time(root)
            return self._booted + proc.stat(root, instance.found.pid).start / _TICK
        except (OSError, ValueError):
            return None  # gone since


def _add_ranks(families: Families, instance: Instance) -> None:
    """Say how many ranks its group has, and how many its own page shows while all is well."""
    if instance.found is None:
        return
    ranks = instance.found.launch.ranks
    if not ranks.living or not instance.url:
        return
    group = ranks.group or instance.server
    labels = {**instance.place, "group": f"{instance.node}{group}" if group[0] == ":" else group}
    families.add("leadline_instance_data_parallel_size", labels, ranks.living)
    families.add("leadline_instance_engines_expected", instance.place, ranks.shown)


def _labels(instance: Instance, told: Told, version: str) -> dict[str, str]:
    labels = {**instance.place, "vllm_version": version, "image": instance.image}
    if instance.found is None:
        return {**labels, **told.in_force}
    launch = instance.found.launch
    balancing = launch.ranks.balancing if launch.ranks.size > 1 else ""
    local = launch.ranks.local // launch.ranks.ports
    return {
        **labels,
        **launch.settings,
        **told.in_force,
        "kv_role": launch.kv_role,
        "kv_connector": launch.kv_connector or "",
        "tensor_parallel": launch.tensor_parallel,
        "pipeline_parallel": launch.pipeline_parallel,
        "data_parallel": launch.data_parallel,
        "expert_parallel": str(launch.expert_parallel).lower(),
        "load_balancing": balancing,
        "data_parallel_local": str(local) if balancing else "",
        "arguments": launch.arguments,
        "image": instance.image or launch.image,
    }
