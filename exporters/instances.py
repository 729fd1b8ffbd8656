"""The vLLM servers of one scrape, found and configured ones as one list, with their identity.

A configured target that is a server found here (its port, on an address of this node) is that
server, once: what the configuration says of it wins.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final
from urllib.parse import urlsplit

import psutil

from catalog.config import Config, Target
from catalog.labels import Pool, pool_of
from exporters.discovery import Found

_PORTS: Final = {"http": 80, "https": 443}
_ANY: Final = ("", "0.0.0.0", "::", "[::]", "*")  # noqa: S104 - read, not bound to


@dataclass(frozen=True)
class Instance:
    """One vLLM server.

    Attributes:
        labels: Its identity, without `engine`; no empty values.
        node: The node it runs on, as far as we know; empty for one that is elsewhere.
        url: Its metrics page; empty if it has none.
        found: What the process table says of it; None if it isn't there.
    """

    labels: Mapping[str, str]
    node: str
    url: str
    found: Found | None = None

    @property
    def server(self) -> str:
        """The label `server`."""
        return self.labels["server"]

    @cached_property
    def place(self) -> dict[str, str]:
        """Return the identity with the node."""
        return {**self.labels, "node": self.node} if self.node else dict(self.labels)


def node_name(config: Config) -> str:
    """Return the name of this node in labels."""
    return config.exporter.node or socket.gethostname()


def own_addresses() -> frozenset[str]:
    """Return names and addresses by which a URL may mean this node, beside loopback ones."""
    found = {socket.gethostname(), "localhost"}
    for addresses in psutil.net_if_addrs().values():
        found.update(a.address.partition("%")[0] for a in addresses)
    return frozenset(found)


def instances(
    config: Config, found: Iterable[Found], addresses: Collection[str]
) -> tuple[list[Instance], list[str]]:
    """Return the servers to look at, and what is wrong with the list, one line each.

    Args:
        config: For targets, deployments and the names of cluster and node.
        found: What runs here.
        addresses: By which a URL may mean this node.
    """
    node = node_name(config)
    found = list(found)
    by_port = {one.launch.port: one for one in reversed(found) if not one.address}
    whole: list[Instance] = []
    problems: list[str] = []
    for number, target in enumerate(config.exporter.targets):
        try:
            at = _Address.of(target.url, addresses)
        except ValueError:
            problems.append(f"exporter.targets.{number}.url is no http address: not read")
            continue
        twin = by_port.get(at.port) if at.local else None
        whole.append(_configured(config, target, at, node, twin))
    taken = {instance.found.pid for instance in whole if instance.found}
    whole += [_discovered(config, one, node) for one in found if one.pid not in taken]
    listed: dict[str, Instance] = {}
    twice = [one for one in whole if listed.setdefault(one.server, one) is not one]
    problems += [f"{one.server} is there twice: only the first is read" for one in twice]
    return list(listed.values()), problems


@dataclass(frozen=True)
class _Address:
    host: str
    port: int
    local: bool
    loopback: bool

    @classmethod
    def of(cls, url: str, addresses: Collection[str]) -> _Address:
        parts = urlsplit(url)
        host = parts.hostname or ""
        loopback = host == "localhost" or host in _ANY or _is_loopback(host)
        port = parts.port or _PORTS.get(parts.scheme, 80)
        return cls(host, port, loopback or host in addresses, loopback)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _configured(
    config: Config, target: Target, at: _Address, node: str, found: Found | None
) -> Instance:
    launched = found.launch if found else None
    name = node if at.local else _bracketed(at.host)
    labels = _identity(
        config,
        deployment=target.deployment or _deployment(config, at.port)[0],
        pool=_pool(found, target.pool or _deployment(config, at.port)[1]),
        model_name=target.model_name or (launched.model if launched else ""),
        server=target.server or f"{name}:{at.port}",
    )
    return Instance(labels, node if at.local else "", target.url, found)


def _discovered(config: Config, found: Found, node: str) -> Instance:
    launched = found.launch
    deployment, pool = _deployment(config, launched.port)
    host = found.address or node
    labels = _identity(
        config,
        deployment=deployment,
        pool=_pool(found, pool),
        model_name=launched.model,
        server=f"{_bracketed(host)}:{launched.port}",
    )
    return Instance(labels, node, _url(found), found)


def _url(found: Found) -> str:
    """Return where a server that runs here serves its metrics."""
    launched = found.launch
    if launched.headless:
        return ""
    bound = "127.0.0.1" if launched.host in _ANY else launched.host.strip("[]")
    host = found.address or bound
    return f"{'https' if launched.tls else 'http'}://{_bracketed(host)}:{launched.port}/metrics"


def _deployment(config: Config, port: int) -> tuple[str, str]:
    """Return the deployment and the pool that the configuration gives a port, or the defaults."""
    for name, deployment in config.deployments.items():
        if port in deployment.ports:
            return name, deployment.ports[port]
    return config.deployment, ""


def _pool(found: Found | None, configured: str) -> Pool:
    if found is None:
        return pool_of(configured=configured)
    launched = found.launch
    if launched.encoder and not launched.kv_connector:
        configured = configured or "encode"
    told = None if launched.kv_connector is None else bool(launched.kv_connector)
    return pool_of(configured=configured, kv_role=launched.kv_role, kv_connector=told)


def _identity(config: Config, **labels: str) -> dict[str, str]:
    whole = {"cluster": config.cluster, "namespace": config.namespace, **labels}
    return {name: value for name, value in whole.items() if value}
