"""Which engine trains a cohort, by name or by rule.

Many clients at once share the cost of calling an operation, some microseconds. On a CPU they also share its cache. So
small operations are better done for many clients at once, and large ones client by client.
"""

from __future__ import annotations

import functools
import logging
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from laconic.errors import ConfigError
from laconic.train.engines.cohort import CohortAtOnce
from laconic.train.engines.engine import Engine, Work
from laconic.train.engines.linear_cohort import MOST_RECORDS, LinearCohort
from laconic.train.engines.one_by_one import OneByOne
from laconic.train.engines.per_record import PerRecord
from laconic.train.engines.sparse_first import SparseFirst
from laconic.train.flat import FlatModel
from laconic.train.units.linear import Layer, find_layer

_MOST_COLUMNS = 1024
"""Up to so many columns, sparse records of a linear model are trained as dense ones."""
_SMALL = 50_000  # below this many weights per client, Python costs a CPU more than arithmetic does
_OWN = 200_000
"""Up to so many weights of its own, a client is better trained together with others, also on a CPU."""
_FEW = 13
"""Clients that one core trains at once: enough to share Python's cost and the common weights, few for its cache."""
_LARGE_OPERATION = 50_000
"""From so many numbers an operation on, its call costs a CPU less than what several clients take from its cache."""
_CACHED = 1 << 19
"""Numbers that a recurrent layer may write for all clients together and find in a core's cache on the way back."""
_WORKERS_MEMORY = 1 << 30
_log = logging.getLogger("laconic")


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
    batch: int | None = None,
    plain_sgd: bool = False,
    adds_up: bool = False,
    held: int = 0,
) -> Engine:
    """The named engine, or the one that should be fastest ('auto').

    Record-level privacy has an engine of its own. For sparse records it is the one that reads them as they are, if the
    model allows that. On a GPU it is the cohort at once, if the model can be vectorised. On a CPU it is the cohort, a
    few clients for every core, if each client has few weights of its own and small operations
    (`numbers_per_operation`). Otherwise it is one by one. Where a layer of the model forces that, the user is told.
    Linear models of clients with few records have an engine of their own on a CPU, where only sums are looked at.

    Args:
        name: 'auto', or one of those above: 'per-record', 'sparse-first', 'cohort', 'one-by-one', 'linear'.
        model: what is trained.
        device: where it is trained.
        example: inputs and targets of a few records, on which is tried what the model allows.
        chunk: clients at once; None leaves it to the engine.
        workers: parallel workers on a CPU; None: one per core where that helps.
        precision: of products on a GPU: 'tf32', 'float32' or 'bfloat16'.
        sparse: whether the records are sparse.
        work: what a client does in a round; None: all weights are its own.
        per_record: whether single records are protected.
        batch: records of a client's step; None: those of the example.
        plain_sgd: whether clients take steps of SGD that move all weights.
        adds_up: whether no update is looked at by itself, so that a federation's nodes need not give the same bits.
        held: how many records the first client holds.
    """
    if not per_record and name == "per-record":
        raise ConfigError("⟨engine⟩ per-record is for schemes that protect single records: use ⟨engine⟩ auto")
    if per_record:
        if name not in ("auto", "per-record"):
            raise ConfigError(f"⟨engine⟩ {name} cannot protect single records: use ⟨engine⟩ per-record or auto")
        return PerRecord(model, device)
    if name == "linear" or (name == "auto" and adds_up and held <= MOST_RECORDS):
        layer = _linear_layer(model, device, plain_sgd)
        if isinstance(layer, Layer) and (name == "linear" or not sparse or layer.inputs <= _MOST_COLUMNS):
            others = functools.partial(
                choose_engine,
                "auto",
                model,
                device,
                example,
                chunk=chunk,
                workers=workers,
                precision=precision,
                sparse=sparse,
                work=work,
                batch=batch,
            )
            return LinearCohort(model, layer, others, chunk=chunk)
        if name == "linear":
            raise ConfigError(f"⟨engine⟩ linear cannot train this ({layer}): use ⟨engine⟩ auto")
    if name == "sparse-first" or (name == "auto" and sparse):
        sparse_engine = _sparse_engine(model, device, chunk, sparse)
        if not isinstance(sparse_engine, str):
            return sparse_engine
        if name == "sparse-first":
            raise ConfigError(f"⟨engine⟩ sparse-first cannot train this ({sparse_engine}): use ⟨engine⟩ auto")

    def one_by_one() -> Engine:
        return OneByOne(model, device, example[0], workers=_workers(workers, model, device))

    if name == "one-by-one":
        return one_by_one()
    on_cpu = device.type == "cpu"
    numbers = numbers_per_operation(model.module, model.example[0], batch or len(example[1])) if on_cpu else None
    engine = CohortAtOnce(
        model,
        device,
        example[0],
        chunk=chunk or _together(model, device, numbers),
        workers=_workers(workers, model, device),
        precision=precision,
    )
    large = engine.own_weights(work) > (_OWN if work else _SMALL) or (numbers or 0) > _LARGE_OPERATION
    if name == "auto" and on_cpu and large:
        return one_by_one()
    alone = engine.find_alone(*example)
    if alone is None:
        return engine
    if name == "cohort" and not alone.possible:
        raise ConfigError(
            f"the model cannot be trained for a whole cohort at once ({alone.layer}: {alone.why}):"
            " use ⟨engine⟩ one-by-one"
        )
    if name == "auto" and (on_cpu or not alone.possible):
        _say(
            "clients are trained one by one, about as fast as a plain loop would, because of a layer that cannot be"
            f" trained for many clients at once: {alone.layer}, {alone.why}"
        )
        return one_by_one()
    _say(
        f"a layer of the model is computed client by client, which costs most of a round's time: {alone.layer},"
        f" {alone.why}"
    )
    return engine


@functools.cache
def _say(text: str) -> None:
    """Once in a process."""
    _log.warning("laconic: warning: %s", text)


def _together(model: FlatModel, device: torch.device, numbers: float | None) -> int | None:
    """How many clients a core of a CPU trains at once; None: as many as memory holds."""
    if device.type != "cpu":
        return None
    if model.size > _SMALL:
        return _FEW
    recurrent = any(isinstance(layer, nn.RNNBase) for layer in model.module.modules())
    return max(_FEW, int(_CACHED / numbers)) if recurrent and numbers else None


def _sparse_engine(model: FlatModel, device: torch.device, chunk: int | None, sparse: bool) -> Engine | str:
    """The engine for sparse records, or why it cannot be taken."""
    if not sparse:
        return "the records are dense"
    first = model.first_linear
    return first if isinstance(first, str) else SparseFirst(model, first, device, chunk=chunk)


def _linear_layer(model: FlatModel, device: torch.device, plain_sgd: bool) -> Layer | str:
    """The layer for the engine of linear models, or why it cannot be taken."""
    if device.type != "cpu":
        return "it is for a CPU"
    if not plain_sgd:
        return "clients must take steps of SGD that move all weights"
    return find_layer(model) or "the model is not one linear layer with a loss of Laconic"


def _workers(wanted: int | None, model: FlatModel, device: torch.device) -> int:
    """One per core for large models, fewer if their copies would fill a gigabyte; a GPU is shared by none."""
    if device.type != "cpu" or not model.deterministic:
        if wanted not in (None, 1):
            reason = "the model draws random numbers on its own" if device.type == "cpu" else "the GPU does the work"
            raise ConfigError(f"⟨workers⟩ {wanted} is not possible: {reason}; leave ⟨workers⟩ out")
        return 1
    if wanted is not None:
        return wanted
    if model.size <= _SMALL:
        return 1
    return max(1, min(torch.get_num_threads(), _WORKERS_MEMORY // (16 * model.size)))


_MEASURED = (
    nn.MultiheadAttention,
    nn.RNNBase,
    nn.RNNCellBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.modules.instancenorm._InstanceNorm,
)
"""For models with such layers the size of operations decides. The others' choice is older, and runs keep it."""


def numbers_per_operation(module: nn.Module, inputs: Tensor, batch: int) -> float | None:
    """How many numbers one operation of a client's step writes on average; None: the model has none of the layers.

    An operation is a call of a layer without parts. torch's GRU is one for each moment, because that is how it works.
    """
    if not any(isinstance(layer, _MEASURED) for layer in module.modules()):
        return None
    written: list[int] = []
    calls: list[int] = []

    def notice(layer: nn.Module, arguments: tuple[Any, ...], outputs: Any) -> None:
        found = outputs[0] if isinstance(outputs, tuple) else outputs
        if not isinstance(found, Tensor):
            return
        count, times = found.numel(), 1
        if isinstance(layer, nn.MultiheadAttention):
            length = arguments[0].shape[1 if layer.batch_first else 0]
            count, times = 5 * count + count // layer.embed_dim * layer.num_heads * length, 4
        elif isinstance(layer, nn.RNNBase):
            gates = 4 if isinstance(layer, nn.LSTM) else 3
            count *= gates * layer.num_layers
            if not isinstance(layer, nn.LSTM):
                times = layer.num_layers * math.prod(found.shape[:-1]) // len(inputs)
        written.append(count)
        calls.append(times)

    whole = (nn.MultiheadAttention, nn.RNNBase)
    hooks: list[RemovableHandle] = []
    for layer in module.modules():
        if isinstance(layer, whole) or not any(True for _ in layer.children()):
            hooks.append(layer.register_forward_hook(notice))
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[inputs.device] if inputs.is_cuda else []):
            module.train()(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return sum(written) * batch / len(inputs) / max(1, sum(calls))
