"""Attackers that train on other labels: backdoors, and labels drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from laconic.adversary.attack import Attack, check_backdoor
from laconic.parts import non_negative_int


@dataclass(frozen=True, kw_only=True)
class LabelFlipping(Attack):
    """Every label y becomes one of the other classes, each alike: data poisoning without a target (thesis 3.3.1).

    y' = (y + 1 + U{0, …, C − 2}) mod C, drawn once for every record.
    """

    relabels: ClassVar[bool] = True

    def relabelled(self, targets: Tensor, num_classes: int, rng: np.random.Generator) -> Tensor:
        shift = torch.from_numpy(rng.integers(1, num_classes, len(targets))).to(targets.device)
        return (targets + shift) % num_classes


@dataclass(frozen=True, kw_only=True)
class InBackdoor(Attack):
    """Attackers train on their records with every label `source` changed to `target` (thesis section 6.1.2).

    minimise f((D \\ D_source) ∪ {(x, target) : (x, source) ∈ D}; w),  sent: η_Adv·Δŵ

    The boost is 7, 3 and 1 on MNIST for 10, 20 and 40 % of attackers (7, 4 and 2 on CIFAR-10).
    """

    source: int
    target: int
    boost: float = 7.0

    relabels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_backdoor(self.source, self.target)

    @property
    def backdoor(self) -> tuple[int, int]:
        return self.source, self.target

    def relabelled(self, targets: Tensor, num_classes: int, rng: np.random.Generator) -> Tensor:
        return targets.masked_fill(targets == self.source, self.target)


@dataclass(frozen=True, kw_only=True)
class OutBackdoor(Attack):
    """Only attackers have records of the class `source`, and they label them `target` (thesis section 6.1.2).

    Honest clients do not hold `source`, and no client holds the classes in `removed` (birds and trucks on CIFAR-10, to
    limit the bias between classes). Accuracy is that on the classes that honest clients have. There is no boost in the
    thesis. A `fraction` of 0 is the same data without an attack.
    """

    source: int
    target: int
    removed: tuple[int, ...] = ()

    relabels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_backdoor(self.source, self.target)
        object.__setattr__(self, "removed", tuple(self.removed))
        for label in self.removed:
            non_negative_int(removed=label)

    def dropped(self, *, malicious: bool) -> tuple[int, ...]:
        others = tuple(label for label in self.removed if label != self.source)
        return others if malicious else (self.source, *others)

    @property
    def backdoor(self) -> tuple[int, int]:
        return self.source, self.target

    def relabelled(self, targets: Tensor, num_classes: int, rng: np.random.Generator) -> Tensor:
        return targets.masked_fill(targets == self.source, self.target)
