"""Which engine trains a cohort, by name or by rule."""

from __future__ import annotations

import torch
from torch import Tensor

from laconic.errors import ConfigError
from laconic.train.engines.cohort import CohortAtOnce
from laconic.train.engines.engine import Engine, Work
from laconic.train.engines.one_by_one import OneByOne
from laconic.train.engines.per_record import PerRecord
from laconic.train.engines.sparse_first import SparseFirst
from laconic.train.flat import FlatModel

_SMALL = 50_000  # below this many weights per client, Python costs a CPU more than arithmetic does
_OWN = 200_000
"""Up to so many weights of its own, a client is better trained together with others, also on a CPU."""
_FEW = 13
"""Clients that one core trains at once: enough to share Python's cost and the common weights, few for its cache."""
_WORKERS_MEMORY = 1 << 30


def choose_engine(
    name: str,
    model: FlatModel,
    device: torch.device,
    example: tuple[Tensor, Tensor],
    *,
    chunk: int | None = None,
    workers: int | None = None,
    precision: str = "auto",
    sparse: bool = False,
    work: Work | None = None,
    per_record: bool = False,
) -> Engine:
    """The named engine, or the one that should be fastest ('auto').

    Record-level privacy (`per_record`) has an engine of its own. For sparse records it is the one that reads them as
    they are, if the model allows that. On a GPU it is the cohort at once, if the model can be vectorised. On a CPU it
    is the cohort, a few clients for every core, if each client has few weights of its own, given its `work` in a
    round (None: all are its own). Otherwise it is one by one.
    """
    if not per_record and name == "per-record":
        raise ConfigError("--engine per-record is for schemes that protect single records: use --engine auto")
    if per_record:
        if name not in ("auto", "per-record"):
            raise ConfigError(f"--engine {name} cannot protect single records: use --engine per-record or auto")
        return PerRecord(model, device)
    if name == "sparse-first" or (name == "auto" and sparse):
        sparse_engine = _sparse_engine(model, device, chunk, sparse)
        if not isinstance(sparse_engine, str):
            return sparse_engine
        if name == "sparse-first":
            raise ConfigError(f"--engine sparse-first cannot train this ({sparse_engine}): use --engine auto")
    engine = CohortAtOnce(
        model,
        device,
        example[0],
        chunk=chunk or (_FEW if device.type == "cpu" and model.size > _SMALL else None),
        workers=_workers(workers, model, device),
        precision=precision,
    )
    large = device.type == "cpu" and engine.own_weights(work) > (_OWN if work else _SMALL)
    if name == "one-by-one" or (name == "auto" and large):
        return OneByOne(model, device, example[0], workers=_workers(workers, model, device))
    try:
        engine.try_gradient(*example)
    except RuntimeError as error:
        if name == "cohort":
            raise ConfigError(
                f"the model cannot be trained for a whole cohort at once ({str(error).splitlines()[0]}):"
                " use --engine one-by-one"
            ) from None
        return OneByOne(model, device, example[0], workers=_workers(workers, model, device))
    return engine


def _sparse_engine(model: FlatModel, device: torch.device, chunk: int | None, sparse: bool) -> Engine | str:
    """The engine for sparse records, or why it cannot be taken."""
    if not sparse:
        return "the records are dense"
    first = model.first_linear
    return first if isinstance(first, str) else SparseFirst(model, first, device, chunk=chunk)


def _workers(wanted: int | None, model: FlatModel, device: torch.device) -> int:
    """One per core for large models, fewer if their copies would fill a gigabyte; a GPU is shared by none."""
    if device.type != "cpu" or not model.deterministic:
        if wanted not in (None, 1):
            reason = "the model draws random numbers on its own" if device.type == "cpu" else "the GPU does the work"
            raise ConfigError(f"--workers {wanted} is not possible: {reason}; leave --workers out")
        return 1
    if wanted is not None:
        return wanted
    if model.size <= _SMALL:
        return 1
    return max(1, min(torch.get_num_threads(), _WORKERS_MEMORY // (16 * model.size)))
