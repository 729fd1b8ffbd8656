"""The parts of `leadline.yaml` about targets: named ones, files of them, and Kubernetes."""

from __future__ import annotations

import re
from typing import Final, Literal, get_args

from pydantic import Field, field_validator, model_validator

from catalog.address import http_address, shown
from catalog.labels import LLMD_ROLE_LABEL, POOLS
from catalog.section import Section
from catalog.signals import unknown
from catalog.values import Duration, PageUrl

Kind = Literal["vllm", "router", "vllm_router", "sidecar", "kv_index", "lmcache", "nixl", "dcgm"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
"""Programs whose pages are known: vLLM and those beside it."""

_SELECTOR = re.compile(r"[A-Za-z0-9_./!=,() -]{0,512}")
_NAME = re.compile(r"[A-Za-z0-9_./-]{0,253}")


def known_pool(value: str) -> str:
    """Return *value* if it is a pool, or empty.

    Raises:
        ValueError: One line that names the nearest.
    """
    if value and value not in POOLS:
        raise ValueError(unknown("pool", value, POOLS))
    return value


def known_kind(value: object) -> object:
    """Return *value* if it is a kind of program.

    Raises:
        ValueError: One line that names the nearest.
    """
    if value not in KINDS:
        raise ValueError(unknown("kind", str(value)[:100], KINDS))
    return value


class Target(Section):
    """One page to scrape beside the servers found in the process table."""

    url: PageUrl = Field(description="Address of its metrics page, http://host:port/metrics.")
    kind: Kind = Field("vllm", description=f"The program it is of: {', '.join(KINDS)}.")
    pool: str = Field("", description="prefill, decode, aggregate, encode, router; empty: found.")
    deployment: str = Field("", description="P/D group it belongs to; empty: the default.")
    model_name: str = Field("", description="Model name, where the page doesn't say.")
    server: str = Field("", description="Name in the label server; empty: host:port of the URL.")
    on_request: bool = Field(False, description="Only at /probe?target=SERVER, not on /metrics.")
    token_file: str = Field("", description="File of the bearer token it is sent, read each time.")
    ca_file: str = Field("", description="What its certificate must be signed by; empty: system's.")
    insecure: bool = Field(False, description="Do not check its certificate.")

    _pool = field_validator("pool")(known_pool)
    _kind = field_validator("kind", mode="before")(known_kind)


class Pods(Section):
    """Pods of one kind of program."""

    selector: str = Field(LLMD_ROLE_LABEL, description="Label selector, as kubectl takes it.")
    namespace: str = Field("", description="Namespace; empty: all.")
    kind: Kind = Field("vllm", description=f"The program they are of: {', '.join(KINDS)}.")
    port: int = Field(
        0, ge=0, lt=1 << 16,
        description="Port of the page; 0: annotation prometheus.io/port, else the container's "
        "port called metrics or http.",
    )  # fmt: skip
    path: str = Field("/metrics", description="Path of the page.")
    pool: str = Field("", description="Pool; empty: the pod's label llm-d.ai/role.")
    deployment: str = Field("", description="P/D group; empty: the deployment_label's value.")
    token_file: str = Field(
        "", description="File of the bearer token that each is sent; only with a namespace, since "
        "whoever may make a pod there gets it.",
    )  # fmt: skip
    ca_file: str = Field(
        "", description="What their certificates must be signed by, whatever name they say; "
        "empty: the system's.",
    )  # fmt: skip
    insecure: bool = Field(False, description="Do not check their certificates.")

    _pool = field_validator("pool")(known_pool)
    _kind = field_validator("kind", mode="before")(known_kind)

    @field_validator("selector")
    @classmethod
    def _is_selector(cls, value: str) -> str:
        if not _SELECTOR.fullmatch(value):
            raise ValueError(f"{shown(value)} is no label selector (write llm-d.ai/role=decode)")
        return value

    @field_validator("namespace")
    @classmethod
    def _is_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value) or "/" in value or ".." in value:
            raise ValueError(f"{shown(value)} is no namespace")
        return value

    @model_validator(mode="after")
    def _is_told_to_few(self) -> Pods:
        if self.token_file and not self.namespace:
            raise ValueError("token_file needs a namespace: else any pod of the cluster may get it")
        return self

    @field_validator("path")
    @classmethod
    def _is_path(cls, value: str) -> str:
        http_address(f"http://host:1{value}", "/metrics")
        if not value.startswith("/"):
            raise ValueError(f"{shown(value)} is no path (write /metrics)")
        return value


class Kubernetes(Section):
    """Pods found by the API of the cluster that the exporter itself runs in."""

    enabled: bool = Field(False, description="Ask the API for pods.")
    all_nodes: bool = Field(False, description="Pods of all nodes; else of exporter.node alone.")
    pods: tuple[Pods, ...] = Field((Pods(),), description="Which pods, by kind of program.")
    deployment_label: str = Field(
        "llm-d.ai/model", description="Label of a pod that names its P/D group."
    )
    refresh: Duration = Field(30.0, description="Time between two lists.")
    timeout: Duration = Field(3.0, description="Longest time for one list.")
    api: str = Field("", description="Address of the API; empty: as the cluster says.")
    token_file: str = Field(
        "/var/run/secrets/kubernetes.io/serviceaccount/token",
        description="Token of the service account, read each time.",
    )
    ca_file: str = Field(
        "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
        description="Certificates that the API's must be signed by.",
    )

    @field_validator("api")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if value and not value.startswith("https://"):
            raise ValueError(f"{shown(value)} is no https address: the token would go in the open")
        return http_address(value, "https://host:port") if value else value
