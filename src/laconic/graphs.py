"""What keeps a GPU busy: a function as one recorded CUDA graph, and answers and numbers that are not waited for.

The thousand small launches of a round become one, and the next round is under way before the last one is done.
"""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_log = logging.getLogger("laconic")


class Replayed:
    """Runs the function as it is the first time, records it the second time, and replays it from then on.

    The function must read and write the same memory every time, and start from what it reads: if it cannot be
    recorded, it is run as it is for good. On a CPU it always is.
    """

    def __init__(self, function: Callable[[], None], device: torch.device, name: str) -> None:
        self._function, self._device, self._name = function, device, name
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        self._calls += 1
        if self._device.type == "cuda" and self._calls == 2:
            self._record()
        if self._graph is None:
            self._function()
        else:
            self._graph.replay()

    def _record(self) -> None:
        graph = torch.cuda.CUDAGraph()
        collecting = gc.isenabled()
        gc.disable()  # a graph that were freed while this one is recorded would spoil it
        try:
            with torch.cuda.graph(graph, pool=_shared_pool(self._device)):
                self._function()
        except RuntimeError as error:
            _log.warning("%s is not recorded as a CUDA graph: %s", self._name, str(error).splitlines()[0])
            torch.cuda.synchronize(self._device)
            return
        finally:
            if collecting:
                gc.enable()
        self._graph = graph
        _recorded.add(self)


def sent(values: Tensor, device: torch.device) -> Tensor:
    """The values on the device. A GPU reads them by itself, from memory that stays in place, once it comes so far."""
    if device.type == "cuda" and not values.is_cuda:
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)


class Answer:
    """Yes or no (a tensor of one bool), as its device says once it has come so far; a CPU has said it already."""

    def __init__(self, said: Tensor) -> None:
        self._said, self._event = said, None
        if said.is_cuda:
            self._said = said.to("cpu", non_blocking=True)
            self._event = torch.cuda.current_stream(said.device).record_event()

    def __bool__(self) -> bool:
        """Wait for it, but not for what the device was told to do since."""
        if self._event is not None:
            self._event.synchronize()
        return bool(self._said)


_recorded: weakref.WeakSet[Replayed] = weakref.WeakSet()


def _shared_pool(device: torch.device) -> Any:
    """The memory of any graph that lives: they never run at the same time and keep nothing in it between runs."""
    return next((r._graph.pool() for r in _recorded if r._graph is not None and r._device == device), None)
