"""`leadline.yaml`: every key with a default and a line of help; environment and flags override.

Errors are one line each: `ConfigError` names the file or variable, the key, the value and the
nearest right one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    field_validator,
)
from pydantic_core import ErrorDetails

from catalog import yaml_text
from catalog.address import printable, shown
from catalog.config_targets import Kubernetes, Pods, Target
from catalog.config_words import Log, Probe
from catalog.labels import POOLS
from catalog.section import Section as _Model
from catalog.signals import unknown
from catalog.values import WRITTEN, BaseUrl, Bounds, Duration, Listen, Size

ENV_PREFIX: Final = "LEADLINE_"
MAX_CONFIG_BYTES: Final = 4 * 2**20
MAX_LEVELS: Final = 8
_SAID: Final = {
    "string_type": "must be text; put a number or a word such as yes in quotes",
    "tuple_type": "must be a list, as [one, another]",
    "dict_type": "must be a mapping of keys, as {key: value}",
    "model_type": "must be a mapping of keys, as {key: value}",
    "invalid_key": "a key must be text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
}
"""What is wrong by kind of error, where pydantic says it in words of Python."""

DEFAULT_SLA: Final = {"ttft_user_mean": 2.5, "tpot_mean": 0.020}
"""Service levels that hold unless somebody says otherwise, in seconds."""


class ConfigError(Exception):
    """The configuration can't be used; the message is one line with the remedy."""


class Exporter(_Model):
    """The exporter of one node."""

    listen: Listen = Field("127.0.0.1:9840", description="Address and port; loopback unless told.")
    node: str = Field("", description="Name of this node in labels; empty: the host's name.")
    vllm: bool = Field(True, description="Pass the vLLM servers' pages through.")
    discover: bool = Field(True, description="Find vLLM servers in the process table.")
    deadline: Duration = Field(9.0, description="Longest time a scrape may take.")
    target_timeout: Duration = Field(8.0, description="Longest time for one vLLM page.")
    max_page: Size = Field(64 * 2**20, description="Largest vLLM page read.")
    page_budget: Size = Field(
        128 * 2**20,
        description="Most memory that all targets' pages take at once; one beyond it is dropped.",
    )
    targets: tuple[Target, ...] = Field((), description="Pages that can't be found here.")
    file_sd: tuple[str, ...] = Field(
        (), description="Files of targets in Prometheus' format, read again when they change."
    )
    kubernetes: Kubernetes = Kubernetes()
    logs: tuple[Log, ...] = Field((), description="Logs to read; none unless told.")
    log_rate: Size = Field(2**20, description="Most bytes a second read of one server's logs.")
    probe: Probe = Probe()
    proc: str = Field("/proc", description="Where the host's /proc is mounted.")
    sys: str = Field("/sys", description="Where the host's /sys is mounted; cgroups are below it.")
    web_config_file: str = Field(
        "", description="TLS and passwords of the page, as Prometheus' exporter toolkit has them."
    )


class Bound(_Model):
    """SLA and limits of one scope."""

    sla: Bounds = Field({}, description="Service levels by signal, for example tpot_mean: 20ms.")
    limits: Bounds = Field(
        {}, description="Limits by signal, for example host_anon_swap: 64GiB (one server)."
    )


class Deployment(Bound):
    """One P/D group."""

    models: dict[str, Bound] = Field({}, description="SLA and limits of single models.")
    ports: dict[int, str] = Field(
        {}, description="Pool by port of the API, where a command line doesn't tell."
    )

    @field_validator("ports")
    @classmethod
    def _known_pools(cls, value: dict[int, str]) -> dict[int, str]:
        for pool in value.values():
            if pool not in POOLS:
                raise ValueError(unknown("pool", pool, POOLS))
        return value


class Prometheus(_Model):
    """Where signals are read from: any server that speaks Prometheus' query API."""

    url: BaseUrl = Field("http://127.0.0.1:9090", description="Base URL.")
    timeout: Duration = Field(30.0, description="Longest time for one query.")
    step: Duration = Field(60.0, description="Grid of range queries.")
    bearer_token_file: str = Field("", description="File with a token to send, read each time.")


class Alertmanager(_Model):
    """Where findings become notifications."""

    urls: tuple[BaseUrl, ...] = Field((), description="Base URLs of all replicas; none: no alerts.")
    timeout: Duration = Field(10.0, description="Longest time for one post.")


class Service(_Model):
    """The detector service."""

    listen: Listen = Field("127.0.0.1:9841", description="Address and port; loopback unless told.")
    every: Duration = Field(60.0, description="Time from one cycle to the next.")
    history: Duration = Field(7 * 86400.0, description="History read back on first start.")
    state: str = Field("state", description="Folder of the ledger.")
    external_url: str = Field("", description="How people reach the board; empty: its address.")
    grafana_url: str = Field("", description="How people reach Grafana; empty: no links to it.")


class Config(Bound):
    """Everything in `leadline.yaml`."""

    cluster: str = Field("", description="Label cluster of all that this exporter says.")
    namespace: str = Field("", description="Label namespace of all that this exporter says.")
    deployment: str = Field("", description="Default P/D group of servers found here.")
    sla: Bounds = Field(
        DEFAULT_SLA,
        description="Service levels by signal, unless a deployment or model says otherwise; "
        "signals that it leaves out keep their default.",
    )
    deployments: dict[str, Deployment] = Field({}, description="P/D groups by name.")
    exporter: Exporter = Exporter()
    prometheus: Prometheus = Prometheus()
    alertmanager: Alertmanager = Alertmanager()
    service: Service = Service()

    @field_validator("sla")
    @classmethod
    def _with_defaults(cls, value: dict[str, float]) -> dict[str, float]:
        return {**DEFAULT_SLA, **value}

    def limit(self, signal: str, labels: Mapping[str, str]) -> float | None:
        """Return the SLA or limit of *signal* for a series, the nearest scope first; or None."""
        deployment = self.deployments.get(labels.get("deployment", ""))
        model = deployment.models.get(labels.get("model_name", "")) if deployment else None
        for scope in (model, deployment, self):
            if scope is not None:
                for bounds in (scope.limits, scope.sla):
                    if signal in bounds:
                        return bounds[signal]
        return None


def load(
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Config:
    """Return the configuration of *path*, overridden by the environment, then by *overrides*.

    Args:
        path: YAML file; None for defaults.
        environ: `LEADLINE_SERVICE__LISTEN=…` sets `service.listen`; default: the process's.
        overrides: Nested values from flags; None values are left out.

    Amounts of time and bytes need a unit here, as people write them; `Config.model_validate`
    takes numbers in base units from code.

    Raises:
        ConfigError: One line with the file or variable, the key, the value and the remedy.
    """
    raw = _read(path) if path else {}
    variables = _from_environ(os.environ if environ is None else environ)
    try:
        for _, keys, value in variables:
            _merge(raw, _nested(keys, value))
        _merge(raw, overrides or {})
        return Config.model_validate(raw, context=WRITTEN)
    except ValidationError as error:
        first = error.errors()[0]
        location = tuple(str(part) for part in first["loc"])
        by = [v for v, keys, _ in variables if location[: len(keys)] == keys[: len(location)]]
        said = by and not _has(overrides or {}, location)
        raise ConfigError(_one_line(first, by[-1] if said else path)) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if len(text) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_CONFIG_BYTES >> 20} MiB, no configuration")
    raw = _yaml(text, str(path))
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: must be a mapping of keys, not {type(raw).__name__}")
    return raw


def _yaml(text: bytes | str, source: str) -> Any:
    """Return what *text* says.

    Raises:
        ConfigError: One line that names *source*.
    """
    try:
        return yaml_text.read(text, unique=True)
    except yaml_text.YamlError as error:
        raise ConfigError(f"{source}: no valid YAML: {error}") from None


def _from_environ(environ: Mapping[str, str]) -> list[tuple[str, tuple[str, ...], Any]]:
    """Return name, keys and value of each `LEADLINE_A__B=…`; other uses are left alone."""
    found = []
    for variable, text in environ.items():
        keys = tuple(variable.removeprefix(ENV_PREFIX).lower().split("__"))
        if variable.startswith(ENV_PREFIX) and keys[0] in Config.model_fields:
            if len(keys) > MAX_LEVELS:
                raise ConfigError(f"{printable(variable, 100)}: too many levels of keys")
            found.append((variable, keys, _yaml(text, variable) if text else ""))
    return found


def _nested(keys: tuple[str, ...], value: Any) -> dict[str, Any]:
    for key in reversed(keys):
        value = {key: value}
    found: dict[str, Any] = value
    return found


def _has(values: Any, location: tuple[str, ...]) -> bool:
    """Whether flags say something at *location*: they win over the environment."""
    for key in location:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values is not None


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        elif isinstance(value, Mapping):
            into[key] = {}
            _merge(into[key], value)
        elif value is not None:
            into[key] = value


def _fields_at(location: tuple[int | str, ...]) -> list[str]:
    """Return the keys that are known where *location* points into the configuration."""
    model: type[BaseModel] = Config
    inner: dict[str, type[BaseModel]] = {
        "exporter": Exporter, "prometheus": Prometheus, "alertmanager": Alertmanager,
        "service": Service, "targets": Target, "logs": Log, "probe": Probe,
        "kubernetes": Kubernetes, "pods": Pods,
        "deployments": Deployment, "models": Bound,
    }  # fmt: skip
    for key in location:
        model = inner.get(str(key), model)
    return list(model.model_fields)


def _one_line(first: ErrorDetails, source: Path | str | None) -> str:
    location = first["loc"]
    where = printable(".".join(str(part) for part in location))
    source = source or "configuration"
    if first["type"] == "extra_forbidden":
        known = _fields_at(location[:-1])
        return f"{source}: {printable(unknown('key', str(location[-1]), known))} (at {where})"
    said = _SAID.get(first["type"], first["msg"].removeprefix("Value error, "))
    message = printable(said)
    given = first.get("input")
    value = shown(given) if isinstance(given, str | int | float) else ""
    told = f" ({value})" if value and value not in message else ""
    return f"{source}: {where}{told}: {message}"
