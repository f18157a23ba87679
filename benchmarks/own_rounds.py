"""Rounds of networks as users write them: through `laconic.run`, with a plain loop, and with shared weights.

    python -m benchmarks.own_rounds '{"who": "laconic", "network": "resnet", "device": "cpu", "cohort": 10, "steps": 3}'

With shared weights, all records of a round are one batch and there is one set of weights: the same arithmetic without
federated learning. It is what a round cannot be much faster than, and no contender.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch
from torch.nn import functional

import laconic
from benchmarks.contest import Process, contest, module
from benchmarks.own_networks import NETWORKS, records
from benchmarks.paced import pacer_for, plain_round, run_while
from benchmarks.pacing import Pacer, serve
from benchmarks.settings import Settings
from laconic.data.population import PooledPopulation, Records
from laconic.train.flat import trainable_size

LEARNING_RATE, BATCH = 0.05, 10
WHO = ("laconic", "plain loop", "shared weights")


def suite(title: str, network: str, settings: Settings) -> dict[str, Any]:
    """A part of `python -m benchmarks`."""
    cohort, steps = (90, 5) if settings.on_gpu else (10, 5)
    if settings.quick:
        cohort, steps = 2, 1
    options = {"network": network, "device": settings.device, "cohort": cohort, "steps": steps}
    taking_part = [
        Process(
            f"{who} {network}" + (", auto" if who == "laconic" else ""), who, module("own_rounds", json.dumps(given))
        )
        for who in WHO
        for given in ({**options, "who": who},)
    ]
    return {
        "title": title,
        "about": f"{trainable_size(NETWORKS[network]()):,} weights of torch's own layers, {cohort} clients × {steps}"
        f" steps × batches of {BATCH}, SGD. Seconds a round, without evaluation. With *shared weights*, all clients'"
        " records are one batch: the same arithmetic without federated learning, for comparison.",
        "ours": taking_part[0].name,
        **contest(taking_part, repeats=settings.repeats, count=5 if settings.on_gpu else 1),
    }


def plain(network: str, pacer: Pacer, device: str, cohort: int, steps: int, *, shared: bool) -> None:
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True  # as Laconic does on a GPU
    model = NETWORKS[network]().to(device).train()
    size = cohort * BATCH if shared else BATCH
    inputs, targets = (t.to(device).split(size) for t in records(network, cohort * BATCH))

    serve(
        lambda: plain_round(
            model,
            lambda x, y: functional.cross_entropy(model(x), y),
            lambda: torch.optim.SGD(model.parameters(), lr=LEARNING_RATE),
            inputs,
            targets,
            steps,
        ),
        pacer,
    )


def through_laconic(network: str, pacer: Pacer, device: str, cohort: int, steps: int) -> None:
    torch.manual_seed(0)
    rows = np.arange(cohort * BATCH).reshape(cohort, BATCH)
    run_while(
        pacer.round_done,
        laconic.schemes.fl_std(local_lr=LEARNING_RATE, local_steps=steps, batch_size=BATCH),
        cohort=cohort,
        model=NETWORKS[network](),
        clients=PooledPopulation(Records(*records(network, cohort * BATCH)), rows),
        device=device,
    )


def main(who: str, network: str, device: str = "cpu", cohort: int = 10, steps: int = 5) -> None:
    pacer = pacer_for(device, warmups=1 if device == "cpu" else 3)  # as it is, recorded, replayed
    if who == "laconic":
        through_laconic(network, pacer, device, cohort, steps)
    else:
        plain(network, pacer, device, cohort, steps, shared=who == "shared weights")


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
