"""Clients of several runs as one large cohort: each run has start weights, a step size and moving weights of its own.

A block has room for as many clients of every run as the largest cohort has. Those that only fill it up have no records
that count. What a client computes is what it computes alone; only the order of float sums differs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from laconic.data.population import CohortRecords, gather
from laconic.graphs import Replayed, sent
from laconic.train.batches import Schedule
from laconic.train.engines.cohort import CohortAtOnce, Vectorised, chunk_for, gradients, memory_of, rounded_up
from laconic.train.engines.engine import Task, Trained, batches_of, make_optimizer, products_in
from laconic.train.layers.attention import attention_for_clients
from laconic.train.layers.dense import worth_factoring
from laconic.train.local import LocalTraining


@dataclass(frozen=True)
class _Load:
    """The tasks of several runs, their clients' records, and what all clients do with them, one run after another."""

    tasks: Sequence[Task]
    records: list[CohortRecords]
    schedule: Schedule
    dropout: Tensor

    @property
    def clients(self) -> int:
        """Of the largest cohort."""
        return max(len(task.clients) for task in self.tasks)


@dataclass(frozen=True)
class _Shape:
    """Everything that a block is made for."""

    runs: int
    clients: int
    records: int
    steps: int
    batch: int
    train: LocalTraining
    weighted: bool
    some: bool


class JointCohort:
    """Trains the tasks of several runs together. The engine is that of any of them: their models are alike."""

    def __init__(self, engine: CohortAtOnce) -> None:
        self._with = engine.vectorised
        self._most = min(engine.chunk, chunk_for(self._with.model.size, self._with.device))
        self._blocks: OrderedDict[_Shape, _Block] = OrderedDict()

    def runs_at_once(self, tasks: Sequence[Task]) -> int:
        """Of how many runs like these the clients fit into memory together; 0 if not even those of one."""
        return self._most // max(len(task.clients) for task in tasks)

    def train(self, tasks: Sequence[Task]) -> list[Trained]:
        """The clients of every task, trained. What is returned is good until the next call."""
        load = self._load(tasks)
        block = self._block(load)
        with products_in(self._with.precision, self._with.device), attention_for_clients(self._with.attends):
            block.load(load)
            block.train()
        self._with.model.check_constants()
        pairs = enumerate(zip(tasks, load.records, strict=True))
        return [_TrainedRun(task.clients, records.sizes, block, run) for run, (task, records) in pairs]

    def _load(self, tasks: Sequence[Task]) -> _Load:
        """Gather each run's records; the batches of all clients are drawn at once."""
        records = [gather(task.population, task.clients.tolist(), self._with.device) for task in tasks]
        for one in records:
            self._with.model.check_words(one.inputs)
        train = tasks[0].train
        targets = records[0].targets  # looked at only where classes are balanced
        if getattr(train, "balance", "none") != "none":
            most = max(one.targets.shape[1] for one in records)
            targets = torch.cat([functional.pad(one.targets, (0, most - one.targets.shape[1])) for one in records])
        keys = np.concatenate([task.keys(task.clients) for task in tasks])
        sizes = np.concatenate([one.sizes for one in records])
        return _Load(tasks, records, *batches_of(train, sizes, keys, targets))

    def _block(self, load: _Load) -> _Block:
        """A block of the right shape; few enough are kept to fill at most a quarter of the memory."""
        steps, batch = load.schedule.indices.shape[1:]
        shape = _Shape(
            runs=len(load.tasks),
            clients=rounded_up(load.clients) if self._with.device.type == "cuda" else load.clients,
            records=max(one.inputs.shape[1] for one in load.records),
            steps=steps,
            batch=batch,
            train=alike(load.tasks[0].train),
            weighted=load.schedule.shares is not None,
            some=any(task.trained is not None for task in load.tasks),
        )
        block = self._blocks.get(shape)
        if block is None:
            block = _Block(self._with, shape, load.records[0])
            most = max(1, memory_of(self._with.device) // (4 * block.num_bytes))
            while len(self._blocks) >= most:
                self._blocks.popitem(last=False)
            self._blocks[shape] = block
        self._blocks.move_to_end(shape)
        return block


def alike(train: LocalTraining) -> LocalTraining:
    """Local training without its step size, by which the clients of one block may differ."""
    return replace(train, local_lr=1.0)


class _Block:
    """Clients of several runs, their records and weights, always in the same memory."""

    def __init__(self, vectorised: Vectorised, shape: _Shape, like: CohortRecords) -> None:
        self._with, self._shape = vectorised, shape
        model, device, count = vectorised.model, vectorised.device, shape.runs * shape.clients
        self._inputs = like.inputs.new_zeros(count, shape.records, *like.inputs.shape[2:])
        self._targets = like.targets.new_zeros(count, shape.records, *like.targets.shape[2:])
        self._indices = torch.zeros(count, shape.steps, shape.batch, dtype=torch.int64, device=device)
        self._counts = torch.zeros(count, shape.steps, dtype=torch.int64, device=device)
        self._shares = torch.zeros(count, shape.steps, shape.batch, device=device) if shape.weighted else None
        self._keys = torch.zeros(count, shape.steps, dtype=torch.int64, device=device)
        self._start = torch.zeros(shape.runs, model.size, device=device)
        self._rates = torch.zeros(count, device=device)
        self._moves = torch.zeros(shape.runs, model.size, device=device) if shape.some else None
        """1 for the weights of each run that move; None: all do."""
        trained = torch.zeros(0, dtype=torch.int64) if shape.some else None
        self._layers = worth_factoring(vectorised.layers, shape.train, trained, shape.steps * shape.batch)
        self._factors = {name: layer.factors(count, shape.steps * shape.batch) for name, layer in self._layers.items()}
        self._params = {
            name: torch.zeros(count, *size, device=device)
            for name, size in zip(model.names, model.shapes, strict=True)
            if name not in self._layers
        }
        self.num_bytes = 4 * sum(p.numel() for p in self._params.values()) + self._inputs.nbytes
        self.train = Replayed(self._train, device, "local training of several runs")

    def clients_of(self, run: int, count: int) -> slice:
        """Where the first clients of a run are."""
        return slice(run * self._shape.clients, run * self._shape.clients + count)

    def load(self, load: _Load) -> None:
        """Put the numbers of all tasks in place: what the CPU knows in one copy for all runs."""
        schedule, device = load.schedule, self._with.device
        places = [self.clients_of(run, len(task.clients)) for run, task in enumerate(load.tasks)]
        rows = np.concatenate([np.arange(place.start, place.stop) for place in places])
        count = len(self._indices)
        self._indices.copy_(sent(_spread(schedule.indices, rows, count), device))
        self._counts.copy_(sent(_spread(schedule.counts, rows, count), device))
        self._keys.copy_(sent(_spread(load.dropout.numpy(), rows, count), device))
        if self._shares is not None and schedule.shares is not None:
            self._shares.copy_(sent(_spread(schedule.shares, rows, count), device))
        rates = sent(torch.tensor([task.train.local_lr for task in load.tasks]), device)
        self._rates.view(len(rates), -1).copy_(rates[:, None].expand(-1, self._shape.clients))
        torch.stack([task.weights for task in load.tasks], out=self._start)
        rooms = [(place, slice(records.inputs.shape[1])) for place, records in zip(places, load.records, strict=True)]
        torch._foreach_copy_([self._inputs[room] for room in rooms], [one.inputs for one in load.records])
        torch._foreach_copy_([self._targets[room] for room in rooms], [one.targets for one in load.records])
        if self._moves is not None:
            for run, task in enumerate(load.tasks):
                self._moves[run].fill_(float(task.trained is None))
                if task.trained is not None:
                    self._moves[run, task.trained] = 1.0

    def _train(self) -> None:
        """The local steps of all clients, each from the weights of its run."""
        model, runs = self._with.model, self._shape.runs
        model.module.train()
        start = dict(zip(model.names, model.split(self._start), strict=True))
        for name, layer in self._layers.items():
            layer.begin(start[name], self._rates, self._factors[name])
        for name, value in self._params.items():
            value.view(runs, -1, *value.shape[1:]).copy_(
                start[name][:, None].expand(-1, self._shape.clients, *value.shape[1:])
            )
        moves = None
        if self._moves is not None:
            moves = dict(zip(model.names, model.split(self._moves), strict=True))
        moving = list(self._params.values())
        optimizer = make_optimizer(self._shape.train.optimizer, moving, 1.0)
        rows = torch.arange(len(self._indices), device=self._with.device)[:, None]
        place = torch.arange(self._shape.batch, device=self._with.device)
        for step in range(self._shape.steps):
            index, count = self._indices[:, step], self._counts[:, step, None]
            weight = (place < count) / count.clamp(min=1) if self._shares is None else self._shares[:, step]
            inputs, targets = self._inputs[rows, index], self._targets[rows, index]
            grads = gradients(model, self._params, self._params, inputs, targets, weight, self._keys[:, step])
            if moves is not None:
                pairs = zip(self._params, grads, strict=True)
                grads = [(g.reshape(runs, -1, *g.shape[1:]) * moves[name][:, None]).flatten(0, 1) for name, g in pairs]
            # The step size of every client; 0 for those that have finished, or only fill up.
            rates = self._rates * (self._counts[:, step] > 0)
            optimizer.step(moving, grads, [rates.reshape(-1, *[1] * (p.ndim - 1)) for p in moving])
        for layer in self._layers.values():
            layer.end()

    def updates(self, run: int, count: int) -> Tensor:
        """Δw of a run's clients, (count, n)."""
        mine, start = self.clients_of(run, count), self._start[run]
        update = start.new_empty(count, self._with.model.size)
        for name, value in self._params.items():
            place = self._with.model.places[name]
            torch.sub(value[mine].flatten(1), start[place], out=update[:, place])
        for name, factors in self._factors.items():
            factors.of(mine).write_change(update[:, self._with.model.places[name]], 1.0)
        return update

    def weighted_sum(self, run: int, counts: Tensor) -> Tensor:
        """Σ_k counts_k·Δw_k of a run's clients, without their updates."""
        mine = self.clients_of(run, len(counts))
        total = self._start[run] * -counts.sum()
        for name, value in self._params.items():
            total[self._with.model.places[name]] += counts @ value[mine].flatten(1)
        for name, factors in self._factors.items():
            factors.of(mine).write_sum(total[self._with.model.places[name]], counts, 1.0)
        return total


def _spread(values: np.ndarray, rows: np.ndarray, count: int) -> Tensor:
    """The values in these rows of so many; nothing (0) in the others."""
    whole = np.zeros((count, *values.shape[1:]), dtype=values.dtype)
    whole[rows] = values
    return torch.from_numpy(whole)


@dataclass(frozen=True)
class _TrainedRun:
    """A run's clients in a block. Their updates are put together only if each of them is asked for."""

    clients: np.ndarray
    num_records: np.ndarray
    block: _Block
    run: int

    @property
    def values(self) -> Tensor:
        return self.block.updates(self.run, len(self.clients))

    def weighted_sum(self, counts: Tensor) -> Tensor:
        return self.block.weighted_sum(self.run, counts)
