"""Pods from the API of the cluster that the exporter runs in, without a client library.

One list per kind of program, of this node's pods unless told otherwise, asked for again every
`refresh`; in between and while the API is away the last answer holds. A pod that is being deleted
is scraped until it is gone, and marked as draining.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from catalog.address import bare_url, http_address
from catalog.config import Config
from catalog.config_targets import Pods
from catalog.labels import LLMD_ROLE_LABEL
from exporters.fetch import FetchError, fetch
from exporters.targets.instances import node_name
from exporters.targets.wanted import Wanted, access

MAX_BYTES: Final = 32 << 20
MAX_TOKEN: Final = 1 << 16
MAX_PAGES: Final = 20
MAX_PODS: Final = 5000
_PAGE: Final = 250
_NAMED: Final = ("metrics", "http-metrics", "http", "https", "vllm", "api")
_OVER: Final = ("Succeeded", "Failed")


class Kubernetes:
    """Lists pods; `wanted` and `problem` are what the last list came to."""

    def __init__(
        self,
        config: Config,
        clock: Callable[[], float],
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._config = config
        self._told = config.exporter.kubernetes
        self._clock = clock
        self._environ = environ
        self._again: float | None = None
        self.wanted: list[Wanted] = []
        self.problem = ""

    def refresh(self) -> None:
        """Ask again if it is time to."""
        now = self._clock()
        if self._again is not None and now < self._again:
            return
        self._again = now + self._told.refresh
        try:
            self.wanted = list(self._listed(now + self._told.timeout))
            self.problem = ""
        except (FetchError, OSError, ValueError, RecursionError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            kept = f"; {len(self.wanted)} targets kept" if self.wanted else ""
            self.problem = f"pods can't be listed: {reason or type(error).__name__}{kept}"

    def _listed(self, deadline: float) -> Iterator[Wanted]:
        headers, context = self._credentials()
        for pods in self._told.pods:
            for pod in self._pods(pods, headers, context, deadline):
                yield from targets(pod, pods, self._told.deployment_label)

    def _pods(
        self, pods: Pods, headers: Mapping[str, str], context: ssl.SSLContext, deadline: float
    ) -> Iterator[Mapping[str, Any]]:
        query = {"labelSelector": pods.selector, "limit": str(_PAGE)}
        if not self._told.all_nodes:
            query["fieldSelector"] = f"spec.nodeName={node_name(self._config)}"
        place = f"namespaces/{pods.namespace}/pods" if pods.namespace else "pods"
        seen = 0
        for _ in range(MAX_PAGES):
            address = f"{self._api()}/api/v1/{place}?{urlencode(query)}"
            left = deadline - self._clock()
            if left <= 0:
                raise FetchError(f"no whole list within {self._told.timeout:.3g} s")
            text = fetch(address, left, MAX_BYTES, headers=headers, context=context)
            read = json.loads(text)
            items = read.get("items") if isinstance(read, dict) else None
            if not isinstance(items, list):
                raise ValueError("the answer is no list of pods")
            yield from (pod for pod in items if isinstance(pod, dict))
            seen += len(items)
            query["continue"] = str((read.get("metadata") or {}).get("continue") or "")
            if not query["continue"]:
                return
            if seen >= MAX_PODS:
                break
        raise ValueError(f"more than {MAX_PODS} pods: a narrower selector is needed")

    def _api(self) -> str:
        if self._told.api:
            return self._told.api.rstrip("/")
        host = self._environ.get("KUBERNETES_SERVICE_HOST", "")
        port = self._environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise ValueError("not in a cluster (no KUBERNETES_SERVICE_HOST; set kubernetes.api)")
        return f"https://{f'[{host}]' if ':' in host else host}:{port}"

    def _credentials(self) -> tuple[dict[str, str], ssl.SSLContext]:
        """Return headers and trust; tokens are short-lived, so the file is read each time."""
        with Path(self._told.token_file).open("rb") as file:
            token = file.read(MAX_TOKEN).decode("ascii", "replace").strip()
        if not token or not token.isprintable():
            raise ValueError("the token file holds no token")
        context = ssl.create_default_context(cafile=self._told.ca_file)
        return {"Authorization": f"Bearer {token}", "Accept": "application/json"}, context


def targets(pod: Mapping[str, Any], pods: Pods, deployment_label: str) -> Iterator[Wanted]:
    """Yield the pages of a pod; none while it has no address, or when it has ended."""
    meta, spec, status = (_table(pod, part) for part in ("metadata", "spec", "status"))
    address = str(status.get("podIP") or "")
    if not address or status.get("phase") in _OVER:
        return
    labels, notes = _table(meta, "labels"), _table(meta, "annotations")
    scheme = "https" if notes.get("prometheus.io/scheme") == "https" else "http"
    host = f"[{address}]" if ":" in address else address
    for port in _ports(spec, notes, pods):
        # Anybody who may label a pod writes this: `@other.host/` would lead us astray.
        path = str(notes.get("prometheus.io/path") or pods.path)
        url = f"{scheme}://{host}:{port}{path}"
        if not path.startswith("/") or not _sound(url):
            continue
        node = str(spec.get("nodeName") or "")
        shared = bool(spec.get("hostNetwork"))
        yield Wanted(
            url,
            f"pod {meta.get('name', '')} ({bare_url(url)})",
            pods.kind,
            pods.pool,
            str(labels.get(LLMD_ROLE_LABEL) or ""),
            pods.deployment or str(labels.get(deployment_label) or ""),
            str(meta.get("namespace") or ""),
            # Pods in their node's network go by its name, as the exporter there calls them.
            server=f"{node}:{port}" if shared and node else "",
            node=node,
            image=_image(spec, port),
            pod="" if shared else address,
            draining=bool(meta.get("deletionTimestamp")),
            access=access(pods),
        )


def _sound(url: str) -> bool:
    try:
        http_address(url, "")
    except ValueError:
        return False
    return True


def _table(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = of.get(name)
    return found if isinstance(found, dict) else {}


def _containers(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = spec.get("containers")
    return [c for c in found if isinstance(c, dict)] if isinstance(found, list) else []


def _open(container: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return name and number of a container's TCP ports."""
    found = container.get("ports")
    ports = [p for p in found if isinstance(p, dict)] if isinstance(found, list) else []
    return [
        (str(p.get("name") or ""), int(p["containerPort"]))
        for p in ports
        if isinstance(p.get("containerPort"), int) and p.get("protocol", "TCP") == "TCP"
    ]


def _ports(spec: Mapping[str, Any], notes: Mapping[str, Any], pods: Pods) -> list[int]:
    """Return the ports that serve pages: configured, annotated, by name, or the only one."""
    if pods.port:
        return [pods.port]
    told = str(notes.get("prometheus.io/port") or "")
    if told.isascii() and told.isdecimal() and len(told) <= 5:
        return [int(told)]
    containers = _containers(spec)
    own = [c for c in containers if c.get("name") in ("vllm", "modelserver")] or containers
    ports = [port for container in own for port in _open(container)]
    for wanted in _NAMED:
        # One port a rank is called http-0, http-1, and so on.
        named = [n for name, n in ports if name.rstrip("0123456789").rstrip("-") == wanted]
        if named:
            return sorted(set(named))
    return [ports[0][1]] if len(ports) == 1 else []


def _image(spec: Mapping[str, Any], port: int) -> str:
    """Return the image of the container that has a port, else of the only one."""
    containers = _containers(spec)
    having = [c for c in containers if any(n == port for _, n in _open(c))]
    one = having or (containers if len(containers) == 1 else [])
    return str(one[0].get("image") or "")[:255] if one else ""
