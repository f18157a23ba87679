"""Updates made to pass rules that look at single codes: none of them leaves the honest spread."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

from torch import Tensor

from laconic.adversary.attack import Attack, Scene, check_together
from laconic.parts import positive


@dataclass(frozen=True, kw_only=True)
class LittleIsEnough(Attack):
    """Δŵ = μ − z·s, coordinate by coordinate (Baruch, Baruch and Goldberg, 2019).

    μ and s are mean and standard deviation of the attackers' own honest updates, which stand for all. z is the
    largest for which enough honest clients are farther from μ than the attackers: with n in the expected cohort, m
    attackers, v = ⌊n/2 + 1⌋ − m honest ones are needed for a majority, and Φ(z) = (n − m − v)/(n − m). `scale` is z, if
    it is given.
    """

    scale: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_together(self)
        if self.scale is not None:
            positive(scale=self.scale)

    @property
    def trains(self) -> str:
        return "each"

    def forged(self, trained: Tensor, scene: Scene) -> Tensor:
        z = self.scale if self.scale is not None else largest_z(round(scene.planned_cohort), len(scene.attackers))
        mean, spread = trained.mean(0, keepdim=True), trained.std(0, correction=0, keepdim=True)
        return mean - z * spread


def largest_z(cohort: int, attackers: int) -> float:
    """z for so many attackers in a cohort; 0 where hardly any honest client is there."""
    honest = cohort - attackers
    needed = max(1, cohort // 2 + 1 - attackers)
    share = (honest - needed) / honest if honest else 0.0
    return max(0.0, NormalDist().inv_cdf(share)) if 0 < share < 1 else 0.0


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
