"""The vLLM servers of one scrape and the programs beside them, each once, with their identity.

A target that was named and is a server found here (its port, on an address of this node; or its
pod's address) is that server, once: what was said of it wins.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final
from urllib.parse import urlsplit

import psutil

from catalog.config import Config
from catalog.labels import Pool, pool_of
from exporters.targets.access import OPEN, Access
from exporters.targets.discovery import Found
from exporters.targets.wanted import Wanted, configured

ROUTERS: Final = ("router", "vllm_router", "kv_index")
"""Kinds of target that serve a whole deployment."""
# A process of this node, known by its id and asked where it listens: its certificate names a
# service, and what it says goes over no network.
_FOUND: Final = Access(check="nothing")
_PORTS: Final = {"http": 80, "https": 443}
_ANY: Final = ("", "0.0.0.0", "::", "[::]", "*")  # noqa: S104 - read, not bound to


@dataclass(frozen=True)
class Instance:
    """One vLLM server, or a program beside it.

    Attributes:
        labels: Its identity, without `engine`; no empty values.
        node: The node it runs on, as far as we know; empty for one that is elsewhere.
        url: Its metrics page; empty if it has none.
        found: What the process table says of it; None if it isn't there.
        kind: Which program it is.
        image: Its container's image, as far as we know.
        draining: Whether it is being taken away; None where nobody tells.
        access: How its page is asked for.
    """

    labels: Mapping[str, str]
    node: str
    url: str
    found: Found | None = None
    kind: str = "vllm"
    image: str = ""
    draining: bool | None = None
    access: Access = OPEN

    @property
    def server(self) -> str:
        """The label `server`."""
        return self.labels["server"]

    @property
    def incarnation(self) -> tuple[str, int]:
        """What tells a server from the one that ran in its place before."""
        return self.server, self.found.pid if self.found else 0

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
    config: Config,
    found: Iterable[Found],
    addresses: Collection[str],
    named: Iterable[Wanted] = (),
) -> tuple[list[Instance], list[str]]:
    """Return the servers and programs to look at, and what is wrong with the list, a line each.

    Args:
        config: For targets, deployments and the names of cluster and node.
        found: What runs here.
        addresses: By which a URL may mean this node.
        named: Targets beside those of the configuration.
    """
    node = node_name(config)
    table = _Table(found)
    whole: list[Instance] = []
    problems: list[str] = []
    for want in (*configured(config.exporter.targets), *named):
        try:
            at = _Address.of(want.url, addresses)
        except ValueError:
            problems.append(f"{want.named} is no http address: not read")
            continue
        whole += _listed(config, want, at, node, table)
    whole += [_discovered(config, one, node) for one in table.rest()]
    listed: dict[str, Instance] = {}
    twice = [one for one in whole if listed.setdefault(one.server, one) is not one]
    problems += [f"{one.server} is there twice: only the first is read" for one in twice]
    return list(listed.values()), problems


class _Table:
    """The servers found here, and which of them somebody named."""

    def __init__(self, found: Iterable[Found]) -> None:
        self._found = list(found)
        self._named: set[int] = set()

    def twins(self, want: Wanted, at: _Address) -> list[Found]:
        """Return the servers found here that a target means, each for its first namer alone."""
        if want.kind != "vllm":
            return []
        fresh = [
            n for n, one in enumerate(self._found)
            if n not in self._named and self._same(one, want, at)
        ]  # fmt: skip
        self._named.update(fresh)
        return [self._found[n] for n in fresh]

    def known(self, want: Wanted) -> bool:
        """Whether servers were found in the pod of a target, so that nothing of it is new."""
        return bool(want.pod) and any(want.pod in one.addresses for one in self._found)

    def rest(self) -> list[Found]:
        """Return the servers that nobody named."""
        return [one for n, one in enumerate(self._found) if n not in self._named]

    @staticmethod
    def _same(one: Found, want: Wanted, at: _Address) -> bool:
        """Whether a target means a server; a pod's means all of the pod's, on whatever port.

        A proxy in the pod may hold the port that the pod shows, with vLLM on another behind it.
        """
        if want.pod:
            return want.pod in one.addresses
        here = at.local if not one.addresses else at.host in one.addresses
        return here and one.launch.port == at.port


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


def _listed(
    config: Config, want: Wanted, at: _Address, node: str, table: _Table
) -> Iterator[Instance]:
    """Yield what a named target is: the servers found here that it means, else itself."""
    twins = table.twins(want, at)
    for found in twins:
        yield _named(config, want, at, node, found)
    if not twins and not (want.kind == "vllm" and table.known(want)):
        yield _named(config, want, at, node, None)


def _named(config: Config, want: Wanted, at: _Address, node: str, found: Found | None) -> Instance:
    launched = found.launch if found else None
    here = at.local or found is not None
    port = launched.port if launched else at.port
    host = found.address if found and found.address else node if here else at.host
    deployment, pool = _deployment(config, port)
    labels = _identity(
        config,
        namespace=want.namespace or config.namespace,
        deployment=want.deployment or deployment,
        pool=_pool_of(want, found, pool),
        model_name=want.model_name or (launched.model if launched else ""),
        server=want.server or f"{_bracketed(host)}:{port}",
    )
    url = want.url if launched is None or port == at.port else _url(found)
    place = node if here else want.node
    told = want.access.token_file or want.access.ca_file
    access = _FOUND if found and not told else want.access
    return Instance(labels, place, url, found, want.kind, want.image, want.draining, access)


def _discovered(config: Config, found: Found, node: str) -> Instance:
    launched = found.launch
    deployment, pool = _deployment(config, launched.port)
    host = found.address or node
    labels = _identity(
        config,
        namespace=config.namespace,
        deployment=deployment,
        pool=_pool(found, pool),
        model_name=launched.model,
        server=f"{_bracketed(host)}:{launched.port}",
    )
    return Instance(labels, node, _url(found), found, access=_FOUND)


def _url(found: Found | None) -> str:
    """Return where a server that runs here serves its metrics."""
    if found is None:
        return ""
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


def _pool(found: Found | None, configured: str, role: str = "") -> Pool:
    if found is None:
        return pool_of(configured=configured, role_label=role)
    launched = found.launch
    if launched.encoder and not launched.kv_connector and not role:
        configured = configured or "encode"
    told = None if launched.kv_connector is None else bool(launched.kv_connector)
    return pool_of(
        configured=configured, role_label=role, kv_role=launched.kv_role, kv_connector=told
    )


def _pool_of(want: Wanted, found: Found | None, configured: str) -> str:
    """Return the pool of a named target; of a program beside vLLM what was said of it, or none."""
    if want.kind == "vllm":
        return _pool(found, want.pool or configured, want.role)
    if want.kind in ROUTERS:
        return want.pool or "router"
    return pool_of(configured=want.pool, role_label=want.role) if want.pool or want.role else ""


def _identity(config: Config, **labels: str) -> dict[str, str]:
    whole = {"cluster": config.cluster, **labels}
    return {name: value for name, value in whole.items() if value}
