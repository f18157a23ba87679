"""Many clients at once: one vectorised step (`torch.func.vmap`) trains them all. The default on a GPU."""

from __future__ import annotations

import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.utils.hooks import RemovableHandle

from laconic.data.population import CohortRecords
from laconic.graphs import Replayed, sent
from laconic.train.batches import Schedule
from laconic.train.engines.engine import Crew, Task, Work, make_optimizer, products_in
from laconic.train.flat import FlatModel, keep_padding
from laconic.train.layers.attention import attention_for_clients, calls_attention, use_client_attention
from laconic.train.layers.conv import use_client_convolutions, use_client_norms
from laconic.train.layers.dense import FactoredLinear, KeptWeights, factor_large_layers, worth_factoring
from laconic.train.layers.recurrent import use_client_recurrence

_Chosen = tuple[slice | Tensor, ...]
"""Entries of every client's parameter, as one index per axis."""


@dataclass(frozen=True)
class _Job:
    """Some clients, their records, and what they do with them."""

    clients: np.ndarray
    records: CohortRecords
    schedule: Schedule
    dropout: Tensor


@dataclass(frozen=True)
class Vectorised:
    """A model made ready for many clients at once, its large dense layers by the name of their weight, and where.

    `attends` says whether the module calls torch's attention itself: see `attention_for_clients`.
    """

    model: FlatModel
    layers: dict[str, FactoredLinear]
    device: torch.device
    precision: str
    attends: bool


class CohortAtOnce(Crew[_Job]):
    """Many clients at once: on a GPU the whole cohort, on a CPU a few for every worker.

    Args:
        model: what is trained; every worker has a copy.
        device: where it is trained.
        example: inputs of a few records; with them large dense layers are found and factored.
        chunk: clients at once; None: as many as memory holds.
        workers: how many work side by side; one on a GPU.
        precision: of products on a GPU: 'tf32' (the default there), 'float32', or 'bfloat16' for convolutions.
    """

    name = "cohort"

    def __init__(
        self,
        model: FlatModel,
        device: torch.device,
        example: Tensor | None = None,
        *,
        chunk: int | None = None,
        workers: int = 1,
        precision: str = "auto",
    ) -> None:
        self._model, self._device = model, device
        self._members = [_Worker(model, device, example, precision) for _ in range(workers)]
        super().__init__(self._members, chunk=chunk or chunk_for(model.size, device))

    def prepare(self, task: Task, clients: np.ndarray) -> _Job:
        records, schedule, dropout = task.records_and_batches(clients, self._device)
        self._model.check_words(records.inputs)
        return _Job(clients, records, schedule, dropout)

    def find_alone(self, inputs: Tensor, targets: Tensor) -> Alone | None:
        """Vectorise one step over two copies of the first record: which layer is not done for both at once, if any."""
        member = self._members[0]
        return find_alone(member.module, lambda: member.try_gradient(inputs, targets))

    def own_weights(self, work: Work | None) -> int:
        """How many weights each client has a copy of when it does this work; None: of all."""
        return self._members[0].own_weights(work)

    @property
    def vectorised(self) -> Vectorised:
        """The model as its first worker trains it."""
        worker = self._members[0]
        return Vectorised(worker._model, worker._factored, worker._device, worker._precision, worker._attends)


class _Worker:
    """Blocks of clients in fixed memory; on a GPU the whole local training of a block is one recorded graph."""

    def __init__(self, model: FlatModel, device: torch.device, example: Tensor | None, precision: str) -> None:
        self._model, self._device, self._precision = model.copy(), device, precision
        self._factored = {} if example is None else factor_large_layers(self._model.module, example.to(device))
        for layer in self._factored.values():
            layer.vmapped = True
        self._attends = calls_attention(self._model.module, model.example[0].to(device))
        keep_padding(self._model.module)
        use_client_attention(self._model.module)
        use_client_recurrence(self._model.module)
        if device.type == "cuda":  # on a CPU runs keep their bits
            use_client_norms(self._model.module)
        use_client_convolutions(self._model.module, device, half=precision == "bfloat16")
        self._blocks: OrderedDict[object, _Block] = OrderedDict()

    @property
    def module(self) -> nn.Module:
        return self._model.module

    def train(self, task: Task, job: _Job) -> _TrainedBlock:
        with products_in(self._precision, self._device), attention_for_clients(self._attends):
            block = self._block(task, job.records, job.schedule)
            block.load(task, job.records, job.schedule, job.dropout)
            block.train()
        self._model.check_constants()
        return _TrainedBlock(job.clients, job.records.sizes, block)

    def _block(self, task: Task, records: CohortRecords, schedule: Schedule) -> _Block:
        """A block of the right shape; few enough are kept to fill at most a quarter of the memory."""
        count = rounded_up(len(records.sizes)) if self._device.type == "cuda" else len(records.sizes)
        ragged = bool((schedule.counts == 0).any()) or count != len(records.sizes)
        some = task.trained is not None
        key = (count, records.inputs.shape[1:], schedule.indices.shape[1:], task.train, ragged, some)
        block = self._blocks.get(key)
        if block is None:
            block = _Block(self._model, self._factored, task, count, records, schedule, ragged)
            most = max(1, memory_of(self._device) // (4 * block.num_bytes))
            while len(self._blocks) >= most:
                self._blocks.popitem(last=False)
            self._blocks[key] = block
        self._blocks.move_to_end(key)
        return block

    def own_weights(self, work: Work | None) -> int:
        shared = [] if work is None else [x for x in self._factored.values() if x.shared_in(work)]
        return self._model.size - sum(layer.weight.numel() for layer in shared)

    def try_gradient(self, inputs: Tensor, targets: Tensor) -> None:
        views = zip(self._model.names, self._model.split(self._model.initial), strict=True)
        params = {name: value.expand(2, *value.shape).clone() for name, value in views}
        self._model.module.train()
        inputs, targets = (torch.stack([t[:1], t[:1]]).to(self._device) for t in (inputs, targets))
        ones, keys = torch.ones(2, 1, device=self._device), torch.zeros(2, dtype=torch.int64, device=self._device)
        with attention_for_clients(self._attends):
            gradients(self._model, params, params, inputs, targets, ones, keys)
        self._model.check_constants()


class _Block:
    """So many clients, their records and their weights, always in the same memory.

    Args:
        model: what is trained.
        layers: its large dense layers by name, which may be factored.
        task: the training of the first round; all later ones must have the same shapes.
        count: how many clients.
        records: those of some clients, for their shape and type.
        schedule: their batches, for their shape.
        ragged: whether clients may have steps or batches of other sizes than the block.
    """

    def __init__(
        self,
        model: FlatModel,
        layers: dict[str, FactoredLinear],
        task: Task,
        count: int,
        records: CohortRecords,
        schedule: Schedule,
        ragged: bool,
    ) -> None:
        self._model, self._settings, self._ragged = model, task.train, ragged
        device = task.weights.device
        steps, batch = schedule.indices.shape[1:]
        self._inputs = records.inputs.new_zeros(count, *records.inputs.shape[1:])
        self._targets = records.targets.new_zeros(count, *records.targets.shape[1:])
        self._indices = torch.zeros(count, steps, batch, dtype=torch.int64, device=device)
        self._counts = torch.zeros(count, steps, dtype=torch.int64, device=device)
        self._shares = None if schedule.shares is None else torch.zeros(count, steps, batch, device=device)
        self._keys = torch.zeros(count, steps, dtype=torch.int64, device=device)
        self._start = torch.empty_like(task.weights)
        self._dense, self._batch = layers, batch
        self._layers = worth_factoring(layers, task.train, task.trained, steps * batch)
        self._factors = {name: layer.factors(count, steps * batch) for name, layer in self._layers.items()}
        self._params = {
            name: torch.zeros(count, *shape, device=device)
            for name, shape in zip(model.names, model.shapes, strict=True)
            if name not in self._layers
        }
        self.num_bytes = 4 * sum(p.numel() for p in self._params.values()) + self._inputs.nbytes
        self._move(task.trained)

    def load(self, task: Task, records: CohortRecords, schedule: Schedule, dropout: Tensor) -> None:
        """Put a task's numbers in place. Clients that only fill the block up have no records that count."""
        real = len(records.sizes)
        self._start.copy_(task.weights)
        if self._trained is not task.trained:
            self._move(task.trained)
        for mine, theirs in (
            (self._inputs, records.inputs),
            (self._targets, records.targets),
            (self._indices, torch.from_numpy(schedule.indices)),
            (self._counts, torch.from_numpy(schedule.counts)),
            (self._keys, dropout),
        ):
            mine[:real].copy_(sent(theirs, mine.device))
        self._counts[real:] = 0
        if self._shares is not None and schedule.shares is not None:
            self._shares[:real].copy_(sent(torch.from_numpy(schedule.shares), self._shares.device))
            self._shares[real:] = 0

    def _move(self, trained: Tensor | None) -> None:
        """From now on only these weights move: their numbers within each parameter that has any."""
        self._trained = trained
        self._moving: dict[str, _Chosen | None] = {}
        self._kept: dict[str, KeptWeights] = {}
        if trained is None:
            self._moving = dict.fromkeys(self._params)
        else:
            model, device = self._model, trained.device
            borders = torch.tensor([model.places[name].stop for name in model.names], device=device)
            parts = torch.tensor_split(trained, torch.searchsorted(trained, borders).cpu())
            start = model.split(self._start)
            for name, shape, part, shared in zip(model.names, model.shapes, parts[:-1], start, strict=True):
                inside, layer = part - model.places[name].start, self._dense.get(name)
                if layer is not None and layer.keeps_few(len(part), self._batch):
                    self._kept[name] = KeptWeights(shared, inside)
                    self._params[name] = torch.zeros(len(self._inputs), len(part), device=device)
                    self._moving[name] = None
                    continue
                if self._params[name].ndim != len(shape) + 1:  # so far it was kept
                    self._params[name] = torch.zeros(len(self._inputs), *shape, device=device)
                if len(part):
                    self._moving[name] = (slice(None), *torch.unravel_index(inside, shape))
        self.train = Replayed(self._train, self._start.device, "local training")

    def _train(self) -> None:
        """The local steps of all clients, from the start weights."""
        model, lr = self._model, self._settings.local_lr
        model.module.train()
        start = dict(zip(model.names, model.split(self._start), strict=True))
        for name, layer in self._layers.items():
            layer.begin(start[name], lr, self._factors[name])
        for name, kept in self._kept.items():
            self._dense[name].begin_kept(kept)
        for name, value in self._params.items():
            value.zero_() if name in self._kept else value.copy_(start[name].expand_as(value))
        moving = [_some(self._params[name], chosen) for name, chosen in self._moving.items()]
        optimizer = make_optimizer(self._settings.optimizer, moving, lr)
        clients, steps, batch = self._indices.shape
        rows = torch.arange(clients, device=self._start.device)[:, None]
        place = torch.arange(batch, device=self._start.device)
        for step in range(steps):
            index, count = self._indices[:, step], self._counts[:, step, None]
            # The mean over the real records, unless classes have weights.
            weight = (place < count) / count.clamp(min=1) if self._shares is None else self._shares[:, step]
            inputs, targets = self._inputs[rows, index], self._targets[rows, index]
            grads = gradients(model, self._params, self._moving, inputs, targets, weight, self._keys[:, step])
            grads = [_some(g, chosen) for g, chosen in zip(grads, self._moving.values(), strict=True)]
            gates = None
            if self._ragged:
                active = (count > 0).to(self._start.dtype)
                gates = [active.reshape(-1, *[1] * (p.ndim - 1)) for p in moving]
            optimizer.step(moving, grads, gates)
            for (name, chosen), values in zip(self._moving.items(), moving, strict=True):
                if chosen is not None:
                    self._params[name][chosen] = values
        for name in (*self._layers, *self._kept):
            self._dense[name].end()

    def updates(self, rows: slice) -> Tensor:
        """Δw of some clients, (rows, n)."""
        update = self._start.new_empty(rows.stop - rows.start, self._model.size)
        for name, value in self._params.items():
            part = update[:, self._model.places[name]]
            if name in self._kept:
                part.zero_()
                part[:, self._kept[name].numbers] = value[rows]
            else:
                torch.sub(value[rows].flatten(1), self._start[self._model.places[name]], out=part)
        for name, factors in self._factors.items():
            factors.of(rows).write_change(update[:, self._model.places[name]], self._settings.local_lr)
        return update

    def weighted_sum(self, counts: Tensor) -> Tensor:
        """Σ_k counts_k·Δw_k of the first clients, without their updates."""
        total, some = torch.empty_like(self._start), len(counts)
        for name, value in self._params.items():
            place, summed = self._model.places[name], counts @ value[:some].flatten(1)
            if name in self._kept:
                total[place] = 0
                total[place][self._kept[name].numbers] = summed
            else:
                torch.sub(summed, counts.sum() * self._start[place], out=total[place])
        for name, factors in self._factors.items():
            factors.write_sum(total[self._model.places[name]], counts, self._settings.local_lr)
        return total


@dataclass(frozen=True)
class _TrainedBlock:
    """A block's clients. The updates are put together only if each of them is asked for."""

    clients: np.ndarray
    num_records: np.ndarray
    block: _Block

    @property
    def values(self) -> Tensor:
        return self.some(slice(0, len(self.clients)))

    def some(self, rows: slice) -> Tensor:
        return self.block.updates(rows)

    def weighted_sum(self, counts: Tensor) -> Tensor:
        return self.block.weighted_sum(counts)


def gradients(
    model: FlatModel,
    params: dict[str, Tensor],
    moving: Collection[str],
    inputs: Tensor,
    targets: Tensor,
    weight: Tensor,
    keys: Tensor,
) -> list[Tensor]:
    """Every client's gradient by its parameters that move, in their order.

    Args:
        model: whose loss it is.
        params: every client's parameters by name, each with the clients on its first axis.
        moving: names of the parameters that are trained.
        inputs: (clients, records, …).
        targets: (clients, records, …).
        weight: (clients, records), how much each record counts.
        keys: (clients,), one for the dropout of each.
    """
    # randomness="error": a draw inside the model would differ between engines.
    leaves = {name: value.detach().requires_grad_(name in moving) for name, value in params.items()}
    losses = vmap(model.mean_loss, randomness="error")(leaves, inputs, targets, weight, keys)
    wanted = [leaves[name] for name in moving]
    grads = torch.autograd.grad(losses.sum(), wanted, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(grads, wanted, strict=True)]


def _some(values: Tensor, chosen: _Chosen | None) -> Tensor:
    """Some entries of every client's parameter (clients, count), or all of it as it is."""
    return values if chosen is None else values[chosen]


def rounded_up(count: int) -> int:
    """The next multiple of a sixteenth of the power of two below: few shapes to record, little work for nothing."""
    step = max(1, (1 << (count.bit_length() - 1)) // 16)
    return -(-count // step) * step


def memory_of(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 1 << 31


def chunk_for(size: int, device: torch.device) -> int:
    """How many clients at once: weights, gradients, and temporaries of that order, in half of the memory."""
    return int(max(1, min(1024, memory_of(device) // 2 // (size * 4 * 6))))


@dataclass(frozen=True)
class Alone:
    """A layer that is not done for all clients at once, and why. If it is `possible`, it is done client by client."""

    layer: str
    why: str
    possible: bool


def find_alone(module: nn.Module, vectorised: Callable[[], None]) -> Alone | None:
    """The first such layer of the module when `vectorised` runs it inside `vmap`; None: there is none."""
    found = _tried(module, vectorised, "error")
    # What is behind a layer that vmap does client by client may be impossible.
    return (_tried(module, vectorised, "ignore") or found) if found is not None and found.possible else found


def _tried(module: nn.Module, vectorised: Callable[[], None], warning: Literal["error", "ignore"]) -> Alone | None:
    inside: list[str] = []
    hooks: list[RemovableHandle] = []
    for name, layer in module.named_modules():
        kind = type(layer).__name__.removeprefix("Client")
        called = f"'{name}' ({kind})" if name else f"the model ({kind})"
        hooks.append(layer.register_forward_pre_hook(lambda *_, called=called: inside.append(called)))
        hooks.append(layer.register_forward_hook(lambda *_: inside.pop() and None))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(warning, message=_ONE_BY_ONE)
            vectorised()
    except (RuntimeError, UserWarning) as problem:
        operation = re.search(r"aten::(\w+)", str(problem))
        why = f"torch cannot vectorise {operation.group(1)}" if operation else str(problem).splitlines()[0]
        return Alone(inside[-1] if inside else "the loss", why, isinstance(problem, UserWarning))
    finally:
        for hook in hooks:
            hook.remove()
    return None


_ONE_BY_ONE = ".*batching rule for"
"""What vmap warns of when it does an operation client by client."""
