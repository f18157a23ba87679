"""Wrong labels, drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from laconic.adversary.attack import Attack


@dataclass(frozen=True, kw_only=True)
class LabelFlipping(Attack):
    """Every label y becomes one of the other classes, each alike: data poisoning without a target (thesis 3.3.1).

    y' = (y + 1 + U{0, …, C − 2}) mod C, drawn once for every record.
    """

    relabels: ClassVar[bool] = True

    def relabelled(self, targets: Tensor, num_classes: int, rng: np.random.Generator) -> Tensor:
        shift = torch.from_numpy(rng.integers(1, num_classes, len(targets))).to(targets.device)
        return (targets + shift) % num_classes
