"""How a model does by class: which class its records are taken for, and what an attack makes of that."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from laconic.adversary.attack import Attack

CHANCE = 0.015
"""A best accuracy no farther than this above the share of the largest class: nothing was learnt."""


class Confusion:
    """Counts of (class, predicted class), batch by batch."""

    def __init__(self, num_classes: int) -> None:
        self._counts: Tensor | int = 0
        self._num_classes = num_classes

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        predicted = outputs.argmax(1) if outputs.ndim == 2 else (outputs > 0).to(torch.int64)
        pairs = targets * self._num_classes + predicted
        self._counts = self._counts + torch.bincount(pairs, minlength=self._num_classes**2)

    @property
    def shares(self) -> list[list[float | None]]:
        """Of each class, the share that is taken for each; None for a class without records."""
        if isinstance(self._counts, int):
            return []
        counts = self._counts.reshape(self._num_classes, -1).double()
        found = (counts / counts.sum(1, keepdim=True)).tolist()
        return [[None if share != share else share for share in row] for row in found]

    def metrics(self, attack: Attack) -> dict[str, Any]:
        """The accuracy of every class; of the attacked one; and of the attack, the share taken for its target."""
        shares = self.shares
        if not shares:
            return {}
        found: dict[str, Any] = {"class_accuracies": [row[label] for label, row in enumerate(shares)]}
        if attack.backdoor is not None:
            source, target = attack.backdoor
            found |= {"class_accuracy": shares[source][source], "attack_accuracy": shares[source][target]}
        return found


def majority_rate(targets: Tensor) -> float:
    """The accuracy of always saying the same: the share of the largest class."""
    return float(torch.bincount(targets).max()) / len(targets)


def last_rounds(history: list[dict[str, Any]], count: int = 10) -> dict[str, Any]:
    """Minimum and mean of each metric over the last rounds that have it: the best round hides what oscillates."""
    found: dict[str, Any] = {}
    for name in ("accuracy", "class_accuracy", "attack_accuracy"):
        values = [row[name] for row in history if row.get(name) is not None][-count:]
        if values:
            found[name] = {"min": min(values), "mean": sum(values) / len(values), "rounds": len(values)}
    return found
