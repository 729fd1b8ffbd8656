"""Collector `gpu`: what NVML says of each GPU; a node without GPU or driver has none of it.

A GPU that hangs or fell off the bus is a problem with its number, and the others stay. Each is read
in a thread that can be left behind, but one after the other: NVML's GPM crashed when two threads
asked it at once (two H200s, driver 580). NVML keeps dead handles, so it is started anew while a GPU
is lost, but seldom: a start forgets the samples that means are taken between. A GPU that was there
once and is no more, or whose driver is gone, is told as down and never forgotten.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, Final

from catalog.address import printable
from exporters.gpu.device import Device
from exporters.gpu.nvml import Nvml
from exporters.look import Look, Result, Task
from exporters.threads import Threads

log = logging.getLogger("leadline.exporters")

MAX_GPUS: Final = 64
RESTART_SECONDS: Final = 300.0
_SHARE: Final = 0.8  # of the scrape's time: the rest is for putting the answers together


class Gpu:
    """Reads all GPUs of the node.

    Args:
        library: The NVML binding; None: pynvml, where it and the driver are there.
        clock: Monotonic seconds.
    """

    def __init__(self, library: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._library = library
        self._clock = clock
        self._nvml: Nvml | None = None
        self._started = 0.0
        self._said = False
        self._devices: dict[int, Device] = {}
        self._busy: dict[int, Future[Result]] = {}
        self._known: dict[str, int] = {}  # number by UUID
        self._threads: Threads[Result] = Threads(MAX_GPUS)

    def tasks(self, look: Look) -> Mapping[str, Task]:
        """Return the one task of this collector; while NVML itself hangs, all GPUs are down."""
        down = Result()
        self._tell(look, {}, down)
        return {"": Task(partial(self.collect, look), down.families)}

    def collect(self, look: Look) -> Result:
        """Read every GPU; one that fails is named and the others stay."""
        until = self._clock() + _SHARE * look.seconds
        nvml = self._nvml or self._start()
        if nvml is None:
            result = Result(problem="NVML can't be started any more" if self._known else "")
            self._tell(look, {}, result)
            return result
        try:
            count = min(int(nvml.library.nvmlDeviceGetCount()), MAX_GPUS)
        except nvml.error as error:
            self._stop(nvml)
            result = Result(problem=_line(error))
            self._tell(look, {}, result)
            return result
        result, problems = self._read(nvml, look, count, until)
        result.problem = "; ".join(problems)
        if not all(device.answers for device in self._devices.values()):
            self._restart(nvml)
        return result

    def _start(self) -> Nvml | None:
        """Start NVML; a driver that is loaded later is found by a later scrape."""
        try:
            if self._library is None:
                import pynvml  # noqa: PLC0415 - loaded by the first scrape, not by every command

                self._library = pynvml
            self._library.nvmlInit()
        except Exception as error:  # noqa: BLE001 - no binding, no library, no driver: no GPU here
            if not self._said:
                log.info("no GPU metrics: %s", printable(_line(error)))
            self._said = True
            return None
        self._nvml = Nvml(self._library)
        self._started = self._clock()
        return self._nvml

    def _read(self, nvml: Nvml, look: Look, count: int, until: float) -> tuple[Result, list[str]]:
        """Read one GPU after another until a moment; one that hangs is left behind."""
        self._busy = {index: f for index, f in self._busy.items() if not f.done()}
        problems = [f"GPU {index}: no answer since an earlier scrape" for index in self._busy]
        result = Result()
        todo = [index for index in range(count) if index not in self._busy]
        answers: dict[int, bool] = dict.fromkeys(self._busy, False)
        for place, index in enumerate(todo):
            future = self._threads.submit(partial(self._device(nvml, index).read, look))
            left = max(0.0, until - self._clock())
            wait([future], timeout=left / (len(todo) - place))
            answers[index] = False
            if not future.done():
                self._busy[index] = future
                problems.append(f"GPU {index}: no answer in time")
                continue
            try:
                one = future.result()
            except Exception as error:  # noqa: BLE001 - what one GPU answers costs no other's
                problems.append(f"GPU {index}: {_line(error)}")
                continue
            result.families.take(one.families)
            answers[index] = self._devices[index].answers
            if one.problem:
                problems.append(f"GPU {index}: {one.problem}")
        self._tell(look, answers, result)
        return result, problems

    def _tell(self, look: Look, answers: Mapping[int, bool], result: Result) -> None:
        """Add whether each GPU answers, those included that are there no more."""
        places: dict[int, str] = {}
        for index in answers:
            device = self._devices.get(index)
            places[index] = device.uuid if device else ""
        self._known |= {uuid: index for index, uuid in places.items() if uuid}
        before = {index: uuid for uuid, index in self._known.items()}
        told = {(index, uuid or before.get(index, "")): answers[index]
                for index, uuid in places.items()}  # fmt: skip
        there = {uuid for _, uuid in told}
        told |= {(i, uuid): False for uuid, i in self._known.items() if uuid not in there}
        for (index, uuid), up in sorted(told.items()):
            labels = {"cluster": look.config.cluster, "node": look.node,
                      "gpu": str(index), "uuid": uuid}  # fmt: skip
            result.families.add("leadline_gpu_up", labels, float(up))

    def _device(self, nvml: Nvml, index: int) -> Device:
        if index not in self._devices:
            self._devices[index] = Device(nvml, index, self._clock)
        return self._devices[index]

    def _restart(self, nvml: Nvml) -> None:
        hanging = any(not f.done() for f in self._busy.values())
        if not hanging and self._clock() - self._started >= RESTART_SECONDS:
            self._stop(nvml)

    def _stop(self, nvml: Nvml) -> None:
        """Give all handles and samples back; the next scrape starts anew."""
        for device in self._devices.values():
            device.close()
        self._devices.clear()
        self._nvml = None
        try:
            nvml.library.nvmlShutdown()
        except nvml.error as error:
            log.debug("NVML does not shut down: %s", printable(_line(error)))


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
