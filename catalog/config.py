"""`leadline.yaml`: every key with a default and a line of help; environment and flags override.

Errors are one line each: `ConfigError` names the file or variable, the key, the value and the
nearest right one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from catalog.labels import POOLS
from catalog.signals import SIGNALS, unknown
from catalog.units import duration, parse

ENV_PREFIX: Final = "LEADLINE_"
MAX_CONFIG_BYTES: Final = 4 * 2**20


DEFAULT_SLA: Final = {"ttft_user_mean": 2.5, "tpot_mean": 0.020}
"""Service levels that hold unless somebody says otherwise, in seconds."""


class ConfigError(Exception):
    """The configuration can't be used; the message is one line with the remedy."""


def _seconds(value: object) -> object:
    return duration(value) if isinstance(value, str) else value


def _bytes(value: object) -> object:
    return parse(value, "bytes") if isinstance(value, str) else value


Duration = Annotated[float, BeforeValidator(_seconds), Field(gt=0)]
Size = Annotated[float, BeforeValidator(_bytes), Field(gt=0)]


def _bounds(value: object) -> object:
    """Read `{signal: value}`, values in the signal's unit as people write them."""
    if not isinstance(value, Mapping):
        return value
    read: dict[str, float] = {}
    for name, amount in value.items():
        if name not in SIGNALS:
            raise ValueError(unknown("signal", str(name), SIGNALS))
        number = parse(amount, SIGNALS[name].unit) if isinstance(amount, str) else float(amount)
        if not 0 < number < float("inf"):
            raise ValueError(f"{name}: {amount!r} must be a number above zero")
        read[name] = number
    return read


Bounds = Annotated[dict[str, float], BeforeValidator(_bounds)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Target(_Model):
    """One vLLM server to scrape beside those found in the process table."""

    url: str = Field(description="Address of its metrics page, http://host:port/metrics.")
    pool: str = Field("", description="prefill, decode, aggregate, encode, router; empty: found.")
    deployment: str = Field("", description="P/D group it belongs to; empty: the default.")
    model_name: str = Field("", description="Model name, where the page doesn't say.")
    server: str = Field("", description="Name in the label server; empty: host:port of the URL.")

    @field_validator("pool")
    @classmethod
    def _known_pool(cls, value: str) -> str:
        if value and value not in POOLS:
            raise ValueError(unknown("pool", value, POOLS))
        return value

    @field_validator("url")
    @classmethod
    def _http(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")):
            raise ValueError(f"{value!r} is no http address (http://host:port/metrics)")
        return value


class Exporter(_Model):
    """The exporter of one node."""

    listen: str = Field("127.0.0.1:9840", description="Address and port; loopback unless told.")
    node: str = Field("", description="Name of this node in labels; empty: the host's name.")
    vllm: bool = Field(True, description="Pass the vLLM servers' pages through.")
    discover: bool = Field(True, description="Find vLLM servers in the process table.")
    deadline: Duration = Field(9.0, description="Longest time a scrape may take.")
    target_timeout: Duration = Field(8.0, description="Longest time for one vLLM page.")
    max_page: Size = Field(64 * 2**20, description="Largest vLLM page read.")
    targets: tuple[Target, ...] = Field((), description="Servers that can't be found here.")


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

    url: str = Field("http://127.0.0.1:9090", description="Base URL.")
    timeout: Duration = Field(30.0, description="Longest time for one query.")
    step: Duration = Field(60.0, description="Grid of range queries.")
    bearer_token_file: str = Field("", description="File with a token to send, read each time.")


class Alertmanager(_Model):
    """Where findings become notifications."""

    urls: tuple[str, ...] = Field((), description="Base URLs of all replicas; none: no alerts.")
    timeout: Duration = Field(10.0, description="Longest time for one post.")


class Service(_Model):
    """The detector service."""

    listen: str = Field("127.0.0.1:9841", description="Address and port; loopback unless told.")
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

    Raises:
        ConfigError: One line with the file or variable, the key, the value and the remedy.
    """
    raw = _read(path) if path else {}
    _merge(raw, _from_environ(os.environ if environ is None else environ))
    _merge(raw, overrides or {})
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(_one_line(error, path)) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_CONFIG_BYTES + 1)
        if len(text) > MAX_CONFIG_BYTES:
            raise ConfigError(f"{path}: larger than {MAX_CONFIG_BYTES >> 20} MiB, no configuration")
        raw = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigError(f"{path}: {reason}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: no valid YAML: {' '.join(str(error).split())}") from None
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: must be a mapping of keys, not {type(raw).__name__}")
    return raw


def _from_environ(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return nested values of `LEADLINE_A__B=…`; names of other uses are left alone."""
    found: dict[str, Any] = {}
    for variable, value in environ.items():
        if not variable.startswith(ENV_PREFIX):
            continue
        keys = variable.removeprefix(ENV_PREFIX).lower().split("__")
        if keys[0] not in Config.model_fields:
            continue
        inner: Any = yaml.safe_load(value) if value else ""
        for key in reversed(keys):
            inner = {key: inner}
        _merge(found, inner)
    return found


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
        "service": Service, "targets": Target, "deployments": Deployment, "models": Bound,
    }  # fmt: skip
    for key in location:
        model = inner.get(str(key), model)
    return list(model.model_fields)


def _one_line(error: ValidationError, path: Path | None) -> str:
    first = error.errors()[0]
    location = first["loc"]
    where = ".".join(str(part) for part in location)
    source = path or "configuration"
    if first["type"] == "extra_forbidden":
        known = _fields_at(location[:-1])
        return f"{source}: {unknown('key', str(location[-1]), known)} (at {where})"
    message = first["msg"].removeprefix("Value error, ")
    given = first.get("input")
    value = f" ({given!r})" if isinstance(given, str | int | float) else ""
    return f"{source}: {where}{value}: {message}"
