"""Several workers side by side: each trains some clients, on a core and with a module of its own."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch

from laconic.train.engines.engine import Task, Trained, Updates

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
