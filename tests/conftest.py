"""Fixtures that every room's tests share: real Prometheus, real Alertmanager, free ports."""

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import hypothesis
import pytest
import yaml

from stack import configs, programs, servers
from stack.configs import Job

# The same examples on every run, so that a change is judged by what it changed; the search for new
# ones is `make fuzz`.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("search", derandomize=False, deadline=None)
hypothesis.settings.load_profile("repeatable")

NULL_ALERTMANAGER = "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"


@dataclass(frozen=True)
class Server:
    """A real server that runs until the fixture ends."""

    url: str
    folder: Path
    stack: programs.Stack

    def get(self, path: str, **parameters: str | float) -> Any:
        """Return the JSON at a path of it."""
        query = urllib.parse.urlencode(parameters)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.url}{path}?{query}", timeout=30) as reply:
            return json.load(reply)

    def query(self, expression: str, at: float | None = None) -> list[dict[str, Any]]:
        """Return the samples of a PromQL expression, as Prometheus answers them."""
        time = {} if at is None else {"time": at}
        answer = self.get("/api/v1/query", query=expression, **time)
        return list(answer["data"]["result"])


class StartPrometheus(Protocol):
    """Starts a Prometheus; `openmetrics` is a file or its text, filled in before the start."""

    def __call__(
        self,
        *,
        jobs: Sequence[Job] = (),
        rules: Sequence[Path] = (),
        openmetrics: Path | str | None = None,
        alertmanagers: Sequence[str] = (),
        interval: str = "1s",
        port: int | None = None,
        scrapes: Sequence[Mapping[str, Any]] = (),
        features: Sequence[str] = (),
    ) -> Server:
        """Return it, ready; `scrapes` are scrape configurations written out, instead of jobs."""


class StartAlertmanager(Protocol):
    """Starts an Alertmanager with a configuration, a file or its text."""

    def __call__(
        self, config: Path | str = NULL_ALERTMANAGER, *, port: int | None = None
    ) -> Server:
        """Return it, ready."""


@contextmanager
def _prometheus(factory: pytest.TempPathFactory) -> Iterator[StartPrometheus]:
    folder = factory.mktemp("prometheus")
    with programs.Stack(folder / "logs", grace=5.0) as stack:
        count = 0

        def start(
            *,
            jobs: Sequence[Job] = (),
            rules: Sequence[Path] = (),
            openmetrics: Path | str | None = None,
            alertmanagers: Sequence[str] = (),
            interval: str = "1s",
            port: int | None = None,
            scrapes: Sequence[Mapping[str, Any]] = (),
            features: Sequence[str] = (),
        ) -> Server:
            nonlocal count
            count += 1
            home = folder / str(count)
            home.mkdir()
            if isinstance(openmetrics, str):
                text, openmetrics = openmetrics, home / "history.om"
                openmetrics.write_text(text)
            if openmetrics is not None:
                servers.fill(stack, openmetrics, home / "data")
            config = configs.write_prometheus(
                home / "prometheus.yml",
                jobs,
                rules=rules,
                alertmanagers=alertmanagers,
                interval=interval,
            )
            if scrapes:
                written = {**yaml.safe_load(config.read_text()), "scrape_configs": list(scrapes)}
                config.write_text(yaml.safe_dump(written, sort_keys=False))
            port = port or programs.free_port()
            stack.start(
                servers.prometheus(config, home / "data", port, resend="1s", features=features)
            )
            return Server(f"http://127.0.0.1:{port}", home, stack)

        yield start


@contextmanager
def _alertmanager(factory: pytest.TempPathFactory) -> Iterator[StartAlertmanager]:
    folder = factory.mktemp("alertmanager")
    with programs.Stack(folder / "logs", grace=5.0) as stack:
        count = 0

        def start(config: Path | str = NULL_ALERTMANAGER, *, port: int | None = None) -> Server:
            nonlocal count
            count += 1
            home = folder / str(count)
            home.mkdir()
            if isinstance(config, str):
                text, config = config, home / "alertmanager.yml"
                config.write_text(text)
            port = port or programs.free_port()
            stack.start(servers.alertmanager(config, home / "data", port))
            return Server(f"http://127.0.0.1:{port}", home, stack)

        yield start


@pytest.fixture
def free_port() -> int:
    """A TCP port of the loopback address that nobody has."""
    return programs.free_port()


@pytest.fixture
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartPrometheus]:
    """Starts real Prometheus servers, stopped when the test ends."""
    with _prometheus(tmp_path_factory) as start:
        yield start


@pytest.fixture(scope="module")
def module_prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartPrometheus]:
    """Starts real Prometheus servers, stopped when the module's tests end."""
    with _prometheus(tmp_path_factory) as start:
        yield start


@pytest.fixture
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartAlertmanager]:
    """Starts real Alertmanagers, stopped when the test ends."""
    with _alertmanager(tmp_path_factory) as start:
        yield start


@pytest.fixture(scope="module")
def module_alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartAlertmanager]:
    """Starts real Alertmanagers, stopped when the module's tests end."""
    with _alertmanager(tmp_path_factory) as start:
        yield start
