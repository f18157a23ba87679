"""The plain loop that anyone would write first: one client after the other, `torch.optim`, no privacy, no ledger.

python -m benchmarks.plain_loop DEVICE
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from torch.nn import functional

from benchmarks import workload as w1
from benchmarks.pacing import Pacer, serve


def main(device: str) -> None:
    torch.manual_seed(0)
    model = w1.cnn().to(device)
    clients = [(x.to(device), y.to(device)) for x, y in w1.clients(w1.CLIENTS)]
    rng = np.random.default_rng(0)

    def one_round() -> None:
        start = [p.detach().clone() for p in model.parameters()]
        total = [torch.zeros_like(p) for p in start]
        for client in rng.choice(len(clients), w1.COHORT, replace=False):
            with torch.no_grad():
                for parameter, value in zip(model.parameters(), start, strict=True):
                    parameter.copy_(value)
            optimizer = torch.optim.SGD(model.parameters(), lr=w1.LEARNING_RATE)
            inputs, targets = clients[client]
            for _ in range(w1.STEPS):
                optimizer.zero_grad()
                functional.cross_entropy(model(inputs), targets).backward()
                optimizer.step()
            with torch.no_grad():
                for sum_, parameter, value in zip(total, model.parameters(), start, strict=True):
                    sum_ += parameter - value
        with torch.no_grad():
            for parameter, value, sum_ in zip(model.parameters(), start, total, strict=True):
                parameter.copy_(value + sum_ / w1.COHORT)

    serve(one_round, Pacer(synchronize=torch.cuda.synchronize if device != "cpu" else lambda: None))


if __name__ == "__main__":
    main(sys.argv[1])
