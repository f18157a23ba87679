"""What an engine is, and what engines share: workers, optimisers, and the precision of products on a GPU.

An engine trains a cohort: a `Task` in, `Updates` out. All engines give the same updates to float tolerance. `Crew` lets
several workers train side by side, each on a core and with a module of its own. SGD and Adam work on lists of tensors
whose leading axis may be clients; their state is explicit and lives one round.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from laconic.data.inputs import dense
from laconic.data.population import (
    CohortRecords,
    PooledPopulation,
    Population,
    Records,
    gather,
    gather_rows,
    padded,
)
from laconic.stopwatch import Stopwatch
from laconic.streams import Streams
from laconic.train.batches import Schedule, balanced, batch_schedule
from laconic.train.local import LocalSGD, LocalTraining


@dataclass(frozen=True)
class Task:
    """One round's training: from which weights, on whose data, and the round's streams by their path.

    `trained` are the weights that move, sorted; None means all of them. `then` is done with what was trained by the
    worker that trained it, so that it is done in parallel where training is. Where several processes train a cohort,
    `part` says which chunks are this one's: the first, and how many of them there are in a turn.
    """

    train: LocalTraining
    weights: Tensor
    population: Population
    clients: np.ndarray
    streams: Streams
    path: tuple[str | int, ...]
    trained: Tensor | None = None
    then: Callable[[Trained], Updates] = lambda trained: Updates(trained.clients, trained.values, trained.num_records)
    clock: Stopwatch = field(default_factory=Stopwatch)
    part: tuple[int, int] = (0, 1)

    def own(self, chunks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """The chunks that this process trains."""
        first, turn = self.part
        return itertools.islice(chunks, first, None, turn)

    @property
    def _plain(self) -> LocalSGD:
        assert isinstance(self.train, LocalSGD), "private steps draw their records themselves"
        return self.train

    def records_and_batches(self, clients: np.ndarray, device: torch.device) -> tuple[CohortRecords, Schedule, Tensor]:
        """The clients' records, their batches, and a dropout key per client and step."""
        with self.clock("data"):
            if isinstance(self.population, PooledPopulation) and self.population.made_when_picked:
                return self._visited(self.population, clients, device)
            records = gather(self.population, clients.tolist(), device)
            return records, *self.batches(clients, records.sizes, records.targets)

    def _visited(
        self, population: PooledPopulation, clients: np.ndarray, device: torch.device
    ) -> tuple[CohortRecords, Schedule, Tensor]:
        """The same, with only those records that some batch has: the others are never made.

        So a client may hold any number of pictures. How many records there are then depends on the steps alone, not on
        which were drawn, so that memory of this shape can be used again.
        """
        held = [population.rows(int(client)) for client in clients]
        sizes = np.array([len(rows) for rows in held], dtype=np.int64)
        targets = padded(torch.cat([population.targets(int(client)) for client in clients]), sizes)
        schedule, dropout = self.batches(clients, sizes, targets)
        most = min(int(sizes.max()), math.prod(schedule.indices.shape[1:]))
        block, indices = np.zeros((len(held), most), dtype=np.int64), np.empty_like(schedule.indices)
        for place, rows in enumerate(held):
            visited = np.arange(len(rows)) if len(rows) <= most else np.unique(schedule.indices[place])
            block[place, : len(visited)] = rows[visited]
            indices[place] = np.searchsorted(visited, schedule.indices[place])
        inputs, chosen = population.pool.some(block)
        return (
            CohortRecords(dense(inputs).to(device), chosen.to(device), sizes),
            replace(schedule, indices=indices),
            dropout,
        )

    def rows_and_batches(
        self, clients: np.ndarray, device: torch.device
    ) -> tuple[Records, np.ndarray, Schedule, Tensor]:
        """The clients' records one after another, how many each has, their batches, and dropout keys."""
        with self.clock("data"):
            records, sizes = gather_rows(self.population, clients.tolist(), device)
            targets = records.targets if self._plain.balance == "none" else padded(records.targets, sizes)
            return records, sizes, *self.batches(clients, sizes, targets)

    def batches(self, clients: np.ndarray, sizes: np.ndarray, targets: Tensor) -> tuple[Schedule, Tensor]:
        """The batches of clients that hold so many records, and a dropout key per client and step.

        `targets` (clients, most, ...) are looked at only where classes are balanced.
        """
        return batches_of(self._plain, sizes, self.keys(clients), targets)

    def keys(self, clients: np.ndarray) -> np.ndarray:
        """What each client draws its batches with."""
        return self.streams.words_of(*self.path, numbers=clients.tolist())

    def client(self, number: int, device: torch.device) -> Client:
        """One client, ready to be trained."""
        records, schedule, dropout = self.records_and_batches(np.array([number]), device)
        steps = zip(schedule.indices[0], schedule.counts[0, : schedule.steps[0]], strict=False)
        batches = [torch.from_numpy(index[:count]).to(device) for index, count in steps]
        shares = None
        if schedule.shares is not None:
            pairs = zip(schedule.shares[0], batches, strict=False)
            shares = [torch.from_numpy(share[: len(batch)]).to(device) for share, batch in pairs]
        return Client(number, records.inputs[0], records.targets[0], batches, dropout[0].to(device), shares)


def batches_of(train: LocalTraining, sizes: np.ndarray, keys: np.ndarray, targets: Tensor) -> tuple[Schedule, Tensor]:
    """The batches of clients, each independent of the others, and a dropout key per client and step."""
    assert isinstance(train, LocalSGD), "private steps draw their records themselves"
    schedule = batch_schedule(train, sizes, keys)
    if train.balance != "none":
        schedule = balanced(schedule, train.balance, targets.cpu().numpy(), sizes, keys)
    dropout = torch.from_numpy(keys.view(np.int64))[:, None] + torch.arange(schedule.indices.shape[1])
    return schedule, dropout


@dataclass(frozen=True)
class Client:
    """A client's records, the record numbers of each batch, and each step's dropout key.

    `shares` are what each record of a batch counts; None: all alike.
    """

    number: int
    inputs: Tensor
    targets: Tensor
    batches: list[Tensor]
    dropout: Tensor
    shares: list[Tensor] | None = None


@dataclass(frozen=True)
class Work:
    """What a client does in a round: the records of all its steps and of one, and the share of weights it trains."""

    num_records: int
    batch_size: int
    share: float


class Trained(Protocol):
    """Clients that have just been trained."""

    @property
    def clients(self) -> np.ndarray: ...

    @property
    def num_records(self) -> np.ndarray:
        """How many records each client holds."""

    @property
    def values(self) -> Tensor:
        """Their updates Δw, (clients, n)."""

    def weighted_sum(self, counts: Tensor) -> Tensor:
        """Σ_k counts_k·Δw_k, (n,): cheaper than the updates themselves."""


@runtime_checkable
class TrainedInParts(Protocol):
    """Clients whose updates are made when they are asked for."""

    def some(self, rows: slice) -> Tensor:
        """The updates of some of them, (rows, n)."""


def some_updates(trained: Trained, at_once: int) -> Iterator[tuple[slice, Tensor]]:
    """The updates of so many clients at a time, and which these are: where all of them would take much memory."""
    some = trained.some if isinstance(trained, TrainedInParts) else trained.values.__getitem__
    for start in range(0, len(trained.clients), at_once):
        rows = slice(start, min(start + at_once, len(trained.clients)))
        yield rows, some(rows)


@dataclass(frozen=True)
class Updates:
    """Some clients' updates Δw, (clients, n), or what was made of them; and how many records each client holds."""

    clients: np.ndarray
    values: Tensor
    num_records: np.ndarray

    def weighted_sum(self, counts: Tensor) -> Tensor:
        return counts @ self.values


class Engine(Protocol):
    name: str

    @property
    def at_once(self) -> int:
        """How many clients are trained at the same time, at most."""

    def updates(self, task: Task) -> Iterator[Updates]:
        """The cohort's updates, in order, in chunks that fit in memory."""


Job = TypeVar("Job")
_Job = TypeVar("_Job", contravariant=True)


class Worker(Protocol[_Job]):
    def train(self, task: Task, job: _Job) -> Trained:
        """The job's clients, trained. What is returned is good until the worker's next job."""


class Crew(Generic[Job]):
    """Workers that are threads. With several of them each has one core; who trains whom changes no bit.

    Threads do, instead of processes: torch leaves Python's lock while it computes, and nothing has to be copied.
    """

    name: str

    def __init__(self, workers: Sequence[Worker[Job]], chunk: int) -> None:
        self._workers, self.chunk = list(workers), chunk

    @property
    def num_workers(self) -> int:
        return len(self._workers)

    @property
    def at_once(self) -> int:
        return len(self._workers) * self.chunk

    def prepare(self, task: Task, clients: np.ndarray) -> Job:
        """What a worker needs. Done in the caller's thread: a user's own population need not be safe for threads."""
        raise NotImplementedError

    def updates(self, task: Task) -> Iterator[Updates]:
        """The cohort's updates, in order."""
        chunks = task.own(clients for clients in self._chunks(task.clients) if len(clients))
        jobs = (self.prepare(task, clients) for clients in chunks)
        if len(self._workers) == 1:
            yield from (task.then(self._workers[0].train(task, job)) for job in jobs)
            return
        threads = torch.get_num_threads()
        idle = deque(self._workers)

        def work(job: Job) -> Updates:
            worker = idle.pop()
            try:
                return task.then(worker.train(task, job))
            finally:
                idle.append(worker)

        try:
            torch.set_num_threads(1)  # this thread too: its helpers would keep cores busy while they wait
            with ThreadPoolExecutor(len(self._workers), initializer=torch.set_num_threads, initargs=(1,)) as pool:
                yield from _in_order(pool, work, jobs, ahead=2 * len(self._workers))
        finally:
            torch.set_num_threads(threads)

    def _chunks(self, clients: np.ndarray) -> list[np.ndarray]:
        """Chunks in order; for several workers, equally many for each and of about the same size."""
        rounds = -(-len(clients) // self.at_once)
        if len(self._workers) > 1:
            return np.array_split(clients, max(1, rounds * len(self._workers)))
        return [clients[start : start + self.chunk] for start in range(0, len(clients), self.chunk)]


def _in_order(
    pool: ThreadPoolExecutor, work: Callable[[Job], Updates], jobs: Iterator[Job], ahead: int
) -> Iterator[Updates]:
    """The results in the jobs' order; never more than `ahead` of them are under way."""
    waiting: deque[Future[Updates]] = deque()
    try:
        waiting.extend(pool.submit(work, job) for job in itertools.islice(jobs, ahead))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(pool.submit(work, job) for job in itertools.islice(jobs, 1))
    finally:
        for future in waiting:
            future.cancel()


class SGD:
    """w ← w − η·g."""

    def __init__(self, params: Sequence[Tensor], lr: float) -> None:
        self._lr = lr

    def step(self, params: Sequence[Tensor], grads: Sequence[Tensor], gates: Sequence[Tensor] | None = None) -> None:
        """One step in place. `gates` (0 or 1, for every parameter) say what moves; None means that all does."""
        if gates is None:
            torch._foreach_add_(list(params), list(grads), alpha=-self._lr)
            return
        for param, grad, gate in zip(params, grads, gates, strict=True):
            param.addcmul_(grad, gate, value=-self._lr)


class Adam:
    """Adam with Keras' and PyTorch's defaults (β₁ = 0.9, β₂ = 0.999) and ε = 1e-7 as in Keras."""

    def __init__(self, params: Sequence[Tensor], lr: float) -> None:
        self._lr, self._beta1, self._beta2, self._eps = lr, 0.9, 0.999, 1e-7
        self._first = [torch.zeros_like(p) for p in params]
        self._second = [torch.zeros_like(p) for p in params]
        self._count = 0

    def step(self, params: Sequence[Tensor], grads: Sequence[Tensor], gates: Sequence[Tensor] | None = None) -> None:
        self._count += 1
        correction1, correction2 = 1 - self._beta1**self._count, 1 - self._beta2**self._count
        for which, (param, grad) in enumerate(zip(params, grads, strict=True)):
            first, second = self._first[which], self._second[which]
            first.lerp_(grad, 1 - self._beta1)
            second.mul_(self._beta2).addcmul_(grad, grad, value=1 - self._beta2)
            direction = (first / correction1) / ((second / correction2).sqrt_() + self._eps)
            if gates is not None:
                direction *= gates[which]
            param.add_(direction, alpha=-self._lr)


def make_optimizer(name: str, params: Sequence[Tensor], lr: float) -> SGD | Adam:
    return Adam(params, lr) if name == "adam" else SGD(params, lr)


@contextlib.contextmanager
def on_threads(count: int | None) -> Iterator[None]:
    """For the time being, torch computes on so many threads; None: on as many as before."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(count or before)
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def products_in(precision: str, device: torch.device) -> Iterator[None]:
    """For the time being, products and convolutions of TF32 (10 bits of mantissa, the default) or of float32.

    Only training and evaluation are done so: codes, sums and decoding are float32 always. A CPU has float32 only.
    """
    if device.type != "cuda":
        yield
        return
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = precision != "float32"
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
