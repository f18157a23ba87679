"""Noise in the place of an update."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from laconic.adversary.attack import Attack, Scene
from laconic.parts import positive


@dataclass(frozen=True, kw_only=True)
class RandomUpdate(Attack):
    """Δŵ_k ~ G(0, σ_Adv²·I), every attacker and every round anew (thesis section 6.1.1.1); no data, no training.

    `scale` is σ_Adv, 200 in the thesis. Attackers draw independently, unless they collude: then they send one vector.
    """

    collude: bool = False
    scale: float = 200.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(scale=self.scale)

    @property
    def trains(self) -> str:
        return "nothing"

    def forged(self, trained: Tensor, scene: Scene) -> Tensor:
        names = ["all"] if self.collude else scene.attackers.tolist()
        drawn = [scene.stream("update", name).normal((scene.size,), scene.device) for name in names]
        return torch.stack(drawn).mul_(self.scale)
