"""Start and stop the prefill and the decode server, each a process group of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.live.errors import LiveError
from benchmarks.live.install import venv_python
from benchmarks.live.leak_plugin import VARIABLE

READY_SECONDS = 600.0
STOP_SECONDS = 20.0
MODEL_NAME = "leadline-tiny"
ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
DRAFTS = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}


@dataclass(frozen=True)
class Plan:
    """What a server is started with."""

    pool: str
    port: int
    side_port: int
    core: int


@dataclass
class Server:
    """A running vLLM server."""

    plan: Plan
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        """Where its API answers."""
        return f"http://127.0.0.1:{self.plan.port}"

    def alive(self) -> bool:
        """Whether the API server process still runs."""
        return self.process.poll() is None


def check_port(port: int, flag: str) -> None:
    """Refuse a port that is in use, before minutes are spent on a start that must fail."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise LiveError(f"port {port} is taken: free it or choose others by {flag}") from error


def command(plan: Plan, cache: Path) -> list[str]:
    """The command line of one server."""
    transfer = {
        "kv_connector": "NixlConnector",
        "kv_role": ROLES[plan.pool],
        "kv_buffer_device": "cpu",
    }
    line = [str(venv_python(cache).parent / "vllm"), "serve", str(cache / "model")]
    line += ["--served-model-name", MODEL_NAME, "--host", "127.0.0.1", "--port", str(plan.port)]
    line += ["--max-model-len", "2048", "--dtype", "bfloat16", "--enforce-eager"]
    line += ["--kv-transfer-config", json.dumps(transfer)]
    if plan.pool == "decode":
        line += ["--speculative-config", json.dumps(DRAFTS)]
    # Its workers spin for work; niced, they take only what the machine has to spare.
    nice = shutil.which("nice")
    return [nice, "-n", "15", *line] if nice else line


def environment(plan: Plan, plugin: Path | None, leak_file: Path | None) -> dict[str, str]:
    """The environment of one server; the leak is switched on by a variable of its own."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", VARIABLE)}
    env |= {
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": str(plan.core),
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(plan.side_port),
    }
    if plugin is not None and leak_file is not None:
        env |= {"PYTHONPATH": str(plugin), VARIABLE: str(leak_file)}
    return env


def start(plan: Plan, cache: Path, folder: Path, env: dict[str, str]) -> Server:
    """Start one server with its output in a log."""
    log = folder / f"{plan.pool}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command(plan, cache),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Server(plan, process, log)


def is_ready(server: Server) -> bool:
    """Whether the server answers; a dead one is an error with its log named."""
    if not server.alive():
        raise LiveError(f"the {server.plan.pool} server ended at its start: see {server.log}")
    try:
        return httpx.get(f"{server.url}/health", timeout=5.0).status_code == 200
    except httpx.HTTPError:
        return False


def stop(servers: list[Server], patience: float = STOP_SECONDS) -> None:
    """Stop the servers with all their children, kindly first."""
    for sent, seconds in ((signal.SIGINT, patience), (signal.SIGKILL, 5.0)):
        for server in servers:
            _signal_group(server.process.pid, sent)
        limit = time.monotonic() + seconds
        while any(_group_lives(s) for s in servers) and time.monotonic() < limit:
            time.sleep(0.2)
        if not any(_group_lives(s) for s in servers):
            return


def _signal_group(group: int, sent: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, sent)


def _group_lives(server: Server) -> bool:
    server.process.poll()
    try:
        os.killpg(server.process.pid, 0)
    except ProcessLookupError:
        return False
    return True
