"""Rounds of the thesis' larger networks: through `laconic.run`, or with the plain loop that anyone would write first.

    python -m benchmarks.network_rounds '{"who": "laconic", "network": "cnn-lstm", "device": "cpu", "cohort": 8}'

The plain loop has torch's own layers (its LSTM has a second bias and logistic gates) and `torch.optim.Adam`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import laconic
from benchmarks.contest import Process, module
from benchmarks.paced import pacer_for, plain_round, run_while
from benchmarks.pacing import Pacer, serve
from laconic.data.population import PooledPopulation, Records
from laconic.models.registry import build_model

LEARNING_RATE = 0.001


@dataclass(frozen=True)
class Work:
    """A network, and what each client of a round does with it."""

    network: str
    shape: tuple[int, ...]
    classes: int
    batch: int

    def records(self, clients: int) -> tuple[Tensor, Tensor]:
        """Made up: what they hold does not matter for the time."""
        generator = torch.Generator().manual_seed(0)
        count = clients * self.batch
        targets = torch.randint(0, self.classes, (count,), generator=generator)
        if len(self.shape) == 1:
            return torch.randint(1, 5000, (count, *self.shape), generator=generator), targets
        return torch.rand((count, *self.shape), generator=generator), targets


WORKS = {
    "cnn-lstm": Work("cnn-lstm", (400,), 2, batch=25),
    "all-cnn-c": Work("all-cnn-c", (3, 32, 32), 10, batch=50),
}


def contenders(network: str, device: str, *, cohort: int, steps: int, batch: int | None = None) -> list[Process]:
    """Laconic with its own choice of engine, and the plain loop, for the same work."""
    options = {"network": network, "device": device, "cohort": cohort, "steps": steps, "batch": batch}
    return [
        Process(name, group, module("network_rounds", json.dumps(options | {"who": group})))
        for name, group in ((f"laconic {network}, auto", "laconic"), (f"plain loop {network}", "plain loop"))
    ]


class PlainText(nn.Module):
    """The CNN-LSTM of torch's own layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.convolution = nn.Embedding(5000, 50), nn.Conv1d(50, 250, 5)
        self.lstm, self.output = nn.LSTM(250, 70, batch_first=True), nn.Linear(70, 1)

    def forward(self, words: Tensor) -> Tensor:
        seen = functional.max_pool1d(functional.relu(self.convolution(self.words(words).transpose(1, 2))), 3)
        return self.output(self.lstm(seen.transpose(1, 2))[0][:, -1]).squeeze(-1)


def plain(work: Work, pacer: Pacer, device: str, cohort: int, steps: int) -> None:
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True  # as Laconic does on a GPU
    own = build_model(work.network, input_shape=work.shape, num_classes=work.classes, seed=0)
    model = (PlainText() if work.network == "cnn-lstm" else own).to(device)
    inputs, targets = (t.to(device).split(work.batch) for t in work.records(cohort))

    def loss(x: Tensor, y: Tensor) -> Tensor:
        if work.classes == 2:
            return functional.binary_cross_entropy_with_logits(model(x), y.float())
        return functional.cross_entropy(model(x), y)

    def optimizer() -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)

    serve(lambda: plain_round(model, loss, optimizer, inputs, targets, steps), pacer)


def through_laconic(work: Work, pacer: Pacer, device: str, cohort: int, steps: int) -> None:
    rows = np.arange(cohort * work.batch).reshape(cohort, work.batch)
    run_while(
        pacer.round_done,
        laconic.schemes.fl_std(local_lr=LEARNING_RATE, local_steps=steps, batch_size=work.batch, optimizer="adam"),
        cohort=cohort,
        model=build_model(work.network, input_shape=work.shape, num_classes=work.classes, seed=0),
        clients=PooledPopulation(Records(*work.records(cohort)), rows),
        device=device,
    )


def main(
    who: str, network: str, device: str = "cpu", cohort: int = 8, steps: int = 5, batch: int | None = None
) -> None:
    work = WORKS[network]
    if batch is not None:
        work = Work(work.network, work.shape, work.classes, batch)
    pacer = pacer_for(device, warmups=1 if device == "cpu" else 3)  # as it is, recorded, replayed
    (plain if who == "plain loop" else through_laconic)(work, pacer, device, cohort, steps)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
