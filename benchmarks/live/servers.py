"""The command lines and environments of the prefill and the decode server."""

from __future__ import annotations

import json
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from benchmarks.live.errors import LiveError
from benchmarks.live.install import venv_python
from benchmarks.live.leak_plugin import VARIABLE
from stack.programs import Program, Running

READY_SECONDS = 600.0
MODEL_NAME = "leadline-tiny"
ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
# On a starved CPU the default of 30 s runs out before decode has read, which is a fault of its own.
LEASE_SECONDS = 240
DRAFTS = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}


@dataclass(frozen=True)
class Plan:
    """What a server is started with."""

    pool: str
    port: int
    side_port: int
    core: int

    @property
    def url(self) -> str:
        """Where its API answers."""
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True)
class Server:
    """A vLLM server that was started."""

    plan: Plan
    running: Running


def plans(first_port: int) -> list[Plan]:
    """Prefill and decode: their API and side-channel ports count up from the first port."""
    cores = sorted(os.sched_getaffinity(0))
    return [
        Plan("prefill", first_port, first_port + 2, core=cores[0]),
        Plan("decode", first_port + 1, first_port + 3, core=cores[1 % len(cores)]),
    ]


def check_ports(first_port: int) -> None:
    """Refuse ports in use, before minutes are spent on a start that must fail."""
    for plan in plans(first_port):
        for port in (plan.port, plan.side_port):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError as error:
                    raise LiveError(
                        f"port {port} is taken: free it or choose others by --port"
                    ) from error


def command(plan: Plan, cache: Path) -> list[str]:
    """The command line of one server."""
    transfer = {
        "kv_connector": "NixlConnector",
        "kv_role": ROLES[plan.pool],
        "kv_buffer_device": "cpu",
        "kv_connector_extra_config": {"kv_lease_duration": LEASE_SECONDS},
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
    leaks = plugin is not None and leak_file is not None
    return {
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": str(plan.core),
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(plan.side_port),
        # Also where there is no leak: ours must not lead vLLM to other packages.
        "PYTHONPATH": str(plugin) if leaks else "",
    } | ({VARIABLE: str(leak_file)} if leaks else {})


def program(plan: Plan, cache: Path, env: dict[str, str]) -> Program:
    """One server as a program of the stack."""
    return Program(
        name=plan.pool,
        argv=command(plan, cache),
        health=f"{plan.url}/health",
        ready_within=READY_SECONDS,
        environment=env,
    )
