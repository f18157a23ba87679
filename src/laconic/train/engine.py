"""Training a cohort: one client after another, or all at once. Both give the same updates to float tolerance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vmap

from laconic.data.population import CohortRecords, Population, gather
from laconic.errors import ConfigError
from laconic.streams import Streams
from laconic.train.flat import FlatModel
from laconic.train.local import LocalSGD
from laconic.train.optimizers import make_optimizer
from laconic.train.schedule import Schedule, batch_schedule

_SMALL = 50_000  # below this many weights, Python costs a CPU more than arithmetic does
ENGINES = ("auto", "one-by-one", "cohort", "sparse-first")


@dataclass(frozen=True)
class Task:
    """One round's training: from which weights, on whose data, and the round's streams by their path.

    `trained` is a 0/1 mask (n,) of the weights that move; None means all of them.
    """

    train: LocalSGD
    weights: Tensor
    population: Population
    clients: np.ndarray
    streams: Streams
    path: tuple[str | int, ...]
    trained: Tensor | None = None

    def records_and_batches(self, clients: np.ndarray, device: torch.device) -> tuple[CohortRecords, Schedule, Tensor]:
        """The clients' records, their batches, and a dropout key per client and step."""
        records = gather(self.population, clients.tolist(), device)
        return records, *self.batches(clients, records.sizes, device)

    def batches(self, clients: np.ndarray, sizes: np.ndarray, device: torch.device) -> tuple[Schedule, Tensor]:
        """The batches of clients that hold so many records, and a dropout key per client and step."""
        keys = np.array([self.streams.key(*self.path, int(c)) & (2**64 - 1) for c in clients], dtype=np.uint64)
        schedule = batch_schedule(self.train, sizes, keys)
        dropout = torch.from_numpy(keys.view(np.int64))[:, None] + torch.arange(schedule.indices.shape[1])
        return schedule, dropout.to(device)


@dataclass(frozen=True)
class Updates:
    """Some clients' updates Δw, (clients, n), and how many records each trained on."""

    clients: np.ndarray
    updates: Tensor
    num_records: np.ndarray


class Engine(Protocol):
    name: str

    def updates(self, task: Task) -> Iterator[Updates]:
        """The cohort's updates, in order, in chunks that fit in memory."""


class OneByOne:
    """Each client in turn, on flat weights and gradients. Works for any module; the default on a CPU."""

    name = "one-by-one"

    def __init__(self, model: FlatModel, device: torch.device) -> None:
        self._model, self._device = model, device

    def updates(self, task: Task) -> Iterator[Updates]:
        flat = torch.empty(self._model.size, device=self._device)
        gradient = torch.zeros_like(flat)
        named = dict(self._model.module.named_parameters())
        params = [named[name] for name in self._model.names]
        before = [p.data for p in params]
        for param, value, slope in zip(params, self._model.split(flat), self._model.split(gradient), strict=True):
            param.data, param.grad = value, slope
        try:
            for client in task.clients:
                with torch.random.fork_rng(devices=[self._device] if self._device.type == "cuda" else []):
                    some = self._one(task, client, flat, gradient)
                yield some
        finally:
            for param, value in zip(params, before, strict=True):
                param.data, param.grad = value, None

    def _one(self, task: Task, client: int, flat: Tensor, gradient: Tensor) -> Updates:
        records, schedule, dropout = task.records_and_batches(np.array([client]), self._device)
        module = self._model.module.train()
        torch.manual_seed(int(dropout[0, 0]) & (2**63 - 1))  # for a model that draws random numbers on its own
        flat.copy_(task.weights)
        optimizer = make_optimizer(task.train.optimizer, [flat], task.train.local_lr)
        for step in range(int(schedule.steps[0])):
            index = torch.from_numpy(schedule.indices[0, step, : schedule.counts[0, step]]).to(self._device)
            self._model.set_dropout_key(dropout[0, step])
            gradient.zero_()
            outputs = module(records.inputs[0, index])
            self._model.loss(outputs, records.targets[0, index]).mean().backward()  # type: ignore[no-untyped-call]
            if task.trained is not None:
                gradient.mul_(task.trained)
            optimizer.step([flat], [gradient], None)
        self._model.check_constants()
        return Updates(np.array([client]), (flat - task.weights)[None], records.sizes)


class CohortAtOnce:
    """Many clients at once: one vectorised gradient (`torch.func`) per local step. The default on a GPU."""

    name = "cohort"

    def __init__(self, model: FlatModel, device: torch.device, *, chunk: int | None = None) -> None:
        self._model, self._device = model, device
        self.chunk = chunk or _chunk_for(model.size, device)
        # randomness="error": a draw inside the model would differ between engines, so it is refused.
        self._gradient = vmap(grad(model.mean_loss), randomness="error")

    def updates(self, task: Task) -> Iterator[Updates]:
        for start in range(0, len(task.clients), self.chunk):
            yield self._some(task, task.clients[start : start + self.chunk])

    def _some(self, task: Task, clients: np.ndarray) -> Updates:
        records, schedule, dropout = task.records_and_batches(clients, self._device)
        indices = torch.from_numpy(schedule.indices).to(self._device)
        counts = torch.from_numpy(schedule.counts).to(self._device)
        batch = torch.arange(indices.shape[-1], device=self._device)
        weight = (batch < counts[:, :, None]) / counts[:, :, None].clamp(min=1)  # mean over the real records
        rows = torch.arange(len(clients), device=self._device)[:, None]
        finished = bool((schedule.steps < indices.shape[1]).any())

        self._model.module.train()
        params = [p.expand(len(clients), *p.shape).clone() for p in self._model.split(task.weights)]
        masks = None if task.trained is None else self._model.split(task.trained)
        optimizer = make_optimizer(task.train.optimizer, params, task.train.local_lr)
        for step in range(indices.shape[1]):
            inputs, targets = records.inputs[rows, indices[:, step]], records.targets[rows, indices[:, step]]
            grads = self._gradient(params, inputs, targets, weight[:, step], dropout[:, step])
            if masks is not None:
                grads = [g * m for g, m in zip(grads, masks, strict=True)]
            active = (counts[:, step] > 0).to(params[0].dtype) if finished else None
            optimizer.step(params, grads, active)
        self._model.check_constants()
        return Updates(clients, self._model.join(params, lead=1).sub_(task.weights), records.sizes)


def choose_engine(
    name: str,
    model: FlatModel,
    device: torch.device,
    example: tuple[Tensor, Tensor],
    chunk: int | None = None,
    *,
    sparse: bool = False,
) -> Engine:
    """The named engine; 'auto' takes the cohort at once on a GPU or for a small model, if the model allows it.

    For sparse records, 'auto' takes the engine that reads them as they are, if the model allows that.
    """
    if name == "sparse-first" or (name == "auto" and sparse):
        engine = _sparse_engine(model, device, chunk, sparse)
        if not isinstance(engine, str):
            return engine
        if name == "sparse-first":
            raise ConfigError(f"--engine sparse-first cannot train this ({engine}): use --engine auto")
    large = device.type == "cpu" and model.size > _SMALL
    if name == "one-by-one" or (name == "auto" and large):
        return OneByOne(model, device)
    engine = CohortAtOnce(model, device, chunk=chunk)
    problem = _vectorising_problem(engine, model, example, device)
    if problem is None:
        return engine
    if name == "cohort":
        raise ConfigError(
            f"the model cannot be trained for a whole cohort at once ({problem}): use --engine one-by-one"
        )
    return OneByOne(model, device)


def _sparse_engine(model: FlatModel, device: torch.device, chunk: int | None, sparse: bool) -> Engine | str:
    """The engine for sparse records, or why it cannot be taken."""
    from laconic.train.sparse_first import SparseFirst

    if not sparse:
        return "the records are dense"
    first = model.first_linear
    return first if isinstance(first, str) else SparseFirst(model, first, device, chunk=chunk)


def _vectorising_problem(
    engine: CohortAtOnce, model: FlatModel, example: tuple[Tensor, Tensor], device: torch.device
) -> str | None:
    """Why the model's gradient cannot be vectorised over clients, found by trying on two copies of one record."""
    inputs, targets = (torch.stack([t[:1], t[:1]]).to(device) for t in example)
    params = [p.expand(2, *p.shape) for p in model.split(model.initial)]
    try:
        model.module.train()
        engine._gradient(
            params, inputs, targets, torch.ones(2, 1, device=device), torch.zeros(2, dtype=torch.int64, device=device)
        )
    except RuntimeError as error:
        return str(error).splitlines()[0]
    model.check_constants()
    return None


def _chunk_for(size: int, device: torch.device) -> int:
    """How many clients at once: weights, gradients, and temporaries of that order, in a share of the memory."""
    memory = torch.cuda.get_device_properties(device).total_memory // 2 if device.type == "cuda" else 1 << 30
    return int(max(1, min(1024, memory // (size * 4 * 6))))
