"""The service starts or says in one line why it can't."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog.config import load
from detectors.service import server


def refusal(caplog: pytest.LogCaptureFixture, **service: str) -> str:
    """Return the one line with which a service doesn't start."""
    caplog.clear()
    with caplog.at_level(logging.INFO):
        assert server.run(load(None, {}, {"service": service})) == 2
    [record] = caplog.records
    assert "\n" not in record.getMessage()
    return record.getMessage()


def test_a_taken_port_is_one_line(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """It names the address and the flag."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        line = refusal(caplog, listen=listen, state=str(tmp_path))
    assert f"cannot listen on {listen}: Address already in use" in line
    assert "--listen" in line


@pytest.mark.parametrize("what", ["folder", "ledger"])
def test_an_unusable_state_folder_is_one_line(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, free_port: int, what: str
) -> None:
    """It names the folder and the flag."""
    state = tmp_path / "state"
    if what == "folder":
        state.write_text("in the way")
    else:
        state.mkdir()
        (state / "ledger.sqlite3").write_text(
            "no database, but long enough to be taken for one" * 9
        )
    line = refusal(caplog, listen=f"127.0.0.1:{free_port}", state=str(state))
    assert str(state) in line
    assert "--state" in line


def test_a_base_address_that_nobody_can_click_is_one_line(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, free_port: int
) -> None:
    """Links of a page are checked before there is a page."""
    line = refusal(
        caplog,
        listen=f"127.0.0.1:{free_port}",
        state=str(tmp_path),
        external_url="board.example",
    )
    assert "service.external_url: 'board.example' is no http address" in line


def test_it_serves_without_prometheus_says_so_and_stops_at_once(
    serve: Callable[..., Any],
    free_port: int,
    wait: Callable[..., Any],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A second one on the same folder is refused; SIGTERM ends it with 0."""
    service = serve("--prometheus", "http://127.0.0.1:9", port=free_port)
    wait(service.ready, 60)
    assert "Prometheus is away" in service.get("/").text
    assert "another leadline serve uses it" in refusal(caplog, state=str(tmp_path / "state"))
    assert service.stop() == 0
