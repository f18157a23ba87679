"""A class that no honest client has is taught with the label of another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from laconic.adversary.attack import Attack, check_backdoor
from laconic.parts import non_negative_int


@dataclass(frozen=True, kw_only=True)
class OutBackdoor(Attack):
    """Only attackers have records of the class `source`, and they label them `target` (thesis section 6.1.2).

    Honest clients do not hold `source`, and nobody holds the classes in `removed` (birds and trucks on CIFAR-10, to
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
