"""Inner-product manipulation: against the honest direction, and no longer than an honest update."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from laconic.adversary.attack import Attack, Scene, check_together
from laconic.parts import positive


@dataclass(frozen=True, kw_only=True)
class InnerProduct(Attack):
    """Δŵ = −ε·μ with μ the mean of the attackers' own honest updates (Xie, Koyejo and Gupta, 2019).

    A mean turns round if ε > (n − m)/m for m attackers among n; a rule that looks at single codes may be turned by a
    small ε, since what the attackers send lies among the honest updates. `scale` is ε.
    """

    scale: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_together(self)
        positive(scale=self.scale)

    @property
    def trains(self) -> str:
        return "each"

    def forged(self, trained: Tensor, scene: Scene) -> Tensor:
        return -self.scale * trained.mean(0, keepdim=True)
