"""Which engine trains a cohort, by name or by rule."""

from __future__ import annotations

import torch
from torch import Tensor

from laconic.errors import ConfigError
from laconic.train.cohort import CohortAtOnce
from laconic.train.engine import Engine
from laconic.train.flat import FlatModel
from laconic.train.one_by_one import OneByOne
from laconic.train.sparse_first import SparseFirst

ENGINES = ("auto", "one-by-one", "cohort", "sparse-first")
_SMALL = 50_000  # below this many weights, Python costs a CPU more than arithmetic does
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
) -> Engine:
    """The named engine; 'auto' takes the cohort at once on a GPU or for a small model, if the model allows it.

    For sparse records, 'auto' takes the engine that reads them as they are, if the model allows that.
    """
    if name == "sparse-first" or (name == "auto" and sparse):
        sparse_engine = _sparse_engine(model, device, chunk, sparse)
        if not isinstance(sparse_engine, str):
            return sparse_engine
        if name == "sparse-first":
            raise ConfigError(f"--engine sparse-first cannot train this ({sparse_engine}): use --engine auto")
    large = device.type == "cpu" and model.size > _SMALL
    if name == "one-by-one" or (name == "auto" and large):
        return OneByOne(model, device, example[0], workers=_workers(workers, model, device))
    engine = CohortAtOnce(model, device, example[0], chunk=chunk, precision=precision)
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
    """One per core, fewer if their copies of the model would fill a gigabyte; a GPU is shared by none."""
    if device.type != "cpu" or not model.deterministic:
        if wanted not in (None, 1):
            reason = "the model draws random numbers on its own" if device.type == "cpu" else "the GPU does the work"
            raise ConfigError(f"--workers {wanted} is not possible: {reason}; leave --workers out")
        return 1
    if wanted is not None:
        return wanted
    return max(1, min(torch.get_num_threads(), _WORKERS_MEMORY // (16 * model.size)))
