"""Where targets beside those of the process table and the configuration come from.

Each source keeps what it last heard: a file that breaks or an API that is away for a while takes no
server off the page, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from catalog.config import Config
from exporters.look import Result, Task
from exporters.targets.file_sd import FileSd
from exporters.targets.kubernetes import Kubernetes
from exporters.targets.wanted import Wanted

FILE_SD: Final = "file_sd"
KUBERNETES: Final = "kubernetes"


class Sources:
    """The sources that the configuration names."""

    def __init__(self, config: Config, clock: Callable[[], float]) -> None:
        self._files = FileSd(config.exporter.file_sd)
        self._kubernetes = Kubernetes(config, clock)
        self._tasks: dict[str, Task] = {}
        if config.exporter.file_sd:
            self._tasks[FILE_SD] = Task(self._read_files)
        if config.exporter.kubernetes.enabled:
            self._tasks[KUBERNETES] = Task(self._ask_kubernetes)

    def due(self) -> Mapping[tuple[str, str], Task]:
        """Return what brings the sources up to date, by collector and server."""
        return {(name, ""): task for name, task in self._tasks.items()}

    def wanted(self) -> list[Wanted]:
        """Return the targets that the sources named last."""
        return [*self._files.wanted, *self._kubernetes.wanted]

    def _read_files(self) -> Result:
        self._files.refresh()
        return Result(problem=self._files.problem)

    def _ask_kubernetes(self) -> Result:
        self._kubernetes.refresh()
        return Result(problem=self._kubernetes.problem)
