"""A class that honest clients have, too, is taught with another label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from laconic.adversary.attack import Attack, check_backdoor


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
