"""What ranks say to each other, as JSON. Weights and codes follow as tensors; nothing is ever unpickled."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

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


def plan_said(plan: RoundPlan) -> Said:
    """All of a plan but what is shared. JSON keeps integers and floats to the bit."""
    fields = [field.name for field in dataclasses.fields(plan) if field.name not in ("shared", "groups", *_ARRAYS)]
    said = {name: getattr(plan, name) for name in fields}
    said |= {name: getattr(plan, name).tolist() for name in _ARRAYS}
    return said | {"groups": [plan_said(group) for group in plan.groups]}


def plan_heard(said: Said, shared: Mapping[str, Any]) -> RoundPlan:
    """The same plan."""
    arrays = {name: np.array(said[name], dtype=np.int64) for name in _ARRAYS}
    groups = tuple(plan_heard(group, shared) for group in said["groups"])
    return RoundPlan(**(said | arrays | {"groups": groups, "shared": shared}))


def tensors_said(values: Mapping[str, Tensor]) -> Said:
    """Names, types and shapes, for whoever makes room for the values."""
    return {name: _shape(value) for name, value in values.items()}


def room_for(said: Said, device: torch.device) -> Tensor:
    return torch.empty(said["shape"], dtype=_TYPES[said["type"]], device=device)


def chunk_said(chunk: Updates) -> Said:
    sizes = chunk.num_records.tolist()
    return {"what": "chunk", "clients": chunk.clients.tolist(), "sizes": sizes, "values": _shape(chunk.values)}


def chunk_heard(said: Said, values: Tensor) -> Updates:
    clients, sizes = (np.array(said[name], dtype=np.int64) for name in ("clients", "sizes"))
    return Updates(clients, values, sizes)


def _shape(value: Tensor) -> Said:
    return {"type": str(value.dtype), "shape": list(value.shape)}
