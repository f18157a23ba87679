"""Rounds of a linear layer for thousands of clients in a second, by their Gram matrices: what `laconic.run` does.

A client with records X (b, K+1) trains the layer W₀ by full batches. Its change is XᵀA with A (b, C): a step adds
−(η/b)·(softmax(X·W₀ + G·A) − Y) to A, where G = X·Xᵀ. So local steps need small matrices only, ‖XᵀA‖² is tr(AᵀGA), and
the sum of all clipped changes is one product. tests/benchmarks/test_advise.py compares it with `laconic.run`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from laconic.advice.question import LOCAL_LR, LOCAL_STEPS
from laconic.codecs.base import Identity
from laconic.data.population import Records
from laconic.plan import RoundPlan
from laconic.server.rules import Average, ServerRule
from laconic.server.steps import Preconditioned

_PLAN = RoundPlan(
    round=1,
    attempt=0,
    cohort=np.arange(1),
    planned_cohort=1,
    largest_cohort=1,
    run_seed=0,
    round_seed=0,
    fingerprint="",
)
"""Codes are whole updates, so nothing depends on the round."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What a run is told, besides the data."""

    rounds: int
    sampling_rate: float
    cap: int | None
    clip_norm: float
    server_lr: float
    momentum: float
    precondition: float | None = None
    mean_noise: float
    """Standard deviation of the noise in the mean, per weight."""

    def server_rule(self, classes: int) -> ServerRule:
        """The rule of the product."""
        if self.precondition is None:
            return Average(server_lr=self.server_lr, momentum=self.momentum)
        return Preconditioned(
            outputs=classes, damping=self.precondition, server_lr=self.server_lr, momentum=self.momentum
        )


class Heads:
    """Clients with as many records each, and those who judge."""

    def __init__(self, clients: Records, judge: Records, *, records: int, classes: int = 10) -> None:
        self._inputs, self._targets = _with_bias(clients.inputs), clients.targets
        self._judge, self._truth = _with_bias(judge.inputs), judge.targets
        self.clients, self._records, self._classes = len(self._targets) // records, records, classes
        each = self._inputs.view(self.clients, records, -1)
        self._gram = each @ each.transpose(1, 2)
        labels = torch.nn.functional.one_hot(self._targets, classes).float()
        self._labels = labels.view(self.clients, records, classes)

    def train(self, rule: Rule, seed: int) -> Tensor:
        """The final weights (K+1, C)."""
        rng = torch.Generator().manual_seed(seed)
        weights, taken = torch.zeros(self._inputs.shape[1], self._classes), torch.zeros(self.clients)
        size, step = weights.numel(), rule.server_rule(self._classes)
        state = step.init(size, size, torch.device("cpu"))
        for _ in range(rule.rounds):
            present = torch.rand(self.clients, generator=rng) < rule.sampling_rate
            if rule.cap is not None:
                present &= taken < rule.cap
            taken += present
            mean = self._sum(weights.half().float(), rule.clip_norm, present) / (rule.sampling_rate * self.clients)
            noise = torch.randn(weights.shape, generator=rng) * rule.mean_noise
            change, state = step.step(_flat(mean + noise), state, Identity(), size, _PLAN)
            weights = weights + _layer(change, self._classes)
        return weights

    def _sum(self, weights: Tensor, clip_norm: float, present: Tensor) -> Tensor:
        start = (self._inputs @ weights).view(self._labels.shape)
        change = torch.zeros_like(start)
        for _ in range(LOCAL_STEPS):
            wrong = torch.softmax(start + self._gram @ change, -1) - self._labels
            change = change - (LOCAL_LR / self._records) * wrong
        norms = (change * (self._gram @ change)).sum((1, 2)).clamp(min=1e-20).sqrt()
        scale = present * (clip_norm / norms).clamp(max=1.0)
        return self._inputs.T @ (change * scale[:, None, None]).view(-1, self._classes)

    def accuracy(self, weights: Tensor) -> float:
        return float(((self._judge @ weights).argmax(1) == self._truth).float().mean())


def _flat(layer: Tensor) -> Tensor:
    """(K+1, C) as a model has it: the rows of the layer, then its bias."""
    return torch.cat([layer[:-1].T.reshape(-1), layer[-1]])


def _layer(flat: Tensor, classes: int) -> Tensor:
    """The inverse of `_flat`."""
    return torch.cat([flat[:-classes].view(classes, -1).T, flat[None, -classes:]])


def _with_bias(inputs: Tensor) -> Tensor:
    return torch.cat([inputs, torch.ones(len(inputs), 1)], 1)
