"""W1, the papers' workload: the CNN for Fashion-MNIST, 100 clients a round, five steps on batches of ten.

Shared by all contenders, so nothing but numpy and torch is imported.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

CLIENTS, COHORT, RECORDS, STEPS, LEARNING_RATE = 6000, 100, 10, 5, 0.05
# Small enough that the weights stay finite however many rounds are timed; the time of a round does not depend on them.
CLIP_NORM, NOISE_MULTIPLIER, DELTA = 0.01, 1.54, 1e-5


def cnn() -> nn.Sequential:
    """1,663,370 weights: two 5×5 convolutions with max pooling, 512 units, ten classes (thesis section 8.3.1)."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


def mlp(weights: int) -> nn.Sequential:
    """784-h-h-10 with about so many weights: h² + 796·h + 10 = n."""
    hidden = max(1, round((-796 + (796**2 + 4 * (weights - 10)) ** 0.5) / 2))
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
    )


def images(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Records shaped as Fashion-MNIST's: ten classes of grey pictures, a mean each and noise."""
    rng = np.random.default_rng(seed)
    means = np.random.default_rng(1).random((10, 1, 28, 28), dtype=np.float32)
    labels = rng.integers(10, size=count)
    pictures = rng.random((count, 1, 28, 28), dtype=np.float32)
    pictures += means[labels]
    pictures *= 0.5
    return torch.from_numpy(pictures), torch.from_numpy(labels)


def clients(number: int) -> list[tuple[Tensor, Tensor]]:
    """A pair (inputs, targets) per client."""
    inputs, targets = images(number * RECORDS)
    return list(zip(inputs.split(RECORDS), targets.split(RECORDS), strict=True))
