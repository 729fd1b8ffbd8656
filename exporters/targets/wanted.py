"""A target that somebody named: the configuration, a file of targets, or Kubernetes."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.config_targets import Pods, Target
from exporters.targets.access import OPEN, Access, Check


@dataclass(frozen=True)
class Wanted:
    """What is said of a target; empty where nothing is.

    Attributes:
        url: Of its metrics page.
        named: Where it was named, for a message.
        kind: Which program it is: `vllm` or one beside it.
        pool: As said outright, wins over all else.
        role: Value of the pod label `llm-d.ai/role`.
        deployment, namespace, model_name, server, node: Labels.
        image: Of its container.
        pod: Address of its pod; the servers found at it are this target, on whatever port.
        draining: Whether it is being taken away; None where nobody tells.
        access: How it is asked.
    """

    url: str
    named: str
    kind: str = "vllm"
    pool: str = ""
    role: str = ""
    deployment: str = ""
    namespace: str = ""
    model_name: str = ""
    server: str = ""
    node: str = ""
    image: str = ""
    pod: str = ""
    draining: bool | None = None
    access: Access = OPEN


def access(told: Target | Pods) -> Access:
    """Return how the configuration says that targets are asked.

    Pods are asked by their addresses, which no certificate says.
    """
    chain: Check = "chain" if isinstance(told, Pods) else "all"
    return Access(told.token_file, told.ca_file, "nothing" if told.insecure else chain)


def configured(targets: tuple[Target, ...]) -> list[Wanted]:
    """Return the targets of `exporter.targets`."""
    return [
        Wanted(
            target.url,
            f"exporter.targets.{number}.url",
            target.kind,
            target.pool,
            deployment=target.deployment,
            model_name=target.model_name,
            server=target.server,
            access=access(target),
        )
        for number, target in enumerate(targets)
    ]
