"""The processes of a run under torchrun, and what they say to each other.

Plans, chunks and errors travel as JSON, weights and codes as tensors after it; nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from laconic.errors import RankLost, one_line
from laconic.plan import RoundPlan
from laconic.train.engines.engine import Updates

Said = dict[str, Any]
_ARRAYS = ("cohort", "excluded")
_TYPES = {str(kind): kind for kind in (torch.int64, torch.int32, torch.float32, torch.float64)}


def written(said: Said) -> bytearray:
    return bytearray(json.dumps(said).encode())


def read(data: bytes) -> Said:
    said: Said = json.loads(data)
    return said


def plan_to_json(plan: RoundPlan) -> Said:
    """All of a plan but what is shared. JSON keeps integers and floats to the bit."""
    fields = [field.name for field in dataclasses.fields(plan) if field.name not in ("shared", "groups", *_ARRAYS)]
    said = {name: getattr(plan, name) for name in fields}
    said |= {name: getattr(plan, name).tolist() for name in _ARRAYS}
    return said | {"groups": [plan_to_json(group) for group in plan.groups]}


def plan_from_json(said: Said, shared: Mapping[str, Any]) -> RoundPlan:
    """The plan that `plan_to_json` wrote."""
    arrays = {name: np.array(said[name], dtype=np.int64) for name in _ARRAYS}
    groups = tuple(plan_from_json(group, shared) for group in said["groups"])
    return RoundPlan(**(said | arrays | {"groups": groups, "shared": shared}))


def shapes_of(values: Mapping[str, Tensor]) -> Said:
    """Names, types and shapes, for the rank that makes room for the values."""
    return {name: _shape(value) for name, value in values.items()}


def empty_like(said: Said, device: torch.device) -> Tensor:
    return torch.empty(said["shape"], dtype=_TYPES[said["type"]], device=device)


def chunk_to_json(chunk: Updates) -> Said:
    sizes = chunk.num_records.tolist()
    return {"what": "chunk", "clients": chunk.clients.tolist(), "sizes": sizes, "values": _shape(chunk.values)}


def chunk_from_json(said: Said, values: Tensor) -> Updates:
    clients, sizes = (np.array(said[name], dtype=np.int64) for name in ("clients", "sizes"))
    return Updates(clients, values, sizes)


def _shape(value: Tensor) -> Said:
    return {"type": str(value.dtype), "shape": list(value.shape)}


_TIMEOUT = timedelta(minutes=30)
"""The timeout of a silent rank. One that ends is noticed at once: its connections close."""
_GOODBYE = timedelta(seconds=2)
_PLACE = re.compile(r"^\[[^]]*\] *")


@dataclass(frozen=True)
class Ranks:
    """This process among the others. `local` is its number on this machine, which is that of its GPU."""

    group: dist.ProcessGroup
    local: int = 0
    when_lost: Callable[[], None] = lambda: None
    """Called when another rank is gone, before anything is saved."""

    @classmethod
    def join(cls, when_lost: Callable[[], None]) -> Ranks:
        """Connect to the other ranks, with the addresses in torchrun's environment."""
        try:
            dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=_TIMEOUT)
        except RuntimeError as error:
            raise RankLost(f"the ranks cannot meet: {_reason(error)}") from None
        assert dist.group.WORLD is not None
        return cls(dist.group.WORLD, int(os.environ["LOCAL_RANK"]), when_lost)

    @property
    def rank(self) -> int:
        return self.group.rank()

    @property
    def size(self) -> int:
        return self.group.size()

    @property
    def others(self) -> range:
        """All ranks but rank 0."""
        return range(1, self.size)

    def tell(self, said: Said, to: int) -> None:
        for part in _parts(said):
            self.send(part, to)

    def hear(self, source: int) -> Said:
        length = self.receive(torch.zeros(1, dtype=torch.int64), source)
        data = self.receive(torch.zeros(int(length), dtype=torch.uint8), source)
        return read(data.numpy().tobytes())

    def send(self, values: Tensor, to: int) -> None:
        with self._alive(f"rank {to}"):
            self.group.send([values.contiguous()], to, 0).wait()

    def receive(self, into: Tensor, source: int) -> Tensor:
        with self._alive(f"rank {source}"):
            self.group.recv([into], source, 0).wait()
        return into

    def spread(self, values: Tensor) -> Tensor:
        """Send rank 0's values to all ranks."""
        with self._alive("another rank"):
            self.group.broadcast(values, 0).wait()
        return values

    @contextlib.contextmanager
    def dismissed(self) -> Iterator[None]:
        """Rank 0, until it has ended, for any reason: then the others end, too."""
        try:
            yield
        finally:
            self._dismiss()

    def _dismiss(self) -> None:
        """Tell the other ranks to end. One that is lost, or still busy, will see its connection close."""
        for rank in self.others:
            parts = _parts({"what": "stop"})
            with contextlib.suppress(RuntimeError):
                for sent in [self.group.send([part], rank, 0) for part in parts]:
                    sent.wait(_GOODBYE)

    @contextlib.contextmanager
    def _alive(self, who: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            self.when_lost()
            raise RankLost(f"the connection to {who} is lost ({_reason(error)})") from None


def _parts(said: Said) -> tuple[Tensor, Tensor]:
    """A message as two tensors: its length, and its bytes."""
    data = written(said)
    return torch.tensor([len(data)]), torch.frombuffer(data, dtype=torch.uint8)


def _reason(error: RuntimeError) -> str:
    """The first sentence, without the place in torch's source."""
    first = _PLACE.sub("", str(error)).partition(". ")[0].partition("\n")[0]
    return one_line(first or "no reason given", 120)
