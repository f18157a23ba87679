"""A small federation with attackers in it, and what its clients send, computed without the code under test."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import laconic
from conftest import make_population, make_records
from laconic.adversary.attack import Attack
from laconic.clients.simulated import SimulatedClients
from laconic.data.population import PooledPopulation
from laconic.experiment.experiment import Experiment
from laconic.plan import RoundPlan
from laconic.planning import plan_round
from laconic.scheme import Scheme
from laconic.streams import Streams
from laconic.train.batches import batch_schedule
from laconic.train.local import LocalSGD

SIZES = [6, 9, 3, 12, 7, 5, 4, 8, 10, 11]
TRAIN: dict[str, Any] = {"local_lr": 0.3, "local_steps": 3, "batch_size": 4}
MALICIOUS = (2, 5, 9)


def linear() -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Linear(6, 3)


def experiment(scheme: Scheme, attack: Attack | None, **options: Any) -> Experiment:
    """Ten clients, all of them in every round, unless the options say otherwise."""
    defaults: dict[str, Any] = {
        "model": linear(),
        "population": make_population(SIZES),
        "sampler": laconic.FixedSize(cohort_size=10),
        "rounds": 3,
        "test": make_records(120, seed=1),
        "budget": laconic.Budget(delta=1e-5) if scheme.private else None,
        "workers": 1,
    }
    return Experiment(scheme=scheme, attack=attack, **(defaults | options))


def plan_of(clients: SimulatedClients, number: int = 1) -> RoundPlan:
    e = clients.experiment
    return plan_round(
        e.scheme,
        e.sampler,
        streams=clients.streams,
        round=number,
        num_clients=clients.num_clients,
        arrange=e.arrange,
        max_colluders=e.max_colluders,
        shared=clients.shared(),
    )


def sent(e: Experiment, number: int = 1) -> dict[int, Tensor]:
    """What every client of a round's cohort sends, from the initial weights."""
    clients = SimulatedClients(e)
    chunks = clients.work.codes(plan_of(clients, number), clients.model.initial)
    return {
        int(client): code.clone() for chunk in chunks for client, code in zip(chunk.clients, chunk.values, strict=True)
    }


def flat(model: nn.Linear) -> Tensor:
    return torch.cat([model.weight.detach().reshape(-1), model.bias.detach()])


def trained(
    inputs: Tensor,
    targets: Tensor,
    *,
    path: tuple[str | int, ...],
    sign: float = 1.0,
    lr: float = 0.3,
    batch: int = 4,
    steps: int = 3,
) -> Tensor:
    """Δw of plain SGD on a softmax regression, its gradient written out; `sign` −1 climbs."""
    model = linear()
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    key = np.array([Streams(0).key(*path) & (2**64 - 1)], dtype=np.uint64)
    train = LocalSGD(local_lr=lr, local_steps=steps, batch_size=batch)
    schedule = batch_schedule(train, np.array([len(targets)]), key)
    for step in range(steps):
        rows = schedule.indices[0, step][: schedule.counts[0, step]]
        x, y = inputs[rows], targets[rows]
        error = (torch.softmax(x @ weight.T + bias, 1) - functional.one_hot(y, 3)) / len(rows)
        weight -= sign * lr * error.T @ x
        bias -= sign * lr * error.sum(0)
    return torch.cat([weight.reshape(-1), bias]) - flat(model)


def pool(population: PooledPopulation, clients: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The records of several clients, one after another."""
    every = [population.records(client) for client in clients]
    return torch.cat([torch.as_tensor(r.inputs) for r in every]), torch.cat([r.targets for r in every])
